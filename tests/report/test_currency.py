"""The first screen in grams of CO2e."""

from __future__ import annotations

from typing import Any

import pytest

from harness.analysis.table import Carbon, Row
from harness.estimate import Estimate
from harness.report.currency import GCO2E
from harness.report.document import Section
from tests.report.test_summary import row, section
from tests.support import sample_records


def emitting(system: str, *cases: float, **changes: Any) -> Row:
    """Return a row with these cases of CO2e."""
    carbon = Carbon(
        grams=Estimate((min(cases) * max(cases)) ** 0.5, min(cases), max(cases)),
        processors=("old", "new"),
        cases=cases,
        date="2026-01-01",
        grid="aws/here",
        grams_per_kwh=300.0,
    )
    return row(system, carbon=carbon, **{"machine": sample_records.MACHINE, **changes})


def shown(*rows: Row) -> Section:
    return section(*rows, currency=GCO2E)


@pytest.mark.parametrize(
    ("one", "other", "remark", "sentence"),
    [
        # 4 / 1 and 30 / 10.
        ((1, 10), (4, 30), "least CO2e", "bm25 emits 3x to 4x less CO2e than minilm"),
        ((1, 10), (2, 20), "least CO2e", "bm25 emits 2x less CO2e than minilm"),
        ((1, 10), (1.02, 10.1), "least CO2e", "bm25 emits about as much CO2e as minilm"),
        ((1, 10), (2, 8), "", "bm25 may emit more or less CO2e than (1.2x more to 2x less) minilm"),
    ],
)
def test_the_row_with_the_least_is_marked_where_every_case_agrees(
    one: tuple[float, ...], other: tuple[float, ...], remark: str, sentence: str
) -> None:
    made = shown(emitting("bm25", *one), emitting("minilm", *other))
    (grid,) = made.grids
    assert grid.headers[-2:] == ("gCO2e/1M queries (estimate)", "") and "US$" not in str(made)
    assert grid.cells[0][-2:] == ("1.00–10.0", remark)
    assert made.after[0].startswith(f"{sentence} and ")
    assert made.after[1] == (
        "gCO2e: an estimate, not a measurement, by CPU time x watts of old, new and 300 g per kWh (aws/here), "
        "factors of 2026-01-01; other estimates of one machine are within the range."
    )


@pytest.mark.parametrize(
    ("doubtful", "sentence"),
    [(1, "Of 3 datasets bm25 is least CO2e on 2; "), (3, "Of 3 datasets none shows for certain which is least CO2e; ")],
)
def test_datasets_have_a_matrix_and_count_those_where_every_case_agrees(doubtful: int, sentence: str) -> None:
    rows = [
        emitting(system, *cases, dataset=f"d{number}")
        for number in range(3)
        for system, cases in (("bm25", (1, 10)), ("minilm", (2, 8 if number < doubtful else 30)))
    ]
    made = shown(*rows)
    assert [grid.caption for grid in made.grids][-1] == "gCO2e/1M queries (estimate)"
    assert made.grids[-1].cells[0][1:] == ("1.00–10.0",) * 3
    assert made.after[0].startswith(sentence)
