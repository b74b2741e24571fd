"""The Frechet distance between two normal distributions that stand for two sets of vectors.

``|mu1 - mu2|^2 + Tr(S1 + S2 - 2 (S1 S2)^(1/2))``, as Dowson and Landau have it.  The paper prints a minus before the
trace, which is a misprint: equal means would have distances below 0.  Covariances are divided by n - 1.

No root of a matrix is taken.  With ``S = H' H`` for each set (a *half* ``H``: its centred vectors over
``sqrt(n - 1)``), ``Tr((S1 S2)^(1/2))`` is the sum of the singular values of ``H1 H2'``.  That is sound where
a covariance is singular, as it is with fewer vectors than dimensions; scipy's ``sqrtm`` is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
