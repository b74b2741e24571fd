"""Results as one HTML file that opens from disk: table, sliders, plots, evidence; nothing is fetched.

``page.html`` holds the static elements, ``page.css`` their looks; the ``*.js`` compute and draw with the charting
library in ``vendor/`` (``scripts/vendor-echarts``).  The data are JSON that cannot end its script element, and the page
shows texts as texts only.  Its content security policy runs no other script and fetches nothing.

The page computes scores, ranks, fronts and costs as :mod:`harness.analysis.dynascore`,
:mod:`harness.analysis.pareto_front` and :mod:`harness.pricing.cost` do.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np

import harness
from harness.analysis import axes, bills, dynascore, leaderboard, notes
from harness.analysis.axes import ComparisonGroup
from harness.analysis.leaderboard import LeaderboardQuery
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Machine, Table
from harness.errors import UsageError
from harness.report import explain
from harness.report.figures import Figure, Place
from harness.report.page.answer import encodable, html_text
from harness.report.page.groups import DRAWS, WEIGHED, RankingData, group_id, group_record
from harness.report.page.rows import (
    SharedValues,
    ShortParagraph,
    all_tariffs,
    bill_facts,
    page_figures,
    row_record,
    short_paragraphs,
    snapshot_records,
)
from harness.results.schema import NULL_SYSTEM
from harness.untrusted import Text, one_line

_HERE = Path(__file__).parent
_LIBRARY = "vendor/echarts.js"
# The page's own script is these files, joined in one scope: a name is declared once in all of them.
SCRIPTS = (
    "numbers.js",
    "elements.js",
    "data.js",
    "columns.js",
    "dynascore.js",
    "bill.js",
    "front.js",
    "winners.js",
    "state.js",
    "view.js",
    "rank_spans.js",
    "controls.js",
    "cells.js",
    "table.js",
    "explained.js",
    "evidence.js",
    "charts.js",
    "chart_front.js",
    "chart_winners.js",
    "chart_ecdf.js",
    "chart_memory.js",
    "chart_cost.js",
    "chart_bill.js",
    "main.js",
)
# Characters that could end a script element, open a comment in it, or break a line of JavaScript.
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class PageSource:
    """Inputs of a page.

    ``tariff`` has the prices that the page opens with, ``quantiles_s`` the quantiles of each row's samples by
    :attr:`harness.analysis.table.Row.per_query_key`.  ``notes`` are sentences about methods, ``about`` lines on the
    results.  ``view`` is the URL fragment that the page opens with; empty: the usual view.
    """

    title: str
    measured: Table
    tariff: Tariff
    ranking: RankingData
    quantiles_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    view: str = ""


def page_content(source: PageSource) -> dict[str, Any]:
    """Return the data of a page.

    Raises:
        FileError: a file of prices or facts is missing or wrong.
    """
    measures = source.measured.measures
    shared = SharedValues()
    of_group = axes.group_rows(source.measured.rows)
    groups = {group: number for number, group in enumerate(of_group)}
    billed = list(dict.fromkeys(bills.place_of(rows[0]) for rows in of_group.values()))
    # The order of equal scores.  Python decides it, as JavaScript orders texts differently.
    rows = sorted(source.measured.rows, key=lambda row: (row.system, row.profile, row.per_query_key))
    numbers = {row.per_query_key: number for number, row in enumerate(rows)}
    figures, at_one_dollar = page_figures(replace(source.measured, rows=tuple(rows)), source.tariff)
    lines = [
        row_record(
            row,
            priced,
            groups[axes.comparison_group(row)],
            figures,
            source.quantiles_s.get(row.per_query_key, ()),
            shared,
            source.tariff,
        )
        for row, priced in zip(rows, at_one_dollar, strict=True)
    ]
    known = all_tariffs(source.tariff)
    content = {
        "title": one_line(source.title),
        "about": [one_line(line) for line in source.about],
        "harness": harness.__version__,
        "measures": [one_line(name) for name in measures],
        "axes": [
            {
                "name": axis.name,
                "label": axis.label,
                "unit": axis.unit,
                "heading": axis.unit if axis.name == "cost" else f"{axis.label}, {axis.unit}",
                "higher": axis.higher,
            }
            for axis in (axes.accuracy(""), *axes.OTHERS.values())
        ],
        "figures": [_figure(each) for each in figures],
        "columns": list(_columns(source.measured, figures, shared)),
        "presets": [
            {"name": preset.name, "weights": [round(1000 * preset.weights.get(axis, 0)) for axis in WEIGHED]}
            for preset in leaderboard.PRESETS
        ],
        "perturbation": leaderboard.PERTURBATION,
        "perturbations": np.round(leaderboard.weight_shifts(3)[:DRAWS], 5).tolist(),
        "explained": _explained(source.measured, shared),
        "snapshots": snapshot_records(shared.needs, known, shared),
        "snapshot": [tariff.snapshot for tariff in known].index(source.tariff.snapshot),
        "view": source.view,
        "groups": [
            group_record(group, groups, measures, numbers, source.ranking)
            | {"bills": billed.index(bills.place_of(of_group[group][0]))}
            for group in groups
        ],
        "bills": bill_facts(),
        "machines": [_machine(each, shared) for each in shared.machines],
        "null": {"system": NULL_SYSTEM, "meaning": notes.NULL_METHOD},
        "notes": [one_line(note) for note in source.notes],
        "rows": lines,
    }
    return {**content, "texts": list(shared.texts)}


def _unit(figure: Figure) -> str:
    """Return the unit that follows a number of the page; a title may begin with it."""
    return "%" if figure.percent else "" if figure.title.startswith(figure.unit) else figure.unit


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": one_line(figure.alias),
        "label": one_line(figure.title),
        "unit": _unit(figure),
        "prices": figure.prices.name.lower(),
    }


# Columns of the page around its figures: name, heading, whether it is a number, the column that ``harness explain``
# knows and its paragraph on a row.
_BEFORE = (
    ("rank", "rank", True, "", ""),
    ("system", "system", False, "", ""),
    ("origin", "origin", False, "", ""),
    ("group", "comparison group", False, "", ""),
    ("profile", "hardware profile", False, "", ""),
    ("instance", "instance type, US$/h", False, "instance_type", "Cost"),
    ("score", "Dynascore", True, "", ""),
    (axes.ACCURACY, "accuracy, points", True, "", "Quality"),
)
_AFTER = (
    ("front", "front", False, "", ""),
    ("outcome", "outcome", False, "outcome", "Outcome"),
    ("validity", "validity", False, "validity", ""),
)


def _columns(table: Table, figures: Sequence[Figure], texts: SharedValues) -> Iterator[dict[str, Any]]:
    """Yield the columns of the page's table, in its order."""

    def column(name: str, text: str, numeric: bool, known: str, told: str) -> dict[str, Any]:
        meaning = short_paragraphs(explain.column_paragraphs(known, table), texts) if known else []
        return {"name": name, "text": text, "numeric": numeric, "title": told, "meaning": meaning, "higher": False}

    for parts in _BEFORE:
        yield column(*parts) | {"higher": parts[0] in ("score", axes.ACCURACY), "figure": parts[0] == axes.ACCURACY}
    for number, figure in enumerate(figures):
        if Place.PAGE_TABLE in figure.places:
            heading = ", ".join(filter(None, (figure.title, _unit(figure))))
            own = {
                "figure": True,
                "number": number,
                "higher": figure.higher,
                "interval": bool(figure.interval or figure.bounds),
                "foreign": figure.name in table.foreign,
            }
            yield column(figure.alias, heading, True, figure.alias, figure.told) | own
    for parts in _AFTER:
        yield column(*parts)


def _explained(table: Table, texts: SharedValues) -> dict[str, Any]:
    """Return the texts on measures and causes, and the templates of a cost."""

    def column(name: str) -> list[ShortParagraph]:
        return short_paragraphs(explain.column_paragraphs(name, table), texts)

    causes = {finding.cause for row in table.rows for finding in row.findings}
    return {
        "measures": [column(name) for name in table.measures],
        "remedies": {
            cause.value: [texts.number(text) for _, text in list(explain.cause_paragraphs(cause, ()))[1:]]
            for cause in sorted(causes, key=lambda cause: cause.value)
        },
        "cost": {
            "sequential": explain.SEQUENTIAL,
            "saturated": explain.SATURATED,
            "machine": explain.MACHINE,
            "none": explain.NO_COST,
        },
        "bill": {**explain.BILL_PARTS, "none": explain.NO_BILL},
    }


_MACHINE_LABELS = {
    "cpu_model": "processor",
    "architecture": "architecture",
    "kernel": "kernel",
    "cgroup_version": "cgroup version",
    "docker_version": "container engine",
    "harness_version": "harness",
    "harness_commit": "harness commit",
    "gpu_models": "GPUs",
    "instance_type": "instance type",
    "host_cpus": "CPUs of harness and job",
}


def _machine(machine: Machine, texts: SharedValues) -> list[tuple[str, int | None]]:
    """Return the known facts of a machine: labels and numbers of texts."""
    facts = vars(machine) | {"gpu_models": ", ".join(map(str, machine.gpu_models))}
    known = {label: facts[name] for name, label in _MACHINE_LABELS.items() if facts[name] not in (None, "")}
    return [(label, texts.number(value if isinstance(value, Text) else str(value))) for label, value in known.items()]


def render_page(content: dict[str, Any], answer: str = "", bills: str = "") -> str:
    """Return the HTML file of a page's data, answer and bills; the same data always give the same bytes."""
    own = "".join(map(_read, SCRIPTS))
    scripts = [_read(_LIBRARY), f'(() => {{\n"use strict";\n{own}}})();\n']
    assert not any("</script" in text.lower() or "<!--" in text for text in scripts), "a script would end its element"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(_hash(text) for text in scripts)}",
            "style-src 'unsafe-inline'",  # the charting library sets style attributes
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = {
        "policy": policy,
        "title": html_text(content["title"]),
        "about": html_text(" · ".join(content["about"])),
        "version": html_text(content["harness"]),
        "notes": "\n".join(f"      <li>{html_text(note)}</li>" for note in content["notes"]),
        "answer": answer,
        "bills": bills,
        "style": _read("page.css"),
        "data": in_script(content),
        "licence": html_text(_read("vendor/NOTICE").strip()),
        "scripts": "\n".join(f"<script>{text}</script>" for text in scripts),
    }
    # One pass, so that no filled-in text is searched for places to fill.
    frame = _read("page.html").split("%%")
    return "".join(parts[part] if number % 2 else part for number, part in enumerate(frame))


def in_script(content: Any) -> str:
    """Return JSON that is safe inside a script element, with any texts in it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    return encodable(text)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def check_view(asked: LeaderboardQuery) -> None:
    """Check that a page can show the leaderboard.

    Raises:
        UsageError: it cannot; the message names the option.
    """
    others = {name for name, weight in asked.weights.items() if weight} - set(WEIGHED)
    for option, given in (
        ("--weights", others),
        ("--amrs", set(asked.amrs) - set(WEIGHED)),
        ("--at-most or --at-least", asked.bounds),
        ("--rank-by", asked.rank_by),
        ("--cutoff", asked.cutoff is not None),
    ):
        if given:
            raise UsageError(
                f"--format html weighs accuracy, cost and latency, with a cut-off of its own; leave {option} out, "
                "or take another --format"
            )


def view_fragment(asked: LeaderboardQuery, where: ComparisonGroup) -> str:
    """Return the URL fragment of a leaderboard's rows, measure, weights, mode and fixed rates.

    Without a mode the page takes the rates that were published with the rows, unless others are fixed.
    """
    mode = asked.mode or (dynascore.MODES[0] if asked.amrs else None)
    chosen = {
        "g": group_id(where),
        "m": asked.measure,
        "w": ",".join(f"{asked.weights.get(name, 0.0):.3f}" for name in WEIGHED),
        **({} if mode is None else {"mode": mode}),
        **{f"r{name}": repr(rate) for name, rate in asked.amrs.items()},
    }
    return urlencode(chosen)
