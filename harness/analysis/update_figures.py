"""Figures of scenario ``mixed``: inserts and deletes, when searches see them, and the recall after them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from harness import stats
from harness.analysis.table import Timing
from harness.analysis.update_records import UpdateFigures, UpdateTimes
from harness.driver.mixed import GIVE_UP_NS
from harness.driver.output import UNSENT
from harness.driver.update_plan import CHECK, DELETE, INSERT
from harness.errors import StoreError, counted
from harness.estimate import Estimate
from harness.evaluation import trec
from harness.evaluation.evaluate import mean_estimate
from harness.results import updates
from harness.results.reader import RUN, UPDATED_RUN, UPDATES, StoredJob, most_hits
from harness.results.updates import Update

_GIVE_UP_S = GIVE_UP_NS / 1e9


def read(jobs: Sequence[StoredJob], queries: Sequence[str], idle: Timing, query_qps: float | None) -> UpdateFigures:
    """Summarise the updates of a cell's pooled jobs.

    Args:
        jobs: of scenario ``mixed``; each ended ``ok``.
        queries: the timed queries.
        idle: latency of the pass before the updates.
        query_qps: the rate of the queries that were answered during them.

    Raises:
        StoreError: a job has no updates, or no run after them.
        FileError: a file is damaged.
    """
    by_job = [_updates_of(job) for job in jobs]
    every = [update for job in by_job for update in job]
    checks = [update for update in every if update.kind == CHECK]
    rates = [rate for job in by_job if (rate := _rate_qps(job)) is not None]
    return UpdateFigures(
        insert=_times(by_job, INSERT, _latency_ns),
        delete=_times(by_job, DELETE, _latency_ns),
        found=_times(by_job, INSERT, _seen_ns),
        gone=_times(by_job, DELETE, _seen_ns),
        lost=sum(update.seen_ns is None for update in checks),
        checked=len(checks),
        failed=sum(update.failed not in (None, UNSENT) for update in every),
        unsent=sum(update.failed == UNSENT for update in every),
        recall=_recall(jobs, queries),
        idle_mean_s=idle.mean_s,
        idle_p50_s=idle.p50_s,
        query_qps=query_qps,
        update_qps=statistics.fmean(rates) if rates else None,
    )


def describe(figures: UpdateFigures) -> Iterator[str]:
    """Yield a sentence on each thing that went wrong with the updates."""
    sent = figures.insert.count + figures.delete.count
    if figures.failed:
        yield f"{counted(figures.failed, 'update')} failed, of {sent + figures.failed:,}"
    if figures.unsent:
        yield (
            f"{counted(figures.unsent, 'update')} had to wait until the last query was answered, and were not sent:"
            " their latency would be longer than it says; lower mixed.update_qps"
        )
    for name, times in (("inserted document", figures.found), ("deleted document", figures.gone)):
        if times.missing:
            verb = "not found" if times is figures.found else "still found"
            yield (
                f"{times.missing:,} of {counted(times.count, name)} {'was' if times.missing == 1 else 'were'} {verb}"
                f" {_GIVE_UP_S:g} s later"
            )
    if figures.lost:
        yield (
            f"{figures.lost:,} of {counted(figures.checked, 'document')} that were deleted and inserted again cannot be"
            f" found {_GIVE_UP_S:g} s after all updates"
        )


def _updates_of(job: StoredJob) -> tuple[Update, ...]:
    path = job.file(UPDATES)
    if path is None:
        raise StoreError(f"{job.folder}: holds no updates; measure the job again")
    return updates.read(path)


def _latency_ns(update: Update) -> float | None:
    """Return an update's latency from its schedule; a failed update has none."""
    return update.latency_ns if update.failed in (None, UNSENT) else None


def _seen_ns(update: Update) -> float | None:
    """Return when a search saw an update; infinity: none did.  Most are not watched."""
    if not update.watched:
        return None
    return math.inf if update.seen_ns is None else update.seen_ns


def _times(by_job: Iterable[Sequence[Update]], kind: str, read_ns: Callable[[Update], float | None]) -> UpdateTimes:
    """Return mean, median and 95th percentile of one time of all updates of a kind."""
    per_job = [[ns / 1e9 for each in job if each.kind == kind and (ns := read_ns(each)) is not None] for job in by_job]
    values = np.asarray([seconds for job in per_job for seconds in job], dtype=np.float64)
    if not len(values):
        none = Estimate(None, reason="there is none; take a larger sample_size or mixed.update_qps")
        return UpdateTimes(mean_s=none, p50_s=none, p95_s=none)
    seen = values[np.isfinite(values)]
    means = [statistics.fmean(finite) for job in per_job if (finite := [each for each in job if math.isfinite(each)])]
    mean = stats.these_queries(float(seen.mean()), means) if len(seen) else _never()
    missing = len(values) - len(seen)
    if missing and mean.value is not None:
        mean = replace(mean, reason=f"without {missing:,} of {len(values):,}, which took more than {_GIVE_UP_S:g} s")
    p50, p95 = (_bounded(stats.percentile(values, name, len(values))) for name in ("p50", "p95"))
    return UpdateTimes(mean_s=mean, p50_s=p50, p95_s=p95, count=len(values), missing=missing)


def _bounded(estimate: Estimate) -> Estimate:
    """Return a percentile of times of which some are infinite."""
    if estimate.value is not None and math.isinf(estimate.value):
        return _never()
    high = None if estimate.high is None or math.isinf(estimate.high) else estimate.high
    low = None if estimate.low is None or math.isinf(estimate.low) else estimate.low
    return replace(estimate, low=low, high=high)


def _never() -> Estimate:
    return Estimate(None, reason=f"more than {_GIVE_UP_S:g} s")


def _rate_qps(job: Sequence[Update]) -> float | None:
    """Return the updates that a job answered a second, until the last of them."""
    sent = [each for each in job if each.kind != CHECK and each.failed is None]
    last_ns = max(((each.scheduled_ns or 0) + (each.latency_ns or 0) for each in sent), default=0)
    return len(sent) * 1e9 / last_ns if last_ns else None


def _recall(jobs: Sequence[StoredJob], queries: Iterable[str]) -> Estimate:
    """Return the share of the hits before the updates that are hits after them: per query, then their mean."""
    shares: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        runs = [path for name in (RUN, UPDATED_RUN) if (path := job.file(name))]
        if len(runs) < 2:
            raise StoreError(f"{job.folder}: holds no run after its updates; measure the job again")
        most = most_hits(job.result.spec)
        before, after = (trec.read_run(path, most).rankings for path in runs)
        for query in queries:  # a query without hits is in no run
            if wanted := set(before.get(query, ())):
                shares[query].append(len(wanted.intersection(after.get(query, ()))) / len(wanted))
    by_query = {query: statistics.fmean(values) for query, values in shares.items()}
    return mean_estimate(by_query) if by_query else Estimate(None, reason="no query has a hit")
