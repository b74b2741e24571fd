"""Which of two systems is better, for every two, in one order or in many; and the ranks that follow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Means that differ by less are equal: the same values, summed in another order.
_EQUAL = 1e-12


def signs(values: Floats, one: int | None = None) -> Floats:
    """By which of two systems is better: 1, 0, -1, of shape (draws, systems, systems), or of one against the others."""
    ours = values[:, :, np.newaxis] if one is None else values[:, [one]]
    apart = ours - (values[:, np.newaxis, :] if one is None else values)
    return np.where(np.abs(apart) <= _EQUAL, 0.0, np.sign(apart))


def ranks(values: Floats) -> Floats:
    """Ranks from 1, the best; those that are equal share the mean of theirs.  Shape (draws, systems)."""
    found = [1 + ((1 - signs(values, one)) / 2).sum(axis=1) - 0.5 for one in range(values.shape[1])]
    return np.stack(found, axis=1)
