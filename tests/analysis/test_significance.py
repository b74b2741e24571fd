"""Tests of paired differences, against enumeration, scipy, closed forms and simulation; Holm against his own rule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import permutation_test

from harness.analysis import significance
from harness.analysis.significance import holm, paired
from harness.estimate import Estimate

NORMAL = np.random.default_rng(6).normal(0.05, 0.2, 80)


def randomisation(differences: np.ndarray) -> float:
    (found,) = paired([differences])
    return found.p


SMALL = st.lists(st.integers(-3, 3).map(lambda each: each / 4), min_size=1, max_size=8)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(SMALL)
def test_sign_flips_of_few_queries_are_enumerated(values: list[float]) -> None:
    sizes, observed = np.abs(values), abs(sum(values))
    flips = [abs(np.dot(signs, sizes)) >= observed - 1e-9 for signs in itertools.product((-1, 1), repeat=len(values))]
    assert randomisation(np.asarray(values)) == pytest.approx(np.mean(flips))


def test_smallest_p_of_five_queries() -> None:
    # All five of one sign: 2 of 2^5 sign patterns are as extreme.
    assert randomisation(np.array([0.1, 0.2, 0.3, 0.4, 0.5])) == 2 / 32
    assert randomisation(np.full(7, 0.3)) == 2 / 2**7, "0.3 seven times, summed in another order, is as far"


@pytest.mark.slow
def test_many_queries_agree_with_scipy() -> None:
    differences = np.random.default_rng(4).normal(0.03, 0.2, 120)
    expected = permutation_test(
        (differences, np.zeros(120)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=9999,
        rng=np.random.default_rng(5),
    ).pvalue
    # Two estimates from 9,999 flips each: three standard errors of their difference.
    apart = 3 * (2 * expected * (1 - expected) / 9999) ** 0.5
    assert randomisation(differences) == pytest.approx(expected, abs=apart)


def test_p_is_never_zero() -> None:
    clear = np.random.default_rng(1).normal(1, 0.1, 200)
    assert randomisation(clear) == 1e-4


@pytest.mark.slow
def test_the_interval_excludes_0_where_p_is_at_most_the_level() -> None:
    """Also where few queries differ, all queries are few, and p lies at the level itself."""
    rng = np.random.default_rng(12)
    drawn = [
        np.where(rng.random(queries) < share, rng.normal(0.15, 0.3, queries).round(1), 0.0)
        for queries in (11, 14, 16, 17, 30, 120)
        for share in (0.1, 0.3, 1.0)
        for _ in range(40)
    ]
    sides = set()
    for column, found in zip(drawn, paired(drawn, draws=1999), strict=True):
        low, high = found.interval.low, found.interval.high
        assert low is not None and high is not None
        assert low <= column.mean() <= high
        assert (low <= 0 <= high) == (found.p > 0.05), (column, found)
        sides.add((low <= 0 <= high, len(column) <= 16))
    assert len(sides) == 4, "all cases were there"


@pytest.mark.slow
def test_corrected_intervals_exclude_0_exactly_where_the_corrected_p_is_at_most_the_level() -> None:
    rng = np.random.default_rng(22)
    sides = set()
    for candidates in (1, 3):
        for _ in range(40):
            columns = [rng.normal(shift, 0.2, 60) for shift in rng.uniform(0, 0.12, 5)]
            for test, p, level in zip(*significance.corrected(columns, candidates), strict=True):
                low, high = test.interval.low, test.interval.high
                assert low is not None and high is not None and level <= 0.05 / candidates
                assert (low <= 0 <= high) == (p > 0.05) == (test.p > level)
                sides.add((low <= 0 <= high, test.p <= 0.05, candidates))
    assert len(sides) == 6, "also of p that is small alone and not among all"


@pytest.mark.slow
def test_interval_of_the_best_of_several_candidates_has_its_coverage() -> None:
    """Eight candidates as good as the reference: chance makes the best of them look better."""
    rng, draws = np.random.default_rng(23), 120
    best = [max((rng.normal(0, 0.2, 60) for _ in range(8)), key=lambda each: float(each.mean())) for _ in range(draws)]
    alone = paired(best, draws=1999)
    adjusted = [significance.corrected([each], candidates=8)[0][0] for each in best]
    held = [
        sum((each.interval.low or 0) <= 0 <= (each.interval.high or 0) for each in found) / draws
        for found in (alone, adjusted)
    ]
    # 1 - 0.025 x 8 of the unadjusted ones; at least 95 % (Bonferroni), less three standard errors, of the others.
    assert held[0] < 0.88 and held[1] > 0.95 - 3 * (0.05 * 0.95 / draws) ** 0.5


def test_correction_that_few_queries_cannot_meet_leaves_no_interval() -> None:
    column = np.linspace(0.1, 0.5, 11)
    ((test,), (p,), _) = significance.corrected([column], candidates=200)
    assert p == pytest.approx(200 * 2**-10) and test.interval == Estimate(
        column.mean(), reason="too few queries for an interval that is corrected for this many comparisons"
    )


def test_interval_holds_the_means_that_the_test_does_not_reject() -> None:
    """Shift the differences to either end: the p of what is left is the level."""
    for column in (np.array([0.3, -0.2, 0.5, 0.1, 0.45, 0.6, -0.1, 0.25, 0.33, 0.02, 0.7]), NORMAL):
        (found,) = paired([column])
        low, high = found.interval.low, found.interval.high
        assert low is not None and high is not None
        for end, outwards in ((low, -1), (high, 1)):
            assert randomisation(column - end - outwards * 1e-6) <= 0.05 < randomisation(column - end + outwards * 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("queries", [30, 300])
def test_intervals_of_differences_have_their_coverage(queries: int) -> None:
    rng = np.random.default_rng(13)
    columns = [rng.choice([-1, -0.5, 0.5, 1, 0], queries, p=[0.06, 0.08, 0.10, 0.08, 0.68]) for _ in range(500)]
    figures = [each.interval for each in paired(columns, draws=599)]
    covered = sum(of.low <= 0.03 <= of.high for of in figures) / len(figures)
    assert 0.92 < covered < 0.98  # three standard errors about 0.95


def test_constant_differences_have_no_effect_size_and_no_interval() -> None:
    same, one, constant = paired([np.zeros(20), np.array([0.4]), np.full(30, 0.3)])
    assert (same.p, same.effect_size, same.least, same.interval) == (1, None, 1, Estimate(0, 0, 0))
    assert (same.higher, same.lower, same.tied) == (0, 0, 20)
    assert (one.p, one.effect_size) == (1, None)
    assert one.interval.reason == "an interval needs 11 queries, there are 1"
    assert (constant.p, constant.effect_size, constant.interval.low) == (1e-4, None, None)
    assert constant.interval.reason == "every query differs by the same: no interval"


@pytest.mark.slow
def test_many_tests_have_enough_draws_for_their_correction() -> None:
    clear = np.random.default_rng(1).normal(1, 0.1, 40)
    alone, *_ = paired([clear])
    among = paired([clear + number for number in range(600)])
    assert alone.least == alone.p == 1e-4
    assert {each.p for each in among} == {1 / 24_000}
    assert max(holm([each.p for each in among])) == pytest.approx(0.025)


def test_joint_tests_equal_single_tests() -> None:
    rng = np.random.default_rng(14)
    columns = [rng.normal(0.05, 0.2, queries) for queries in (40, 60, 40, 11, 60)]
    assert [each.p for each in paired(columns)] == [paired([each])[0].p for each in columns]


def test_effect_size_and_counts() -> None:
    (found,) = paired([np.array([1.0, 2.0, 3.0, 0.0, -1.0])])
    assert found.effect_size == pytest.approx(1 / 2.5**0.5)
    assert (found.higher, found.lower, found.tied) == (3, 1, 1)


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(SMALL, st.floats(0.01, 100))
def test_p_does_not_depend_on_sign_unit_or_tied_queries(values: list[float], unit: float) -> None:
    differences = np.asarray(values)
    p = randomisation(differences)
    assert 0 < p <= 1
    assert randomisation(-differences) == p
    assert randomisation(unit * differences) == pytest.approx(p)
    assert randomisation(np.append(differences, (0.0, 0.0))) == p


def test_holm_matches_its_definition() -> None:
    assert holm([]) == ()
    assert holm([0.02]) == (0.02,)
    # 4 x 0.01, 3 x 0.01, then 2 x 0.03 and 0.04 raised to what stands before.
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx((0.06, 0.03, 0.06, 0.02))
    assert holm([0.9, 0.8]) == (1, 1)


def test_fingerprint_does_not_depend_on_the_order_of_systems() -> None:
    values = np.array([0.0, 0.25, -0.5, 0.0])
    named = significance.fingerprint(values)
    assert named == significance.fingerprint(-values) == significance.fingerprint(values + 0.0)
    assert named != significance.fingerprint(values[[0, 2, 1, 3]]) and named != significance.fingerprint(values * 2)
    assert significance.fingerprint(np.zeros(3)) == significance.fingerprint(-np.zeros(3))
