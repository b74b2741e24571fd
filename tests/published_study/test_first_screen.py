"""The first screen of the published tables: each sentence has the figures of the table below it."""

from __future__ import annotations

import re

import pytest

from harness.analysis import published as published_tables
from harness.analysis import row_pricing
from harness.analysis.published import Published
from harness.pricing.prices import Snapshot
from harness.report.summary import summary_section


@pytest.mark.parametrize(("place", "dataset"), [(0, "msmarco"), (1, "xortydi")])
def test_sentence_agrees_with_the_table_below_it(
    published: Published, follows: Snapshot, place: int, dataset: str
) -> None:
    table = row_pricing.price(published_tables.published_table(published, follows), row_pricing.tariff(follows))
    made = summary_section(table, {}, str)
    accuracies, _, costs = made.grids
    said = re.match(r"(\w+).*: (\S+) costs ([\d.]+)x less than (\S+) and is ([\d.]+) points", made.after[place])
    assert said is not None and said[1] == dataset
    _, a, times, b, points = said.groups()
    column = accuracies.headers.index(dataset)

    def cell(cells: tuple[tuple[str, ...], ...], system: str) -> float:
        (found,) = (line[column] for line in cells if line[:2] == (system, "santhanam2023"))
        return float(found)

    assert cell(costs.cells, b) / cell(costs.cells, a) == pytest.approx(float(times), rel=0.01)
    assert 100 * (cell(accuracies.cells, b) - cell(accuracies.cells, a)) == pytest.approx(float(points), abs=0.11)
