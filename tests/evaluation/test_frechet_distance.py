"""The distance against closed forms and scipy's root, and its bootstrap against copied vectors."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from harness import stats
from harness.evaluation import frechet_distance
from harness.evaluation.frechet_distance import VectorRows, distance_of_points

pytestmark = pytest.mark.slow


def points(seed: int, count: int, dims: int, scale: Any = 1.0, shift: float = 0.0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, dims)) * scale + shift


def by_root(one: Any, other: Any) -> float:
    """Return the distance by the matrix square root."""
    apart = one.mean(axis=0) - other.mean(axis=0)
    first, second = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    root = scipy.linalg.sqrtm(first @ second)
    return float(apart @ apart + np.trace(first + second - 2 * root.real))


sizes = st.tuples(st.integers(2, 40), st.integers(2, 40), st.integers(1, 30), st.integers(0, 2**32 - 1))


@given(sizes)
def test_distance_is_symmetric_and_0_for_equal_sets_in_any_order(given: tuple[int, int, int, int]) -> None:
    one_size, other_size, dims, seed = given
    one, other = points(seed, one_size, dims), points(seed + 1, other_size, dims, 0.3, 0.5)
    assert distance_of_points(one, other) == pytest.approx(distance_of_points(other, one), rel=1e-9, abs=1e-9)
    assert distance_of_points(one, one[::-1]) == pytest.approx(0, abs=1e-9)
    assert distance_of_points(one, np.repeat(one, 3, axis=0)) < distance_of_points(one, one + 10)


@given(sizes)
def test_distance_is_invariant_under_rigid_motion_and_scales_quadratically(given: tuple[int, int, int, int]) -> None:
    one_size, other_size, dims, seed = given
    one, other = points(seed, one_size, dims), points(seed + 1, other_size, dims, 0.3, 0.5)
    rotation, _ = np.linalg.qr(points(seed + 2, dims, dims))
    distance = distance_of_points(one, other)
    assert distance_of_points(one @ rotation + 7, other @ rotation + 7) == pytest.approx(distance, rel=1e-8, abs=1e-8)
    assert distance_of_points(3 * one, 3 * other) == pytest.approx(9 * distance, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("dims", [3, 384])
def test_diagonal_covariances_have_a_closed_form(dims: int) -> None:
    rng = np.random.default_rng(dims)
    means, spreads = rng.standard_normal((2, dims)), rng.uniform(1e-3, 2, (2, dims))
    # Two points on each axis have the covariance diag(spread squared).
    axes = [np.diag(spread) * np.sqrt((2 * dims - 1) / 2) for spread in spreads]
    one, other = (mean + np.concatenate([axis, -axis]) for mean, axis in zip(means, axes, strict=True))
    expected = np.sum((means[0] - means[1]) ** 2) + np.sum((spreads[0] - spreads[1]) ** 2)
    assert distance_of_points(one, other) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("count", "dims"), [(40, 5), (800, 64)])
def test_distance_matches_the_matrix_square_root_formula(count: int, dims: int) -> None:
    one = points(1, count, dims, np.linspace(1, 0.3, dims))
    other = points(2, count + 7, dims, np.linspace(0.5, 1, dims), 0.1)
    assert distance_of_points(one, other) == pytest.approx(by_root(one, other), rel=1e-9)


def test_fewer_points_than_dimensions_give_a_distance() -> None:
    """Two sets in subspaces that share nothing: the root's trace is 0, and the closed form is plain."""
    dims = 384
    one, other = np.zeros((60, dims)), np.zeros((80, dims))
    one[:, :50], other[:, 50:120] = points(1, 60, 50), points(2, 80, 70)
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    wanted = np.cov(one, rowvar=False).trace() + np.cov(other, rowvar=False).trace()
    assert distance_of_points(one, other) == pytest.approx(wanted, rel=1e-12)
    # Rotated, no coordinate shows it.
    rotation, _ = np.linalg.qr(points(3, dims, dims))
    assert distance_of_points(one @ rotation, other @ rotation) == pytest.approx(wanted, rel=1e-10)
    assert distance_of_points(one, one) == pytest.approx(0, abs=1e-10)


def test_nearly_collinear_points_give_an_accurate_distance() -> None:
    """Covariances of rank 1, and with a second direction a thousand millionth as wide."""
    along = points(1, 30, 1) * np.eye(1, 10)
    other = 2 * along
    wanted = (along[:, 0].mean()) ** 2 + np.var(along[:, 0], ddof=1)
    assert distance_of_points(along, other) == pytest.approx(wanted, rel=1e-12)
    noise = 1e-9 * points(2, 30, 10)
    assert distance_of_points(along + noise, other - noise) == pytest.approx(wanted, rel=1e-7)


def test_distance_needs_two_points() -> None:
    assert distance_of_points([[0.0], [2.0]], [[1.0], [1.0]]) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="at least two vectors"):
        distance_of_points([[0.0]], [[1.0], [1.0]])
    with pytest.raises(ValueError, match="of one length"):
        distance_of_points(np.zeros((2, 2)), np.zeros((2, 3)))


def vector_sets(
    queries: int, judged: int, k: int, dims: int, *, ragged: bool = False
) -> tuple[Any, VectorRows, VectorRows]:
    rng = np.random.default_rng(queries * dims)
    vectors = (rng.standard_normal((200, dims)) * np.linspace(1, 0.05, dims) + 0.3).astype(np.float32)
    sets = []
    for most, least in ((judged, 1), (k, 0)):
        counts = rng.integers(least, most + 1, queries) if ragged else np.full(queries, most)
        query = np.repeat(np.arange(queries), counts)
        sets.append(VectorRows(rng.integers(0, len(vectors), len(query)), query))
    return vectors, sets[0], sets[1]


def copied(vectors: Any, one: VectorRows, other: VectorRows, weights: Any) -> list[float]:
    return [
        distance_of_points(*(vectors[np.repeat(each.rows, drawn[each.query])] for each in (one, other)))
        for drawn in weights
    ]


@pytest.mark.parametrize(
    ("queries", "judged", "k", "dims", "near"),
    [
        (30, 1, 1, 50, 1e-6),  # rows against rows
        (50, 3, 10, 100, 1e-6),  # rows against a covariance
        (40, 5, 5, 70, 1e-6),  # two covariances, in double precision
        (200, 1, 10, 20, 1e-5),  # in single precision
    ],
)
def test_resample_equals_copied_vectors(queries: int, judged: int, k: int, dims: int, near: float) -> None:
    vectors, one, other = vector_sets(queries, judged, k, dims, ragged=True)
    weights = stats.draw_weights(queries, 8, 5)
    (found,) = frechet_distance.resample_distances(vectors, [(one, other)], weights)
    assert found == pytest.approx(copied(vectors, one, other, weights), rel=near, abs=near)


def test_singular_covariances_of_many_vectors_have_distances() -> None:
    """Vectors on a plane of forty dimensions: no triangular root exists."""
    vectors, one, other = vector_sets(300, 2, 3, 40)
    vectors[:, 2:] = 0
    weights = stats.draw_weights(300, 3, 5)
    (found,) = frechet_distance.resample_distances(vectors, [(one, other)], weights)
    assert found == pytest.approx(copied(vectors, one, other, weights), abs=1e-4)


def test_a_resample_without_a_vector_has_no_distance() -> None:
    vectors, one, _ = vector_sets(20, 2, 1, 5)
    rare = VectorRows(np.array([3, 4]), np.array([0, 0]))
    weights = np.ones((2, 20), dtype=np.int64)
    weights[1, 0] = 0
    (found,) = frechet_distance.resample_distances(vectors, [(one, rare)], weights)
    assert np.isfinite(found[0]) and np.isnan(found[1])


def test_a_single_vector_has_no_covariance() -> None:
    vectors, one, _ = vector_sets(20, 2, 1, 5)
    weights = np.ones((2, 20), dtype=np.int64)
    weights[1, 0] = 2  # two copies have one, of zeros
    (found,) = frechet_distance.resample_distances(vectors, [(one, VectorRows(np.array([3]), np.array([0])))], weights)
    assert np.isnan(found[0]) and np.isfinite(found[1])


def test_several_processes_give_the_result_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, one, other = vector_sets(40, 2, 3, 12)
    pairs, weights = [(one, other), (other, one)], stats.draw_weights(40, 30, 5)
    alone = frechet_distance.resample_distances(vectors, pairs, weights)
    monkeypatch.setattr(frechet_distance, "_PARALLEL_FROM", 0.0)
    monkeypatch.setattr(frechet_distance, "_CHUNK", 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    seen: list[tuple[int, int]] = []
    together = frechet_distance.resample_distances(vectors, pairs, weights, lambda *done: seen.append(done))
    assert together == pytest.approx(alone, rel=1e-6)  # single precision: other chunks are rounded otherwise
    assert seen == [(done, 4) for done in range(5)]
    assert "OMP_NUM_THREADS" not in os.environ and not multiprocessing.active_children()


def test_processes_import_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's folder of results may hold a module of that name."""
    (tmp_path / "multiprocessing.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with frechet_distance._process_pool(1) as pool:
        assert pool.submit(abs, -1).result() == 1
    assert not (tmp_path / "ran").exists() and "PYTHONSAFEPATH" not in os.environ


def test_draws_have_the_query_count_and_depend_on_the_seed() -> None:
    found = stats.draw_weights(50, 20, 3)
    assert found.shape == (20, 50) and (found.sum(axis=1) == 50).all()
    assert np.array_equal(found, stats.draw_weights(50, 20, 3)) and not np.array_equal(
        found, stats.draw_weights(50, 20, 4)
    )
