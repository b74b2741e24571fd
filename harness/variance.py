"""Where the spread of latencies comes from: the queries, the trials, the jobs, and what is left.

Method of moments on balanced data (Searle, Casella and McCulloch 1992, chapter 4): queries are crossed with trials,
trials lie within jobs.  The mean squares are set equal to what they are on average; a negative variance is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.table import Figure

_COINCIDE = "each job ran one trial: the two coincide"


@dataclass(frozen=True)
class Components:
    """Standard deviations in seconds; ``None`` with a reason where the design cannot tell.

    ``residual_s`` is what changes from one asking of a query to the next.
    """

    query_s: Figure
    trial_s: Figure
    job_s: Figure
    residual_s: Figure


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
        return Components(*(Figure(None, reason=f"the split needs {what}"),) * 4)
    a_job = np.bincount(job)
    of_query, of_trial = latency_s.mean(axis=1), latency_s.mean(axis=0)
    left = latency_s - of_query[:, None] - of_trial[None, :] + latency_s.mean()
    residual = float(np.sum(left**2)) / ((queries - 1) * (trials - 1))
    query = float(np.var(of_query, ddof=1)) - residual / trials
    if len(numbers) == 1:
        trial = float(np.var(of_trial, ddof=1)) - residual / queries
        return Components(
            _root(query), _root(trial), Figure(None, reason="one job only: nothing to compare"), _root(residual)
        )
    if len(set(a_job.tolist())) > 1:
        unequal = Figure(None, reason="the jobs hold unequal numbers of whole trials")
        return Components(_root(query), unequal, unequal, _root(residual))
    of_job = np.bincount(job, weights=of_trial) / a_job
    within = None
    if a_job[0] > 1:
        within = float(np.sum((of_trial - of_job[job]) ** 2)) / (trials - len(numbers))
    between = float(np.var(of_job, ddof=1))
    if within is None:
        return Components(
            _root(query),
            Figure(None, reason=_COINCIDE),
            _root(between - residual / queries, "holds the trial's part too"),
            _root(residual),
        )
    return Components(
        _root(query), _root(within - residual / queries), _root(between - within / a_job[0]), _root(residual)
    )


def _root(variance: float, reason: str | None = None) -> Figure:
    return Figure(max(0.0, variance) ** 0.5, reason=reason)
