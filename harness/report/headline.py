"""A comparison as one sentence: what B costs against A, and what it is worth."""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.analysis.comparison import Comparison
from harness.analysis.paired_differences import LATENCY, ComparisonVerdict, Difference
from harness.analysis.table import Validity
from harness.records import Outcome
from harness.stats import Estimate

# Measures that are no shares: all others are bounded by 1 and are spoken of in points, hundredths of them.
_COUNTS = frozenset({"NumQ", "NumRel", "NumRelRet", "NumRet", "alpha_DCG"})
_UNSHOWN = (ComparisonVerdict.NONE, ComparisonVerdict.UNREPEATED, ComparisonVerdict.UNCORRECTED)


def sentence(each: Comparison, family: int, escape: Callable[[str], str] = str) -> str:
    """E.g. ``B costs 6.0x and wins 2.1 points RR@10 [0.4, 3.9].``

    Args:
        each: corrected (:func:`harness.analysis.comparison.corrected`).
        family: how many comparisons it was corrected for.
        escape: makes the name of a measure harmless, which a published table may have given.
    """
    failed = [
        f"{name} ended {side.row.outcome.value}"
        for name, side in (("A", each.a), ("B", each.b))
        if side.row is not None and side.row.outcome is not Outcome.OK
    ]
    if failed:
        return f"{' and '.join(failed)}: there is nothing to weigh."
    cost, worth = _cost(each), each.of(each.by)
    if worth is None:
        return f"B {cost or 'and A have no measure and no cost in common'}{_doubts(each, cost)}."
    return f"{_joined(cost, worth, family, escape(worth.metric))}{_doubts(each, cost)}."


def counted(measure: str) -> bool:
    """Whether a measure counts something and is summed over queries: its difference is then that of a mean query."""
    kind = re.match(r"\w+", measure)
    return kind is not None and kind.group() in _COUNTS


def ratio(value: float) -> str:
    """``6.0x``, ``0.17x``, ``120x``: what B has, as a multiple of what A has."""
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 0.95 else f"{value:.2g}x"


def _cost(each: Comparison) -> str | None:
    """What B costs; where no price is known, what it takes."""
    a, b, latency = each.a.row, each.b.row, each.of(LATENCY)
    if a is None or b is None:
        return None
    one, other = a.usd_per_million.value, b.usd_per_million.value
    if one and other is not None:
        said, on_one_type = f"costs {ratio(other / one)}", a.price == b.price
    elif latency is not None and latency.ratio is not None:
        said, on_one_type = f"takes {ratio(latency.ratio)}", True
    else:
        return None
    # On one instance type all that a cost is made of, but for the latency, is the same.
    if on_one_type and latency is not None and latency.verdict in _UNSHOWN:
        said += f" (of its latency: {latency.verdict.value})"
    return said


def _joined(cost: str | None, worth: Difference, family: int, name: str) -> str:
    start = f"B {cost} and " if cost else "B "
    found = worth.over_queries
    if worth.verdict in (ComparisonVerdict.BETTER, ComparisonVerdict.WORSE):
        won = worth.verdict is ComparisonVerdict.BETTER
        return f"{start}{'wins' if won else 'loses'} {_amount(name, found, sign=1 if won else -1)}"
    if worth.verdict is ComparisonVerdict.EQUAL:
        return f"{start}has the same {name} on each of these {worth.queries:,} queries"
    start = f"B {cost}, with " if cost else "B against A: "
    if worth.verdict is ComparisonVerdict.UNKNOWN:
        if worth.a is None or worth.b is None:
            return f"{start}no {name} to compare"
        gap = _amount(name, Estimate(worth.b - worth.a), sign=0)
        return f"{start}{gap}, which nothing tests: {found.reason}"
    if worth.verdict is ComparisonVerdict.UNCORRECTED:
        held = f"holds among {family:,} comparisons (Holm's p" if family > 1 else "a randomisation test bears out (p"
        return f"{start}no difference that {held} {worth.p_holm:.2g}): {_amount(name, found, sign=0)}"
    amount = _amount(name, found, sign=0)
    return f"{start}no difference that these {worth.queries:,} queries can show: {amount}"


def _amount(name: str, figure: Estimate, sign: int) -> str:
    """``2.1 points RR@10 [0.4, 3.9]``; ``sign`` 0 writes signs, 1 and -1 take them as said."""
    counts = counted(name)
    scale = (sign or 1) * (1 if counts else 100)
    assert figure.value is not None
    shown = f"{figure.value * scale:{'' if sign else '+'}.1f}{'' if counts else ' points'} {name}"
    shown += " a query" if counts else ""
    if figure.low is None or figure.high is None:
        return f"{shown} ({figure.reason})" if figure.reason else shown
    low, high = sorted((figure.low * scale, figure.high * scale))
    return f"{shown} [{low:.1f}, {high:.1f}]"


def _doubts(each: Comparison, cost: str | None) -> str:
    """Whose latency, and with it whose cost, is not to be trusted."""
    if cost is None:
        return ""
    sides = (("A", each.a.row), ("B", each.b.row))
    doubted = (Validity.NOISY, Validity.INVALID)
    said = [f"{name} is {row.validity.value}" for name, row in sides if row is not None and row.validity in doubted]
    return f" ({' and '.join(said)}: so is what B {cost.split()[0]})" if said else ""
