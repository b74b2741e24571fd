"""The sentence of an answer: the cheapest system against the best one, by cost and by a tested difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from harness.analysis import axes
from harness.analysis.table import Row, Table, Validity
from harness.analysis.verdict import ComparisonVerdict, QualityDifference
from harness.driver.records import Outcome
from harness.errors import counted
from harness.estimate import Estimate, best_of
from harness.report import verdict_scope
from harness.report.currency import USD, Currency
from harness.report.document import Escape, joined_by_and
from harness.report.groups import rival_names
from harness.results.schema import by_size

_MOST_LEADERS = 3
_MOST_NOISY = 3
# Verdicts that rest on an interval, which the last line of an answer explains.
_TESTED = frozenset(
    {ComparisonVerdict.BETTER, ComparisonVerdict.WORSE, ComparisonVerdict.NONE, ComparisonVerdict.UNCORRECTED}
)

# Rows A and B, the measure, and the number of candidates that A is the best of.
Compare = Callable[[Row, Row, str, int], QualityDifference]


def answers(
    table: Table, compare: Compare, measure: str, escape: Escape = str, currency: Currency = USD
) -> tuple[str, ...]:
    """Return one sentence on cost and quality for each of at most two datasets, or one that counts over more.

    The cheapest of two systems or more is compared with the best one by the paired test of ``harness compare``.  If
    the dataset has rows that may not be compared, the sentence takes the largest group and names it.  The last
    sentence says what was tested.  Names alone are escaped: a format that knows links needs no backslash before
    ``[0.1, 8.1]``.
    """
    valid = [row for row in table.rows if row.outcome is Outcome.OK and row.validity is not Validity.INVALID]
    datasets = sorted({row.dataset for row in table.rows}, key=by_size)
    cheapest = {name: _cheapest([row for row in valid if row.dataset == name], currency) for name in datasets}
    compared = {name: rows for name, rows in cheapest.items() if len(rows) > 1}
    if len(datasets) > 2:
        return (_counted(list(compared.values()), measure, escape, currency),) if compared else ()
    names = rival_names(table.rows)
    said, tested = [], False
    for dataset, rows in compared.items():
        group = names.get(axes.comparison_group(rows[0]))
        parts = ([dataset] if len(datasets) > 1 else []) + ([group.words] if group else [])
        first, other, difference = _compared(rows, compare, measure, currency)
        gap = currency.gap(first, other)
        sentence = f"{escape(first.system)} {gap} {escape(other.system)} {_quality(difference, measure)}."
        sentence += noise((first, other), escape)
        said.append(f"{escape(', '.join(parts))}: {sentence}" if parts else sentence)
        tested = tested or (difference is not None and difference.verdict in _TESTED)
    if tested:
        said[-1] += f" {verdict_scope.alone(escape(measure))}"
    return tuple(said)


def noise(rows: Iterable[Row], escape: Escape = str) -> str:
    """Return a sentence, after a blank, on the rows whose latency is noisy; nothing without such a row."""
    noisy = [row for row in rows if row.validity is Validity.NOISY]
    systems = list(dict.fromkeys(escape(row.system) for row in noisy))
    others = [f"{len(systems) - 2} others"] if len(systems) > _MOST_NOISY else []
    names = joined_by_and([*(systems[:2] if others else systems), *others])
    behind = "behind the cost of" if all(row.usd_per_million.value is not None for row in noisy) else "of"
    return f" The latency {behind} {names} is noisy." if noisy else ""


def _cheapest(rows: Sequence[Row], currency: Currency) -> list[Row]:
    """Return the cheapest row of each system, by cost, in the largest comparable group of a dataset."""
    group = max(axes.group_rows(rows).values(), key=len, default=[])
    cheapest: dict[str, Row] = {}
    # A cost is never compared with a latency.
    for row in [row for row in group if currency.amount(row) is not None] or group:
        held = cheapest.get(row.system)
        if currency.spent(row) is not None and (held is None or currency.order(row) < currency.order(held)):
            cheapest[row.system] = row
    return sorted(cheapest.values(), key=currency.order)


def _counted(datasets: Sequence[Sequence[Row]], measure: str, escape: Escape, currency: Currency) -> str:
    """Say which systems are cheapest, and which have the best value, on how many datasets; equal ones tie."""

    def leaders(alone: str, tied: str, winners: Sequence[Sequence[Row]]) -> str:
        counts = Counter(tuple(sorted(row.system for row in rows)) for rows in winners)
        ordered = sorted(counts, key=lambda names: (-counts[names], len(names), names))
        parts: list[str] = []
        for names in ordered[:_MOST_LEADERS]:
            what = ("on" if parts else alone) if len(names) == 1 else "tie on" if parts else tied
            parts.append(f"{joined_by_and(list(map(escape, names)))} {what} {counts[names]}")
        others = len(winners) - sum(counts[names] for names in ordered[:_MOST_LEADERS])
        return ", ".join((*parts, *([f"others on {others}"] if others else [])))

    word = currency.word if currency.amount(datasets[0][0]) is not None else "fastest"
    least = [rows_of for rows in datasets if (rows_of := currency.least(rows))]
    said = leaders(f"is {word} on", f"tie as the {word} on", least) or f"none shows for certain which is {word}"
    sentence = f"of {len(datasets)} datasets {said}"
    best = [held for rows in datasets if (held := best_of(rows, lambda row: row.measured(measure)))]
    if best:
        said = leaders(f"has the best {measure} on", f"tie for the best {measure} on", best)
        sentence += f"; {said} (not tested: harness compare '*')"
    noisy = sum(any(row.validity is Validity.NOISY for row in winners) for winners in least)
    doubt = f" The latency of a {word} system is noisy on {counted(noisy, 'dataset')}." if noisy else ""
    return f"{sentence[0].upper()}{sentence[1:]}.{doubt}"


def _compared(
    cheapest: Sequence[Row], compare: Compare, measure: str, currency: Currency
) -> tuple[Row, Row, QualityDifference | None]:
    """Return the cheapest row, the best of the others, and how the cheapest differs from it."""
    first, *others = cheapest
    other = min(best_of(others, lambda row: row.measured(measure)) or others, key=currency.order)
    return first, other, compare(other, first, measure, len(others)) if measure else None


def reranking(table: Table, measure: str, escape: Escape = str) -> tuple[str, ...]:
    """Return one sentence for each of at most two datasets: what its best second stage adds, harms and cannot reach."""
    datasets = sorted({row.dataset for row in table.rows}, key=by_size)
    if len(datasets) > 2:
        return ()
    said = {}
    for name in datasets:
        valid = [row for row in table.rows if row.dataset == name and row.validity is not Validity.INVALID]
        two_stage = [row for row in valid if row.first_stage is not None and row.measured(measure) is not None]
        if two_stage:
            best = min(best_of(two_stage, lambda row: row.measured(measure)), key=USD.order)
            said[name] = _second_stage(best, measure, escape)
    return tuple(sentence if len(datasets) == 1 else f"{escape(name)}: {sentence}" for name, sentence in said.items())


def _second_stage(row: Row, measure: str, escape: Escape) -> str:
    """Say what a row's second stage adds to its first one, which queries it makes worse, and the ceiling."""
    stage, found = row.first_stage, row.gain((measure,))
    assert stage is not None
    first = escape(stage.system)
    if found is None:
        added = f"{escape(row.system)} reranks {first}, and its gain is not known"
    else:
        _, gain, harm = found
        value = gain.value or 0.0
        percent = max(abs(row.measured(measure) or 0), abs(value)) <= 1
        verb, to, sign = ("adds", "to", 1) if value >= 0 else ("takes", "from", -1)
        amount, interval = _points(value, gain, measure, sign, percent=percent)
        chance = ", which may be chance," if interval and (gain.low or 0) <= 0 <= (gain.high or 0) else ""
        added = (
            f"{escape(row.system)} {verb} {amount}{interval or ' (not tested)'} {to} {first}"
            f"{chance} and makes {_percent(harm.value or 0)} of the queries worse"
        )
    if stage.ceiling.value is None:
        return f"{added}; its ceiling is not known: {escape(stage.ceiling.reason or 'not judged')}."
    return f"{added}; {first}'s first {stage.depth} hold {_percent(stage.ceiling.value)} of the relevant documents."


def _points(value: float, bounds: Estimate, measure: str, sign: int, *, percent: bool) -> tuple[str, str]:
    """Return the size of a difference with its measure, and its interval, both times ``sign``; empty: it has none."""
    scale, unit, decimals = (100, "points ", 1) if percent else (1, "", 3)
    ends = sorted(sign * end * scale for end in (bounds.low, bounds.high) if end is not None)
    interval = f" [{ends[0]:.{decimals}f}, {ends[1]:.{decimals}f}]" if len(ends) == 2 else ""
    return f"{abs(value) * scale:.{decimals}f} {unit}{measure}", interval


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _quality(difference: QualityDifference | None, measure: str) -> str:
    """Say how the cheaper system's quality differs, with the interval, as far as the queries can show it."""
    if difference is None or difference.a is None or difference.b is None:
        return "and their quality was not compared"
    gap = difference.b - difference.a
    percent = max(abs(difference.a), abs(difference.b)) <= 1
    word, sign = ("better", 1) if gap > 0 else ("worse", -1)
    amount, interval = _points(gap, difference.interval, measure, sign, percent=percent)
    if difference.verdict in (ComparisonVerdict.BETTER, ComparisonVerdict.WORSE):
        return f"and is {amount} {word}{interval} on these queries"
    if difference.verdict is ComparisonVerdict.EQUAL:
        return f"and ranks as well on every query ({measure})"
    if not gap:
        return f"and has the same {measure}"
    if difference.verdict is ComparisonVerdict.UNKNOWN:
        return f"and is {amount} {word} (not tested)"
    if difference.verdict is ComparisonVerdict.TOO_FEW:
        return f"and is {amount} {word}, with {difference.verdict_text}"
    return f"and is {amount} {word}, which may be chance{interval}"
