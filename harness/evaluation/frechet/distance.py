"""The Frechet distance between two normal distributions that stand for two sets of vectors.

``|mu1 - mu2|^2 + Tr(S1 + S2 - 2 (S1 S2)^(1/2))``, as Dowson and Landau have it.  The paper prints a minus before the
trace, which is a misprint: equal means would have distances below 0.  Covariances are divided by n - 1.

No root of a matrix is taken.  With ``S = H' H`` for each set (a *half* ``H``: its centred vectors over
``sqrt(n - 1)``), ``Tr((S1 S2)^(1/2))`` is the sum of the singular values of ``H1 H2'``.  That is sound where
a covariance is singular, as it is with fewer vectors than dimensions; scipy's ``sqrtm`` is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.evaluation.trec import Qrels, Run

# MERGED harness.evaluation.frechet.distance: Which documents stand for "relevant", and which for "retrieved".


@dataclass(frozen=True)
class Chosen:
    """Documents of each query, in the order of the queries; one that several queries have counts once for each."""

    documents: tuple[tuple[str, ...], ...]

    def cut(self, depths: Sequence[int]) -> Chosen:
        """Return the first documents of each query, as many as its depth says; queries of depth 0 are left out."""
        pairs = zip(self.documents, depths, strict=True)
        return Chosen(tuple(documents[:depth] for documents, depth in pairs if depth))

    @property
    def size(self) -> int:
        """Documents in all."""
        return sum(map(len, self.documents))

    def fewer_than(self, k: int) -> int:
        """Queries that have fewer documents than that."""
        return sum(len(each) < k for each in self.documents)

    def names(self) -> Iterator[str]:
        """Every document, as often as it counts."""
        return (name for each in self.documents for name in each)


def with_relevant(qrels: Qrels, queries: Sequence[str], relevant_from: int) -> tuple[str, ...]:
    """Return the queries that have a document of that grade or a better one."""
    return tuple(query for query in queries if any(grade >= relevant_from for grade in qrels.get(query, {}).values()))


def judged(qrels: Qrels, queries: Sequence[str], most: int | None, seed: int, relevant_from: int) -> Chosen:
    """Return the relevant documents of each query, at most ``most`` of one query.

    Args:
        qrels: judgements.
        queries: whose.
        most: ``None``: all.  The best grades come first; among equal grades, chance decides by ``seed``, for each query
            alone, so that other queries or another order of the file change nothing.
        seed: of that chance.
        relevant_from: the least grade of a relevant document.
    """
    return Chosen(tuple(_best(qrels.get(query, {}), query, most, seed, relevant_from) for query in queries))


def _best(grades: Mapping[str, int], query: str, most: int | None, seed: int, relevant_from: int) -> tuple[str, ...]:
    def drawn(document: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{query}\n{document}".encode("utf-8", "surrogatepass")).digest()

    relevant = [document for document, grade in grades.items() if grade >= relevant_from]
    return tuple(sorted(relevant, key=lambda document: (-grades[document], drawn(document), document))[:most])


def retrieved(run: Run, qrels: Qrels, queries: Sequence[str], k: int, *, unlabelled: bool) -> Chosen:
    """The first ``k`` documents that a system retrieved for each query, as many as there are.

    Args:
        run: what it retrieved.
        qrels: judgements.
        queries: whose.
        k: how many.
        unlabelled: the paper's URR: every judged document of the query, of whatever grade, is skipped before ``k``
            are taken.
    """
    found = []
    for query in queries:
        skipped = qrels.get(query, {}) if unlabelled else {}
        found.append(tuple(each for each in run.rankings.get(query, ()) if each not in skipped)[:k])
    return Chosen(tuple(found))


Floats = NDArray[np.float64]


def of_points(one: ArrayLike, other: ArrayLike) -> float:
    """The distance between two sets of vectors.

    Args:
        one: shape (vectors, dimensions); a vector may stand there many times.
        other: shape (vectors of it, dimensions).

    Raises:
        ValueError: a set has fewer than two vectors, or the dimensions differ.
    """
    points = [np.asarray(each, dtype=np.float64) for each in (one, other)]
    if any(each.ndim != 2 or len(each) < 2 for each in points) or points[0].shape[1] != points[1].shape[1]:
        raise ValueError(f"two sets of at least two vectors of one length are needed, not {[e.shape for e in points]}")
    means = [each.mean(axis=0) for each in points]
    halves = [(each - mean) / np.sqrt(len(each) - 1) for each, mean in zip(points, means, strict=True)]
    return of_halves(means[0] - means[1], *halves)


def of_moments(mean_one: ArrayLike, one: ArrayLike, mean_other: ArrayLike, other: ArrayLike) -> float:
    """The same of means, shape (dimensions,), and covariances, shape (dimensions, dimensions)."""
    halves = [half(np.asarray(each, dtype=np.float64)) for each in (one, other)]
    return of_halves(np.asarray(mean_one, dtype=np.float64) - np.asarray(mean_other, dtype=np.float64), *halves)


def of_halves(apart: Floats, one: Floats, other: Floats) -> float:
    """The same of the difference of the means and a half of each covariance, shape (any, dimensions)."""
    whole = float(apart @ apart) + float(np.vdot(one, one)) + float(np.vdot(other, other))
    crossed = _short(one) @ _short(other).T
    # Rounding may leave something below 0 of what is 0.
    return max(whole - 2.0 * float(np.linalg.svd(crossed, compute_uv=False).sum()), 0.0)


def _short(any_half: Floats) -> Floats:
    """The same half with no more rows than columns: a rotation of rows changes no singular value."""
    if len(any_half) <= any_half.shape[1]:
        return any_half
    return np.asarray(np.linalg.qr(any_half, mode="r"), dtype=np.float64)


def half(covariance: Floats) -> Floats:
    """``H`` with ``H' H`` = the covariance, whatever its rank; what rounding put below 0 is 0."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)
