"""What moves a leaderboard, as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Sequence

from harness.analysis.robustness import Condition, RankedSystem, Robustness
from harness.report import writer
from harness.report.csv_json import written
from harness.report.markdown import escape, grid
from harness.report.sheet import MISSING

FORMATS = ("md", "csv", "json")
# Version of the JSON.
ROBUSTNESS_VERSION = 1
# So many standard errors on either side hold 95 %.
_Z = 1.959963984540054
# A matrix of more systems than these is no table that people read.
_MOST_SYSTEMS = 15


def render(found: Sequence[Robustness], format: str) -> str:
    """Write what was found of some leaderboards.

    Raises:
        UnknownName: there is no such format.
    """
    return writer({"md": _markdown, "csv": _csv, "json": _json}, format)(found)


METHOD = (
    "A pair flips where its order is not that of the leaderboard; a tie counts half, so 50 % is a toss of a coin. "
    "Pairs that are equal on the leaderboard have no order to lose.",
    "± points: other draws, by another --seed, would give shares that differ by chance; within so many points (95 %) "
    "lies a share that is near 50 %, and closer one near 0 or 100 %. Four times as many halve it.",
    "Other queries: these, drawn with replacement, the same ones for all systems. Fewer judgements: relevant ones "
    "(grade above 0) are kept at random and all others dropped, or a share of all is kept at random; a query that "
    "keeps none is out of that draw's mean. Another measure: by it, over resampled queries.",
    "Kendall's tau-b with the leaderboard: 1 is the same order, -1 the reverse; mean over draws, least and largest; of "
    "another measure first what it is over all queries.",
)


def _markdown(found: Sequence[Robustness]) -> str:
    parts = ["\n".join(_one(each)).rstrip() for each in found]
    return "\n\n".join((*parts, "\n".join(f"- {note}" for note in METHOD))) + "\n"


def _one(each: Robustness) -> list[str]:
    measure = escape(each.measure)
    lines = [f"**{escape(each.dataset)}, by {measure}, {each.queries:,} judged queries**", ""]
    standings = [_standing(number, line) for number, line in enumerate(each.standings, start=1)]
    headers = (
        "",
        "system",
        each.measure,
        "rank",
        "rank (95 % of resamples)",
        "first with other queries",
    )
    lines += grid(headers, (True, False, True, True, True, True), standings, padded=True)
    conditions = [_condition(each, line) for line in each.conditions]
    headed = ("what is other", "draws", "± points (95 %)", "tau", "pairs that flip in 5 % of draws", "what flips most")
    lines += ["", *grid(headed, (False, True, True, True, True, False), conditions, padded=True)]
    if len(each.systems) <= _MOST_SYSTEMS:
        for condition in each.conditions:
            if condition.flips:
                lines += ["", *_matrix(each, condition)]
    else:
        lines += ["", f"The {len(each.systems):,} systems' matrices are in --format csv and json, and in the picture."]
    return [*lines, "", *(f"- {escape(note)}" for note in each.notes)]


def _standing(number: int, each: RankedSystem) -> tuple[str, ...]:
    span = MISSING
    if each.low is not None and each.high is not None:
        span = f"{each.low:g}" if each.low == each.high else f"{each.low:g} to {each.high:g}"
    first = MISSING if each.first is None else f"{each.first:.0%}"
    return str(number), escape(each.system), f"{each.value:.4f}", f"{each.rank:g}", span, first


def name(each: Condition) -> str:
    """What a condition is called."""
    return f"{each.cause.value}: {each.name}"


def _condition(board: Robustness, each: Condition) -> tuple[str, ...]:
    if not each.flips:
        return escape(name(each)), MISSING, MISSING, MISSING, MISSING, escape(each.reason or "")
    pairs = [
        (share, one, other)
        for one, line in enumerate(each.flips)
        for other, share in enumerate(line[:one])
        if share is not None
    ]
    often = sum(share >= 0.05 for share, _, _ in pairs)
    share, one, other = max(pairs, default=(0.0, 0, 0), key=lambda pair: pair[0])
    both = f"{escape(board.systems[other])} and {escape(board.systems[one])}"
    most = f"{both}: {percent(share)} %" if share else "none"
    error = share_error(each.draws)
    shown = MISSING if error is None else f"{100 * error:.2g}"
    return escape(name(each)), f"{each.draws:,}", shown, _tau(each), f"{often:,} of {len(pairs):,}", most


def _tau(each: Condition) -> str:
    """``0.87 (0.33 to 1.00)``; of another measure what it is over all queries first."""
    tau = each.tau
    if tau.value is None:
        return MISSING
    spread = "" if tau.low == tau.high else f" ({tau.low:.2f} to {tau.high:.2f})"
    shown = f"{tau.value:.2f}{spread}"
    return shown if each.tau_whole is None or each.draws == 1 else f"{each.tau_whole:.2f}; {shown}"


def share_error(draws: int) -> float | None:
    """Within so much of what endlessly many draws would give a share of one half lies, the worst (95 %).

    ``None``: nothing was drawn at random.
    """
    return _Z / (2 * draws**0.5) if draws > 1 else None


def percent(share: float) -> str:
    """A share in per cent, in which never is 0 and seldom is not."""
    if 0 < share < 0.01:
        return "<1"
    return ">99" if 0.99 < share < 1 else f"{100 * share:.0f}"


def _matrix(board: Robustness, each: Condition) -> list[str]:
    count = len(board.systems)
    rows = [
        (
            f"{number + 1} {escape(board.systems[number])}",
            *(_cell(share) for share in each.flips[number][:number]),
            *("" for _ in range(number, count - 1)),
        )
        for number in range(1, count)
    ]
    headers = ("flips, % of draws", *(str(number) for number in range(1, count)))
    return [f"**{escape(name(each))}**", "", *grid(headers, (False, *(True,) * (count - 1)), rows, padded=True)]


def _cell(share: float | None) -> str:
    return MISSING if share is None else percent(share)


def _csv(found: Sequence[Robustness]) -> str:
    """One line for each pair under each condition, the better one of the leaderboard as ``a``."""
    head = ["dataset", "measure", "queries", "cause", "condition", "draws", "a", "b", "value_a", "value_b"]
    head += ["flips", "tau", "tau_low", "tau_high", "tau_whole", "reason", "flips_error"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for each in found:
        for condition in each.conditions:
            for one, ours in enumerate(each.standings):
                for other, theirs in enumerate(each.standings[:one]):
                    cells = (each.dataset, each.measure, each.queries, condition.cause.value, condition.name)
                    pair = (condition.draws, theirs.system, ours.system, theirs.value, ours.value)
                    flips = condition.flips[one][other] if condition.flips else None
                    tau = (condition.tau.value, condition.tau.low, condition.tau.high, condition.tau_whole)
                    line = (*cells, *pair, flips, *tau, condition.reason, share_error(condition.draws))
                    writer.writerow([written(value) for value in line])
    return stream.getvalue()


def _json(found: Sequence[Robustness]) -> str:
    boards = [dataclasses.asdict(each) for each in found]
    for board in boards:
        board["conditions"] = [each | {"error": share_error(each["draws"])} for each in board["conditions"]]
    content = {"robustness_version": ROBUSTNESS_VERSION, "leaderboards": boards}
    return json.dumps(content, indent=2, ensure_ascii=True, allow_nan=False) + "\n"
