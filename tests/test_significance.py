"""Tests of paired differences, against enumeration, scipy, closed forms and simulation; Holm against his own rule."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import permutation_test

from harness import significance
from harness.significance import bootstrap_shift, holm, paired, randomisation

SMALL = st.lists(st.integers(-3, 3).map(lambda each: each / 4), min_size=1, max_size=8)


@settings(deadline=None, max_examples=50)
@given(SMALL)
def test_few_queries_are_enumerated(values: list[float]) -> None:
    sizes, observed = np.abs(values), abs(sum(values))
    flips = [abs(np.dot(signs, sizes)) >= observed - 1e-9 for signs in itertools.product((-1, 1), repeat=len(values))]
    assert randomisation(np.asarray(values)) == pytest.approx(np.mean(flips))


def test_the_least_p_of_five_queries() -> None:
    # All five of one sign: 2 of 2^5 sign patterns are as extreme.
    assert randomisation(np.array([0.1, 0.2, 0.3, 0.4, 0.5])) == 2 / 32
    assert randomisation(np.full(7, 0.3)) == 2 / 2**7, "0.3 seven times, summed in another order, is as far"


def test_many_queries_are_scipys() -> None:
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


def test_random_flips_agree_with_all_flips(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.default_rng(8).normal(0.1, 0.2, 14)
    exact = randomisation(differences)
    monkeypatch.setattr(significance, "EXACT_QUERIES", 0)
    assert randomisation(differences) == pytest.approx(exact, abs=3 * (exact * (1 - exact) / 9999) ** 0.5)


def test_p_is_never_zero() -> None:
    clear = np.random.default_rng(1).normal(1, 0.1, 200)
    assert randomisation(clear) == bootstrap_shift(clear) == 1e-4


def test_the_bootstrap_is_the_normal_limit_for_normal_differences() -> None:
    differences = np.random.default_rng(2).normal(0, 1, 2000)
    differences += 1.5 * float(np.std(differences)) / 2000**0.5 - differences.mean()  # z = 1.5
    assert bootstrap_shift(differences) == pytest.approx(math.erfc(1.5 / 2**0.5), abs=0.012)


@pytest.mark.parametrize("test", [randomisation, bootstrap_shift])
def test_of_systems_that_are_alike_five_in_a_hundred_seem_not(test: object) -> None:
    assert callable(test)
    rng = np.random.default_rng(11)
    # As differences of RR@10 are: most are 0, the others have few values.
    values = np.array([0, 0, 0, 0, -0.5, 0.5, -1, 1, -0.1, 0.1])
    false = sum(test(rng.choice(values, 60), 0, 999) <= 0.05 for _ in range(600))
    assert 0.025 < false / 600 < 0.075  # three standard errors about 0.05


def test_differences_without_spread_have_no_effect_size() -> None:
    same = paired(np.zeros(20))
    assert (same.p_randomisation, same.p_bootstrap, same.effect_size) == (1, 1, None)
    assert (same.higher, same.lower, same.tied, same.exact) == (0, 0, 20, True)
    one = paired(np.array([0.4]))
    assert (one.p_randomisation, one.p_bootstrap, one.effect_size) == (1, None, None)
    constant = paired(np.full(30, 0.3))
    assert (constant.p_randomisation, constant.p_bootstrap, constant.effect_size) == (1e-4, 1e-4, None)


def test_effect_size_and_counts() -> None:
    found = paired(np.array([1.0, 2.0, 3.0, 0.0, -1.0]))
    assert found.effect_size == pytest.approx(1 / 2.5**0.5)
    assert (found.higher, found.lower, found.tied) == (3, 1, 1)


@settings(deadline=None, max_examples=30)
@given(SMALL, st.floats(0.01, 100))
def test_p_depends_on_neither_sign_nor_unit_nor_queries_that_are_tied(values: list[float], unit: float) -> None:
    differences = np.asarray(values)
    p = randomisation(differences)
    assert 0 < p <= 1
    assert randomisation(-differences) == p
    assert randomisation(unit * differences) == pytest.approx(p)
    assert randomisation(np.append(differences, (0.0, 0.0))) == p


def test_holms_rule() -> None:
    assert holm([]) == ()
    assert holm([0.02]) == (0.02,)
    # 4 x 0.01, 3 x 0.01, then 2 x 0.03 and 0.04 raised to what stands before.
    assert holm([0.04, 0.01, 0.03, 0.005]) == pytest.approx((0.06, 0.03, 0.06, 0.02))
    assert holm([0.9, 0.8]) == (1, 1)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_monotone_between_p_and_bonferroni_and_claims_what_stepping_down_claims(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= found <= min(1, len(p_values) * p) for p, found in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda each: p_values[each])
    assert sorted(adjusted) == [adjusted[each] for each in order]
    claimed = 0
    while claimed < len(order) and (len(order) - claimed) * p_values[order[claimed]] <= 0.05:
        claimed += 1
    assert sum(each <= 0.05 for each in adjusted) == claimed


def test_holm_keeps_false_claims_among_all_to_five_in_a_hundred() -> None:
    rng = np.random.default_rng(7)
    families = rng.uniform(size=(2000, 10))
    wrong = sum(min(holm(family.tolist())) <= 0.05 for family in families)
    assert 0.035 < wrong / 2000 < 0.065
    assert np.mean(families.min(axis=1) <= 0.05) > 0.35, "uncorrected"


def test_a_fingerprint_is_that_of_the_differences_whoever_comes_first() -> None:
    values = np.array([0.0, 0.25, -0.5, 0.0])
    named = significance.fingerprint(values)
    assert named == significance.fingerprint(-values) == significance.fingerprint(values + 0.0)
    assert named != significance.fingerprint(values[[0, 2, 1, 3]]) and named != significance.fingerprint(values * 2)
    assert significance.fingerprint(np.zeros(3)) == significance.fingerprint(-np.zeros(3))
