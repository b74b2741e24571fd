"""Raw samples -> mean and percentiles with one interval each, bounds, spread between trials.

The unit of inference is the query: five trials of 1,000 queries are not 5,000 independent latencies
(measuring rule 15).  So a query's value is its mean over trials, and every interval counts queries.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.estimate import (
    CONFIDENCE,
    INTERVAL_MIN_QUERIES,
    LATENCY_MIN_QUERIES,
    MIN_PROCESSES,
    MIN_QUERIES,
    Estimate,
    interval_of_too_few,
    percentile_of_too_few,
    too_few_processes,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# LoadGen's confidence for a claim "at most".
BOUND_CONFIDENCE = 0.99
_BLOCK_WEIGHTS = 1 << 22  # weights in memory at once: 32 MiB


@dataclass(frozen=True)
class LatencySummary:
    """Latency of one cell.  ``trial_spread_s`` is the standard deviation of the trial means (``None`` below two).

    ``mean_s`` and ``percentiles_s`` carry the interval for other such queries in fresh processes.  ``like_queries_s``
    and ``these_queries_s`` hold the two that it is made of, by ``mean`` and the percentiles' names: other queries in
    these processes, these queries in other processes.  ``at_most_s`` holds LoadGen's bounds.  ``trial_means_s`` holds
    the trials that timed every query, in order; a trial cut short is no fair mean.
    """

    queries: int
    trials: int
    mean_s: Estimate
    percentiles_s: dict[str, Estimate]
    like_queries_s: dict[str, Estimate]
    these_queries_s: dict[str, Estimate]
    at_most_s: dict[str, Estimate]
    trial_means_s: tuple[float, ...]
    trial_spread_s: float | None


def summarise(
    queries: Sequence[object] | NDArray[Any],
    trials: Sequence[int] | Ints,
    latency_s: Sequence[float] | Floats,
    *,
    jobs: Sequence[int] | Ints | None = None,
    shown: Collection[str] = tuple(MIN_QUERIES),
) -> LatencySummary:
    """Describe the timed samples of one cell (no warm-up rows), each finite, at most one for each query and trial.

    Args:
        queries: shape (samples,), an id or a number of each query.
        trials: shape (samples,), the number of the trial, unique over the jobs.
        latency_s: shape (samples,), seconds.
        jobs: shape (samples,), the job of each sample; by default one job.
        shown: the percentiles, keys of ``MIN_QUERIES``.
    """
    latency = np.asarray(latency_s, dtype=np.float64)
    if latency.size == 0:
        return nothing("no timed samples", shown)
    names, query = np.unique(np.asarray(queries), return_inverse=True)
    numbers, trial = np.unique(np.asarray(trials, dtype=np.int64), return_inverse=True)
    per_query = np.bincount(query, weights=latency) / np.bincount(query)
    whole = np.flatnonzero(np.bincount(trial) == len(names))
    grid = np.full((len(numbers), len(names)), np.nan)
    grid[trial, query] = latency
    job_of = np.zeros(len(numbers), dtype=np.int64)
    if jobs is not None:
        job_of[trial] = np.asarray(jobs, dtype=np.int64)
    repeats = [grid[whole[job_of[whole] == job]] for job in np.unique(job_of[whole])]
    like = {"mean": latency_mean(per_query)} | {name: percentile(latency, name, len(names)) for name in shown}
    these = {name: these_queries(of.value, [_read(name, samples) for samples in repeats]) for name, of in like.items()}
    again = {name: measured_again(of, these[name]) for name, of in like.items()}
    means = grid[whole].mean(axis=1)
    return LatencySummary(
        queries=len(names),
        trials=len(numbers),
        mean_s=again.pop("mean"),
        percentiles_s=again,
        like_queries_s=like,
        these_queries_s=these,
        at_most_s={name: at_most(latency, name, len(names)) for name in shown},
        trial_means_s=tuple(means.tolist()),
        trial_spread_s=float(np.std(means, ddof=1)) if len(means) > 1 else None,
    )


def nothing(reason: str, shown: Collection[str]) -> LatencySummary:
    """Return the summary of samples that give no latency of single queries."""
    missing = Estimate(None, reason=reason)
    none = dict.fromkeys(shown, missing)
    parts = {"mean": missing, **none}
    return LatencySummary(0, 0, missing, none, parts, parts, none, (), None)


def _read(name: str, latency_s: Floats) -> float:
    """Return the mean or the percentile of some samples."""
    return float(latency_s.mean()) if name == "mean" else _at(np.sort(latency_s, axis=None), float(name[1:]) / 100)


def these_queries(value: float | None, processes: Sequence[float]) -> Estimate:
    """Return a figure with a 95 % Student interval over processes that measured the same queries.

    Args:
        value: the figure.
        processes: the same figure of each process (job) alone.
    """
    if value is None or len(processes) < MIN_PROCESSES:
        return Estimate(value, reason=too_few_processes(len(processes)))
    low, high = student(np.asarray(processes))
    reach = (high - low) / 2
    return Estimate(value, max(0.0, value - reach), value + reach)


def measured_again(like: Estimate, these: Estimate, *, floor: float = 0.0) -> Estimate:
    """Return a figure with one interval: measured again, with other queries, in fresh processes.

    Queries and processes are crossed random factors, so their variances add.  Each interval's reach is squared and
    added on its own side (MOVER: Zou and Donner 2008), which keeps the skew of the one and Student's few degrees of
    freedom of the other.

    Args:
        like: the figure with its interval over queries.
        these: the same figure with its interval over processes.
        floor: the lowest possible figure.
    """
    if like.value is None or (like.low is None and like.high is None):
        return like
    if these.high is None:
        return Estimate(like.value, reason=these.reason)
    value, reach = like.value, these.high - like.value  # Student's lower end may be cut off at 0
    low = None if like.low is None else max(floor, value - math.hypot(value - like.low, reach))
    return Estimate(value, low, None if like.high is None else value + math.hypot(like.high - value, reach))


def student(values: Floats) -> tuple[float, float]:
    """Return the two ends of the 95 % Student interval for the mean of two or more independent values."""
    from scipy.special import stdtrit

    reach = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(values.mean()) - reach, float(values.mean()) + reach


def latency_mean(values: Floats) -> Estimate:
    """Return the mean of latencies with its interval, from 30 queries on."""
    return mean(values, least=LATENCY_MIN_QUERIES, floor=0.0)


def mean(
    values: Floats,
    *,
    confidence: float = CONFIDENCE,
    least: int = INTERVAL_MIN_QUERIES,
    floor: float = -np.inf,
    ceiling: float = np.inf,
) -> Estimate:
    """Return the mean of independent values with its interval, corrected for skew (Hall 1992).

    Student's t of a skewed sample is skewed itself.  Hall's cubic takes that out, and its inverse has a closed form: no
    draws, no seed.  ``python -m benchmarks.coverage`` holds it against bootstraps.

    Args:
        values: shape (queries,), at least one.
        confidence: of the interval.
        least: the fewest values for an interval.
        floor: the lowest possible mean.
        ceiling: the highest possible mean.
    """
    from scipy.special import stdtrit

    n = len(values)
    centre = float(values.mean())
    if n < least:
        return Estimate(centre, reason=interval_of_too_few(least, n))
    centred = values - centre
    squares = float(np.sum(centred**2))
    if squares <= n * (1e-12 * centre) ** 2:  # all equal, as scripted times are
        return Estimate(centre, centre, centre)
    deviation = (squares / (n - 1)) ** 0.5
    skew = n / ((n - 1) * (n - 2)) * float(np.sum((centred / deviation) ** 3)) / n**0.5
    reach = float(stdtrit(n - 1, (1 + confidence) / 2))
    low, high = (centre - _unskewed(t, skew) * deviation / n**0.5 for t in (reach, -reach))
    return Estimate(centre, max(floor, low), min(ceiling, high))


def _unskewed(t: float, skew: float) -> float:
    """Return the inverse of Hall's cubic; ``skew`` is the values' own, divided by the root of their number."""
    # As skew goes to 0 the inverse goes to t, and the quotient loses its digits.
    return t if abs(skew) < 1e-6 else 3 / skew * (float(np.cbrt(1 + skew * (t - skew / 6))) - 1)


def proportion(total: float, count: int) -> Estimate:
    """Return a mean of values from 0 to 1 with the 95 % interval of Clopper and Pearson (1934), never too narrow.

    Args:
        total: the sum of the values: of successes, their number.
        count: the number of values.
    """
    from scipy.special import betaincinv

    tail, failed = (1 - CONFIDENCE) / 2, count - total
    low = float(betaincinv(total, failed + 1, tail)) if total > 0 else 0.0
    high = float(betaincinv(total + 1, failed, 1 - tail)) if failed > 0 else 1.0
    return Estimate(total / count, low, high)


def percentile(latency_s: Floats, name: str, queries: int, *, confidence: float = CONFIDENCE) -> Estimate:
    """Return a percentile of all timed samples with its order-statistic interval, or the reason for none.

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
    below = bdtr(np.arange(queries + 1), queries, share)  # P(at most k of n values are below the percentile)
    ordered = np.sort(latency_s)
    tail = (1 - confidence) / 2
    low = int(np.searchsorted(below, tail))
    high = int(np.searchsorted(below, 1 - tail)) + 1
    return Estimate(
        _at(ordered, share),
        low=_at(ordered, low / queries) if low >= 1 else None,
        high=_at(ordered, high / queries) if high <= queries else None,
    )


def at_most(latency_s: Floats, name: str, queries: int) -> Estimate:
    """Bound a percentile from above by LoadGen's early-stopping rule (Reddi et al. 2020), or give the reason for none.

    With t the largest count for which P(Binomial(n, 1 - p) <= t) <= 0.01, the (t + 1)-th largest of n independent
    latencies is no less than the true percentile at confidence 0.99.  The unit n is the query.  Where a query was timed
    in several trials, that rank's share is read off all samples, as in :func:`percentile`: with equal trials this is
    the rule itself; the worst trial of each query would bound another quantity, and one that grows with the trials.

    Args:
        latency_s: shape (samples,), all trials pooled.
        name: a key of ``MIN_QUERIES``.
        queries: how many queries the samples come from.
    """
    if queries < MIN_QUERIES[name]:
        return _too_few(name, queries)
    from scipy.special import bdtr

    slower = bdtr(np.arange(queries), queries, 1 - float(name[1:]) / 100)  # P(at most t queries are slower)
    most = int(np.searchsorted(slower, 1 - BOUND_CONFIDENCE, side="right")) - 1
    if most < 0:
        return _too_few(name, queries)
    return Estimate(_at(np.sort(latency_s), (queries - most) / queries))


def _too_few(name: str, queries: int) -> Estimate:
    return Estimate(None, reason=percentile_of_too_few(name, queries))


def median(values: ArrayLike) -> float:
    """Return the median as p50 is: an observed value, the lower middle of an even number; ``nan`` is left out."""
    return float(medians(np.ravel(np.asarray(values, dtype=np.float64)), axis=0))


def medians(values: ArrayLike, axis: int) -> Floats:
    """Return the :func:`median` along an axis; ``nan`` where values are missing."""
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=axis)  # nan comes last
    known = np.sum(~np.isnan(ordered), axis=axis, keepdims=True)
    middle = np.take_along_axis(ordered, np.maximum(known - 1, 0) // 2, axis=axis)
    return np.asarray(middle.squeeze(axis), dtype=np.float64)


def quantiles(latency_s: Floats, shares: Floats) -> tuple[float, ...]:
    """Return the observed values at some shares of all timed samples, as percentiles are read."""
    ordered = np.sort(latency_s)
    return tuple(_at(ordered, float(share)) for share in shares)


def _at(ordered: Floats, share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    # The guard keeps 0.95 * 200 from becoming rank 191 by rounding.
    rank = int(np.ceil(share * len(ordered) - 1e-9))
    return float(ordered[min(max(rank, 1), len(ordered)) - 1])


def variance_components(latency_s: Floats, jobs: Sequence[int]) -> dict[str, Estimate]:
    """Split the spread of latencies into standard deviations by query, trial, job and residual.

    ``residual`` is what changes from one asking of a query to the next.  A part that the design cannot separate is
    missing, with the reason.

    Args:
        latency_s: shape (queries, trials), seconds; every trial timed every query.
        jobs: the job of each trial, shape (trials,).
    """
    queries, trials = latency_s.shape
    numbers, job = np.unique(np.asarray(jobs, dtype=np.int64), return_inverse=True)
    if queries < 2 or trials < 2:
        least = "2 queries" if queries < 2 else "2 whole trials"
        missing = Estimate(None, reason=f"the split needs {least}")
        return dict.fromkeys(("query", "trial", "job", "residual"), missing)
    of_query, of_trial = latency_s.mean(axis=1), latency_s.mean(axis=0)
    left = latency_s - of_query[:, None] - of_trial[None, :] + latency_s.mean()
    residual = float(np.sum(left**2)) / ((queries - 1) * (trials - 1))
    query = float(np.var(of_query, ddof=1)) - residual / trials
    trial, between_jobs = _between_trials(of_trial, job, len(numbers), residual / queries)
    return {"query": _root(query), "trial": trial, "job": between_jobs, "residual": _root(residual)}


def _between_trials(of_trial: Floats, job: Ints, jobs: int, residual: float) -> tuple[Estimate, Estimate]:
    """Return the spread of trials within a job and of jobs, without the residual's part of a trial's mean."""
    if jobs == 1:
        alone = Estimate(None, reason="one job only: nothing to compare")
        return _root(float(np.var(of_trial, ddof=1)) - residual), alone
    trials_a_job = np.bincount(job)
    if len(set(trials_a_job.tolist())) > 1:
        unequal = Estimate(None, reason="the jobs hold unequal numbers of whole trials")
        return unequal, unequal
    of_job = np.bincount(job, weights=of_trial) / trials_a_job
    between = float(np.var(of_job, ddof=1))
    if trials_a_job[0] == 1:
        coincide = Estimate(None, reason="each job ran one trial: the two coincide")
        return coincide, _root(between - residual, "holds the trial's part too")
    within = float(np.sum((of_trial - of_job[job]) ** 2)) / (len(of_trial) - jobs)
    return _root(within - residual), _root(between - within / trials_a_job[0])


def _root(variance: float, reason: str | None = None) -> Estimate:
    return Estimate(max(0.0, variance) ** 0.5, reason=reason)


def draw_weights(queries: int, resamples: int, seed: int) -> Ints:
    """Draw each query's weight in each resample, shape (resamples, queries): the same for every system."""
    return np.random.default_rng(seed).multinomial(queries, np.full(queries, 1 / queries), size=resamples)


def weight_blocks(groups: Ints, resamples: int, seed: int) -> Iterator[Floats]:
    """Draw as ``draw_weights`` does, each group of queries apart; yield blocks of shape (some resamples, queries).

    Args:
        groups: each query's group, numbered from 0, shape (queries,).
        resamples: how many, over all blocks.
        seed: of group 0; of each further one, 1 more.
    """
    members = [np.flatnonzero(groups == number) for number in range(groups.max() + 1)]
    draws = [(np.random.default_rng(seed + number), np.full(len(at), 1 / len(at))) for number, at in enumerate(members)]
    block = max(_BLOCK_WEIGHTS // len(groups), 1)
    for first in range(0, resamples, block):
        weights = np.empty((min(block, resamples - first), len(groups)))
        for at, (random, equal) in zip(members, draws, strict=True):
            weights[:, at] = random.multinomial(len(at), equal, size=len(weights))
        yield weights


def ranks(
    values: ArrayLike, *, ties: Literal["min", "mean"], descending: bool = False, equal_within: float = 0.0
) -> Floats:
    """Rank values from 1 along the last axis; ``None`` and ``nan`` have no rank (``nan``).

    Args:
        values: numbers, of any shape.
        ties: the rank that equal values share: their best rank, or the mean of their ranks.
        descending: the largest value has rank 1, not the smallest.
        equal_within: neighbours in the order that differ by no more are equal.
    """
    keys = np.asarray(values, dtype=np.float64)
    keys = -keys if descending else keys
    order = np.argsort(keys, axis=-1, kind="stable")  # nan comes last
    ordered = np.take_along_axis(keys, order, axis=-1)
    with np.errstate(invalid="ignore"):
        apart = (ordered[..., 1:] != ordered[..., :-1]) & ~(np.diff(ordered, axis=-1) <= equal_within)
    edge = np.ones((*keys.shape[:-1], 1), dtype=bool)
    place = np.arange(1.0, keys.shape[-1] + 1)
    shared = np.maximum.accumulate(np.where(np.concatenate((edge, apart), axis=-1), place, 0.0), axis=-1)
    if ties == "mean":
        last = np.where(np.concatenate((apart, edge), axis=-1), place, np.inf)
        shared = (shared + np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]) / 2
    found = np.empty_like(keys)
    np.put_along_axis(found, order, np.where(np.isnan(ordered), np.nan, shared), axis=-1)
    return found


def competition_ranks(values: Sequence[float | None], *, descending: bool = False) -> list[int | None]:
    """Rank values from 1; equal ones share the best of their ranks, and a missing one has none."""
    found = ranks([math.nan if value is None else float(value) for value in values], ties="min", descending=descending)
    return [None if math.isnan(rank) else int(rank) for rank in found.tolist()]


def kendall_tau(a: Mapping[str, float], b: Mapping[str, float]) -> float | None:
    """Return Kendall's tau-b of two orders, over the systems that both have.

    1: the same order; -1: the reverse.  A pair that is tied in either order counts for neither, and makes the divisor
    smaller (Kendall 1945).  Pairs are counted one by one: the tests hold this against ``scipy.stats.kendalltau``, whose
    import alone takes most of a second.

    Args:
        a: a value for each system.
        b: likewise; larger is better in both, or in neither.

    Returns:
        ``None`` without an order to agree on: fewer than two common systems, or all of them equal in one of the two.
    """
    one, other = (np.sign(values[:, None] - values) for values in _of_common(a, b))
    known = float(np.sum(one != 0)) * float(np.sum(other != 0))
    return float(np.sum(one * other)) / known**0.5 if known else None


def _of_common(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[Floats, Floats]:
    """Return the values of the systems that both have, in the same order."""
    common = sorted(a.keys() & b.keys())
    return np.array([a[name] for name in common], np.float64), np.array([b[name] for name in common], np.float64)


def kendall_p(a: Mapping[str, float], b: Mapping[str, float]) -> float | None:
    """Return the two-sided p value of :func:`kendall_tau`: how often orders by chance agree or disagree as much.

    Exact for up to 33 systems without ties, else by the normal distribution with the variance for ties (Kendall 1970).
    ``None`` where tau is missing.
    """
    if kendall_tau(a, b) is None:
        return None
    from scipy.stats import kendalltau  # late: the import takes a second

    return float(kendalltau(*_of_common(a, b)).pvalue)
