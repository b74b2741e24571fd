"""Distances of resampled queries, without copying a vector.

A resample gives each query a weight, the times that it was drawn.  A set of vectors with these weights has sums and
cross-products that are weighted sums of those of its queries: for many resamples at once that is a product of the
weights, (resamples, queries), and the queries' cross-products, (queries, dimensions^2), which are made in blocks and
never held whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.evaluation.frechet.distance import half

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# From so many vectors for each dimension on, a covariance is far enough from singular that the rounding of single
# precision cannot be seen in a distance; and what is summed so are changes from the whole set alone.
_SINGLE_FROM = 4
# A resample holds 1 - 1/e of the vectors, some of them several times.
_DISTINCT = 0.632
# Numbers in a block of cross-products, and dimensions on its longest side.
_BLOCK_NUMBERS = 1 << 25
_BLOCK_SIDE = 64


@dataclass(frozen=True)
class Points:
    """Vectors, shape (vectors, dimensions), and the query that each is of; sorted by query.

    Their mean should be near 0, so that nothing is lost where products of means are taken away.
    """

    vectors: Any
    query: Ints
    queries: int

    @property
    def by_rows(self) -> bool:
        """True if a resample has too few different vectors for its covariance to be worth making."""
        return bool(_DISTINCT * len(self.vectors) < self.vectors.shape[1])


def precision(vectors: int, dimensions: int) -> Any:
    """The type of number that so many vectors need."""
    return np.float32 if vectors >= _SINGLE_FROM * dimensions else np.float64


@dataclass(frozen=True)
class Resample:
    """One resample of a set: its mean, and its covariance either as a half or whole.

    ``half`` has the shape (different vectors, dimensions), ``whole`` (dimensions, dimensions).
    """

    mean: Floats
    trace: float
    half: Any = None
    whole: Any = None


def distances(one: Points, other: Points, weights: Ints) -> Floats:
    """The distance between two sets under each row of weights, shape (resamples, queries); ``nan``: one has fewer than
    two vectors, which have no covariance.
    """
    found = np.full(len(weights), np.nan)
    for number, (here, there) in enumerate(zip(_resamples(one, weights), _resamples(other, weights), strict=True)):
        if here is not None and there is not None:
            apart = here.mean - there.mean
            whole = float(apart @ apart) + here.trace + there.trace
            found[number] = max(whole - 2.0 * _root_trace(here, there), 0.0)
    return found


def _resamples(points: Points, weights: Ints) -> Iterator[Resample | None]:
    sums, squares, sizes = _by_query(points)
    counts, totals, squared = weights @ sizes, weights @ sums, weights @ squares
    crossed = None if points.by_rows else Crossed(points, weights)
    for number, (count, total, square) in enumerate(zip(counts.tolist(), totals, squared.tolist(), strict=True)):
        if count < 2:
            yield None
            continue
        mean, freedom = total / count, count - 1
        trace = max(square - count * float(mean @ mean), 0.0) / freedom
        if crossed is None:
            times = weights[number][points.query]
            there = np.flatnonzero(times)
            scale = np.sqrt(times[there] / freedom)[:, None]
            yield Resample(mean, trace, half=(points.vectors[there] - mean) * scale)
        else:
            whole = crossed.of(number)
            whole -= np.outer(count * mean, mean)
            whole /= freedom
            yield Resample(mean, trace, whole=whole)


def _by_query(points: Points) -> tuple[Floats, Floats, Ints]:
    """Sums, sums of squares, and numbers of the vectors of each query."""
    there, firsts = np.unique(points.query, return_index=True)
    sums = np.zeros((points.queries, points.vectors.shape[1]))
    squares = np.zeros(points.queries)
    if len(there):
        sums[there] = np.add.reduceat(points.vectors, firsts, axis=0, dtype=np.float64)
        lengths = np.einsum("ij,ij->i", points.vectors, points.vectors, dtype=np.float64)
        squares[there] = np.add.reduceat(lengths, firsts)
    return sums, squares, np.bincount(points.query, minlength=points.queries)


class Crossed:
    """Sums of cross-products under each row of weights."""

    def __init__(self, points: Points, weights: Ints) -> None:
        self._points = points
        self._all = _product(points.vectors)
        self._changes = (weights - 1).astype(points.vectors.dtype)
        # Vector by vector for each resample, or the queries' cross-products for all of them: whichever is less work.
        self._blocks: list[tuple[slice, slice, Any]] | None = None
        if points.queries < _DISTINCT * len(points.vectors):
            self._blocks = list(self._blocked())

    def of(self, number: int) -> Floats:
        """The sum for one row."""
        if self._blocks is None:
            return np.asarray(self._all + self._by_vector(self._changes[number][self._points.query]))
        found = self._all.copy()
        for one, other, made in self._blocks:
            block = made[number].reshape(one.stop - one.start, other.stop - other.start)
            if one == other:
                # Rounding leaves it not quite symmetric, and eigenvalues that should be 0 would become noise.
                found[one, one] += (block + block.T) / 2
            else:
                found[one, other] += block
                found[other, one] += block.T
        return found

    def _by_vector(self, change: Any) -> Any:
        """Added and taken away apart, so that each is a matrix times its own transpose, which is half the work."""
        found: Any = 0.0
        for sign in (1.0, -1.0):
            there = np.flatnonzero(change * sign > 0)
            scaled = self._points.vectors[there] * np.sqrt(np.abs(change[there]))[:, None]
            found = found + sign * (scaled.T @ scaled)
        return found

    def _blocked(self) -> Iterator[tuple[slice, slice, Any]]:
        groups = list(_groups(self._points))
        changes = np.ascontiguousarray(self._changes[:, np.concatenate([queries for queries, _ in groups])])
        dims = len(self._all)
        side = max(8, min(_BLOCK_SIDE, math.isqrt(_BLOCK_NUMBERS // changes.shape[1])))
        sides = [slice(first, min(first + side, dims)) for first in range(0, dims, side)]
        for place, one in enumerate(sides):
            for other in sides[place:]:
                crossed = [np.matmul(each[:, :, one].transpose(0, 2, 1), each[:, :, other]) for _, each in groups]
                flat = np.concatenate([each.reshape(len(each), -1) for each in crossed])
                yield one, other, changes @ flat


def _product(vectors: Any) -> Floats:
    """Their cross-products in double precision, whatever they are in."""
    found = np.zeros((vectors.shape[1],) * 2)
    for first in range(0, len(vectors), 8192):
        part = vectors[first : first + 8192].astype(np.float64)
        found += part.T @ part
    return found


def _groups(points: Points) -> Iterator[tuple[Ints, Any]]:
    """Queries with equally many vectors: their numbers, and the vectors in the shape (queries, each, dimensions)."""
    numbers, firsts, counts = np.unique(points.query, return_index=True, return_counts=True)
    for count in np.unique(counts).tolist():
        chosen = counts == count
        yield numbers[chosen], points.vectors[firsts[chosen][:, None] + np.arange(count)]


def _root_trace(one: Resample, other: Resample) -> float:
    """``Tr((S1 S2)^(1/2))``, by the eigenvalues of the smallest matrix that has them.

    Squared, small ones lose digits that :func:`harness.evaluation.frechet.distance.of_halves` keeps: an interval does not show it.
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
    """``L' S2 L`` with ``L L' = S1``, which has the eigenvalues of ``S1 S2``; its lower triangle at least."""
    from scipy.linalg import lapack

    lower, failed = lapack.dpotrf(one, lower=1, clean=0)
    if failed:  # singular
        root = half(one)
        return root @ other @ root.T
    found, _ = lapack.dsygst(other, lower, itype=2, lower=1)
    return found
