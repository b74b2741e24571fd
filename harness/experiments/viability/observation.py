"""A stored job -> what it says of its limit: figures, rankings, and whether the machine was itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.analysis import cell_summary, pooling
from harness.analysis.validity import machine_speed
from harness.errors import StoreError
from harness.evaluation import evaluate, trec
from harness.experiments.viability.acceptance import MEAN
from harness.records import Outcome
from harness.results.reader import StoredJob, judges_hits_alone, read_job_run
from harness.results.schema import Result
from harness.stats import MIN_QUERIES, Estimate, percentile

Rankings = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Seen:
    """One container life under a limit.

    ``latency_s`` maps ``mean`` and the percentiles that the sample can show to figures in seconds; empty where the job
    did not end ``ok``.  ``disturbed`` says what spoke against the machine meanwhile, in the words of its verdict.
    """

    job: StoredJob
    latency_s: dict[str, Estimate] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    rankings: Rankings = field(default_factory=dict)
    disturbed: str | None = None

    @property
    def result(self) -> Result:
        """The stored record."""
        return self.job.result

    @property
    def limit(self) -> int:
        """Memory limit in bytes."""
        return self.result.spec.envelope.memory_bytes


def look(job: StoredJob, measures: Sequence[Any], levels: machine_speed.Levels | None = None) -> Seen:
    """Read a stored job.

    Args:
        job: of any outcome.
        measures: as ``measure_names.parse`` gives them.
        levels: the canary's levels of the unconstrained jobs.

    Raises:
        FileError, StoreError: a file of an ``ok`` job is missing or damaged.
    """
    if job.result.outcome is not Outcome.OK:
        return Seen(job)
    summary = cell_summary.summarise([job], rankings=False)
    if summary.latency is None:
        raise StoreError(f"{job.folder}: {summary.reason}; move the folder away and measure again")
    samples = job.samples()
    timed = [trial >= 0 for trial in samples.column("trial").to_pylist()]
    latency = samples.column("latency_ns").to_numpy()[timed] / 1e9
    figures = {MEAN: summary.latency.mean_s}
    figures |= {name: percentile(latency, name, summary.latency.queries) for name in MIN_QUERIES}
    run = read_job_run(job) if job.run_path else trec.Run({}, ())
    values: dict[str, float | None] = {}
    if measures:
        path = job.qrels_path()
        qrels, hits_alone = trec.read_stored_qrels(path), judges_hits_alone(path)
        values = evaluate.evaluate(run, qrels, job.sample_ids(), measures, hits_alone=hits_alone).values
    verdict = cell_summary.assess(pooling.pool([job]), summary.facts, None, levels)
    doubts = [finding.text for finding in verdict.findings if finding.transient]
    return Seen(
        job,
        {name: figure for name, figure in figures.items() if figure.value is not None},
        {name: value for name, value in values.items() if value is not None},
        run.rankings,
        doubts[0].partition(";")[0] if doubts else None,
    )
