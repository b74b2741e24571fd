"""Raw samples -> mean with interval, percentiles with bounds, spread between trials.

The unit of inference is the query: five trials of 1,000 queries are not 5,000 independent latencies
(measuring rule 10).  So a query's value is its mean over trials, and every interval counts queries.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.errors import StoreError
from harness.table import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CONFIDENCE = 0.95
RESAMPLES = 4999
# A nominal 95 % BCa interval of a skewed sample falls short: of lognormal latencies (sigma 0.5 to 1.0) it covers 94 to
# 93 % with 300 queries, 93 to 91 % with 40.  So its reach in z is Student's, and for latencies a little wider.
# Measures are bounded: widened as well, theirs would cover some 97 %.  The tests simulate both.
WIDER = 1.08
# LoadGen's confidence for a claim "at most".
BOUND_CONFIDENCE = 0.99

# Fewest queries for an interval of the mean: resampling fewer values cannot show the spread of a skewed tail.
INTERVAL_MIN_QUERIES = 11

# Fewest queries for each percentile (measuring rule 11).  LoadGen's rule: the least n at which seeing at most one
# slower query proves "at most 1 - p are slower" at confidence 0.99: P(Binomial(n, 1 - p) <= 1) <= 0.01.
MIN_QUERIES = {"p50": 11, "p90": 64, "p95": 130, "p99": 662, "p99.9": 6636}


@dataclass(frozen=True)
class Summary:
    """Latency of one cell.  ``trial_spread_s`` is the standard deviation of the trial means (``None`` below two).

    ``mean_s`` has the interval for queries like these, ``these_queries_s`` the same mean with the interval for these
    very queries.  ``at_most_s`` holds LoadGen's bounds.  ``trial_means_s`` holds the trials that timed every query, in
    order; a trial cut short is no fair mean.
    """

    queries: int
    trials: int
    mean_s: Figure
    these_queries_s: Figure
    percentiles_s: dict[str, Figure]
    at_most_s: dict[str, Figure]
    trial_means_s: tuple[float, ...]
    trial_spread_s: float | None


def summarise(
    query_ids: Sequence[str],
    trials: Sequence[int],
    latency_s: Sequence[float],
    seed: int = 0,
    *,
    jobs: Sequence[int] | None = None,
    shown: Collection[str] = tuple(MIN_QUERIES),
) -> Summary:
    """Describe the timed samples of one cell (no warm-up rows).

    Args:
        query_ids: shape (samples,).
        trials: shape (samples,), the number of the trial, unique over the jobs.
        latency_s: shape (samples,), seconds.
        seed: of the bootstrap.
        jobs: shape (samples,), the job of each sample; by default one job.
        shown: the percentiles, keys of ``MIN_QUERIES``.

    Raises:
        StoreError: the columns differ in length, a latency is negative or no number, or a query stands
            twice in a trial.
    """
    latency = np.asarray(latency_s, dtype=np.float64)
    if not len(query_ids) == len(trials) == len(latency):
        raise StoreError(f"samples: columns of {len(query_ids)}, {len(trials)} and {len(latency)} values; must agree")
    if latency.size == 0:
        return nothing("no timed samples", shown)
    if not np.all(np.isfinite(latency) & (latency >= 0)):
        raise StoreError("samples: a latency is negative or no number; measure the job again")
    names, query = np.unique(np.asarray(query_ids, dtype=np.str_), return_inverse=True)
    numbers, trial = np.unique(np.asarray(trials, dtype=np.int64), return_inverse=True)
    taken = np.bincount(query * len(numbers) + trial)
    if taken.max() > 1:
        raise StoreError("samples: a query was timed twice in one trial; measure the job again")
    per_query = np.bincount(query, weights=latency) / np.bincount(query)
    counts = np.bincount(trial)
    complete = counts == len(names)
    means = (np.bincount(trial, weights=latency) / counts)[complete]
    job_of = np.zeros(len(numbers), dtype=np.int64)
    if jobs is not None:
        job_of[trial] = np.asarray(jobs, dtype=np.int64)
    mean = bootstrap_mean(per_query, seed, wider=WIDER)
    return Summary(
        queries=len(names),
        trials=len(numbers),
        mean_s=mean,
        these_queries_s=fixed_queries_mean(means, job_of[complete], mean.value),
        percentiles_s={name: percentile(latency, name, len(names)) for name in shown},
        at_most_s={name: at_most(latency, name, len(names)) for name in shown},
        trial_means_s=tuple(means.tolist()),
        trial_spread_s=float(np.std(means, ddof=1)) if len(means) > 1 else None,
    )


def nothing(reason: str, shown: Collection[str], queries: int = 0, trials: int = 0) -> Summary:
    """The summary of samples that give no latency of single queries."""
    missing = Figure(None, reason=reason)
    none = dict.fromkeys(shown, missing)
    return Summary(queries, trials, missing, missing, none, none, (), None)


def fixed_queries_mean(trial_means_s: Floats, jobs: Ints, mean_s: float | None) -> Figure:
    """The mean over these very queries, with a 95 % Student interval over repeated measurements of them.

    What repeats independently is a job, a fresh process; where there is one job only, its trials stand in, and the
    interval then knows nothing of what differs from process to process.

    Args:
        trial_means_s: shape (whole trials,).
        jobs: shape (whole trials,), the job of each.
        mean_s: what the interval is written beside; the trials' own mean where ``None``.
    """
    if len(trial_means_s) == 0:
        return Figure(mean_s, reason="no trial timed every query")
    groups = np.unique(jobs)
    units = np.array([trial_means_s[jobs == job].mean() for job in groups]) if len(groups) > 1 else trial_means_s
    low, high = student(units)
    if low is None or high is None:
        return Figure(mean_s, reason="an interval for these queries needs 2 trials, timed 1")
    centre = float(units.mean()) if mean_s is None else mean_s
    return Figure(centre, max(0.0, min(low, centre)), max(high, centre))


def student(values: Floats, confidence: float = CONFIDENCE) -> tuple[float | None, float | None]:
    """The two ends of a Student interval for the mean of independent values; ``None`` below two."""
    if len(values) < 2:
        return None, None
    from scipy.special import stdtrit

    reach = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(values.mean()) - reach, float(values.mean()) + reach


def bootstrap_mean(
    values: Floats,
    seed: int = 0,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    wider: float = 1.0,
) -> Figure:
    """The mean of independent values with its BCa bootstrap interval (Efron 1987).

    BCa, not the plain percentile interval, as it corrects the bounds for skew; its reach is Student's, as the spread is
    known from the same few values.
    The jackknife of a mean has a closed form, so nothing is recomputed for it; the tests hold this against
    ``scipy.stats.bootstrap``, whose import alone takes most of a second.

    Args:
        values: shape (queries,), at least one.
        seed: of the resampling.
        confidence: of the interval.
        resamples: how many; the interval's ends are quantiles of as many means.
        wider: what its reach is multiplied by: ``WIDER`` for latencies and all else that has a long tail.
    """
    from scipy.special import ndtr, ndtri, stdtrit

    n = len(values)
    mean = float(values.mean())
    if n < INTERVAL_MIN_QUERIES:
        return Figure(mean, reason=f"an interval needs {INTERVAL_MIN_QUERIES} queries, there are {n}")
    centred = values - mean
    squares = float(np.sum(centred**2))
    if squares <= n * (1e-12 * mean) ** 2:  # all equal, as scripted times are: nothing to resample
        return Figure(mean, mean, mean)
    means = _resampled_means(values, np.random.default_rng(seed), resamples)
    # Ties with the mean count half, as in scipy: few distinct values make many of them.
    below = (np.sum(means < mean) + np.sum(means <= mean)) / (2 * resamples)
    bias = ndtri(below)
    acceleration = float(np.sum(centred**3)) / (6 * squares**1.5)
    tail = float(stdtrit(n - 1, (1 - confidence) / 2)) * (n / (n - 1)) ** 0.5 * wider
    shares = [ndtr(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in (tail, -tail)]
    low, high = np.quantile(means, shares).tolist()
    return Figure(mean, low, high)


def _resampled_means(values: Floats, rng: np.random.Generator, resamples: int) -> Floats:
    """Means of so many draws with replacement, in blocks so that memory stays some 30 MiB."""
    block = max(1, 2_000_000 // len(values))
    parts = [
        values[rng.integers(0, len(values), size=(min(block, resamples - start), len(values)))].mean(axis=1)
        for start in range(0, resamples, block)
    ]
    return np.concatenate(parts)


def percentile(latency_s: Floats, name: str, queries: int, *, confidence: float = CONFIDENCE) -> Figure:
    """One percentile of all timed samples with its order-statistic interval, or the reason for none.

    The value is an observed one (nearest rank).  The interval takes the ranks that bound the share among
    ``queries`` independent values (binomial) and reads them off all samples (Woodruff 1952): as if the
    trials of a query told nothing new, so it is never too narrow for repeating trials.

    Args:
        latency_s: shape (samples,), all trials pooled.
        name: a key of ``MIN_QUERIES``, e.g. ``"p95"``.
        queries: how many queries the samples come from.
        confidence: of the interval.
    """
    if queries < MIN_QUERIES[name]:
        return _too_few(name, queries)
    from scipy.special import bdtr

    share = float(name[1:]) / 100
    below = bdtr(np.arange(queries + 1), queries, share)  # P(at most k of n values lie below the percentile)
    ordered = np.sort(latency_s)
    tail = (1 - confidence) / 2
    low = int(np.searchsorted(below, tail))
    high = int(np.searchsorted(below, 1 - tail)) + 1
    return Figure(
        _at(ordered, share),
        low=_at(ordered, low / queries) if low >= 1 else None,
        high=_at(ordered, high / queries) if high <= queries else None,
    )


def at_most(latency_s: Floats, name: str, queries: int, *, confidence: float = BOUND_CONFIDENCE) -> Figure:
    """What a percentile is at most, by LoadGen's early-stopping rule (Reddi et al. 2020), or the reason for none.

    With t the largest count for which P(Binomial(n, 1 - p) <= t) <= 0.01, the (t + 1)-th largest of n independent
    latencies is no less than the true percentile at confidence 0.99.  The unit n is the query.  Where a query was timed
    in several trials, that rank's share is read off all samples, as in :func:`percentile`: with equal trials this is
    the rule itself; the worst trial of each query would bound another quantity, and one that grows with the trials.

    Args:
        latency_s: shape (samples,), all trials pooled.
        name: a key of ``MIN_QUERIES``.
        queries: how many queries the samples come from.
        confidence: of the claim.
    """
    if queries < MIN_QUERIES[name]:
        return _too_few(name, queries)
    from scipy.special import bdtr

    slower = bdtr(np.arange(queries), queries, 1 - float(name[1:]) / 100)  # P(at most t queries are slower)
    most = int(np.searchsorted(slower, 1 - confidence, side="right")) - 1
    if most < 0:
        return _too_few(name, queries)
    return Figure(_at(np.sort(latency_s), (queries - most) / queries))


def _too_few(name: str, queries: int) -> Figure:
    return Figure(None, reason=f"{name} needs {MIN_QUERIES[name]:,} queries, timed {queries:,}")


def _at(ordered: Floats, share: float) -> float:
    """The least of the values that so large a share does not exceed."""
    # The guard keeps 0.95 * 200 from becoming rank 191 by rounding.
    rank = int(np.ceil(share * len(ordered) - 1e-9))
    return float(ordered[min(max(rank, 1), len(ordered)) - 1])
