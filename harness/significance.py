"""Is a difference between two systems more than chance?  Tests over paired queries, and many of them at once.

Randomisation (Fisher): were the systems alike, each query's difference might as well have the other sign.  Bootstrap,
shift method: were they alike, resampled means would lie about 0 as they now lie about the mean.  Neither takes the
differences to be normal; Smucker, Allan and Carterette (2007) found both to agree with the t test on TREC runs, and the
sign and Wilcoxon tests not to.  Many comparisons at once are corrected by Holm (1979).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.stats import INTERVAL_MIN_QUERIES

Floats = NDArray[np.float64]

# What a corrected p must not exceed for a difference to be claimed: intervals have 95 %.
LEVEL = 0.05
# Random sign flips and resamples; the least p that they can give is 1 in 10,000.  All signs of few may give a smaller.
DRAWS = 9999
# Up to so many differences that are not 0, all their signs are tried: 2^16 of them.
EXACT_QUERIES = 16
_SEED = 2023
# Values that one block of draws takes up: 16 MiB.
_BLOCK = 2_000_000


@dataclass(frozen=True)
class Tested:
    """Differences of paired queries, tested two-sidedly.

    ``exact``: the randomisation tried all signs, not ``DRAWS`` random ones.  ``p_bootstrap`` is ``None`` below
    ``INTERVAL_MIN_QUERIES``, as bootstrap intervals are.  ``effect_size`` is Cohen's d_z, the mean difference in
    standard deviations of the differences; ``None``: there is no spread to measure it by.  ``higher``, ``lower`` and
    ``tied`` count queries by the sign of their difference.
    """

    p_randomisation: float
    p_bootstrap: float | None
    exact: bool
    effect_size: float | None
    higher: int
    lower: int
    tied: int


def paired(differences: Floats, seed: int = _SEED) -> Tested:
    """Test whether differences have a mean other than 0.

    Args:
        differences: shape (queries,), finite, at least one.
        seed: of the draws.
    """
    spread = float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0
    mean = float(differences.mean())
    constant = spread <= 1e-12 * abs(mean)
    return Tested(
        p_randomisation=randomisation(differences, seed),
        p_bootstrap=bootstrap_shift(differences, seed) if len(differences) >= INTERVAL_MIN_QUERIES else None,
        exact=int(np.count_nonzero(differences)) <= EXACT_QUERIES,
        effect_size=None if constant else mean / spread,
        higher=int(np.sum(differences > 0)),
        lower=int(np.sum(differences < 0)),
        tied=int(np.sum(differences == 0)),
    )


def randomisation(differences: Floats, seed: int = _SEED, draws: int = DRAWS) -> float:
    """The p of Fisher's paired randomisation test: how often random signs give a mean as far from 0.

    Exact where at most ``EXACT_QUERIES`` differences are not 0; else the observed signs count as one more draw, so that
    p is never 0 and never too small (Phipson and Smyth 2010).
    """
    moved = np.abs(differences[differences != 0])
    observed = abs(float(differences.sum()))
    if len(moved) <= EXACT_QUERIES:
        sums = np.zeros(1)
        for size in moved:
            sums = np.concatenate((sums - size, sums + size))
        return float(np.mean(np.abs(sums) >= _just_below(observed, moved)))
    rng = np.random.default_rng(seed)
    hits, width = 0, -(-len(moved) // 8)
    for count in _blocks(draws, len(moved)):
        bits = np.unpackbits(rng.integers(0, 256, (count, width), dtype=np.uint8), axis=1, count=len(moved))
        sums = 2 * (bits.astype(np.float64) @ moved) - moved.sum()
        hits += int(np.sum(np.abs(sums) >= _just_below(observed, moved)))
    return (hits + 1) / (draws + 1)


def bootstrap_shift(differences: Floats, seed: int = _SEED, draws: int = DRAWS) -> float:
    """The p of the paired bootstrap test, shift method: how often resampled means are as far from the mean as 0 is."""
    count = len(differences)
    centred = differences - differences.mean()
    observed = abs(float(differences.sum()))
    rng = np.random.default_rng(seed)
    hits = 0
    for block in _blocks(draws, count):
        sums = centred[rng.integers(0, count, (block, count), dtype=np.int32)].sum(axis=1)
        hits += int(np.sum(np.abs(sums) >= _just_below(observed, np.abs(differences))))
    return (hits + 1) / (draws + 1)


def fingerprint(differences: Floats) -> str:
    """The same for the same differences, whichever of the two systems comes first: a test of them is one test."""
    moved = np.flatnonzero(differences)
    signed = differences if not len(moved) or differences[moved[0]] > 0 else -differences
    return hashlib.sha256((signed + 0.0).tobytes()).hexdigest()  # so that -0 is 0


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down adjusted p values, in the order given: each at most 1, and none below a smaller p's.

    With all that are at most 0.05 claimed, the chance of even one false claim is at most 0.05, however the comparisons
    depend on one another.  The smallest p is multiplied by how many there are, the next by one less ... (Holm 1979).
    """
    count = len(p_values)
    adjusted = [0.0] * count
    reached = 0.0
    for place, number in enumerate(sorted(range(count), key=lambda each: p_values[each])):
        reached = max(reached, min(1.0, (count - place) * p_values[number]))
        adjusted[number] = reached
    return tuple(adjusted)


def _just_below(observed: float, sizes: Floats) -> float:
    """Sums of the same numbers in another order differ in their last digits: those are as far as the observed one."""
    return observed - 1e-12 * float(sizes.sum())


def _blocks(draws: int, count: int) -> list[int]:
    size = max(1, _BLOCK // count)
    return [min(size, draws - start) for start in range(0, draws, size)]
