"""The formula against closed forms, scipy's root, and what a distance must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from harness.evaluation import frechet_distance


def points(seed: int, count: int, dims: int, scale: Any = 1.0, shift: float = 0.0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, dims)) * scale + shift


def by_root(one: Any, other: Any) -> float:
    """The formula as it stands there."""
    apart = one.mean(axis=0) - other.mean(axis=0)
    first, second = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    root = scipy.linalg.sqrtm(first @ second)
    return float(apart @ apart + np.trace(first + second - 2 * root.real))


sizes = st.tuples(st.integers(2, 40), st.integers(2, 40), st.integers(1, 30), st.integers(0, 2**32 - 1))


@given(sizes)
def test_a_distance_is_symmetric_and_0_for_equal_sets_in_any_order(given: tuple[int, int, int, int]) -> None:
    one_size, other_size, dims, seed = given
    one, other = points(seed, one_size, dims), points(seed + 1, other_size, dims, 0.3, 0.5)
    assert frechet_distance.distance_of_points(one, other) == pytest.approx(
        frechet_distance.distance_of_points(other, one), rel=1e-9, abs=1e-9
    )
    assert frechet_distance.distance_of_points(one, one[::-1]) == pytest.approx(0, abs=1e-9)
    assert frechet_distance.distance_of_points(one, np.repeat(one, 3, axis=0)) < frechet_distance.distance_of_points(
        one, one + 10
    )


@given(sizes)
def test_rotations_and_translations_change_nothing_and_a_scale_is_squared(given: tuple[int, int, int, int]) -> None:
    one_size, other_size, dims, seed = given
    one, other = points(seed, one_size, dims), points(seed + 1, other_size, dims, 0.3, 0.5)
    rotation, _ = np.linalg.qr(points(seed + 2, dims, dims))
    found = frechet_distance.distance_of_points(one, other)
    assert frechet_distance.distance_of_points(one @ rotation + 7, other @ rotation + 7) == pytest.approx(
        found, rel=1e-8, abs=1e-8
    )
    assert frechet_distance.distance_of_points(3 * one, 3 * other) == pytest.approx(9 * found, rel=1e-8, abs=1e-8)


def test_a_shift_is_worth_its_square() -> None:
    one = points(1, 50, 20)
    assert frechet_distance.distance_of_points(one, one + 0.5) == pytest.approx(20 * 0.25, rel=1e-12)


@pytest.mark.parametrize("dims", [3, 384, 768])
def test_diagonal_covariances_have_a_closed_form(dims: int) -> None:
    rng = np.random.default_rng(dims)
    means, spreads = rng.standard_normal((2, dims)), rng.uniform(1e-3, 2, (2, dims))
    found = frechet_distance.distance_of_moments(means[0], np.diag(spreads[0] ** 2), means[1], np.diag(spreads[1] ** 2))
    wanted = np.sum((means[0] - means[1]) ** 2) + np.sum((spreads[0] - spreads[1]) ** 2)
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("count", "dims"), [(40, 5), (800, 64), (2000, 384)])
def test_distance_equals_that_by_the_matrix_root(count: int, dims: int) -> None:
    one = points(1, count, dims, np.linspace(1, 0.3, dims))
    other = points(2, count + 7, dims, np.linspace(0.5, 1, dims), 0.1)
    assert frechet_distance.distance_of_points(one, other) == pytest.approx(by_root(one, other), rel=1e-9)


def test_moments_and_points_agree() -> None:
    one, other = points(1, 60, 12), points(2, 90, 12, 0.4)
    given = [each for points in (one, other) for each in (points.mean(axis=0), np.cov(points, rowvar=False))]
    assert frechet_distance.distance_of_moments(*given) == pytest.approx(
        frechet_distance.distance_of_points(one, other), rel=1e-12
    )


@pytest.mark.parametrize("dims", [384, 768])
def test_fewer_points_than_dimensions_are_no_trouble(dims: int) -> None:
    """Two sets in subspaces that share nothing: the root's trace is 0, and the closed form is plain."""
    one, other = np.zeros((60, dims)), np.zeros((80, dims))
    one[:, :50], other[:, 50:120] = points(1, 60, 50), points(2, 80, 70)
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    wanted = np.cov(one, rowvar=False).trace() + np.cov(other, rowvar=False).trace()
    assert frechet_distance.distance_of_points(one, other) == pytest.approx(wanted, rel=1e-12)
    # Rotated, no coordinate shows it.
    rotation, _ = np.linalg.qr(points(3, dims, dims))
    assert frechet_distance.distance_of_points(one @ rotation, other @ rotation) == pytest.approx(wanted, rel=1e-10)
    assert frechet_distance.distance_of_points(one, one) == pytest.approx(0, abs=1e-10)


def test_points_on_a_line_and_nearly_on_it() -> None:
    """Covariances of rank 1, and with a second direction a thousand millionth as wide."""
    along = points(1, 30, 1) * np.eye(1, 10)
    other = 2 * along
    wanted = (along[:, 0].mean()) ** 2 + np.var(along[:, 0], ddof=1)
    assert frechet_distance.distance_of_points(along, other) == pytest.approx(wanted, rel=1e-12)
    noise = 1e-9 * points(2, 30, 10)
    assert frechet_distance.distance_of_points(along + noise, other - noise) == pytest.approx(wanted, rel=1e-7)


def test_two_points_are_enough_and_one_is_not() -> None:
    assert frechet_distance.distance_of_points([[0.0], [2.0]], [[1.0], [1.0]]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="at least two vectors"):
        frechet_distance.distance_of_points([[0.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="of one length"):
        frechet_distance.distance_of_points(np.zeros((2, 2)), np.zeros((2, 3)))
