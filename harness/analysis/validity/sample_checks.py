"""Validity checks on the samples: drift, cold start, few slow samples, result cache, unaccounted time.

Every check pairs latencies of the same query, so that the order of queries does not matter.  A finding needs an effect
that is large enough to matter and that chance does not explain.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.analysis.causes import MORE_QUERIES
from harness.analysis.table import Cause
from harness.analysis.timings import Timings
from harness.analysis.validity.findings import Doubt, remark
from harness.stats import Floats

# The largest ratio of slowest to fastest trial mean in a steady cell.  A task drifted 1.49-fold while another job
# shared the machine (measuring rule 21); the limit is half of that.
MAX_TRIAL_RATIO = 1.25
# Chance of calling a steady system drifting, over all pairs of its trials.
DRIFT_CHANCE = 1e-3

# The first queries of a fresh process relative to later ones, as a ratio and in time.  A machine whose speed changed
# for a moment reached 1.1.
MAX_START_RATIO = 1.25
MIN_START_S = 10e-6
# Chance of a false alarm in each window; small, because neighbouring queries share the machine's state.
START_CHANCE = 1e-6
_FIRST_WINDOW = 10
_LARGEST_WINDOW = 0.25

# A query that is repeated at once must take this share of its first time (measuring rule 12): honest engines took 0.66
# to 1 of it, because processor caches are warm, and saved at most 60 us.
MIN_REPEAT_RATIO = 0.65
MOST_WARM_S = 100e-6
# Below half, a smaller saving is enough: processor caches cannot halve a query this long.
_CLEAR_RATIO = 0.5
MIN_REPEAT_S = 50e-6
# The share that a warm processor takes: the sign test counts repeats below it.
_WARM_RATIO = 0.8
# Chance of this many by luck; with few repeats all must be faster.
REPEAT_CHANCE = 1e-3
_MIN_REPEATS = 5
# A system that still warms up gets faster at least as much between the two halves of the trial as from there to the
# repeats.  Medians of halves scatter, so half of this fall is enough to doubt a cache.
_FALL_SCATTER = 2.0

# Harness's own time between the queries of a closed loop: checks, writes, garbage collection.
MAX_BETWEEN_S = 2e-3
MAX_BETWEEN_SHARE = 0.5

# Few samples carry the mean if this share of samples holds this share of all time, beyond the time of their queries in
# other trials.  Samples from one lognormal with sigma 1 hold 0.08 and 0.38; queries with the same times in every trial
# hold almost nothing.
CARRIED = ((0.01, 0.20), (0.125, 0.45))
# The largest share of queries that holds half of the time in every trial; for a lognormal with sigma 1 it is 16 %.
MAX_TAIL_SHARE = 0.11
# Less time per query than this may be a machine's interrupt.
MIN_CARRIED_S = 10e-6


# The stages of a two-stage system sum to its latency within the larger of these.
MAX_STAGE_GAP_SHARE, MAX_STAGE_GAP_S = 0.02, 50e-6


@dataclass(frozen=True)
class Drift:
    """Mean seconds per query in the slowest and the fastest trial.  ``cold``: the slowest is a process's first of
    several.
    """

    ratio: float
    slow_s: float
    fast_s: float
    cold: bool


@dataclass(frozen=True)
class ColdStart:
    """The first ``queries`` of each process took ``ratio`` times what the same queries took later."""

    queries: int
    ratio: float


@dataclass(frozen=True)
class RepeatSpeedup:
    """``queries`` repeated at once took ``ratio`` (median) of their first time ``first_s`` (median).

    ``falling``: latency fell so much within the trial that continued warm-up explains the repeats.
    """

    queries: int
    ratio: float
    first_s: float
    falling: bool = False


@dataclass(frozen=True)
class SampleFacts:
    """Facts about a cell's samples; ``None``: not found, or too few samples.  ``queries``: number of timed queries.

    ``doubts`` need no other fact about the cell.  ``mean_within`` is half the width of the mean's interval, as a share
    of the mean.  ``failed`` counts the queries of an open loop without an answer, at the rate that it kept.
    """

    queries: int | None = None
    trial_means_s: tuple[float, ...] = ()
    drift: Drift | None = None
    start: ColdStart | None = None
    repeat: RepeatSpeedup | None = None
    doubts: tuple[Doubt, ...] = ()
    mean_within: float | None = None
    failed: int = 0


def inspect(
    timings: Timings, phases_s: Mapping[int, float], scenario: str = "single_stream", *, two_stages: bool = False
) -> SampleFacts:
    """Run all checks on a cell's samples.

    Args:
        timings: the cell's timings.
        phases_s: job number -> seconds that its trials' phases lasted, for jobs that say so.
        scenario: of the cell; under ``server``, as in all probes, latency depends on the rate, and batches hide single
            queries.
        two_stages: the times of a first and a second stage sum to the latency.
    """
    queries = len(timings.queries)
    if scenario == "server" or not len(timings.query):
        return SampleFacts(queries)
    if scenario == "offline":
        grid = timings.whole()  # each query of a batch has the batch's duration
        return SampleFacts(queries, tuple(grid.mean(axis=0).tolist()), _drift(timings, paired=False))
    doubts = (carried(timings), tail(timings), between(timings, phases_s), stage_gap(timings) if two_stages else None)
    return SampleFacts(
        queries,
        tuple(timings.whole().mean(axis=0).tolist()),
        _drift(timings, paired=True),
        start(timings),
        repeat(timings),
        tuple(doubt for doubt in doubts if doubt is not None),
    )


def stage_gap(timings: Timings) -> Doubt | None:
    """Compare the mean sum of the stages with the mean latency; ``None``: they agree, or stages are missing."""
    staged_s, latency_s = float(timings.staged_s.mean()), float(timings.latency_s.mean())
    if not timings.stages_s or abs(latency_s - staged_s) <= max(MAX_STAGE_GAP_SHARE * latency_s, MAX_STAGE_GAP_S):
        return None
    return Doubt(
        Cause.STAGES,
        f"the stages sum to {staged_s * 1e3:.3g} ms of a mean latency of {latency_s * 1e3:.3g} ms "
        f"(allowed: {MAX_STAGE_GAP_SHARE:.0%} or {MAX_STAGE_GAP_S * 1e6:.0f} us)",
    )


def _drift(timings: Timings, *, paired: bool) -> Drift | None:
    """Compare the slowest with the fastest complete trial; ``None``: the scatter of queries explains the difference."""
    from scipy.special import stdtr

    grid, pairs = timings.whole(), timings.whole_trials()
    trials = grid.shape[1]
    if trials < 2:
        return None
    means = grid.mean(axis=0)
    slow, fast = int(np.argmax(means)), int(np.argmin(means))
    if means[fast] <= 0 or means[slow] / means[fast] <= MAX_TRIAL_RATIO:
        return None
    if paired:
        difference = grid[:, slow] - grid[:, fast]
        error = float(np.std(difference, ddof=1)) / len(difference) ** 0.5 if len(difference) > 1 else np.inf
        score = np.inf if error == 0 else float(difference.mean()) / error
        if stdtr(max(len(difference) - 1, 1), -score) > DRIFT_CHANCE / (trials * (trials - 1)):
            return None
    same_job = [trial for trial, pair in enumerate(pairs) if pair[0] == pairs[slow][0]]
    later = [float(means[trial]) for trial in same_job if trial != slow]
    cold = bool(later) and slow == same_job[0] and float(means[slow]) > MAX_TRIAL_RATIO * stats.median(later)
    return Drift(float(means[slow] / means[fast]), float(means[slow]), float(means[fast]), cold)


def start(timings: Timings) -> ColdStart | None:
    """Find the largest slowdown at the beginning of a fresh process, against its later queries.

    Only the first trial of each job begins in a fresh process.  Each latency is compared with the same query's in other
    trials, or taken as it is if there is one trial.  Query order is random, so a steady system shows no difference.
    """
    from scipy.special import ndtr

    value, position, trials = _starts(timings)
    if len(value) == 0:
        return None
    ranks = stats.ranks(value, ties="mean")
    widest = None
    window, per_trial = _FIRST_WINDOW, len(value) // trials
    while window <= _LARGEST_WINDOW * per_trial:
        early = position < window
        few, many = int(early.sum()), int((~early).sum())
        excess = float(ranks[early].sum()) - few * (len(value) + 1) / 2
        score = excess / (few * many * (len(value) + 1) / 12) ** 0.5
        ratio = float(np.exp(stats.median(value[early]) - stats.median(value[~early])))
        if ratio > MAX_START_RATIO and ndtr(-score) < START_CHANCE and (widest is None or ratio > widest.ratio):
            widest = ColdStart(window, ratio)
        window *= 2
    if widest and (1 - 1 / widest.ratio) * stats.median(timings.latency_s) < MIN_START_S:
        return None
    return widest


def _starts(timings: Timings) -> tuple[Floats, NDArray[np.int64], int]:
    """Return, for first trials: log latency relative to the same query in other trials, positions, number of trials."""
    first, grid = timings.first_trials, np.log(np.maximum(timings.grid, 1e-9))
    values, positions = [], []
    for trial in first.values():
        mask = timings.trial == trial
        query = timings.query[mask]
        here = grid[query, trial]
        others = np.delete(grid[query], trial, axis=1)
        if others.shape[1]:
            measured = np.isfinite(others).any(axis=1)
            here = np.where(measured, here - stats.medians(others, axis=1), np.nan)
        # A trial that is slower throughout is drift, a different finding.
        here = here - stats.median(here) if np.isfinite(here).any() else here
        finite = np.isfinite(here)
        values.append(here[finite])
        positions.append(np.arange(len(here), dtype=np.int64)[finite])
    return np.concatenate(values), np.concatenate(positions), len(first)


def repeat(timings: Timings) -> RepeatSpeedup | None:
    """Find a large speed-up of nearly all queries that are repeated at once.

    A repeat is compared with the query's first time in the process, in the job's first trial: a cache that keeps
    everything makes later trials fast as well.  If there are enough, only queries of that trial's second half count,
    because early queries look slow while a process warms up.
    """
    pairs, late = [], []  # first time and repeat, in seconds
    asked: set[tuple[int, int]] = set()
    first_trials, position = timings.first_trials, np.zeros_like(timings.grid)
    for trial in first_trials.values():
        queries = timings.query[timings.trial == trial]
        position[queries, trial] = np.arange(len(queries)) / max(len(queries), 1)
    repeats = (timings.repeat_query.tolist(), timings.repeat_job.tolist(), timings.repeat_s.tolist())
    for query, job, seconds in zip(*repeats, strict=True):
        if (query, job) not in asked:
            asked.add((query, job))
        elif job in first_trials and timings.grid[query, first_trials[job]] > 0:
            pairs.append((float(timings.grid[query, first_trials[job]]), seconds))
            late.append(bool(position[query, first_trials[job]] >= 0.5))
    if sum(late) >= _MIN_REPEATS:
        pairs = list(itertools.compress(pairs, late))
    if len(pairs) < _MIN_REPEATS:
        return None
    ratios = [again / before for before, again in pairs]
    ratio, first = stats.median(ratios), stats.median([before for before, _ in pairs])
    clear = ratio < _CLEAR_RATIO and first >= MIN_REPEAT_S
    enough = clear or (ratio < MIN_REPEAT_RATIO and (1 - ratio) * first >= MOST_WARM_S)
    if not enough or not _mostly_faster(ratios):
        return None
    return RepeatSpeedup(len(ratios), ratio, first, _falls_by(timings, position) * _FALL_SCATTER >= (1 - ratio) * first)


def _falls_by(timings: Timings, position: Floats) -> float:
    """Return the fall of the median in seconds from the first to the second half of the first trials.

    It is at most twice the fall between the last two quarters: a machine that is busy at first slows only the first
    half, while a system that warms up gets faster until the end.

    Args:
        position: where each query of the grid comes in its trial, from 0 to 1.
    """
    trials = list(timings.first_trials.values())
    seconds, place = timings.grid[:, trials], position[:, trials]
    timed = np.isfinite(seconds)

    def level(begin: float, end: float) -> float:
        return stats.median(seconds[timed & (begin <= place) & (place < end)])

    return min(level(0, 0.5) - level(0.5, 1), 2 * (level(0.5, 0.75) - level(0.75, 1)))


def _mostly_faster(ratios: Sequence[float]) -> bool:
    """Return whether a sign test finds repeats faster one by one, so that a slow moment is not the cause."""
    from scipy.special import bdtrc

    faster = sum(ratio < _WARM_RATIO for ratio in ratios)
    by_luck = float(bdtrc(faster - 1, len(ratios), 0.5))
    return by_luck <= max(REPEAT_CHANCE, 0.5 ** len(ratios))


def carried(timings: Timings) -> Doubt | None:
    """Find the few samples that carry the mean, each slow in one trial only; ``None``: not found.

    A sample is compared with its query's other trials, after scaling trials to one level: a slow trial is drift, and a
    query that is always slow is a property of the system.
    """
    grid = _level(timings)
    if grid is None or grid.shape[1] < 2:
        return None
    usual = [stats.medians(np.delete(grid, trial, 1), axis=1) for trial in range(grid.shape[1])]
    excess = np.sort(np.maximum(0.0, grid - np.stack(usual, axis=1)), axis=None)[::-1]
    held = np.cumsum(excess) / grid.sum()
    for share, least in CARRIED:
        few = int(share * excess.size)
        if few and held[few - 1] >= max(least, MIN_CARRIED_S / grid.mean()):
            return Doubt(
                Cause.FEW_SAMPLES,
                f"{few:,} of {excess.size:,} samples hold {held[few - 1]:.0%} of the time, and their queries are fast "
                "in other trials: the mean depends on them (a JIT compiler, garbage collection or the machine was at "
                "work)",
            )
    return None


def tail(timings: Timings) -> Doubt | None:
    """Remark on the few queries that hold half of the time in every trial; ``None``: more queries are needed."""
    grid = _level(timings)
    if grid is None:
        return None
    usual = np.sort(stats.medians(grid, axis=1))[::-1]
    few, trials = int(np.searchsorted(np.cumsum(usual), usual.sum() / 2)) + 1, grid.shape[1]
    if few > MAX_TAIL_SHARE * len(usual):
        return None
    alone = "in the only trial, which cannot tell whether they always do"
    return remark(
        Cause.FEW_SAMPLES,
        f"{few:,} of {len(usual):,} queries hold half of the time, "
        f"{alone if trials == 1 else f'in each of {trials} trials'}: the mean depends on them, and its interval may be "
        f"too narrow; take p50 instead, or {MORE_QUERIES}",
    )


def _level(timings: Timings) -> Floats | None:
    """Scale complete trials to one level; ``None``: there are none, or a query took 0 s."""
    grid = timings.whole()
    if not grid.size or not (grid > 0).all():
        return None
    level = stats.medians(grid / stats.medians(grid, axis=1)[:, None], axis=0)
    return np.asarray(grid / level, dtype=np.float64)


def between(timings: Timings, phases_s: Mapping[int, float]) -> Doubt | None:
    """Find time in the trials outside all queries, if it exceeds harness's own."""
    mask = np.isin(timings.job, list(phases_s))
    lasted, queries = sum(phases_s.values()), int(mask.sum())
    if not queries or lasted <= 0:
        return None
    rest = lasted - float(timings.latency_s[mask].sum())
    per_query_s, share = rest / queries, rest / lasted
    if per_query_s <= MAX_BETWEEN_S or share <= MAX_BETWEEN_SHARE:
        return None
    return Doubt(
        Cause.UNACCOUNTED_TIME,
        f"{per_query_s * 1e3:.3g} ms a query passed outside the reported latencies, {share:.0%} of the trials",
    )
