"""Results as one HTML file that opens from disk: table, sliders, pictures, evidence; nothing is fetched.

``page.html`` is the frame, ``page.css`` its looks, the ``*.js`` what computes and draws, ``vendor/`` the charting
library (``scripts/vendor-echarts``).  All data go in as JSON in which no character can end the script element, and the
page shows texts as texts only; its content security policy lets no other script run and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from harness.analysis.axes import ComparisonGroup
from harness.analysis.leaderboard import LeaderboardQuery
from harness.errors import UsageError
from harness.report.page import groups
from harness.report.page.content import Page, of
from harness.report.page.groups import KnownRates, Relation, Weighing, weighing

__all__ = ["KnownRates", "Page", "Relation", "Weighing", "of", "render", "weighing"]

_HERE = Path(__file__).parent
# In this order: each may use what stands before it.
SCRIPTS = (
    "vendor/echarts.js",
    "numbers.js",
    "data.js",
    "dynascore.js",
    "front.js",
    "winners.js",
    "columns.js",
    "state.js",
    "view.js",
    "holds.js",
    "elements.js",
    "controls.js",
    "cells.js",
    "table.js",
    "evidence_parts.js",
    "evidence.js",
    "looks.js",
    "charts.js",
    "chart_front.js",
    "chart_winners.js",
    "chart_ecdf.js",
    "chart_memory.js",
    "chart_cost.js",
    "main.js",
)
# What could end a script element, open a comment in one, or be no line of JavaScript.
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(content: dict[str, Any]) -> str:
    """One HTML file of a page's data (:func:`of`); the same data always give the same bytes."""
    scripts = [_script(name) for name in SCRIPTS]
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
        "title": _text(str(content["title"])),
        "style": _read("page.css"),
        "data": in_script(content),
        "licence": _text(_read("vendor/NOTICE").strip()),
        "scripts": "\n".join(f"<script>{text}</script>" for text in scripts),
    }
    # One pass: what is filled in is never looked at for places to fill.
    frame = _read("page.html").split("%%")
    return "".join(parts[part] if number % 2 else part for number, part in enumerate(frame))


def in_script(content: Any) -> str:
    """JSON that stands inside a script element whatever texts it holds."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    # Half of a surrogate pair is no character, and UTF-8 has no bytes for it.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _text(text: str) -> str:
    for character, escape in {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}.items():
        text = text.replace(character, escape)
    return text


def _script(name: str) -> str:
    text = _read(name)
    assert "</script" not in text.lower() and "<!--" not in text, f"{name} would end its own element"
    return text


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


# MERGED harness.report.page: A leaderboard as the view that a page opens with, written as the page's own URL
# fragment.


# What a page's sliders weigh, in its own order.
_WEIGHED = ("accuracy", "cost", "latency")


def check(asked: LeaderboardQuery) -> None:
    """Whether a page can show what was asked for.

    Raises:
        UsageError: it cannot; names the option.
    """
    others = {name for name, weight in asked.weights.items() if weight} - set(_WEIGHED)
    for option, given in (
        ("--weights", others),
        ("--amrs", set(asked.amrs) - set(_WEIGHED)),
        ("--at-most or --at-least", asked.bounds),
        ("--rank-by", asked.rank_by),
        ("--cutoff", asked.cutoff is not None),
    ):
        if given:
            raise UsageError(
                f"--format html weighs accuracy, cost and latency, with a cut-off of its own; leave {option} out, "
                "or take another --format"
            )


def fragment(asked: LeaderboardQuery, where: ComparisonGroup) -> str:
    """The fragment of the view that shows a leaderboard's rows, measure, weights, mode and fixed rates."""
    chosen = {
        "g": groups.ident(where),
        "m": asked.measure,
        "w": ",".join(f"{asked.weights.get(name, 0.0):.3f}" for name in _WEIGHED),
        "mode": asked.mode,
        **{f"r{name}": repr(rate) for name, rate in asked.amrs.items()},
    }
    return urlencode(chosen)
