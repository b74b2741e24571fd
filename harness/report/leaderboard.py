"""A leaderboard: a grid of ranked rows, what the ranks depend on, and the rows left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.analysis import dynascore, notes
from harness.analysis.axes import ACCURACY, Axis
from harness.analysis.leaderboard import PERTURBATION, PERTURBED, ExcludedRow, Leaderboard, RankedRow, RankInterval
from harness.analysis.pareto_front import FrontState
from harness.analysis.resampling import RESAMPLES
from harness.analysis.table import Row, Validity
from harness.report.document import (
    MISSING,
    Escape,
    Footnotes,
    Grid,
    GridColumn,
    ReportDocument,
    Section,
    Value,
    bounded,
    grid_of,
    stand_ins,
    system_name,
)
from harness.report.main_table import shared_notes
from harness.stats import Estimate

# Version of the JSON.
LEADERBOARD_VERSION = 1
_DOUBTED = (Validity.NOISY, Validity.INVALID)


def leaderboard_document(board: Leaderboard) -> ReportDocument:
    """Return the document of a leaderboard: ranked rows, what the ranks depend on, and the rows left out."""
    return ReportDocument(
        sections=lambda escape: (_section(board, escape),),
        lines=lambda: _lines(board),
        content=lambda: _content(board),
        padded=False,
    )


def _section(board: Leaderboard, escape: Escape) -> Section:
    footnotes = Footnotes(escape)
    rows = [standing.row for standing in board.ranked_rows]
    shared, _ = shared_notes(rows)
    origins = 1 if board.has_origins else 0
    ranked = grid_of(
        board.ranked_rows, _columns(board, footnotes, escape), caption=_caption(board, escape), keys=3 + origins
    )
    left_out = _left_out(board, escape)
    return Section(
        grids=(ranked, left_out) if left_out else (ranked,),
        footnotes=footnotes.texts,
        notes=tuple(escape(note) for note in (*_method(board), *stand_ins(rows), *shared)),
    )


def _caption(board: Leaderboard, escape: Escape) -> str:
    """Return the dataset, the scenario, the criterion and the bounds."""
    asked = board.query
    kept = "".join(
        f", {word} {limit:g} {axis}"
        for bound in asked.bounds
        for word, limit, axis in (("at most", bound.at_most, bound.axis), ("at least", bound.at_least, bound.axis))
        if limit is not None
    )
    by = f"by {asked.rank_by}" if asked.rank_by else f"by Dynascore ({asked.mode})"
    return f"{escape(asked.dataset)}, {escape(board.place.scenario)}, {by}{kept}"


def _columns(board: Leaderboard, notes: Footnotes, escape: Escape) -> list[GridColumn[RankedRow]]:
    def value(axis: Axis) -> GridColumn[RankedRow]:
        return f"{axis.label}, {axis.unit}", True, lambda each: _value(each.figures[axis.name], axis, notes)

    def span(header: str, read: Callable[[RankedRow], RankInterval]) -> GridColumn[RankedRow]:
        return header, False, lambda each: _span(read(each), notes)

    scored = board.query.rank_by is None
    columns: list[GridColumn[RankedRow]] = [
        ("rank", True, lambda each: MISSING if each.rank is None else str(each.rank)),
        ("system", False, lambda each: system_name(each.row, escape)),
    ]
    if board.has_origins:
        columns.append(("origin", False, lambda each: _origin(each.row, escape)))
    columns += [
        ("hardware profile", False, lambda each: _profile(each.row, escape)),
        (f"instance type (US$/h, {board.table.price_date})", False, lambda each: _instance(each.row, notes, escape)),
    ]
    if scored:
        columns.append(("Dynascore", True, lambda each: MISSING if each.score is None else f"{each.score:.3f}"))
    columns += [value(axis) for axis in board.shown]
    columns.append(span("rank, other queries", lambda each: each.by_queries))
    columns.append(span("rank, without each system", lambda each: each.by_systems))
    if scored:
        columns.append(span(f"rank, weights ± {PERTURBATION:g}", lambda each: each.by_weights))
    return [
        *columns,
        ("front", False, lambda each: MISSING if each.state is None else each.state.value),
        ("validity", False, lambda each: _validity(each.row, notes)),
    ]


def _origin(row: Row, escape: Escape) -> str:
    return MISSING if row.origin is None else escape(row.origin)


def _profile(row: Row, escape: Escape) -> str:
    isolation = "" if row.isolation.value in ("container", "published") else f" ({row.isolation.value})"
    return escape(row.profile) + isolation


def _instance(row: Row, notes: Footnotes, escape: Escape) -> str:
    price = MISSING if row.price is None else f"{escape(row.price.instance_type)} ({row.price.usd_per_hour:g})"
    return price + notes.mark(row.price_note)


def _validity(row: Row, notes: Footnotes) -> str:
    """Return the validity with the facts behind a doubt; `harness report` has their remedies too."""
    doubts = [finding.text.partition("; ")[0] for finding in row.findings if finding.validity in _DOUBTED]
    return row.validity.value + notes.mark(*doubts)


def _value(figure: Estimate, axis: Axis, notes: Footnotes) -> str:
    if figure.value is None:
        return MISSING + notes.mark(figure.reason or "not measured")
    if axis.name != ACCURACY:
        return bounded(figure)
    low, high = figure.low, figure.high
    return f"{figure.value:.1f}" + ("" if low is None or high is None else f" ({low:.1f}–{high:.1f})")


def _span(span: RankInterval, notes: Footnotes) -> str:
    if span.best is None or span.worst is None:
        return MISSING + notes.mark(span.reason)
    return str(span.best) if span.best == span.worst else f"{span.best}–{span.worst}"


def _left_out(board: Leaderboard, escape: Escape) -> Grid | None:
    if not board.left_out:
        return None
    columns: list[GridColumn[ExcludedRow]] = [
        ("system", False, lambda each: system_name(each.row, escape)),
        *([("origin", False, lambda each: _origin(each.row, escape))] if board.has_origins else []),
        ("hardware profile", False, lambda each: escape(each.row.profile)),
        ("suite", False, lambda each: escape(each.row.suite)),
        ("why", False, lambda each: escape(each.reason)),
    ]
    return grid_of(board.left_out, columns, caption="Not ranked", keys=len(columns) - 2)


def _method(board: Leaderboard) -> tuple[str, ...]:
    """Return what the ranks depend on: weights, rates, the set of systems; and how intervals were made."""
    asked = board.query
    said = [
        f"Accuracy: {asked.measure} x 100, in points. Intervals are 95 %; those of latency and cost hold both, for "
        "other queries and for measuring these again."
    ]
    if asked.rank_by is None:
        weights = ", ".join(f"{name} {weight:g}" for name, weight in asked.weights.items())
        said += [
            f"Weights: {weights}.",
            "Dynascore: the sum of weight x value / AMRS, what is better when smaller negated (Ma et al. 2021; "
            "Santhanam et al. 2023, equations 1 and 2); the AMRS of accuracy is 1.",
            f"AMRS (units for a point of accuracy), {asked.mode}: {_rates(board)}.",
            _rates_method(board),
        ]
    said.append(f"Set of systems: {', '.join(board.systems)} ({_count(len(board.ranked_rows), 'row')}).")
    rows = [each.row for each in board.ranked_rows]
    said += [*_spans(board), _front(board), *notes.of_origins(rows)]
    said += [*notes.of_judgements(rows), *notes.of_unjudged(rows)]
    table = board.table
    said.append(
        f"Prices: {table.price_provider} {table.price_region}, Linux {table.price_term}, {table.price_date} "
        f"(source: {table.price_source})."
    )
    contested = [each for each in board.ranked_rows if each.state is FrontState.CONTESTED]
    if contested:
        said.append(
            f"{_count(len(contested), 'row')} contested: harness run SUITE --contested RESULTS measures them again, "
            "with more queries in the suite the intervals narrow."
        )
    return tuple(said)


def _rates(board: Leaderboard) -> str:
    """Return the AMRS values with their units and their numbers of pairs or their status."""
    units = {axis.name: axis.unit for axis in board.shown}
    parts = []
    for name, rate in board.rates.items():
        if rate.value is None:
            parts.append(f"{name} undefined ({rate.status.value})")
            continue
        made = "given" if rate.status is dynascore.RateStatus.GIVEN else _count(rate.pairs, "pair")
        parts.append(f"{name} {rate.value:.6g} {units[name]} ({made})")
    return ", ".join(parts) or "none needed"


def _rates_method(board: Leaderboard) -> str:
    if board.query.mode == "reference":
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
    if any(each.by_queries.best is not None for each in board.ranked_rows):
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


def _front(board: Leaderboard) -> str:
    return (
        f"Front over {', '.join(board.query.front)}: dominated, another row is surely at least as good on each and "
        "better on one; contested, it is so by the figures but the intervals leave it open (figures without an "
        "interval count as they stand; accuracy is compared query by query where that is known)."
    )


def _count(number_of: int, word: str) -> str:
    return f"{number_of:,} {word}{'' if number_of == 1 else 's'}"


def _lines(board: Leaderboard) -> Iterator[Sequence[Value]]:
    """Yield a line for each ranked row, then for each row left out, which has a reason and no rank."""
    axes = [axis.name for axis in board.shown]
    head: list[Value] = ["rank", "system", "hardware_profile", "suite", "instance_type", "price_usd_per_hour"]
    head.append("dynascore")
    for axis in board.shown:
        unit = _unit(axis.unit)
        head += [f"{axis.name}_{unit}", f"{axis.name}_{unit}_low", f"{axis.name}_{unit}_high"]
    head += [f"rank_{name}_{end}" for name in ("queries", "systems", "weights") for end in ("best", "worst")]
    head += ["front", "validity", "key", "reason"]
    columns = len(head)
    head += ["origin"] if board.has_origins else []
    yield head
    for standing in board.ranked_rows:
        yield (*_line(standing, axes), standing.row.origin)[: len(head)]
    for left in board.left_out:
        yield (*_reason(left, columns), left.row.origin)[: len(head)]


def _unit(unit: str) -> str:
    return {"US$ per million queries": "usd_per_million_queries", "queries/s": "qps"}.get(unit, unit.lower())


def _line(each: RankedRow, axes: list[str]) -> list[Value]:
    row = each.row
    price = (row.price.instance_type, row.price.usd_per_hour) if row.price else (None, None)
    line: list[Value] = [each.rank, row.system, row.profile, row.suite, *price, each.score]
    for name in axes:
        figure = each.figures[name]
        line += [figure.value, figure.low, figure.high]
    for span in (each.by_queries, each.by_systems, each.by_weights):
        line += [span.best, span.worst]
    return [*line, each.state.value if each.state else None, row.validity.value, row.key, None]


def _reason(left: ExcludedRow, columns: int) -> list[Value]:
    row = left.row
    line: list[Value] = [None, row.system, row.profile, row.suite]
    line += [None] * (columns - len(line) - 3)
    return [*line, row.validity.value, row.key, left.reason]


def _content(board: Leaderboard) -> dict[str, Any]:
    asked, table = board.query, board.table
    return {
        "leaderboard_version": LEADERBOARD_VERSION,
        "dataset": asked.dataset,
        "measure": asked.measure,
        "mode": asked.mode,
        "weights": dict(asked.weights),
        "rank_by": asked.rank_by,
        "bounds": [dataclasses.asdict(bound) for bound in asked.bounds],
        "cutoff_points": board.cutoff,
        "asked": {"cutoff": asked.cutoff, "suite": asked.suite, "scenario": asked.scenario},
        "amrs": {
            name: {"value": rate.value, "status": rate.status.value, "pairs": rate.pairs}
            for name, rate in board.rates.items()
        },
        "axes": {axis.name: {"label": axis.label, "unit": axis.unit, "higher": axis.higher} for axis in board.shown},
        "front_axes": list(asked.front),
        "compared": board.place._asdict(),
        "systems": list(board.systems),
        "prices": {
            "provider": table.price_provider,
            "region": table.price_region,
            "term": table.price_term,
            "date": table.price_date,
            "source": table.price_source,
        },
        "rows": [_ranked_row(each) for each in board.ranked_rows],
        "left_out": [
            {"system": each.row.system, "profile": each.row.profile, "suite": each.row.suite, "key": each.row.key}
            | {"origin": each.row.origin, "outcome": each.row.outcome.value, "reason": each.reason}
            for each in board.left_out
        ],
    }


def _ranked_row(each: RankedRow) -> dict[str, Any]:
    row = each.row
    return {
        "rank": each.rank,
        "system": row.system,
        "profile": row.profile,
        "suite": row.suite,
        "key": row.key,
        "origin": row.origin,
        "instance_type": row.price.instance_type if row.price else None,
        "price_usd_per_hour": row.price.usd_per_hour if row.price else None,
        "dynascore": each.score,
        "figures": {name: dataclasses.asdict(figure) for name, figure in each.figures.items()},
        "rank_by_queries": dataclasses.asdict(each.by_queries),
        "rank_by_systems": dataclasses.asdict(each.by_systems),
        "rank_by_weights": dataclasses.asdict(each.by_weights),
        "front": each.state.value if each.state else None,
        "validity": row.validity.value,
        "stand_in": row.stand_in,
        "notes": list(row.notes),
    }
