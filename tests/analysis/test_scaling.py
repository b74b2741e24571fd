"""A law of size: recovered where it is planted, examined by the largest size, and never surer than its data."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from benchmarks import coverage
from harness.analysis import scaling
from harness.analysis.scaling import MeasuredSize

SIZES = (10_000, 30_000, 100_000, 300_000)


def measured(law: Callable[[float], float], sizes: tuple[int, ...] = SIZES) -> list[MeasuredSize]:
    return [MeasuredSize(size, (0.99 * law(size), law(size), 1.01 * law(size))) for size in sizes]


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        (lambda n: 0.05 + 1e-6 * n, "n"),
        (lambda n: 2e-7 * n * math.log(n), "n log n"),
        (lambda n: 0.02 + 1e-4 * n**0.5, "n^0.5"),
        (lambda n: 0.1 + 0.05 * math.log(n), "log n"),
    ],
)
def test_a_planted_law_is_recovered(planted: Callable[[float], float], name: str) -> None:
    sizes = [MeasuredSize(size, (planted(size),)) for size in SIZES]
    found = scaling.examined(sizes).law
    assert found is not None and found.growth.name == name
    assert found.at(3_000_000) == pytest.approx(planted(3_000_000), rel=1e-3)
    predicted = scaling.examined(sizes).extrapolate(3_000_000)
    assert predicted.low is not None and predicted.high is not None
    assert predicted.low < planted(3_000_000) < predicted.high


def test_a_law_is_less_sure_the_further_it_goes() -> None:
    sizes = measured(lambda n: 0.05 + 1e-6 * n)
    widths = []
    for documents in (300_000, 1_000_000, 10_000_000):
        found = scaling.examined(sizes).extrapolate(documents)
        assert found.low is not None and found.high is not None
        widths.append(found.high / found.low)
    assert widths == sorted(widths) and widths[0] < 1.5


def test_the_largest_size_examines_the_law() -> None:
    exam = scaling.examined(measured(lambda n: 1e-6 * n)).exam
    assert exam is not None and exam.passed and exam.documents == 300_000
    assert exam.measured == pytest.approx(0.3) and exam.predicted.value == pytest.approx(0.3, rel=0.05)

    def cliff(n: float) -> float:
        return 1e-6 * n * (4 if n > 200_000 else 1)  # no longer in the page cache

    failed = scaling.examined(measured(cliff)).exam
    assert failed is not None and not failed.passed
    assert scaling.examined(measured(cliff, SIZES[:3])).exam is None, "three sizes leave no exam"


def test_what_is_stored_grows_at_most_linearly() -> None:
    sizes = [MeasuredSize(size, (130 + 1.5e-3 * size,)) for size in SIZES]
    any_law, stored = (scaling.examined(sizes, steepest=steepest).extrapolate(30_000_000) for steepest in (1.5, 1.0))
    assert any_law.low is not None and stored.low is not None and any_law.high is not None and stored.high is not None
    assert stored.low < 45_130 < stored.high < any_law.high
    assert {growth.name for growth in scaling.growths(1.0)} < {growth.name for growth in scaling.growths()}
    assert "n log n" not in {growth.name for growth in scaling.growths(1.0)}


def test_counted_figures_have_narrower_intervals() -> None:
    sizes = [MeasuredSize(size, (1e-3 * size + 5,)) for size in SIZES]
    clock, counted = (
        scaling.examined(sizes, error).extrapolate(3_000_000) for error in (scaling.OWN_ERROR, scaling.COUNTED_ERROR)
    )
    assert clock.low is not None and counted.low is not None and clock.high is not None and counted.high is not None
    assert clock.low < counted.low < counted.high < clock.high


@pytest.mark.slow
@pytest.mark.parametrize("law", coverage.LAWS[:3], ids=lambda law: law.name)
def test_predictions_hold_what_is_measured_there(law: coverage.SizeLaw) -> None:
    held, passed = coverage.covered_sizes(150, law, 3_000_000)
    print(law.name, held, passed)
    assert held >= 0.88 and passed >= 0.88
