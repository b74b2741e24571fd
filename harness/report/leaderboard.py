"""A leaderboard -> what people read: a grid of ranked rows, what the ranks depend on, and the rows left out."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterator
from typing import Any

from harness.analysis import dynascore, notes
from harness.analysis.axes import ACCURACY, Axis
from harness.analysis.leaderboard import PERTURBATION, PERTURBED, ExcludedRow, Leaderboard, RankedRow, RankInterval
from harness.analysis.pareto_front import FrontState
from harness.analysis.resampling import RESAMPLES
from harness.analysis.table import Row, Validity
from harness.report.columns import Value
from harness.report.csv_json import written
from harness.report.layout import shared_notes
from harness.report.sheet import MISSING, Escape, Footnotes, Grid, Sheet, bounded, named, stand_ins
from harness.stats import Estimate

_DOUBTED = (Validity.NOISY, Validity.INVALID)


def lay_out(board: Leaderboard, escape: Escape) -> Sheet:
    """Arrange a leaderboard for people.

    Args:
        board: what is shown.
        escape: makes a stranger's text harmless where it will stand.
    """
    footnotes = Footnotes(escape)
    origins = ["origin"] if board.has_origins else []
    headers = ["rank", "system", *origins, "hardware profile", f"instance type (US$/h, {board.table.price_date})"]
    numeric = [True, False, *(False for _ in origins), False, False]
    if board.query.rank_by is None:
        headers.append("Dynascore")
        numeric.append(True)
    headers += [f"{axis.label}, {axis.unit}" for axis in board.shown]
    numeric += [True] * len(board.shown)
    headers += ["rank, other queries", "rank, without each system"]
    numeric += [False, False]
    if board.query.rank_by is None:
        headers.append(f"rank, weights ± {PERTURBATION:g}")
        numeric.append(False)
    headers += ["front", "validity"]
    numeric += [False, False]
    cells = tuple(_cells(each, board, footnotes, escape) for each in board.ranked_rows)
    below = _left_out(board, escape)
    rows = [each.row for each in board.ranked_rows]
    shared, _ = shared_notes(rows)
    return Sheet(
        caption=caption(board, escape),
        headers=tuple(headers),
        numeric=tuple(numeric),
        cells=cells,
        keys=3 + len(origins),
        below=below,
        footnotes=footnotes.texts,
        notes=tuple(escape(note) for note in (*sentences(board), *stand_ins(rows), *shared)),
    )


def caption(board: Leaderboard, escape: Escape) -> str:
    """What is ranked, and by what."""
    asked = board.query
    kept = "".join(
        f", {word} {limit:g} {axis}"
        for bound in asked.bounds
        for word, limit, axis in (("at most", bound.at_most, bound.axis), ("at least", bound.at_least, bound.axis))
        if limit is not None
    )
    by = f"by {asked.rank_by}" if asked.rank_by else f"by Dynascore ({asked.mode})"
    return f"{escape(asked.dataset)}, {escape(board.place.scenario)}, {by}{kept}"


def _cells(each: RankedRow, board: Leaderboard, notes: Footnotes, escape: Escape) -> tuple[str, ...]:
    row = each.row
    isolation = "" if row.isolation.value in ("container", "published") else f" ({row.isolation.value})"
    price = MISSING if row.price is None else f"{escape(row.price.instance_type)} ({row.price.usd_per_hour:g})"
    cells = [
        MISSING if each.rank is None else str(each.rank),
        named(row, escape),
        *_origin(row, board, escape),
        escape(row.profile) + isolation,
        price + notes.mark(row.price_note),
    ]
    if board.query.rank_by is None:
        cells.append(MISSING if each.score is None else f"{each.score:.3f}")
    cells += [_figure(each.figures[axis.name], axis, notes) for axis in board.shown]
    cells += [_span(each.by_queries, notes), _span(each.by_systems, notes)]
    if board.query.rank_by is None:
        cells.append(_span(each.by_weights, notes))
    # The facts alone; harness report says what to do about each.
    doubts = [each.text.partition("; ")[0] for each in row.findings if each.validity in _DOUBTED]
    state = MISSING if each.state is None else each.state.value
    return (*cells, state, row.validity.value + notes.mark(*doubts))


def _figure(figure: Estimate, axis: Axis, notes: Footnotes) -> str:
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
    cells = tuple(
        (
            named(each.row, escape),
            *_origin(each.row, board, escape),
            *(escape(text) for text in (each.row.profile, each.row.suite, each.reason)),
        )
        for each in board.left_out
    )
    headers = ("system", *(["origin"] if board.has_origins else []), "hardware profile", "suite", "why")
    return Grid("Not ranked", headers, (False,) * len(headers), cells, len(headers) - 2)


def _origin(row: Row, board: Leaderboard, escape: Escape) -> tuple[str, ...]:
    """The cell that rows of merged results have."""
    return (MISSING if row.origin is None else escape(row.origin),) if board.has_origins else ()


def sentences(board: Leaderboard) -> tuple[str, ...]:
    """What the ranks depend on: weights, rates, the set of systems; and how the spans were made."""
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
            f"AMRS (units for a point of accuracy), {asked.mode}: {rates(board)}.",
            _method(board),
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


def rates(board: Leaderboard) -> str:
    """The AMRS values, each with its unit, and the pairs that it was made of or its status."""
    units = {axis.name: axis.unit for axis in board.shown}
    parts = []
    for name, rate in board.rates.items():
        if rate.value is None:
            parts.append(f"{name} undefined ({rate.status.value})")
            continue
        made = "given" if rate.status is dynascore.RateStatus.GIVEN else _count(rate.pairs, "pair")
        parts.append(f"{name} {rate.value:.6g} {units[name]} ({made})")
    return ", ".join(parts) or "none needed"


def _method(board: Leaderboard) -> str:
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


# MERGED harness.report.leaderboard: A leaderboard for programs: CSV and JSON, full precision, missing numbers
# empty or ``null`` with their reasons.


# Version of the JSON.
LEADERBOARD_VERSION = 1


def as_csv(board: Leaderboard) -> str:
    """A line for each ranked row, then one for each row left out, which has no rank but a reason."""
    axes = [axis.name for axis in board.shown]
    head = ["rank", "system", "hardware_profile", "suite", "instance_type", "price_usd_per_hour", "dynascore"]
    for axis in board.shown:
        unit = _unit(axis.unit)
        head += [f"{axis.name}_{unit}", f"{axis.name}_{unit}_low", f"{axis.name}_{unit}_high"]
    spans = ("queries", "systems", "weights")
    head += [f"rank_{name}_{end}" for name in spans for end in ("best", "worst")]
    head += ["front", "validity", "key", "reason"]
    head += ["origin"] if board.has_origins else []
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    for each in board.ranked_rows:
        writer.writerow([written(value) for value in (*_line(each, axes), each.row.origin)[: len(head)]])
    for left in board.left_out:
        line = _reason(left, len(head) - board.has_origins)
        writer.writerow([written(value) for value in (*line, left.row.origin)[: len(head)]])
    return stream.getvalue()


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


def as_json(board: Leaderboard) -> str:
    """All of it; ASCII alone, so that a stranger's control characters reach no terminal."""
    return json.dumps(content(board), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def content(board: Leaderboard) -> dict[str, Any]:
    """What the JSON holds."""
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
        "rows": [_standing(each) for each in board.ranked_rows],
        "left_out": [
            {"system": each.row.system, "profile": each.row.profile, "suite": each.row.suite, "key": each.row.key}
            | {"origin": each.row.origin, "outcome": each.row.outcome.value, "reason": each.reason}
            for each in board.left_out
        ],
    }


def _standing(each: RankedRow) -> dict[str, Any]:
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
        "figures": {name: _figure_record(figure) for name, figure in each.figures.items()},
        "rank_by_queries": _span_record(each.by_queries),
        "rank_by_systems": _span_record(each.by_systems),
        "rank_by_weights": _span_record(each.by_weights),
        "front": each.state.value if each.state else None,
        "validity": row.validity.value,
        "stand_in": row.stand_in,
        "notes": list(row.notes),
    }


def _figure_record(figure: Estimate) -> dict[str, Any]:
    return dataclasses.asdict(figure)


def _span_record(span: RankInterval) -> dict[str, Any]:
    return dataclasses.asdict(span)
