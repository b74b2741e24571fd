"""A leaderboard for programs: CSV and JSON, full precision, missing numbers empty or ``null`` with their reasons."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

from harness.leaderboard import Leaderboard, LeftOut, Standing
from harness.report.as_csv import written
from harness.report.columns import Value
from harness.standings import Span
from harness.table import Figure

# Version of the JSON.  History:
#   1  first version
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
    for each in board.standings:
        writer.writerow([written(value) for value in (*_line(each, axes), each.row.origin)[: len(head)]])
    for left in board.left_out:
        line = _reason(left, len(head) - board.has_origins)
        writer.writerow([written(value) for value in (*line, left.row.origin)[: len(head)]])
    return stream.getvalue()


def _unit(unit: str) -> str:
    return {"US$ per million queries": "usd_per_million_queries", "queries/s": "qps"}.get(unit, unit.lower())


def _line(each: Standing, axes: list[str]) -> list[Value]:
    row = each.row
    price = (row.price.instance_type, row.price.usd_per_hour) if row.price else (None, None)
    line: list[Value] = [each.rank, row.system, row.profile, row.suite, *price, each.score]
    for name in axes:
        figure = each.figures[name]
        line += [figure.value, figure.low, figure.high]
    for span in (each.by_queries, each.by_systems, each.by_weights):
        line += [span.best, span.worst]
    return [*line, each.state.value if each.state else None, row.validity.value, row.key, None]


def _reason(left: LeftOut, columns: int) -> list[Value]:
    row = left.row
    line: list[Value] = [None, row.system, row.profile, row.suite]
    line += [None] * (columns - len(line) - 3)
    return [*line, row.validity.value, row.key, left.reason]


def as_json(board: Leaderboard) -> str:
    """All of it; ASCII alone, so that a stranger's control characters reach no terminal."""
    return json.dumps(content(board), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def content(board: Leaderboard) -> dict[str, Any]:
    """What the JSON holds."""
    asked, table = board.asked, board.table
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
        "rows": [_standing(each) for each in board.standings],
        "left_out": [
            {"system": each.row.system, "profile": each.row.profile, "suite": each.row.suite, "key": each.row.key}
            | {"origin": each.row.origin, "outcome": each.row.outcome.value, "reason": each.reason}
            for each in board.left_out
        ],
    }


def _standing(each: Standing) -> dict[str, Any]:
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
        "figures": {name: _figure(figure) for name, figure in each.figures.items()},
        "rank_by_queries": _span(each.by_queries),
        "rank_by_systems": _span(each.by_systems),
        "rank_by_weights": _span(each.by_weights),
        "front": each.state.value if each.state else None,
        "validity": row.validity.value,
        "stand_in": row.stand_in,
        "notes": list(row.notes),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return dataclasses.asdict(figure)


def _span(span: Span) -> dict[str, Any]:
    return dataclasses.asdict(span)
