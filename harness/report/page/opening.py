"""A leaderboard as the view that a page opens with, written as the page's own URL fragment."""

from __future__ import annotations

from urllib.parse import urlencode

from harness.errors import UsageError
from harness.leaderboard import Asked
from harness.place import Place
from harness.report.page import groups

# What a page's sliders weigh, in its own order.
_WEIGHED = ("accuracy", "cost", "latency")


def check(asked: Asked) -> None:
    """Whether a page can show what was asked for.

    Raises:
        UsageError: it cannot; names the option.
    """
    others = {name for name, weight in asked.weights.items() if weight} - set(_WEIGHED)
    for option, given in (
        ("--weights", others),
        ("--amrs", set(asked.amrs) - set(_WEIGHED)),
        ("--at-most or --at-least", asked.bounds),
        ("--rank-by", asked.rank_by),
        ("--cutoff", asked.cutoff is not None),
    ):
        if given:
            raise UsageError(
                f"--format html weighs accuracy, cost and latency, with a cut-off of its own; leave {option} out, "
                "or take another --format"
            )


def fragment(asked: Asked, where: Place) -> str:
    """The fragment of the view that shows a leaderboard's rows, measure, weights, mode and fixed rates."""
    chosen = {
        "g": groups.ident(where),
        "m": asked.measure,
        "w": ",".join(f"{asked.weights.get(name, 0.0):.3f}" for name in _WEIGHED),
        "mode": asked.mode,
        **{f"r{name}": repr(rate) for name, rate in asked.amrs.items()},
    }
    return urlencode(chosen)
