"""Kendall's tau-b over systems, against closed forms and scipy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from harness.stats import kendall_tau


def test_tau_of_agreeing_reversed_and_tied_orders() -> None:
    a = {"x": 0.1, "y": 0.2, "z": 0.3}
    assert kendall_tau(a, a) == pytest.approx(1)
    assert kendall_tau(a, {name: -value for name, value in a.items()}) == pytest.approx(-1)
    assert kendall_tau(a, {"x": 1, "y": 3, "z": 2}) == pytest.approx(1 / 3)
    # Two pairs agree, one is tied in b: (2 - 0) / sqrt(3 * 2).
    assert kendall_tau(a, {"x": 1, "y": 1, "z": 2}) == pytest.approx(2 / 6**0.5)


def test_only_common_systems_count() -> None:
    assert kendall_tau({"x": 1, "y": 2, "z": 0}, {"x": 1, "y": 2, "w": 9}) == pytest.approx(1)


@pytest.mark.parametrize(("a", "b"), [({}, {}), ({"x": 1.0}, {"x": 1.0}), ({"x": 1.0, "y": 1.0}, {"x": 1.0, "y": 2.0})])
def test_tau_is_missing_without_an_order(a: dict[str, float], b: dict[str, float]) -> None:
    assert kendall_tau(a, b) is None
    assert kendall_tau(b, a) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8))
def test_kendalls_tau_agrees_with_scipy(values: list[tuple[int, int]]) -> None:
    ours, theirs = ([each[side] for each in values] for side in (0, 1))
    found = kendall_tau(*({str(n): float(value) for n, value in enumerate(each)} for each in (ours, theirs)))
    if len(set(ours)) < 2 or len(set(theirs)) < 2:
        assert found is None
    else:
        assert found == pytest.approx(kendalltau(ours, theirs, variant="b").statistic)
