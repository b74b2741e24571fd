"""Compute the Frechet distance between two sets of vectors, and its bootstrap on all CPUs.

``|mu1 - mu2|^2 + Tr(S1 + S2 - 2 (S1 S2)^(1/2))``, as Dowson and Landau have it.  The paper prints a minus before the
trace, which is a misprint: equal means would have distances below 0.  Covariances are divided by n - 1.

No root of a matrix is taken.  With ``S = H' H`` for each set (a *half* ``H``: its centred vectors over
``sqrt(n - 1)``), ``Tr((S1 S2)^(1/2))`` is the sum of the singular values of ``H1 H2'``.  That is sound where
a covariance is singular, as it is with fewer vectors than dimensions; scipy's ``sqrtm`` is not.

A resample gives each query a weight, the times that it was drawn.  A vector counts with the root of its query's weight,
so no vector is copied.

Each CPU gets one process, with libraries of one thread: the eigenvalues of a few hundred dimensions gain nothing from
a second thread, and two resamples at once take half the time.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness import filesystem
from harness.progress import Progress, silent
from harness.stats import Floats, Ints

# With this many vectors per dimension, a covariance is far enough from singular that single precision cannot be seen in
# a distance.
_SINGLE_FROM = 4
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# Environment of the processes; PYTHONSAFEPATH keeps them from importing modules of the working directory.
_VARIABLES = {**dict.fromkeys(_ONE_THREAD, "1"), "PYTHONSAFEPATH": "1"}
_CHUNK = 250  # resamples at once: their covariances are held together
_MAX_BYTES = 8 << 30  # of all processes together
# Multiplications that justify starting processes: a second or two of one CPU.
_PARALLEL_FROM = 1e11


def distance_of_points(one: ArrayLike, other: ArrayLike) -> float:
    """Return the distance between two sets of vectors, which may repeat.

    Args:
        one: shape (vectors, dimensions).
        other: shape (its vectors, dimensions).

    Raises:
        ValueError: a set has fewer than two vectors, or the dimensions differ.
    """
    points = [np.asarray(vectors, dtype=np.float64) for vectors in (one, other)]
    if any(vectors.ndim != 2 or len(vectors) < 2 for vectors in points) or points[0].shape[1] != points[1].shape[1]:
        shapes = [vectors.shape for vectors in points]
        raise ValueError(f"two sets of at least two vectors of one length are needed, not {shapes}")
    means = [vectors.mean(axis=0) for vectors in points]
    halves = [(vectors - mean) / np.sqrt(len(vectors) - 1) for vectors, mean in zip(points, means, strict=True)]
    return _distance_of_halves(means[0] - means[1], *halves)


def _distance_of_halves(difference: Floats, one: Floats, other: Floats) -> float:
    """Return the distance from the means' difference and a half of each covariance, shape (any, dimensions)."""
    whole = float(difference @ difference) + float(np.vdot(one, one)) + float(np.vdot(other, other))
    crossed = _fewest_rows(one) @ _fewest_rows(other).T
    # Rounding may make a distance of 0 negative.
    return max(whole - 2.0 * float(np.linalg.svd(crossed, compute_uv=False).sum()), 0.0)


def _fewest_rows(any_half: Floats) -> Floats:
    """Return a half with no more rows than columns: a rotation of rows changes no singular value."""
    if len(any_half) <= any_half.shape[1]:
        return any_half
    return np.asarray(np.linalg.qr(any_half, mode="r"), dtype=np.float64)


def _half(covariance: Floats) -> Floats:
    """Return ``H`` with ``H' H`` = the covariance, of any rank; negative rounding errors become 0."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


@dataclass(frozen=True)
class VectorRows:
    """Set of vectors: their rows in an array of vectors, and the query of each; sorted by query."""

    rows: Ints
    query: Ints


def resample_distances(
    vectors: NDArray[np.float32],
    pairs: Sequence[tuple[VectorRows, VectorRows]],
    weights: Ints,
    progress: Progress = silent,
) -> Floats:
    """Return the distance of each pair under each row of weights, shape (pairs, resamples).

    It is ``nan`` where a set has fewer than two vectors.

    Args:
        vectors: array that the rows of all pairs index.
        pairs: sets.
        weights: shape (resamples, queries).
        progress: gets the numbers of finished tasks and of all.
    """
    results = np.full((len(pairs), len(weights)), np.nan)
    starts = range(0, len(weights), _CHUNK)
    tasks = {
        (number, first): (*pair, weights[first : first + _CHUNK])
        for number, pair in enumerate(pairs)
        for first in starts
    }
    progress(0, len(tasks))
    workers = _workers(vectors.shape[1], pairs, weights, len(tasks))
    if workers < 2:
        for done, ((number, first), task) in enumerate(tasks.items(), 1):
            results[number, first : first + _CHUNK] = _run_task(vectors, task)
            progress(done, len(tasks))
        return results
    with filesystem.temporary_folder("frechet") as folder, _process_pool(workers) as pool:
        path = folder / "vectors.npy"
        np.save(path, vectors)
        futures = {pool.submit(_work, path, task): key for key, task in tasks.items()}
        for done, future in enumerate(as_completed(futures), 1):
            number, first = futures[future]
            results[number, first : first + _CHUNK] = future.result()
            progress(done, len(tasks))
    return results


# A pair of sets, and some of the weights.
_Task = tuple[VectorRows, VectorRows, Ints]


def _workers(dims: int, pairs: Sequence[tuple[VectorRows, VectorRows]], weights: Ints, tasks: int) -> int:
    """Return the number of processes; 1: only this one."""
    work, most = 0.0, 0
    for pair in pairs:
        sizes = [len(rows.rows) for rows in pair]
        # Cross-products, then eigenvalues of the smaller side.
        work += sum(min(size, weights.shape[1]) * dims**2 for size in sizes) + 2.0 * min(dims, *sizes) ** 3
        most = max(most, 16 * dims * sum(sizes) + 8 * _CHUNK * dims**2)
    if work * len(weights) < _PARALLEL_FROM:
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), tasks, _MAX_BYTES // most))


@contextmanager
def _process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes with libraries of one thread; they end at once if this process is interrupted."""
    others = set(multiprocessing.active_children())
    environment = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    # Not forked: the libraries of a fork keep the threads that they were loaded with.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_ignore_interrupt)
    os.environ.update(_VARIABLES)
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        for name in _VARIABLES:
            del os.environ[name]
        os.environ.update(environment)


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent process


def _work(path: Path, task: _Task) -> Floats:
    return _run_task(np.load(path, mmap_mode="r"), task)


def _run_task(vectors: NDArray[np.float32], task: _Task) -> Floats:
    one, other, weights = task
    centre = vectors[one.rows].mean(axis=0, dtype=np.float64) if len(one.rows) else 0.0
    resamples = (_resamples(vectors, rows, centre, weights) for rows in (one, other))
    return np.asarray([_distance(*both) for both in zip(*resamples, strict=True)])


@dataclass(frozen=True)
class _Resample:
    """Resample of a set: its mean, and its covariance as a half or whole.

    ``half`` has the shape (different vectors, dimensions), ``whole`` (dimensions, dimensions).
    """

    mean: Floats
    trace: float
    half: Any = None
    whole: Any = None


def _distance(one: _Resample | None, other: _Resample | None) -> float:
    """Return the distance of two resamples; ``nan`` if one has fewer than two vectors, and so no covariance."""
    if one is None or other is None:
        return math.nan
    difference = one.mean - other.mean
    return max(float(difference @ difference) + one.trace + other.trace - 2.0 * _root_trace(one, other), 0.0)


def _resamples(
    vectors: NDArray[np.float32], rows: VectorRows, centre: Any, weights: Ints
) -> Iterator[_Resample | None]:
    """Yield a set's resample for each row of weights, relative to a centre near the mean of the set."""
    dims = vectors.shape[1]
    kind = np.float32 if len(rows.rows) >= _SINGLE_FROM * dims else np.float64
    points: Any = np.empty((len(rows.rows), dims), dtype=kind)
    np.subtract(vectors[rows.rows], centre, out=points, casting="same_kind")
    sums, squares, sizes = _by_query(points, rows.query, weights.shape[1])
    counts, totals, squared = weights @ sizes, weights @ sums, weights @ squares
    for drawn, count, total, square in zip(weights, counts.tolist(), totals, squared.tolist(), strict=True):
        if count < 2:
            yield None
            continue
        mean, freedom = total / count, count - 1
        times = drawn[rows.query]
        half = points[times > 0] - mean.astype(kind)
        half *= np.sqrt(times[times > 0] / freedom)[:, None].astype(kind)
        trace = max(square - count * float(mean @ mean), 0.0) / freedom
        if len(half) < dims:
            yield _Resample(mean, trace, half=half)
        else:
            yield _Resample(mean, trace, whole=(half.T @ half).astype(np.float64))


def _by_query(points: Any, query: Ints, queries: int) -> tuple[Floats, Floats, Ints]:
    """Return sums, sums of squares, and numbers of the vectors of each query."""
    present, firsts = np.unique(query, return_index=True)
    sums, squares = np.zeros((queries, points.shape[1])), np.zeros(queries)
    if len(present):
        sums[present] = np.add.reduceat(points, firsts, axis=0, dtype=np.float64)
        squares[present] = np.add.reduceat(np.einsum("ij,ij->i", points, points, dtype=np.float64), firsts)
    return sums, squares, np.bincount(query, minlength=queries)


def _root_trace(one: _Resample, other: _Resample) -> float:
    """Return ``Tr((S1 S2)^(1/2))`` from the eigenvalues of the smallest matrix that has them.

    Squaring costs small eigenvalues digits that singular values keep; an interval does not show it.
    """
    from scipy.linalg import LinAlgError, eigvalsh

    if one.half is None and other.half is None:
        with suppress(LinAlgError):  # the first is singular
            return _sum_of_roots(eigvalsh(other.whole, one.whole, type=2, check_finite=False))
        one = replace(one, half=_half(one.whole))
    if one.half is not None and other.half is not None:
        crossed = one.half @ other.half.T
        product = crossed @ crossed.T if len(crossed) <= crossed.shape[1] else crossed.T @ crossed
    elif one.half is not None:
        product = one.half @ other.whole @ one.half.T
    else:
        product = other.half @ one.whole @ other.half.T
    return _sum_of_roots(eigvalsh(product, check_finite=False, overwrite_a=True))


def _sum_of_roots(values: Any) -> float:
    return float(np.sqrt(np.maximum(values, 0.0)).sum())
