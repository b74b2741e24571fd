"""Resampled distances are those of copied vectors, in every way that they are worked out."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import numpy as np
import pytest

from harness.evaluation import frechet_distance
from harness.evaluation.frechet_distance import VectorRows


def made(queries: int, judged: int, k: int, dims: int, *, ragged: bool = False) -> tuple[Any, VectorRows, VectorRows]:
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
        frechet_distance.distance_of_points(
            *(vectors[np.repeat(each.rows, drawn[each.query])] for each in (one, other))
        )
        for drawn in weights
    ]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(
    ("queries", "judged", "k", "dims", "near"),
    [
        (30, 1, 1, 50, 1e-6),  # rows against rows
        (50, 3, 10, 100, 1e-6),  # rows against a covariance
        (40, 5, 5, 70, 1e-6),  # two covariances, in double precision
        (100, 1, 1, 30, 1e-6),  # the same, vector by vector
        (400, 1, 10, 40, 1e-5),  # in single precision
    ],
)
def test_resample_equals_copied_vectors(
    queries: int, judged: int, k: int, dims: int, near: float, ragged: bool
) -> None:
    vectors, one, other = made(queries, judged, k, dims, ragged=ragged)
    weights = frechet_distance.draw_weights(queries, 8, 5)
    (found,) = frechet_distance.resample_distances(vectors, [(one, other)], weights)
    assert found == pytest.approx(copied(vectors, one, other, weights), rel=near, abs=near)


def test_singular_covariances_of_many_vectors_have_distances() -> None:
    """Vectors on a plane of forty dimensions: no triangular root exists."""
    vectors, one, other = made(300, 2, 3, 40)
    vectors[:, 2:] = 0
    weights = frechet_distance.draw_weights(300, 3, 5)
    (found,) = frechet_distance.resample_distances(vectors, [(one, other)], weights)
    assert found == pytest.approx(copied(vectors, one, other, weights), abs=1e-4)


def test_blocks_of_cross_products_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frechet_distance, "_BLOCK_SIDE", 16)
    vectors, one, other = made(100, 4, 6, 41)
    weights = frechet_distance.draw_weights(100, 3, 5)
    (found,) = frechet_distance.resample_distances(vectors, [(one, other)], weights)
    assert found == pytest.approx(copied(vectors, one, other, weights), rel=1e-5)


def test_a_resample_without_a_vector_has_no_distance() -> None:
    vectors, one, _ = made(20, 2, 1, 5)
    rare = VectorRows(np.array([3, 4]), np.array([0, 0]))
    weights = np.ones((2, 20), dtype=np.int64)
    weights[1, 0] = 0
    (found,) = frechet_distance.resample_distances(vectors, [(one, rare)], weights)
    assert np.isfinite(found[0]) and np.isnan(found[1])


def test_a_single_vector_has_no_covariance() -> None:
    vectors, one, _ = made(20, 2, 1, 5)
    weights = np.ones((2, 20), dtype=np.int64)
    weights[1, 0] = 2  # two copies have one, of zeros
    (found,) = frechet_distance.resample_distances(vectors, [(one, VectorRows(np.array([3]), np.array([0])))], weights)
    assert np.isnan(found[0]) and np.isfinite(found[1])


@pytest.mark.slow
def test_several_processes_agree_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, one, other = made(40, 2, 3, 12)
    pairs, weights = [(one, other), (other, one)], frechet_distance.draw_weights(40, 30, 5)
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


def test_draws_are_as_many_queries_and_hang_on_the_seed() -> None:
    found = frechet_distance.draw_weights(50, 20, 3)
    assert found.shape == (20, 50) and (found.sum(axis=1) == 50).all()
    assert np.array_equal(found, frechet_distance.draw_weights(50, 20, 3)) and not np.array_equal(
        found, frechet_distance.draw_weights(50, 20, 4)
    )
