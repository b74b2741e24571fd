"""Report on approximate systems against the exact search of their vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from harness.analysis.recall import ExactPair, RecallTable
from harness.errors import counted, listed
from harness.estimate import best_of
from harness.report.document import (
    MISSING,
    Escape,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    cut,
    digits,
    few_lines,
    grid_of,
    joined_by_and,
    lines_of_records,
    stand_ins,
    with_ends,
)
from harness.report.summary import BAD, DOUBTFUL
from harness.report.writers import narrowed

# Version of the JSON.
RECALL_VERSION = 1

METHOD = (
    "overlap@k: share of the exact search's first k documents that are among the system's first k, in any "
    "order; the mean over queries with its 95 % interval. An exact list that is shorter counts as far as it goes.",
    "whole: share of the queries of which no document is missing.",
    "Change: the system's measure less the exact search's, query by query, with the interval "
    "of the paired test, corrected for the number of pairs (Holm). A search can miss documents without "
    "relevant judgements, and lose nothing.",
)
# Columns that decide least, first.
_DROPPED = ("whole", "overlap@100")
_MOST_DIFFERENCES = 2


def recall_document(found: RecallTable) -> ReportDocument:
    """Return the document; CSV has a line for each pair, JSON the overlap of each query too."""
    return ReportDocument(
        sections=lambda escape: (
            _section(found, escape, _columns(found, escape, wide=True), _notes(found, escape)),
            Section(notes=tuple(map(escape, METHOD))),
        ),
        lines=lambda: _lines(found),
        content=lambda: {
            "recall_version": RECALL_VERSION,
            "measure": found.measure,
            "pairs": [_record(pair, found.measure) for pair in found.pairs],
        },
        plain=True,
    )


def answer(found: RecallTable, escape: Escape, width: int | None) -> Section:
    """Return the grid of few columns, a sentence on the search that loses most, and at most five lines.

    ``width``: of the terminal; columns that decide least are left out until the grid fits.
    """
    notes = few_lines(_notes(found, escape), "methods: --wide   by query: --format json")
    section = _section(found, escape, _columns(found, escape, wide=False), notes)
    return replace(section, grids=(narrowed(section.grids[0], _DROPPED, width),))


def _section(
    found: RecallTable, escape: Escape, columns: Sequence[GridColumn[ExactPair]], notes: Iterable[str]
) -> Section:
    compared = [pair for pair in found.pairs if pair.overlaps]
    exact, datasets = ({getattr(pair, name) for pair in found.pairs} for name in ("exact", "dataset"))
    whose = f"{exact.pop()}'s" if len(exact) == 1 else "the exact"
    where = f", {datasets.pop()}" if len(datasets) == 1 else ""
    depths = " and ".join(f"top {k}" for k in found.cutoffs)
    lead = f"Share of {whose} {depths} that each system finds{where}" if compared else "No pair can be compared."
    after = (_sentence(compared, found.measure, escape),) if compared else ()
    return Section(lead=(escape(lead),), grids=(_grid(found.pairs, columns, escape),), after=after, notes=tuple(notes))


def _columns(found: RecallTable, escape: Escape, *, wide: bool) -> list[GridColumn[ExactPair]]:
    """Return the columns of names in which pairs differ, and the columns of figures."""
    names: list[GridColumn[ExactPair]] = [
        ("dataset", False, lambda pair: escape(pair.dataset)),
        ("system", False, lambda pair: escape(pair.system)),
        ("exact", False, lambda pair: escape(pair.exact)),
    ]
    columns = [
        column
        for column in names
        if wide or column[0] == "system" or len({column[2](pair) for pair in found.pairs}) > 1
    ]
    for k in found.cutoffs:
        columns.append((f"overlap@{k} (95 %)", True, _overlap_cell(k, lambda each: bounded(each.mean, decimals=3))))
        if wide or k == found.cutoffs[0]:
            columns.append((f"whole {k}", True, _overlap_cell(k, lambda each: f"{each.whole * 100:.0f} %")))
    columns.append(
        (found.measure, True, lambda pair: digits(pair.row.measured(found.measure) if pair.row else None, ".3f"))
    )
    columns.append(("change, points", True, lambda pair: bounded(pair.change, 100, decimals=1)))
    return columns


def _grid(pairs: Sequence[ExactPair], columns: Sequence[GridColumn[ExactPair]], escape: Escape) -> Grid:
    """Return a row for each pair, the best overlap first; a pair that is not compared says why behind its names."""
    keys = [numeric for _, numeric, _ in columns].index(True)
    ranked = sorted(pairs, key=_order)
    tones = [BAD if pair.reason else DOUBTFUL if pair.differs else "" for pair in ranked]
    return grid_of(
        ranked, columns, keys=keys, tones=tones, message=lambda pair: pair.reason and escape(cut(pair.reason))
    )


def _order(pair: ExactPair) -> tuple[str, bool, float, str]:
    value = pair.overlaps[0].mean.value if pair.overlaps else None
    return pair.dataset, value is None, -(value or 0.0), pair.system


def _overlap_cell(k: int, write: Callable[[Any], str]) -> Callable[[ExactPair], str]:
    return lambda pair: MISSING if (overlap := pair.overlap(k)) is None else write(overlap)


def _sentence(pairs: Sequence[ExactPair], measure: str, escape: Escape) -> str:
    """Say which search loses most, in documents and in the measure."""
    worst = best_of(pairs, lambda pair: pair.overlaps[0].mean.value, least=True)
    if not worst:
        return "What the searches lose is not known."
    overlap, change = worst[0].overlaps[0], worst[0].change
    lost = 1 - (overlap.mean.value or 0.0)
    systems = joined_by_and(list(dict.fromkeys(escape(pair.system) for pair in worst)))
    top = f"{escape(worst[0].exact)}'s top {overlap.k}"
    most = "loses most" if len(worst) == 1 else "lose most, equally"
    text = f"{systems} {most}: {lost * 100:.1f} % of {top}" if lost else f"None loses any of {top}"
    if change.value is None or len(worst) > 1:
        return f"{text}."
    chance = change.low is not None and change.high is not None and change.low <= 0 <= change.high
    even = ", which may be chance" if chance and change.value else ""
    return f"{text}; {measure} changes by {bounded(change, 100, decimals=1)} points{even}."


def _notes(found: RecallTable, escape: Escape) -> Iterator[str]:
    pairs = found.pairs
    for pair in pairs:
        if pair.differs:
            text = listed(pair.differs, _MOST_DIFFERENCES, separator="; ")
            yield escape(f"{pair.system}: not the search alone differs: {text}")
    for dataset, exact, count in sorted({(pair.dataset, pair.exact, pair.unranked) for pair in pairs}):
        if count:
            yield escape(f"{dataset}: {exact} ranks nothing for {counted(count, 'query')}: left out")
    yield from map(escape, stand_ins([row for pair in pairs for row in (pair.row, pair.exact_row) if row]))


_CSV = (
    *("dataset", "system", "exact", "k", "depth", "overlap", "overlap_low", "overlap_high", "whole", "queries"),
    *("unranked", "measure", "value", "exact_value", "change", "change_low", "change_high", "differs", "reason"),
)


def _lines(found: RecallTable) -> Iterator[Sequence[Value]]:
    """Yield a line for each pair and depth; one without a depth for each pair that is not compared."""
    lines: list[dict[str, Any]] = []
    for pair in found.pairs:
        shared = _values(pair, found.measure)
        lines += [
            {
                **shared,
                "depth": overlap.k,
                **with_ends("overlap", overlap.mean),
                "whole": overlap.whole,
                "queries": len(overlap.by_query),
            }
            for overlap in pair.overlaps
        ] or [shared]
    yield from lines_of_records(lines, _CSV)


def _values(pair: ExactPair, measure: str) -> dict[str, Any]:
    return {
        "dataset": pair.dataset,
        "system": pair.system,
        "exact": pair.exact,
        "k": pair.k,
        "unranked": pair.unranked if pair.overlaps else None,
        "measure": measure,
        "value": pair.row.measured(measure) if pair.row else None,
        "exact_value": pair.exact_row.measured(measure) if pair.exact_row else None,
        **with_ends("change", pair.change),
        "differs": "; ".join(pair.differs) or None,
        "reason": pair.reason,
    }


def _record(pair: ExactPair, measure: str) -> dict[str, Any]:
    """Return a pair for programs, with the overlap of each query."""
    return {
        **_values(pair, measure),
        "differs": list(pair.differs),
        "change": asdict(pair.change),
        "keys": list(pair.row.keys) if pair.row else [],
        "exact_keys": list(pair.exact_row.keys) if pair.exact_row else [],
        "overlaps": [asdict(overlap) for overlap in pair.overlaps],
    }
