"""Fronts: dominated only where the intervals say so, contested where they leave it open."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis import axes, pareto_front
from harness.analysis.pareto_front import FrontPoint, FrontState
from harness.analysis.resampling import BETTER, EQUAL, UNDECIDED, WORSE, PairedSigns
from harness.estimate import Estimate

AXES = (axes.accuracy("RR@10"), axes.OTHERS["latency"])


def point(
    key: str, accuracy: float, latency: float, about: tuple[float, float] | None = None, system: str | None = None
) -> FrontPoint:
    """``about``: half the width of the two intervals."""
    off = about or (0.0, 0.0)
    figures = [
        Estimate(value, *((value - half, value + half) if about else (None, None)))
        for value, half in zip((accuracy, latency), off, strict=True)
    ]
    return FrontPoint(key, system or key, dict(zip(("accuracy", "latency"), figures, strict=True)))


def states(*points: FrontPoint, relations: PairedSigns | None = None) -> dict[str, str]:
    return {key: state.value for key, state in pareto_front.states_of_points(points, AXES, relations).items()}


def test_point_values_decide_without_intervals() -> None:
    found = states(point("a", 30, 10), point("b", 20, 20), point("c", 40, 90), point("d", 30, 11), point("e", 30, 10))
    assert found == {"a": "front", "b": "dominated", "c": "front", "d": "dominated", "e": "front"}


def test_overlapping_intervals_make_a_row_contested() -> None:
    assert states(point("a", 30, 10, (1, 1)), point("b", 29, 20, (1, 1)))["b"] == "contested"
    assert states(point("a", 30, 10, (1, 1)), point("b", 27, 20, (1, 1)))["b"] == "dominated"
    # Surely faster, and perhaps as good: better by neither value nor interval in accuracy.
    assert states(point("a", 28, 10, (1, 1)), point("b", 29, 20, (1, 1)))["b"] == "front"


def test_system_on_two_machines_has_one_accuracy() -> None:
    fast, slow = point("a", 30, 10, (5, 1), "s"), point("b", 30, 20, (5, 1), "s")
    assert states(fast, slow) == {"a": "front", "b": "dominated"}
    stranger = point("b", 30, 20, (5, 1), "t")
    assert states(fast, stranger) == {"a": "front", "b": "contested"}


def test_paired_comparisons_decide_if_intervals_do_not() -> None:
    points = (point("a", 30, 10, (5, 1)), point("b", 29, 20, (5, 1)), point("c", 30, 30, (5, 1)))
    signs = np.array([[EQUAL, BETTER, EQUAL], [WORSE, EQUAL, UNDECIDED], [EQUAL, UNDECIDED, EQUAL]], dtype=np.int8)
    paired = PairedSigns({"a": 0, "b": 1, "c": 2}, signs)
    assert states(*points) == {"a": "front", "b": "contested", "c": "contested"}
    assert states(*points, relations=paired) == {"a": "front", "b": "dominated", "c": "dominated"}


def test_three_axes_include_throughput_where_larger_is_better() -> None:
    three = (*AXES, axes.OTHERS["throughput"])
    figures = [(30.0, 10.0, 5.0), (30.0, 10.0, 9.0), (29.0, 9.0, 1.0)]
    points = [
        FrontPoint(
            str(number), str(number), dict(zip(("accuracy", "latency", "throughput"), map(Estimate, each), strict=True))
        )
        for number, each in enumerate(figures)
    ]
    assert list(pareto_front.states_of_points(points, three).values()) == [
        FrontState.DOMINATED,
        FrontState.FRONT,
        FrontState.FRONT,
    ]


POINTS = st.lists(
    st.builds(
        lambda accuracy, latency, half: (accuracy, latency, half),
        st.integers(0, 12).map(float),
        st.integers(1, 12).map(float),
        st.sampled_from([None, (0.0, 0.0), (1.5, 0.0), (1.5, 2.5)]),
    ),
    min_size=1,
    max_size=10,
)


def ends(figure: Estimate) -> tuple[float, float]:
    assert figure.value is not None
    if figure.low is None or figure.high is None:
        return figure.value, figure.value
    return figure.low, figure.high


def brute(points: list[FrontPoint]) -> dict[str, str]:
    """The definition, pair by pair."""

    def sure(one: FrontPoint, other: FrontPoint) -> bool:
        better = []
        for axis in AXES:
            mine, theirs = one.figures[axis.name], other.figures[axis.name]
            (low, high), (their_low, their_high) = (ends(figure) for figure in (mine, theirs))
            ahead = low > their_high if axis.higher else high < their_low
            equal = mine.value == theirs.value and (
                (mine.low is None and theirs.low is None) or one.system == other.system
            )
            if not ahead and not equal:
                return False
            better.append(ahead and not equal)
        return any(better)

    def by_value(one: FrontPoint, other: FrontPoint) -> bool:
        gains = [
            (1 if axis.higher else -1) * ((one.figures[axis.name].value or 0) - (other.figures[axis.name].value or 0))
            for axis in AXES
        ]
        return min(gains) >= 0 and max(gains) > 0

    return {
        each.key: "dominated"
        if any(sure(other, each) for other in points)
        else ("contested" if any(by_value(other, each) for other in points) else "front")
        for each in points
    }


@pytest.mark.slow
@given(POINTS)
def test_front_matches_its_definition(made: list[tuple[float, float, tuple[float, float] | None]]) -> None:
    points = [point(str(number), *each) for number, each in enumerate(made)]
    assert states(*points) == brute(points)
    for order in itertools.islice(itertools.permutations(points), 3):
        assert states(*order) == brute(points)
