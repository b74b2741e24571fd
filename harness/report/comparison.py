"""Comparisons of two systems: differences, tests, the queries that changed most, and one sentence on each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from harness.analysis import break_even, comparison
from harness.analysis import notes as row_notes
from harness.analysis.break_even import PayBack
from harness.analysis.comparison import Comparison, ComparisonSide
from harness.analysis.paired_differences import LATENCY, POWER, Difference, QueryChange
from harness.analysis.significance import DRAWS, LEVEL
from harness.analysis.table import Row
from harness.analysis.verdict import ComparisonVerdict
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.report.document import (
    MIB,
    MISSING,
    Escape,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    column_of,
    cut,
    digits,
    few_lines,
    grid_of,
    number,
)
from harness.report.hardware import machine
from harness.report.row_figures import facts
from harness.report.summary import doubts
from harness.report.verdict_scope import together
from harness.untrusted import one_line

# Version of the JSON.
COMPARISON_VERSION = 1
# The longest text of a query that a table shows; JSON has all of it.
_LONGEST_TEXT = 100
# More pairs of run files are one table.
MOST_APART = 6
# A table shows p to four decimals.
LEAST_SHOWN = 0.0001
# Counts; all other measures are at most 1 and shown in points, hundredths.
_COUNTS = frozenset({"NumQ", "NumRel", "NumRelRet", "NumRet", "alpha_DCG"})
_UNSHOWN = (ComparisonVerdict.NONE, ComparisonVerdict.UNREPEATED, ComparisonVerdict.UNCORRECTED)

METHOD = (
    "B - A: paired by query, a query's value being its mean over trials. Its interval decides what B is. It has 95 %, "
    "or more where several comparisons are corrected together: the level at which Holm's method tests each. Of a "
    "measure: for queries like these, the means that the test behind p does not reject, so that it excludes 0 exactly "
    f"where Holm's p is at most {LEVEL}. Of latency: measured again, with other such queries, in fresh processes; "
    "Student's t over queries, corrected for skew (Hall 1992), and Welch's over repeated measurements, their reaches "
    "squared and added. B / A has the interval of the same test (Fieller 1954).",
    f"Queries that would show it: for a difference of this size, at 95 % confidence in {POWER:.0%} of samples."
    " More processes: the queries agree, and another measurement might not; raise protocol.trials.",
)


def comparison_document(pairs: Sequence[Comparison], notes: Sequence[str] = ()) -> ReportDocument:
    """Return the document of comparisons that were corrected together.

    Args:
        pairs: of runs or stored rows, by :func:`harness.analysis.comparison.corrected`.
        notes: on all of them.
    """
    return ReportDocument(
        sections=lambda escape: _sections(pairs, notes, escape),
        lines=lambda: _lines(pairs),
        content=lambda: _content(pairs, notes),
        answer=lambda escape: _answer(pairs, notes, escape),
    )


def _answer(pairs: Sequence[Comparison], notes: Sequence[str], escape: Escape) -> Iterator[Section]:
    """Yield one table and one sentence for a pair, or a line for each of several pairs."""
    count = len(comparison.family(pairs))
    more = "tests, the queries that changed most, and all notes: --wide"
    if len(pairs) == 1:
        (pair,) = pairs
        a, b = (escape(side.name.replace("/", " ")) for side in (pair.a, pair.b))
        grid = grid_of(pair.differences, [_metric(escape), *_VALUES, _SHORT_VERDICT])
        rows = [side.row for side in (pair.a, pair.b) if side.row is not None]
        # Lines on causes stand for the findings of noisy rows.
        others = [note for note in (*notes, *pair.notes) if not note.startswith(("A is ", "B is "))]
        own = (*_answers(pair), *_resources(pair)) if pair.of_one_system else ()
        lines = (*own, *_uncorrected(pair, count), *_costs(pair), *_break_even(pair))
        more = f"{together(count, stored=bool(rows))}   {more}" if count > 1 else more
        warnings = (*map(escape, lines), *doubts(rows, escape), *map(escape, others))
        notes = few_lines((summary(pair, count, escape), *warnings), more)
        yield Section(lead=(f"A: {a}; B: {b}",), grids=(grid,), notes=notes)
        return
    measures: list[GridColumn[Comparison]] = [
        ("A", False, lambda pair: escape(pair.a.name)),
        ("B", False, lambda pair: escape(pair.b.name)),
        ("latency B / A", True, lambda pair: _ratio(pair.of(LATENCY))),
        *((header, numeric, _of_main(cell)) for header, numeric, cell in (_VALUES[2], _P_HOLM, _SHORT_VERDICT)),
    ]
    by = pairs[0].by or LATENCY
    grid = grid_of(pairs, measures, keys=2)
    scope = together(count, stored=any(pair.a.row is not None for pair in pairs))
    yield Section(
        lead=(f"{len(pairs)} pairs, by {escape(by)}",),
        grids=(grid,),
        notes=few_lines(map(escape, notes), scope, more),
    )


def _uncorrected(pair: Comparison, family: int) -> Iterator[str]:
    """Yield the differences that hold alone, though not among all comparisons; the sentence says it of the first."""
    lost = [line.metric for line in pair.differences if line.verdict is ComparisonVerdict.UNCORRECTED]
    names = [name for name in lost if name != pair.by]
    if names:
        yield f"different when tested alone, not when corrected for {family:,} comparisons (Holm): {', '.join(names)}"


def _of_main(cell: Callable[[Difference], str]) -> Callable[[Comparison], str]:
    """Return the cell of a pair's difference in the measure that it is compared by."""

    def of_pair(pair: Comparison) -> str:
        difference = pair.of(pair.by or LATENCY)
        return MISSING if difference is None else cell(difference)

    return of_pair


def _sections(pairs: Sequence[Comparison], notes: Sequence[str], escape: Escape) -> Iterator[Section]:
    count = len(comparison.family(pairs))
    # Stored rows have notes of their own.
    if len(pairs) > MOST_APART and all(pair.a.row is None and pair.b.row is None for pair in pairs):
        yield _overview(pairs, escape)
    else:
        for pair in pairs:
            yield _section(pair, count, escape)
    yield Section(notes=(*(escape(note) for note in notes), *_method(pairs, count)))


def _overview(pairs: Sequence[Comparison], escape: Escape) -> Section:
    """Return one line for each difference of many pairs of runs."""
    columns: list[GridColumn[tuple[Comparison, Difference]]] = [
        ("A", False, lambda item: escape(item[0].a.name.partition("/")[0])),
        ("B", False, lambda item: escape(item[0].b.name.partition("/")[0])),
        *(column_of(column, itemgetter(1)) for column in (_metric(escape), *_VALUES, _P_HOLM, _EFFECT, _VERDICT)),
    ]
    shared = [note for note in pairs[0].notes if all(note in pair.notes for pair in pairs)]
    own = [f"A {pair.a.name}, B {pair.b.name}: {note}" for pair in pairs for note in pair.notes if note not in shared]
    return Section(
        title=f"{len(pairs):,} pairs of runs",
        grids=(grid_of([(pair, line) for pair in pairs for line in pair.differences], columns, keys=3),),
        notes=(*map(escape, (*shared, *own)), "Queries that changed most: --format json has them."),
    )


def _section(pair: Comparison, count: int, escape: Escape) -> Section:
    differences: list[GridColumn[Difference]] = [
        _metric(escape),
        *_VALUES,
        ("B / A", True, _ratio),
        _VERDICT,
        ("queries", True, lambda line: f"{line.queries:,}" if line.queries else MISSING),
        ("queries that would show it", True, _queries_needed),
    ]
    tests: list[GridColumn[Difference]] = [
        ("metric", False, lambda line: escape(line.metric)),
        ("p", True, lambda line: _p(line.tested.p if line.tested else None)),
        _P_HOLM,
        _EFFECT,
        ("queries where B is better", True, lambda line: digits(_won_lost_tied(line)[0], ",")),
        ("worse", True, lambda line: digits(_won_lost_tied(line)[1], ",")),
        ("equal", True, lambda line: digits(_won_lost_tied(line)[2], ",")),
    ]
    changes: list[GridColumn[QueryChange]] = [
        ("query", False, lambda query: escape(query.query_id)),
        ("text", False, lambda query: escape(cut(one_line(query.text), _LONGEST_TEXT)) or MISSING),
        ("A", True, lambda query: f"{query.a:.3f}"),
        ("B", True, lambda query: f"{query.b:.3f}"),
        ("B - A", True, lambda query: f"{query.difference:+.3f}"),
    ]
    tested = [line for line in pair.differences if line.tested is not None]
    caption = f"The queries that changed most by {escape(pair.by or '')}"
    others = (grid_of(tested, tests), grid_of(pair.changed, changes, caption=caption))
    a, b = (escape(side.name.replace("/", " ")) for side in (pair.a, pair.b))
    return Section(
        title=f"A: {a}; B: {b}",
        lead=(summary(pair, count, escape),),
        grids=(grid_of(pair.differences, differences), *(grid for grid in others if grid.cells)),
        notes=tuple(map(escape, (*_answers(pair), *_resources(pair), *_costs(pair), *_break_even(pair), *pair.notes))),
    )


def _method(pairs: Sequence[Comparison], count: int) -> tuple[str, ...]:
    tested = [line.tested for pair in pairs for line in pair.differences if line.tested is not None]
    least = min((test.least for test in tested), default=1.0)
    again = len(tested) - count
    once = f"; {again:,} more are the same again, of systems that rank alike on several profiles" if again else ""
    test = (
        f"p, two-sided: randomisation, each query's difference with its sign at random ({DRAWS:,} draws or more, all "
        "signs where few queries differ; Fisher; Smucker, Allan and Carterette 2007). Holm: corrected for all "
        f"{count:,} comparisons made here{once} (Holm 1979). p of latency is over queries alone; its interval decides."
    )
    if least > LEVEL:
        test += f" So few queries differ that no p can be below {least:.2g}."
    elif count * least > LEVEL:
        lowest = min(count * least, 1.0)
        test += f" With this many comparisons no corrected p can be below {lowest:.2g}: compare fewer."
    effect = (
        "Effect size d_z: the mean difference in standard deviations of the differences (0.2 is small, 0.5 medium; "
        "Cohen 1988). It does not grow with the number of queries, as 1/p does."
    )
    return (*METHOD, test, effect) if count else METHOD


def _metric(escape: Escape) -> GridColumn[Difference]:
    return "metric", False, lambda line: escape(line.metric + (", ms" if line.metric == LATENCY else ""))


def _side_value(line: Difference, value: float | None) -> str:
    return number(value, 1e3) if line.metric == LATENCY else digits(value, ".3f")


def _interval(line: Difference) -> str:
    scale = 1e3 if line.metric == LATENCY else 1.0
    per_query = " a query" if is_count(line.metric) else ""
    difference = line.interval
    if difference.value is None:
        return MISSING + per_query
    ends = f" ({MISSING})" if difference.reason else ""
    if difference.low is not None and difference.high is not None:
        ends = f" ({difference.low * scale:+.3g} to {difference.high * scale:+.3g})"
    return f"{difference.value * scale:+.3g}{ends}{per_query}"


def _queries_needed(line: Difference) -> str:
    """Return the queries that would show a difference, or that the processes are too few."""
    return "more processes" if line.verdict is ComparisonVerdict.UNREPEATED else digits(line.needed, ",")


def _p(value: float | None) -> str:
    """Return p in four decimals, or ``<0.0001``."""
    return f"<{LEAST_SHOWN}" if value is not None and value < LEAST_SHOWN else digits(value, ".4f")


def _won_lost_tied(line: Difference) -> tuple[int, int, int] | tuple[None, None, None]:
    return line.won_lost_tied or (None, None, None)


_VALUES: tuple[GridColumn[Difference], ...] = (
    ("A", True, lambda line: _side_value(line, line.a)),
    ("B", True, lambda line: _side_value(line, line.b)),
    ("B - A (95 %, Holm)", True, _interval),
)
_P_HOLM: GridColumn[Difference] = ("p, Holm", True, lambda line: _p(line.p_holm))
_EFFECT: GridColumn[Difference] = (
    "effect size d_z",
    True,
    lambda line: digits(line.tested.effect_size if line.tested else None, "+.2f"),
)
_VERDICT: GridColumn[Difference] = (
    "B is",
    False,
    lambda line: line.verdict_text if line.verdict is ComparisonVerdict.TOO_FEW else line.verdict.value,
)
# A terminal has no room for the reasons; --wide has them.
_SHORT_VERDICT: GridColumn[Difference] = (
    "B is",
    False,
    lambda line: "not shown to differ" if line.verdict in _UNSHOWN else line.verdict.value,
)


def _usd(pair: Comparison) -> tuple[float, float] | None:
    """Return the costs of A and of B per million queries, where both are known."""
    a, b = ((side.row.cost.sequential.value if side.row else None) for side in (pair.a, pair.b))
    return (a, b) if a and b is not None else None


def _costs(pair: Comparison) -> list[str]:
    """Return a note on both costs, where both sides are priced."""
    usd, priced = _usd(pair), [side.row.price for side in (pair.b, pair.a) if side.row and side.row.price]
    if usd is None or len(priced) < 2:
        return []
    types = " against ".join(dict.fromkeys(_type(side.row) for side in (pair.b, pair.a) if side.row))
    dates = " and ".join(dict.fromkeys(price.date for price in priced))
    return [f"cost, sequential: US$ {number(usd[1])} against {number(usd[0])} per million queries ({types}, {dates})"]


def _answers(pair: Comparison) -> Iterator[str]:
    """Yield what changed in the answers: how many queries, and how far."""
    found = pair.answers
    if found is None:
        return
    if not found.changed:
        yield f"answers: the same {found.depth} hits in the same order for all {found.queries:,} queries"
        return
    parts = [f"{found.other_hits:,} have other hits"] if found.other_hits else []
    parts += [f"{found.reordered:,} the same in another order"] if found.reordered else []
    yield (
        f"answers: {found.changed:,} of {found.queries:,} queries changed ({', '.join(parts)}; {found.other_first:,}"
        f" another first hit); {found.overlap:.2%} of the first {found.depth} hits are the same"
    )


# Figures that one version of a system may change, besides its latency and cost.
_RESOURCES: tuple[tuple[str, str, Callable[[Row], float | None], float], ...] = (
    ("CPU of a query", "ms", lambda row: row.cpu.of_system_s.value, 1e3),
    ("memory", "MiB", lambda row: row.resources.peak_anon_bytes, 1 / MIB),
    ("index", "MiB", lambda row: row.index.size_bytes, 1 / MIB),
    ("index build", "s", lambda row: row.index.build_s, 1.0),
)


def _resources(pair: Comparison) -> Iterator[str]:
    """Yield what B and A need, as the row of each has it."""
    rows = [side.row for side in (pair.b, pair.a) if side.row is not None]
    if len(rows) < 2:
        return
    found = []
    for name, unit, read, scale in _RESOURCES:
        values = [read(row) for row in rows]
        if None not in values:
            b, a = (number(value, scale) for value in values)
            found.append(f"{name} {b} against {a} {unit}")
    if found:
        yield f"needs: {', '.join(found)}"


def _break_even(pair: Comparison) -> Iterator[str]:
    """Yield after how many queries the dearer build pays back, and whether the builds ran alike."""
    found = break_even.of(pair)
    if found is None:
        return
    queries, chance = found.queries, ", which may be chance" if found.verdict is PayBack.UNCLEAR else ""
    less = "do not cost less" if queries.value is None else "cost less"
    if found.verdict is PayBack.NEVER:
        after = "never pays back"
    elif queries.value is None:
        after = f"pays back after {_count(queries.low)} queries at the earliest, or never"
    else:
        after = f"pays back after {_count(queries.value)} queries"
        if found.saved_usd.low is None:
            after += f" ({found.saved_usd.reason})" if found.saved_usd.reason else ""
        else:
            after += f" [{_count(queries.low)}, {'never' if queries.high is None else _count(queries.high)}]"
    more = f"{found.dearer.upper()}'s build costs US$ {number(found.more_usd)} more"
    yield f"break-even: {more}, and its queries {less}{chance}: it {after}"
    rows = [side.row for side in (pair.a, pair.b) if side.row is not None]
    places = list(dict.fromkeys(str(row_notes.build_place(row)) for row in rows))
    words = ((side, row.index.validity.doubt) for side, row in zip("AB", rows, strict=True))
    texts = [f"{side}'s is {word}" for side, word in words if word]
    texts += [f"A was built on {places[0]}, B on {places[1]}"] if len(places) > 1 else []
    if texts:
        yield f"builds: {'; '.join(texts)}"


def _count(queries: float | None) -> str:
    """Return a number of queries in three significant digits."""
    return MISSING if queries is None else f"{max(1.0, float(f'{queries:.3g}')):,.0f}"


def _type(row: Row) -> str:
    """Return the type that prices a row, marked where it did not measure it."""
    return machine(row) or (row.price.instance_type if row.price else MISSING)


def summary(pair: Comparison, family: int, escape: Escape = str) -> str:
    """Return one sentence: ``B costs 6.0x and wins 2.1 points RR@10 [0.4, 3.9].``

    Args:
        pair: corrected (:func:`harness.analysis.comparison.corrected`).
        family: how many comparisons it was corrected for.
        escape: makes the name of a measure harmless, which a published table may have given.
    """
    failed = [
        f"{name} ended {side.row.outcome.value}"
        for name, side in (("A", pair.a), ("B", pair.b))
        if side.row is not None and side.row.outcome is not Outcome.OK
    ]
    if failed:
        return f"{' and '.join(failed)}: there is nothing to weigh."
    cost, gain = _relative_cost(pair), pair.of(pair.by)
    if gain is None:
        sentence = f"B {cost or 'and A have no measure and no cost in common'}"
    else:
        sentence = _cost_and_gain(cost, gain, family, escape(gain.metric))
    return f"{sentence}{_doubted_sides(pair, cost)}."


def is_count(measure: str) -> bool:
    """Return whether a measure is a count summed over queries; its difference is then per query."""
    kind = re.match(r"\w+", measure)
    return kind is not None and kind.group() in _COUNTS


def multiple(value: float) -> str:
    """Return B as a multiple of A: ``6.0x``, ``0.17x``, ``120x``."""
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 0.95 else f"{value:.2g}x"


def _ratio(line: Difference | None) -> str:
    return MISSING if line is None else bounded(line.ratio)


def _relative_cost(pair: Comparison) -> str | None:
    """Return B's cost as a multiple of A's; without prices, its latency."""
    a, b, usd, latency = pair.a.row, pair.b.row, _usd(pair), pair.of(LATENCY)
    if a is None or b is None:
        return None
    if usd is not None:
        cost, on_one_type = f"costs {multiple(usd[1] / usd[0])}", a.price == b.price
    elif latency is not None and latency.ratio.value is not None:
        cost, on_one_type = f"takes {multiple(latency.ratio.value)}", True
    else:
        return None
    # On one instance type all that a cost is made of, but for the latency, is the same.
    if not on_one_type or latency is None:
        return cost
    if latency.verdict in (*_UNSHOWN, ComparisonVerdict.TOO_FEW):
        return f"{cost} (of its latency: {latency.verdict_text})"
    low, high = latency.ratio.low, latency.ratio.high
    return cost if low is None or high is None else f"{cost} [{number(low)}, {number(high)}]"


def _cost_and_gain(cost: str | None, gain: Difference, family: int, name: str) -> str:
    start = f"B {cost} and " if cost else "B "
    figure, verdict = gain.over_queries, gain.verdict
    if verdict is ComparisonVerdict.BETTER:
        return f"{start}wins {_gain(name, figure, sign=1)}"
    if verdict is ComparisonVerdict.WORSE:
        return f"{start}loses {_gain(name, figure, sign=-1)}"
    if verdict is ComparisonVerdict.EQUAL:
        return f"{start}has the same {name} on each of these {gain.queries:,} queries"
    start = f"B {cost}, with " if cost else "B against A: "
    if verdict is ComparisonVerdict.UNKNOWN:
        if gain.a is None or gain.b is None:
            return f"{start}no {name} to compare"
        gap = _gain(name, Estimate(gain.b - gain.a), sign=0)
        return f"{start}{gap}, which nothing tests: {figure.reason}"
    if verdict is ComparisonVerdict.TOO_FEW:
        return f"{start}{gain.verdict_text}: {_gain(name, Estimate(figure.value), sign=0)}"
    amount = _gain(name, figure, sign=0)
    if verdict is ComparisonVerdict.UNCORRECTED:
        return f"{start}no difference that holds among {family:,} comparisons (Holm's p {gain.p_holm:.2g}): {amount}"
    return f"{start}{gain.verdict_text}: {amount}"


def _gain(name: str, figure: Estimate, sign: int) -> str:
    """Return ``2.1 points RR@10 [0.4, 3.9]``; ``sign`` 0 writes the sign, 1 and -1 imply it."""
    counts = is_count(name)
    scale = (sign or 1) * (1 if counts else 100)
    assert figure.value is not None
    shown = f"{figure.value * scale:{'' if sign else '+'}.1f}{'' if counts else ' points'} {name}"
    shown += " a query" if counts else ""
    if figure.low is None or figure.high is None:
        return f"{shown} ({figure.reason})" if figure.reason else shown
    low, high = sorted((figure.low * scale, figure.high * scale))
    return f"{shown} [{low:.1f}, {high:.1f}]"


def _doubted_sides(pair: Comparison, cost: str | None) -> str:
    """Return a remark on the sides whose latency, and so whose cost, is in doubt."""
    doubts = [
        f"{name} is {row.validity.value}"
        for name, row in (("A", pair.a.row), ("B", pair.b.row))
        if row is not None and row.validity.doubt
    ]
    return f" ({' and '.join(doubts)}: so is what B {cost.split()[0]})" if cost and doubts else ""


def _lines(pairs: Sequence[Comparison]) -> Iterator[Sequence[Value]]:
    yield (
        *("a", "b", "metric", "unit", "value_a", "value_b", "difference", "low", "high"),
        *("queries_low", "queries_high", "again_low", "again_high"),
        *("ratio", "ratio_low", "ratio_high", "verdict", "queries", "queries_needed"),
        *("p", "p_holm", "effect_size", "won", "lost", "tied"),
        *_BREAK_EVEN,
    )
    for pair in pairs:
        paid = _paid_back(pair)
        for line in pair.differences:
            tested, again = line.tested, line.again or Estimate(None)
            yield (
                *(pair.a.name, pair.b.name, line.metric, "s" if line.metric == LATENCY else "", line.a, line.b),
                *(line.over_queries.value, line.interval.low, line.interval.high),
                *(line.over_queries.low, line.over_queries.high, again.low, again.high),
                *(line.ratio.value, line.ratio.low, line.ratio.high, line.verdict.value, line.queries, line.needed),
                *((None, None, None) if tested is None else (tested.p, line.p_holm, tested.effect_size)),
                *_won_lost_tied(line),
                *(paid.get(name) if line.metric == LATENCY else None for name in _BREAK_EVEN),
            )


# The columns of a break-even, in the line of the latency.
_BREAK_EVEN = (
    *("build_usd_a", "build_usd_b", "dearer_build", "pays_back"),
    *("break_even_queries", "break_even_queries_low", "break_even_queries_high"),
)


def _paid_back(pair: Comparison) -> dict[str, Value]:
    """Return the columns of a break-even; none where it is not known."""
    found = break_even.of(pair)
    if found is None:
        return {}
    queries = found.queries
    values = (*found.build_usd, found.dearer, found.verdict.value, queries.value, queries.low, queries.high)
    return dict(zip(_BREAK_EVEN, values, strict=True))


def _content(pairs: Sequence[Comparison], notes: Sequence[str]) -> dict[str, Any]:
    count = len(comparison.family(pairs))
    return {
        "comparison_version": COMPARISON_VERSION,
        "comparisons_tested": count,
        "notes": list(notes),
        "comparisons": [
            {
                "a": _side(pair.a),
                "b": _side(pair.b),
                "summary": summary(pair, count),
                "break_even": _paid_back(pair) or None,
                "answers": dataclasses.asdict(pair.answers) if pair.answers else None,
                "differences": [_difference(line) for line in pair.differences],
                "changed_most": {"by": pair.by, "queries": [dataclasses.asdict(query) for query in pair.changed]},
                "notes": list(pair.notes),
            }
            for pair in pairs
        ],
    }


def _difference(line: Difference) -> dict[str, Any]:
    won, lost, tied = _won_lost_tied(line)
    fields = dataclasses.asdict(dataclasses.replace(line, column=None, latencies=None))
    fields["interval"] = dataclasses.asdict(line.interval)
    del fields["fingerprint"], fields["column"], fields["latencies"], fields["level"]
    if line.tested is not None:
        del fields["tested"]["interval"]
    return fields | {"won": won, "lost": lost, "tied": tied}


def _side(side: ComparisonSide) -> dict[str, Any]:
    if side.row is None:
        flagged = {} if side.flagged is None else {"flagged": side.flagged}
        return {"system": side.name, **flagged}
    return facts(side.row, "suite", "system", "dataset", "scenario", "hardware_profile", "key", "validity")
