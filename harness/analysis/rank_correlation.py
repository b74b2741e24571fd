"""Kendall's tau-b: the agreement of two measures on the order of systems."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def kendall_tau(a: Mapping[str, float], b: Mapping[str, float]) -> float | None:
    """Kendall's tau-b of two orders, over the systems that both know.

    1: the same order; -1: the reverse.  A pair that is tied in either speaks neither for nor against, and the divisor
    is smaller for it (Kendall 1945).  Pairs are counted one by one: the tests hold this against
    ``scipy.stats.kendalltau``, whose import alone takes most of a second.

    Args:
        a: a value for each system.
        b: likewise; larger is better in both, or in neither.

    Returns:
        ``None`` where there is no order to agree on: fewer than two common systems, or all of them equal in one of the
        two.
    """
    common = sorted(a.keys() & b.keys())
    ours, theirs = (np.asarray([each[name] for name in common], dtype=np.float64) for each in (a, b))
    one, other = (np.sign(values[:, None] - values) for values in (ours, theirs))
    known = float(np.sum(one != 0)) * float(np.sum(other != 0))
    return float(np.sum(one * other)) / known**0.5 if known else None


Floats = NDArray[np.float64]

# Means that differ by less are equal: the same values, summed in another order.
EQUAL = 1e-12


def signs(values: Floats, one: int | None = None) -> Floats:
    """By which of two systems is better: 1, 0, -1, of shape (draws, systems, systems), or of one against the others."""
    ours = values[:, :, np.newaxis] if one is None else values[:, [one]]
    apart = ours - (values[:, np.newaxis, :] if one is None else values)
    return np.where(np.abs(apart) <= EQUAL, 0.0, np.sign(apart))
