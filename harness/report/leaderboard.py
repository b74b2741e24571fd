"""A leaderboard: a grid of ranked rows, what the ranks depend on, and the rows left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from operator import attrgetter, itemgetter
from typing import Any

from harness.analysis import dynascore, notes
from harness.analysis.axes import ACCURACY, Axis
from harness.analysis.causes import MORE_QUERIES
from harness.analysis.leaderboard import PERTURBATION, PERTURBED, PRESETS, Leaderboard, RankedRow, RankInterval
from harness.analysis.pareto_front import FrontState
from harness.analysis.resampling import RESAMPLES
from harness.analysis.table import Row
from harness.commands import option
from harness.driver.records import Outcome
from harness.errors import counted
from harness.report import hardware, summary
from harness.report.document import (
    MISSING,
    Escape,
    Footnotes,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    column_of,
    digits,
    few_lines,
    grid_of,
    joined_by_and,
    left_out_records,
    lines_of_records,
    number,
    price_facts,
    stand_ins,
    system_name,
    with_ends,
)
from harness.report.main_table import instance_column, named_column, profile_column, shared_notes, system_column
from harness.report.row_figures import COST_HEADER, facts

# Version of the JSON.
LEADERBOARD_VERSION = 1
# Columns of a row for programs.
_NAMES = ("system", "hardware_profile", "suite", "validity", "key", "origin", "isolation")
_PRICED = ("instance_type", "price_usd_per_hour")
# Units in the names of CSV columns, where they differ from the axis.
_UNITS = {"US$ per million queries": "usd_per_million_queries", "queries/s": "qps"}


def leaderboard_document(board: Leaderboard) -> ReportDocument:
    """Return the document of a leaderboard: ranked rows, what the ranks depend on, and the rows left out."""
    return ReportDocument(
        sections=lambda escape: (_section(board, escape),),
        lines=lambda: _lines(board),
        content=lambda: _content(board),
        answer=lambda escape: (_answer(board, escape),),
        padded=False,
    )


def _answer(board: Leaderboard, escape: Escape) -> Section:
    """Return ranks, scores, the figures behind them, and what else a reader must know."""
    ranked, query = board.ranked_rows, board.query
    several = len({hardware.hardware(each.row) for each in ranked}) > 1 or any(
        each.row.isolation.mark for each in ranked
    )
    varied = any(each.by_queries.best is not None for each in ranked)
    machines = {hardware.machine(each.row) for each in ranked}

    def value(axis: Axis) -> GridColumn[RankedRow]:
        def cell(each: RankedRow) -> str:
            figure = each.figures[axis.name].value
            if axis.name == ACCURACY:
                return digits(figure, ".1f")
            is_priced = axis.name == "cost" and figure is not None
            return number(figure) + (hardware.other_machine_mark(each.row, each.row.price) if is_priced else "")

        headers = {ACCURACY: query.measure, "cost": COST_HEADER}
        return headers.get(axis.name, axis.unit), True, cell

    columns: list[GridColumn[RankedRow] | None] = [
        ("rank", True, lambda each: digits(each.rank, "d")),
        ("system", False, lambda each: system_name(each.row, escape)),
        ("origin", False, lambda each: escape(each.row.origin or MISSING)) if board.has_origins else None,
        ("hardware", False, lambda each: escape(hardware.hardware(each.row))) if several else None,
        ("priced on", False, lambda each: escape(hardware.machine(each.row))) if len(machines) > 1 else None,
        ("score", True, lambda each: digits(each.score, ".2f")) if query.rank_by is None else None,
        *(value(axis) for axis in board.shown),
        ("other queries", True, lambda each: _places(each.by_queries)) if varied else None,
        ("", False, _remark),
    ]
    preset = next((f" ({each.name})" for each in PRESETS if dict(each.weights) == dict(query.weights)), "")
    weights = ", ".join(f"{name} {weight:g}" for name, weight in query.weights.items()) + preset
    marks = hardware.explain_marks([each.row for each in ranked], escape)
    priced = escape(f"priced on {machine}") if len(machines) == 1 and (machine := next(iter(machines))) else ""
    parts = (_caption(board, escape), f"weights {weights}" if query.rank_by is None else "", priced, marks)
    heading = ", ".join(part for part in parts if part)
    lines = [
        *map(escape, left_out_records(board.table)),
        *map(escape, _without_score(board)),
        *(f"not ranked: {escape(_left_out(*left))}" for left in board.left_out[:2]),
        *summary.doubts([each.row for each in ranked], escape),
    ]
    shown = few_lines(lines, "all columns, methods and notes: --wide")
    return Section(lead=(heading,), grids=(grid_of(ranked, columns, keys=2),), notes=shown)


def _without_score(board: Leaderboard) -> Iterator[str]:
    """Yield why no row has a score, and what gives it one."""
    lacking = {name: rate.status for name, rate in board.rates.items() if rate.value is None}
    if lacking:
        first, given = next(iter(lacking)), ",".join(f"{name}=NUMBER" for name in lacking)
        whys = joined_by_and(list(dict.fromkeys(status.why(name) for name, status in lacking.items())))
        yield (
            f"no score, no rank: {whys}, so nothing says how much {joined_by_and(list(lacking))} a point of accuracy"
            f" is worth. Say it with {option('amrs', given)}, or rank by one axis with {option('rank_by', first)}."
        )


def _left_out(row: Row, reason: str) -> str:
    why = reason if row.outcome is Outcome.OK else summary.failure(row)
    return f"{row.system} on {hardware.hardware(row)} ({why})"


def _places(span: RankInterval, to: str = " to ") -> str:
    if span.best is None or span.worst is None:
        return MISSING
    return f"{span.best}" if span.best == span.worst else f"{span.best}{to}{span.worst}"


def _remark(ranked: RankedRow) -> str:
    state = ranked.state.value if ranked.state and ranked.state is not FrontState.DOMINATED else ""
    return ", ".join(word for word in (state, ranked.row.validity.doubt) if word)


def _section(board: Leaderboard, escape: Escape) -> Section:
    rows = [ranked.row for ranked in board.ranked_rows]
    shared, _ = shared_notes(rows)
    footnotes, origins = Footnotes(escape), board.has_origins
    ranked = grid_of(
        board.ranked_rows, _columns(board, footnotes), caption=_caption(board, escape), keys=3 + int(origins)
    )
    names = [*_names(board, escape), named_column("suite", escape)]
    columns: list[GridColumn[tuple[Row, str]]] = [
        *(column_of(column, itemgetter(0)) for column in names),
        ("why", False, lambda left: escape(left[1])),
    ]
    left_out = grid_of(board.left_out, columns, caption="Not ranked", keys=2 + int(origins))
    return Section(
        grids=(ranked, left_out) if board.left_out else (ranked,),
        footnotes=footnotes.texts,
        notes=tuple(escape(note) for note in (*board.table.unreadable, *_method(board), *stand_ins(rows), *shared)),
    )


def _caption(board: Leaderboard, escape: Escape) -> str:
    """Return the dataset, the scenario, the criterion and the bounds."""
    query = board.query
    bounds = "".join(
        f", {word} {limit:g} {bound.axis}"
        for bound in query.bounds
        for word, limit in (("at most", bound.at_most), ("at least", bound.at_least))
        if limit is not None
    )
    by = f"by {query.rank_by}" if query.rank_by else f"by Dynascore ({_rates_name(board, escape)})"
    return f"{escape(query.dataset)}, {escape(board.place.scenario)}, {by}{bounds}"


def _rates_name(board: Leaderboard, escape: Escape) -> str:
    """Return which exchange rates the scores have: the paper's or the given ones with their values, or the mode."""
    if board.rates_source is None and not board.query.amrs:
        return board.mode
    units = {axis.name: axis.unit for axis in board.shown}
    amounts = {"ms": "{:g} ms", "US$ per million queries": "US$ {:g}"}
    given = [
        amounts.get(units[name], f"{{:g}} {units[name]}").format(rate.value)
        for name, rate in sorted(board.rates.items(), reverse=True)
        if rate.status is dynascore.RateStatus.GIVEN
    ]
    others = [name for name, rate in board.rates.items() if rate.status is not dynascore.RateStatus.GIVEN]
    computed = f"; {' and '.join(others)} {board.mode}" if others else ""
    whose = f"rates of {board.rates_source}" if board.rates_source else "rates as asked"
    return escape(f"{whose}: a point is worth {' or '.join(given)}{computed}")


def _columns(board: Leaderboard, notes: Footnotes) -> list[GridColumn[RankedRow] | None]:
    def value(axis: Axis) -> GridColumn[RankedRow]:
        def cell(ranked: RankedRow) -> str:
            figure = ranked.figures[axis.name]
            if figure.value is None:
                return notes.missing(figure.reason or "not measured")
            return bounded(figure, decimals=1 if axis.name == ACCURACY else None)

        return f"{axis.label}, {axis.unit}", True, cell

    def span(header: str, read: Callable[[RankedRow], RankInterval]) -> GridColumn[RankedRow]:
        return header, False, lambda ranked: _span(read(ranked), notes)

    escape, scored = notes.escape, board.query.rank_by is None
    return [
        ("rank", True, lambda ranked: digits(ranked.rank, "d")),
        *(
            column_of(column, attrgetter("row"))
            for column in (*_names(board, escape), instance_column(board.table, notes))
        ),
        ("Dynascore", True, lambda ranked: digits(ranked.score, ".3f")) if scored else None,
        *(value(axis) for axis in board.shown),
        span("rank, other queries", lambda ranked: ranked.by_queries),
        span("rank, without each system", lambda ranked: ranked.by_systems),
        span(f"rank, weights ± {PERTURBATION:g}", lambda ranked: ranked.by_weights) if scored else None,
        ("front", False, lambda ranked: ranked.state.value if ranked.state else MISSING),
        ("validity", False, lambda ranked: _validity(ranked.row, notes)),
    ]


def _names(board: Leaderboard, escape: Escape) -> list[GridColumn[Row]]:
    origin = [named_column("origin", escape)] if board.has_origins else []
    return [system_column(escape), *origin, profile_column(escape)]


def _validity(row: Row, notes: Footnotes) -> str:
    """Return the validity with the facts behind a doubt; `harness report` has their remedies too."""
    doubts = [finding.text.partition("; ")[0] for finding in row.findings if finding.validity.doubt]
    return row.validity.value + notes.mark(*doubts)


def _span(span: RankInterval, notes: Footnotes) -> str:
    return notes.missing(span.reason) if span.best is None else _places(span, "–")


def _method(board: Leaderboard) -> Iterator[str]:
    """Yield what the ranks depend on: weights, rates, the set of systems; and how intervals were made."""
    query, table, rows = board.query, board.table, [ranked.row for ranked in board.ranked_rows]
    yield (
        f"Accuracy: {query.measure} x 100, in points. Intervals are 95 %; the intervals of latency and cost cover both "
        "other queries and another measurement of these."
    )
    if query.rank_by is None:
        yield f"Weights: {', '.join(f'{name} {weight:g}' for name, weight in query.weights.items())}."
        yield (
            "Dynascore: the sum of weight x value / AMRS, what is better when smaller negated (Ma et al. 2021; "
            "Santhanam et al. 2023, equations 1 and 2); the AMRS of accuracy is 1."
        )
        yield f"AMRS (units for a point of accuracy), {board.rates_source or board.mode}: {_rates(board)}."
        if any(rate.status is not dynascore.RateStatus.GIVEN for rate in board.rates.values()):
            yield _rates_method(board)
    yield f"Set of systems: {', '.join(board.systems)} ({counted(len(rows), 'row')})."
    yield from _spans(board)
    yield (
        f"Front over {', '.join(query.front)}: dominated, another row is surely at least as good on each and "
        "better on one; contested, it is so by the figures but the intervals leave it open (figures without an "
        "interval count as they stand; accuracy is compared query by query where that is known)."
    )
    yield from (*notes.of_origins(rows), *notes.of_judgements(rows), *notes.of_unjudged(rows))
    yield (
        f"Prices: {table.price_provider} {table.price_region}, Linux {table.price_term}, {table.price_date} "
        f"(source: {table.price_source})."
    )
    if contested := sum(ranked.state is FrontState.CONTESTED for ranked in board.ranked_rows):
        yield (
            f"{counted(contested, 'row')} contested: harness run SUITE --contested RESULTS measures them again. More "
            f"queries narrow the intervals: {MORE_QUERIES}."
        )


def _rates(board: Leaderboard) -> str:
    """Return the AMRS values with their units and their numbers of pairs or their status."""
    units = {axis.name: axis.unit for axis in board.shown}
    parts = []
    for name, rate in board.rates.items():
        if rate.value is None:
            parts.append(f"{name} none ({rate.status.why(name)})")
        else:
            source = "given" if rate.status is dynascore.RateStatus.GIVEN else counted(rate.pairs, "pair")
            parts.append(f"{name} {rate.value:.6g} {units[name]} ({source})")
    return ", ".join(parts) or "none needed"


def _rates_method(board: Leaderboard) -> str:
    if board.mode == "reference":
        return (
            "Mode reference: the mean of |d metric| / |d accuracy| over neighbouring rows by accuracy (equal ones by "
            f"system, profile, key) that differ by more than {dynascore.LEAST_SHARE:g} of the largest; it depends on "
            "which machines each system was measured on. Mode robust does not."
        )
    return (
        "Mode robust: for each metric, rows within the cut-off of one another in accuracy are one group, which its "
        "best row stands for; the median over neighbouring groups. "
        f"Cut-off: {board.cutoff:.3g} points ({_cutoff(board)})."
    )


def _cutoff(board: Leaderboard) -> str:
    if board.query.cutoff is not None:
        return "as asked"
    if any(ranked.by_queries.best is not None for ranked in board.ranked_rows):
        return "half the 95 % interval of a paired difference over these queries, the median over pairs of rankings"
    return "to which the source rounds" if board.cutoff else "accuracies have no interval"


def _spans(board: Leaderboard) -> Iterator[str]:
    first = board.ranked_rows[0].by_queries
    yield (
        f"Rank, other queries: 95 % of the ranks over {RESAMPLES:,} resamples of the queries, the same ones for every "
        f"row{'; cost moves with latency' if board.place.scenario == 'single_stream' else ''}."
        if first.best is not None
        else f"Rank, other queries: not known ({first.reason})."
    )
    yield "Rank, without each system: the best and the worst place among the others when any one of them is taken out."
    if board.query.rank_by is None:
        moved = f"each moved by up to {PERTURBATION:g}"
        yield f"Rank, weights: 95 % of the ranks over {PERTURBED:,} sets of weights, {moved}."


def _lines(board: Leaderboard) -> Iterator[Sequence[Value]]:
    """Yield a line for each ranked row, then for each row left out, which has a reason and no rank."""
    records = [_csv_record(ranked, board) for ranked in board.ranked_rows]
    records += [{**facts(row, *_NAMES), "reason": reason} for row, reason in board.left_out]
    last = ("validity", "key", "reason", *(["origin"] if board.has_origins else []), "isolation")
    names = [*(name for name in records[0] if name not in (*last, "origin")), *last]
    yield from lines_of_records(records, names)


def _csv_record(ranked: RankedRow, board: Leaderboard) -> dict[str, Value]:
    row = ranked.row
    record: dict[str, Value] = {
        "rank": ranked.rank,
        **facts(row, *_NAMES, *_PRICED),
        "dynascore": ranked.score,
    }
    for axis in board.shown:
        record |= with_ends(f"{axis.name}_{_UNITS.get(axis.unit, axis.unit.lower())}", ranked.figures[axis.name])
    for name in ("queries", "systems", "weights"):
        span: RankInterval = getattr(ranked, f"by_{name}")
        record |= {f"rank_{name}_best": span.best, f"rank_{name}_worst": span.worst}
    return record | {"front": ranked.state.value if ranked.state else None}


def _content(board: Leaderboard) -> dict[str, Any]:
    query, table = board.query, board.table
    return {
        "leaderboard_version": LEADERBOARD_VERSION,
        "dataset": query.dataset,
        "measure": query.measure,
        "mode": board.mode,
        "amrs_source": board.rates_source,
        "weights": dict(query.weights),
        "rank_by": query.rank_by,
        "bounds": [asdict(bound) for bound in query.bounds],
        "cutoff_points": board.cutoff,
        "asked": {"cutoff": query.cutoff, "suite": query.suite, "scenario": query.scenario},
        "amrs": {
            name: {"value": rate.value, "status": rate.status.value, "pairs": rate.pairs}
            for name, rate in board.rates.items()
        },
        "axes": {axis.name: {"label": axis.label, "unit": axis.unit, "higher": axis.higher} for axis in board.shown},
        "front_axes": list(query.front),
        "compared": board.place._asdict(),
        "systems": list(board.systems),
        "prices": price_facts(table),
        "unreadable": list(table.unreadable),
        "rows": [_ranked_row(ranked) for ranked in board.ranked_rows],
        "left_out": [{**facts(row, *_NAMES, "outcome"), "reason": reason} for row, reason in board.left_out],
    }


def _ranked_row(ranked: RankedRow) -> dict[str, Any]:
    row = ranked.row
    return {
        "rank": ranked.rank,
        **facts(row, *_NAMES, *_PRICED, "stand_in"),
        "dynascore": ranked.score,
        "figures": {name: asdict(figure) for name, figure in ranked.figures.items()},
        **{f"rank_{name}": asdict(getattr(ranked, name)) for name in ("by_queries", "by_systems", "by_weights")},
        "front": ranked.state.value if ranked.state else None,
        "notes": list(row.notes),
    }
