"""Measured rows and all known prices -> the data of a page, as plain JSON values.

What the page computes from it (scores, ranks, fronts, costs) is computed in Python by the modules that it names:
:mod:`harness.analysis.dynascore`, :mod:`harness.analysis.pareto_front`, :mod:`harness.pricing.cost`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import harness
from harness.analysis import axes, leaderboard
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Machine, Overhead, Row, Table
from harness.pricing import cost
from harness.report.page import groups, prices, row_details
from harness.report.page.compact import Texts, figure
from harness.report.page.groups import DRAWS, Weighing
from harness.untrusted import one_line

# Version of the data inside a page; a page reads its own alone.
CONTENT_VERSION = 1


@dataclass(frozen=True)
class Page:
    """What a page is made of.

    ``tariff`` has the prices that it opens with; ``quantiles_s`` those of a row's samples, by
    :attr:`Row.per_query_key`; ``notes`` are sentences about methods; ``about`` says what the results are, in one
    line each.  ``view`` is the URL fragment of what it opens with, where that is not the usual.
    """

    title: str
    measured: Table
    tariff: Tariff
    weighing: Weighing
    quantiles_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    view: str = ""


def of(page: Page) -> dict[str, Any]:
    """The data of a page.

    Raises:
        FileError: a file of prices or facts is missing or wrong.
    """
    measures = page.measured.measures
    shared = row_details.Shared()
    found = groups.numbered(page.measured.rows)
    # Equal scores stand in this order; the page has it from here, as JavaScript orders texts in another way.
    rows = sorted(page.measured.rows, key=_order)
    lines = [
        row_details.of(
            row, found[axes.comparison_group(row)], measures, page.quantiles_s.get(row.per_query_key) or None, shared
        )
        for row in rows
    ]
    known = prices.tariffs(page.tariff)
    texts = shared.texts
    content = {
        "version": CONTENT_VERSION,
        "title": one_line(page.title),
        "about": [one_line(line) for line in page.about],
        "harness": harness.__version__,
        "measures": [one_line(name) for name in measures],
        "axes": [_axis(each) for each in (axes.accuracy(""), *axes.OTHERS.values())],
        "presets": [{"name": name, "weights": dict(weights)} for name, weights in page.weighing.presets],
        "perturbation": leaderboard.PERTURBATION,
        "perturbations": np.round(leaderboard.weight_shifts(3)[:DRAWS], 5).tolist(),
        "formulas": {model.name: [model.formula, model.meaning] for model in cost.MODELS},
        "snapshots": prices.snapshots(shared.needs, known, texts),
        "snapshot": prices.default(page.tariff, known),
        "view": page.view,
        "groups": groups.of(
            found, measures, {row.per_query_key: number for number, row in enumerate(rows)}, page.weighing
        ),
        "machines": [_machine(each, texts) for each in shared.machines],
        "overhead": [_overhead(each, texts) for each in page.measured.overhead],
        "notes": [one_line(note) for note in page.notes],
        "rows": lines,
    }
    return {**content, "texts": texts.all()}


def _order(row: Row) -> tuple[str, str, str]:
    return row.system, row.profile, row.per_query_key


def _axis(axis: axes.Axis) -> dict[str, Any]:
    return {"name": axis.name, "label": axis.label, "unit": axis.unit, "higher": axis.higher}


def _machine(machine: Machine, texts: Texts) -> dict[str, Any]:
    """A machine's facts, those that are known."""
    facts = {name: value for name, value in dataclasses.asdict(machine).items() if value not in (None, (), [])}
    return {
        name: texts.number(value if isinstance(value, str) else ", ".join(value))
        if isinstance(value, str | tuple | list)
        else value
        for name, value in facts.items()
    }


def _overhead(null: Overhead, texts: Texts) -> dict[str, Any]:
    return {
        "suite": texts.number(null.suite),
        "profile": texts.number(null.profile),
        "isolation": null.isolation.value,
        "origin": texts.number(null.origin),
        "outcome": null.outcome.value,
        "detail": texts.number(null.detail),
        "validity": null.validity.value,
        "key": one_line(null.key),
        "mean": figure(null.latency_mean_s, texts, digits=4),
    }
