"""Compute the Frechet distance between two sets of vectors, and its bootstrap on all CPUs.

``|mu1 - mu2|^2 + Tr(S1 + S2 - 2 (S1 S2)^(1/2))``, as Dowson and Landau have it.  The paper prints a minus before the
trace, which is a misprint: equal means would have distances below 0.  Covariances are divided by n - 1.

No root of a matrix is taken.  With ``S = H' H`` for each set (a *half* ``H``: its centred vectors over
``sqrt(n - 1)``), ``Tr((S1 S2)^(1/2))`` is the sum of the singular values of ``H1 H2'``.  That is sound where
a covariance is singular, as it is with fewer vectors than dimensions; scipy's ``sqrtm`` is not.

A resample gives each query a weight, the times that it was drawn; no vector is copied.  A set of vectors with these
weights has sums and cross-products that are weighted sums over its queries: for many resamples at once that is a
product of the weights, (resamples, queries), and the queries' cross-products, (queries, dimensions^2), which are made
in blocks and never held whole.

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness import filesystem
from harness.progress import Progress, silent
from harness.stats import Floats, Ints

# With this many vectors per dimension, a covariance is far enough from singular that single precision cannot be seen in
# a distance; single precision then sums changes from the whole set only.
_SINGLE_FROM = 4
# A resample draws 1 - 1/e of the vectors, some of these several times.
_DISTINCT = 0.632
# Numbers in a block of cross-products, and dimensions on its longest side.
_BLOCK_NUMBERS = 1 << 25
_BLOCK_SIDE = 64
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# Of the processes; with the second, none of them imports a module of the working directory.
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
        (number, first): _Task(*pair, weights[first : first + _CHUNK])
        for number, pair in enumerate(pairs)
        for first in starts
    }
    progress(0, len(tasks))
    workers = _workers(vectors.shape[1], pairs, weights, len(tasks))
    if workers < 2:
        for done, ((number, first), task) in enumerate(tasks.items(), 1):
            results[number, first : first + len(task.weights)] = _run_task(vectors, task)
            progress(done, len(tasks))
        return results
    with filesystem.temporary_folder("frechet") as folder, _process_pool(workers) as pool:
        path = folder / "vectors.npy"
        np.save(path, vectors)
        futures = {pool.submit(_work, path, task): key for key, task in tasks.items()}
        for done, future in enumerate(as_completed(futures), 1):
            number, first = futures[future]
            distances = future.result()
            results[number, first : first + len(distances)] = distances
            progress(done, len(tasks))
    return results


@dataclass(frozen=True)
class _Task:
    """Pair of sets with some of the weights."""

    one: VectorRows
    other: VectorRows
    weights: Ints


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
    queries = task.weights.shape[1]
    centre = vectors[task.one.rows].mean(axis=0, dtype=np.float64) if len(task.one.rows) else 0.0
    sets = []
    for rows in (task.one, task.other):
        kind = precision(len(rows.rows), vectors.shape[1])
        centred = np.empty((len(rows.rows), vectors.shape[1]), dtype=kind)
        np.subtract(vectors[rows.rows], centre, out=centred, casting="same_kind")
        sets.append(Points(centred, rows.query, queries))
    return weighted_distances(sets[0], sets[1], task.weights)


@dataclass(frozen=True)
class Points:
    """Vectors, shape (vectors, dimensions), and the query of each; sorted by query.

    Their mean should be near 0, so that nothing is lost where products of means are subtracted.
    """

    vectors: Any
    query: Ints
    queries: int

    @property
    def by_rows(self) -> bool:
        """True if a resample has too few different vectors for its covariance to pay."""
        return bool(_DISTINCT * len(self.vectors) < self.vectors.shape[1])


def precision(vectors: int, dimensions: int) -> Any:
    """Return the type of number for a set of this size."""
    return np.float32 if vectors >= _SINGLE_FROM * dimensions else np.float64


@dataclass(frozen=True)
class Resample:
    """Resample of a set: its mean, and its covariance as a half or whole.

    ``half`` has the shape (different vectors, dimensions), ``whole`` (dimensions, dimensions).
    """

    mean: Floats
    trace: float
    half: Any = None
    whole: Any = None


def weighted_distances(one: Points, other: Points, weights: Ints) -> Floats:
    """Return the distance between two sets under each row of weights, shape (resamples, queries).

    It is ``nan`` where a set has fewer than two vectors, which have no covariance.
    """
    results = np.full(len(weights), np.nan)
    for number, (left, right) in enumerate(zip(_resamples(one, weights), _resamples(other, weights), strict=True)):
        if left is not None and right is not None:
            difference = left.mean - right.mean
            whole = float(difference @ difference) + left.trace + right.trace
            results[number] = max(whole - 2.0 * _root_trace(left, right), 0.0)
    return results


def _resamples(points: Points, weights: Ints) -> Iterator[Resample | None]:
    sums, squares, sizes = _by_query(points)
    counts, totals, squared = weights @ sizes, weights @ sums, weights @ squares
    crossed = None if points.by_rows else CrossProducts(points, weights)
    for number, (count, total, square) in enumerate(zip(counts.tolist(), totals, squared.tolist(), strict=True)):
        if count < 2:
            yield None
            continue
        mean, freedom = total / count, count - 1
        trace = max(square - count * float(mean @ mean), 0.0) / freedom
        if crossed is None:
            times = weights[number][points.query]
            drawn = np.flatnonzero(times)
            scale = np.sqrt(times[drawn] / freedom)[:, None]
            yield Resample(mean, trace, half=(points.vectors[drawn] - mean) * scale)
        else:
            whole = crossed.of(number)
            whole -= np.outer(count * mean, mean)
            whole /= freedom
            yield Resample(mean, trace, whole=whole)


def _by_query(points: Points) -> tuple[Floats, Floats, Ints]:
    """Return sums, sums of squares, and numbers of the vectors of each query."""
    present, firsts = np.unique(points.query, return_index=True)
    sums = np.zeros((points.queries, points.vectors.shape[1]))
    squares = np.zeros(points.queries)
    if len(present):
        sums[present] = np.add.reduceat(points.vectors, firsts, axis=0, dtype=np.float64)
        lengths = np.einsum("ij,ij->i", points.vectors, points.vectors, dtype=np.float64)
        squares[present] = np.add.reduceat(lengths, firsts)
    return sums, squares, np.bincount(points.query, minlength=points.queries)


class CrossProducts:
    """Sums of cross-products under each row of weights."""

    def __init__(self, points: Points, weights: Ints) -> None:
        self._points = points
        self._all = _cross_product(points.vectors)
        self._changes = (weights - 1).astype(points.vectors.dtype)
        # Vector by vector for each resample, or the queries' cross-products for all of them: whichever is less work.
        self._blocks: list[tuple[slice, slice, Any]] | None = None
        if points.queries < _DISTINCT * len(points.vectors):
            self._blocks = list(self._blocked())

    def of(self, number: int) -> Floats:
        """Return the sum for one row."""
        if self._blocks is None:
            return np.asarray(self._all + self._by_vector(self._changes[number][self._points.query]))
        total = self._all.copy()
        for one, other, changes in self._blocks:
            block = changes[number].reshape(one.stop - one.start, other.stop - other.start)
            if one == other:
                # Rounding leaves it not quite symmetric, and eigenvalues that should be 0 would become noise.
                total[one, one] += (block + block.T) / 2
            else:
                total[one, other] += block
                total[other, one] += block.T
        return total

    def _by_vector(self, change: Any) -> Any:
        """Sum additions and subtractions apart: each is a matrix times its own transpose, which is half the work."""
        total: Any = 0.0
        for sign in (1.0, -1.0):
            changed = np.flatnonzero(change * sign > 0)
            scaled = self._points.vectors[changed] * np.sqrt(np.abs(change[changed]))[:, None]
            total = total + sign * (scaled.T @ scaled)
        return total

    def _blocked(self) -> Iterator[tuple[slice, slice, Any]]:
        groups = list(_groups(self._points))
        changes = np.ascontiguousarray(self._changes[:, np.concatenate([queries for queries, _ in groups])])
        dims = len(self._all)
        side = max(8, min(_BLOCK_SIDE, math.isqrt(_BLOCK_NUMBERS // changes.shape[1])))
        sides = [slice(first, min(first + side, dims)) for first in range(0, dims, side)]
        for number, one in enumerate(sides):
            for other in sides[number:]:
                crossed = [np.matmul(part[:, :, one].transpose(0, 2, 1), part[:, :, other]) for _, part in groups]
                flat = np.concatenate([products.reshape(len(products), -1) for products in crossed])
                yield one, other, changes @ flat


def _cross_product(vectors: Any) -> Floats:
    """Return the sum of cross-products in double precision."""
    total = np.zeros((vectors.shape[1],) * 2)
    for first in range(0, len(vectors), 8192):
        part = vectors[first : first + 8192].astype(np.float64)
        total += part.T @ part
    return total


def _groups(points: Points) -> Iterator[tuple[Ints, Any]]:
    """Yield the queries with equally many vectors, and those vectors, shape (queries, vectors each, dimensions)."""
    numbers, firsts, counts = np.unique(points.query, return_index=True, return_counts=True)
    for count in np.unique(counts).tolist():
        equal = counts == count
        yield numbers[equal], points.vectors[firsts[equal][:, None] + np.arange(count)]


def _root_trace(one: Resample, other: Resample) -> float:
    """Return ``Tr((S1 S2)^(1/2))`` from the eigenvalues of the smallest matrix that has them.

    Squaring costs small eigenvalues digits that singular values keep; an interval does not show it.
    """
    from scipy.linalg import eigvalsh

    if one.half is not None and other.half is not None:
        crossed = one.half @ other.half.T
        product = crossed @ crossed.T if len(crossed) <= crossed.shape[1] else crossed.T @ crossed
    elif one.half is not None:
        product = one.half @ other.whole @ one.half.T
    elif other.half is not None:
        product = other.half @ one.whole @ other.half.T
    else:
        product = _congruent(one.whole, other.whole)
    values = eigvalsh(product, check_finite=False, overwrite_a=True)
    return float(np.sqrt(np.maximum(values, 0.0)).sum())


def _congruent(one: Any, other: Any) -> Any:
    """Return ``L' S2 L`` with ``L L' = S1``, which has the eigenvalues of ``S1 S2``; its lower triangle at least."""
    from scipy.linalg import lapack

    lower, failed = lapack.dpotrf(one, lower=1, clean=0)
    if failed:  # singular
        root = _half(one)
        return root @ other @ root.T
    product, _ = lapack.dsygst(other, lower, itype=2, lower=1)
    return product
