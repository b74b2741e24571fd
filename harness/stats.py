"""Raw samples -> mean with interval, percentiles with bounds, spread between trials.

The unit of inference is the query: five trials of 1,000 queries are not 5,000 independent latencies
(measuring rule 10).  So a query's value is its mean over trials, and every interval counts queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.errors import StoreError
from harness.table import Figure

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 4999

# Fewest queries for an interval of the mean: resampling fewer values cannot show the spread of a skewed tail.
INTERVAL_MIN_QUERIES = 11

# Fewest queries for each percentile (measuring rule 11).  LoadGen's rule: the least n at which seeing at most one
# slower query proves "at most 1 - p are slower" at confidence 0.99: P(Binomial(n, 1 - p) <= 1) <= 0.01.
MIN_QUERIES = {"p50": 11, "p90": 64, "p95": 130, "p99": 662, "p99.9": 6636}

METHOD = (
    "Latency mean: every timed sample counts; its interval is a 95 % BCa bootstrap over queries "
    f"(a query's value is its mean over trials; {RESAMPLES:,} resamples, fixed seed)."
)
PERCENTILE_METHOD = (
    "Percentiles: the smallest latency that at least that share of all timed samples does not exceed; shown from "
    f"{MIN_QUERIES['p50']} queries (p50), {MIN_QUERIES['p95']} (p95), {MIN_QUERIES['p99']} (p99) on."
)


@dataclass(frozen=True)
class Summary:
    """Latency of one job.  ``trial_spread_s`` is the standard deviation of the trial means (``None`` below two).

    ``trial_means_s`` holds the trials that timed every query, in order; a trial cut short is no fair mean.
    """

    queries: int
    trials: int
    mean_s: Figure
    percentiles_s: dict[str, Figure]
    trial_means_s: tuple[float, ...]
    trial_spread_s: float | None


def summarise(query_ids: Sequence[str], trials: Sequence[int], latency_s: Sequence[float], seed: int = 0) -> Summary:
    """Describe the timed samples of one job (no warm-up rows).

    Args:
        query_ids: shape (samples,).
        trials: shape (samples,), the number of the trial.
        latency_s: shape (samples,), seconds.
        seed: of the bootstrap.

    Raises:
        StoreError: the columns differ in length, a latency is negative or no number, or a query stands
            twice in a trial.
    """
    latency = np.asarray(latency_s, dtype=np.float64)
    if not len(query_ids) == len(trials) == len(latency):
        raise StoreError(f"samples: columns of {len(query_ids)}, {len(trials)} and {len(latency)} values; must agree")
    if latency.size == 0:
        missing = Figure(None, reason="no timed samples")
        return Summary(0, 0, missing, dict.fromkeys(MIN_QUERIES, missing), (), None)
    if not np.all(np.isfinite(latency) & (latency >= 0)):
        raise StoreError("samples: a latency is negative or no number; measure the job again")
    names, query = np.unique(np.asarray(query_ids, dtype=np.str_), return_inverse=True)
    numbers, trial = np.unique(np.asarray(trials, dtype=np.int64), return_inverse=True)
    taken = np.bincount(query * len(numbers) + trial)
    if taken.max() > 1:
        raise StoreError("samples: a query was timed twice in one trial; measure the job again")
    per_query = np.bincount(query, weights=latency) / np.bincount(query)
    counts = np.bincount(trial)
    means = (np.bincount(trial, weights=latency) / counts)[counts == len(names)]
    return Summary(
        queries=len(names),
        trials=len(numbers),
        mean_s=bootstrap_mean(per_query, seed),
        percentiles_s={name: percentile(latency, name, len(names)) for name in MIN_QUERIES},
        trial_means_s=tuple(means.tolist()),
        trial_spread_s=float(np.std(means, ddof=1)) if len(means) > 1 else None,
    )


def bootstrap_mean(values: Floats, seed: int = 0) -> Figure:
    """The mean of independent values with its 95 % BCa bootstrap interval (Efron 1987).

    BCa, not the plain percentile interval: latencies are skewed to the right, and BCa corrects the bounds for it.
    The jackknife of a mean has a closed form, so nothing is recomputed for it; the tests hold this against
    ``scipy.stats.bootstrap``, whose import alone takes most of a second.

    Args:
        values: shape (queries,), at least one.
        seed: of the resampling.
    """
    from scipy.special import ndtr, ndtri

    n = len(values)
    mean = float(values.mean())
    if n < INTERVAL_MIN_QUERIES:
        return Figure(mean, reason=f"an interval needs {INTERVAL_MIN_QUERIES} queries, timed {n}")
    centred = values - mean
    squares = float(np.sum(centred**2))
    if squares <= n * (1e-12 * mean) ** 2:  # all equal, as scripted times are: nothing to resample
        return Figure(mean, mean, mean)
    means = _resampled_means(values, np.random.default_rng(seed))
    # Ties with the mean count half, as in scipy: few distinct values make many of them.
    below = (np.sum(means < mean) + np.sum(means <= mean)) / (2 * RESAMPLES)
    bias = ndtri(below)
    acceleration = float(np.sum(centred**3)) / (6 * squares**1.5)
    tail = ndtri((1 - CONFIDENCE) / 2)
    shares = [ndtr(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in (tail, -tail)]
    low, high = np.quantile(means, shares).tolist()
    return Figure(mean, low, high)


def _resampled_means(values: Floats, rng: np.random.Generator) -> Floats:
    """Means of ``RESAMPLES`` draws with replacement, in blocks so that memory stays some 30 MiB."""
    block = max(1, 2_000_000 // len(values))
    parts = [
        values[rng.integers(0, len(values), size=(min(block, RESAMPLES - start), len(values)))].mean(axis=1)
        for start in range(0, RESAMPLES, block)
    ]
    return np.concatenate(parts)


def percentile(latency_s: Floats, name: str, queries: int) -> Figure:
    """One percentile of all timed samples with its 95 % order-statistic interval, or the reason for none.

    The value is an observed one (nearest rank).  The interval takes the ranks that bound the share among
    ``queries`` independent values (binomial) and reads them off all samples (Woodruff 1952): as if the
    trials of a query told nothing new, so it is never too narrow for repeating trials.

    Args:
        latency_s: shape (samples,), all trials pooled.
        name: a key of ``MIN_QUERIES``, e.g. ``"p95"``.
        queries: how many queries the samples come from.
    """
    if queries < MIN_QUERIES[name]:
        return Figure(None, reason=f"{name} needs {MIN_QUERIES[name]:,} queries, timed {queries:,}")
    from scipy.special import bdtr

    share = float(name[1:]) / 100
    below = bdtr(np.arange(queries + 1), queries, share)  # P(at most k of n values lie below the percentile)
    ordered = np.sort(latency_s)

    def at(part: float) -> float:
        # The guard keeps 0.95 * 200 from becoming rank 191 by rounding.
        rank = int(np.ceil(part * len(ordered) - 1e-9))
        return float(ordered[min(max(rank, 1), len(ordered)) - 1])

    tail = (1 - CONFIDENCE) / 2
    low = int(np.searchsorted(below, tail))
    high = int(np.searchsorted(below, 1 - tail)) + 1
    return Figure(
        at(share),
        low=at(low / queries) if low >= 1 else None,
        high=at(high / queries) if high <= queries else None,
    )
