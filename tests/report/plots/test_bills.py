"""Pictures of a month's bill: lines, names and circles where they belong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from harness.analysis import bills
from harness.analysis.table import Row, Table, Validity
from harness.estimate import Estimate
from harness.pricing.bill import SECONDS, USUAL
from harness.report.plots import bills as plots
from harness.report.plots import style
from harness.report.plots.style import Frame
from tests.support import sample_records

pytestmark = pytest.mark.slow


def drawn_axes(rows: Sequence[Row]) -> plots.Axes:
    (group,) = bills.find(Table(tuple(rows), ("RR@10",)), USUAL, {})
    frame = Frame("scifact", ("small print",), style.system_styles(row.system for row in rows))
    with style.settings(9):
        return plots.draw(group, USUAL, frame).axes[0]


def row(system: str, mean_s: float, usd: float = 0.05, **changes: object) -> Row:
    price = sample_records.price("m7a.medium", usd, 1, 4 << 30)
    return sample_records.row(system=system, key=system, latency_mean_s=Estimate(mean_s), price=price, **changes)


def test_lines_names_and_circles_are_where_the_bills_are() -> None:
    # One query in 10 ms: a machine is full at 100 a second, 87.6 million a month at a peak of 3; then two, US$ 73.
    wrong = row("wrong", 0.001, validity=Validity.INVALID)
    axes = drawn_axes([row("slow", 0.01), row("fast", 0.001), wrong])
    lines = {str(line.get_gid()): line for line in axes.get_lines()}
    assert {"slow", "fast", "the traffic", "changes"} == set(lines)
    queries, usd = np.asarray(lines["slow"].get_data(), dtype=float)
    assert queries[1:3] == pytest.approx(100 * SECONDS / 3) and usd[:4] == pytest.approx([36.5, 36.5, 73, 73])
    assert np.asarray(lines["changes"].get_data(), dtype=float)[:, 0] == pytest.approx([100 * SECONDS / 3, 36.5])
    assert np.asarray(lines["the traffic"].get_xdata()) == pytest.approx([3e6, 3e6])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert {"slow", "fast", "3M", "87.6M"} <= {text.get_text() for text in axes.texts}


def test_no_names_overlap_and_all_are_inside_the_picture() -> None:
    axes = drawn_axes([row(f"system-of-a-long-name-{number}", 0.002 * 1.02**number) for number in range(15)])
    figure = axes.figure
    renderer = figure.canvas.get_renderer()  # type: ignore[union-attr] # Agg has it
    boxes = [text.get_window_extent(renderer) for text in axes.texts]
    assert sum(text.get_text().startswith("system") for text in axes.texts) == 12
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[:place])
    assert all(figure.bbox.contains(*corner) for box in boxes for corner in box.corners())
