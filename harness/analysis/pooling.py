"""The jobs of one cell -> what its row is made of: pooled where their environments agree, refused where not."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from harness.analysis.validity.findings import again
from harness.records import Outcome
from harness.results import attempts
from harness.results.attempts import AnyJob
from harness.results.schema import Environment, Result
from harness.stats import Estimate


@dataclass(frozen=True)
class Pool(Generic[AnyJob]):
    """What stands for a cell: the attempts that are shown, in the order of their job numbers, at least one.

    ``outcome`` is the first failure among them, else ``ok``; numbers are made of ``jobs`` only if it is ``ok``.
    ``missing`` counts the cell's jobs that are not stored or were measured in another environment.
    """

    jobs: tuple[AnyJob, ...]
    outcome: Outcome
    detail: str | None
    missing: int
    notes: tuple[str, ...]

    @property
    def results(self) -> tuple[Result, ...]:
        """The stored records of the jobs."""
        return tuple(job.result for job in self.jobs)

    @property
    def lead(self) -> AnyJob:
        """The job that names the row: the first that ended as the row says."""
        return next(job for job in self.jobs if job.result.outcome is self.outcome)


def pool(stored: Iterable[AnyJob], keys: Collection[str] | None = None) -> Pool[AnyJob]:
    """Choose the attempts of a cell and put together those that may be.

    Args:
        stored: jobs of one cell and isolation, at least one.
        keys: see :func:`harness.results.attempts.choose`.

    Raises:
        FileError: a result's start time cannot be read.
    """
    shown, notes = attempts.choose(stored, keys)
    failed = [job for job in shown if job.result.outcome is not Outcome.OK]
    if failed:
        outcome, detail = _failure(failed)
        return Pool(shown, outcome, detail, shown[0].result.spec.jobs - len(shown), notes)
    newest = max(shown, key=attempts.started).result.environment
    kept = tuple(job for job in shown if job.result.environment == newest)
    refused = tuple(_refused(shown, newest))
    spec = kept[0].result.spec
    return Pool(kept, Outcome.OK, kept[0].result.detail, spec.jobs - len(kept), (*notes, *refused))


def _failure(failed: Sequence[AnyJob]) -> tuple[Outcome, str | None]:
    """The outcome of a cell some of whose jobs failed: the first one's, and how many ended otherwise than ok."""
    first = failed[0].result
    if first.spec.jobs == 1:
        return first.outcome, first.detail
    same = sum(job.result.outcome is first.outcome for job in failed)
    others = len(failed) - same
    more = f", {others} otherwise not ok" if others else ""
    unit = attempts.unit(first.spec)
    text = f"{same} of {first.spec.jobs} {unit}s ended {first.outcome.value}{more}"
    return first.outcome, f"{text}: {first.detail}" if first.detail else text


def _refused(shown: Sequence[AnyJob], newest: Environment) -> Iterator[str]:
    """Which jobs are left out, and the keys in which their environment differs, with both values."""
    others: dict[Environment, int] = {}
    for job in shown:
        if job.result.environment != newest:
            others[job.result.environment] = others.get(job.result.environment, 0) + 1
    spec = shown[0].result.spec
    for environment, count in others.items():
        pairs = [
            (item.name, getattr(environment, item.name), getattr(newest, item.name)) for item in fields(Environment)
        ]
        values = ", ".join(
            f"{name} {json.dumps(theirs)} against {json.dumps(ours)}" for name, theirs, ours in pairs if theirs != ours
        )
        were = "was" if count == 1 else "were"
        yield (
            f"{count} of {spec.jobs} {attempts.unit(spec)}s {were} measured in another environment ({values}): "
            f"not pooled; {again(spec.cell)}"
        )


# MERGED harness.analysis.pooling: Where the spread of latencies comes from: the queries, the trials, the jobs, and what is
# left.


_COINCIDE = "each job ran one trial: the two coincide"


@dataclass(frozen=True)
class Components:
    """Standard deviations in seconds; ``None`` with a reason where the design cannot tell.

    ``residual_s`` is what changes from one asking of a query to the next.
    """

    query_s: Estimate
    trial_s: Estimate
    job_s: Estimate
    residual_s: Estimate


def components(latency_s: NDArray[np.float64], jobs: Sequence[int]) -> Components:
    """Split the spread of latencies.

    Args:
        latency_s: shape (queries, trials), seconds; every trial timed every query.
        jobs: the job of each trial, shape (trials,).
    """
    queries, trials = latency_s.shape
    numbers, job = np.unique(np.asarray(jobs, dtype=np.int64), return_inverse=True)
    if queries < 2 or trials < 2:
        what = "2 queries" if queries < 2 else "2 whole trials"
        return Components(*(Estimate(None, reason=f"the split needs {what}"),) * 4)
    a_job = np.bincount(job)
    of_query, of_trial = latency_s.mean(axis=1), latency_s.mean(axis=0)
    left = latency_s - of_query[:, None] - of_trial[None, :] + latency_s.mean()
    residual = float(np.sum(left**2)) / ((queries - 1) * (trials - 1))
    query = float(np.var(of_query, ddof=1)) - residual / trials
    if len(numbers) == 1:
        trial = float(np.var(of_trial, ddof=1)) - residual / queries
        return Components(
            _root(query), _root(trial), Estimate(None, reason="one job only: nothing to compare"), _root(residual)
        )
    if len(set(a_job.tolist())) > 1:
        unequal = Estimate(None, reason="the jobs hold unequal numbers of whole trials")
        return Components(_root(query), unequal, unequal, _root(residual))
    of_job = np.bincount(job, weights=of_trial) / a_job
    within = None
    if a_job[0] > 1:
        within = float(np.sum((of_trial - of_job[job]) ** 2)) / (trials - len(numbers))
    between = float(np.var(of_job, ddof=1))
    if within is None:
        return Components(
            _root(query),
            Estimate(None, reason=_COINCIDE),
            _root(between - residual / queries, "holds the trial's part too"),
            _root(residual),
        )
    return Components(
        _root(query), _root(within - residual / queries), _root(between - within / a_job[0]), _root(residual)
    )


def _root(variance: float, reason: str | None = None) -> Estimate:
    return Estimate(max(0.0, variance) ** 0.5, reason=reason)
