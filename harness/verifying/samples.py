"""The samples of a job against its spec, and what its record says that follows from them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from harness import stored_jobs
from harness.measure.output import MAX_PROBES, REPEAT_TRIAL, WARMUP_TRIAL
from harness.records import Outcome
from harness.stored_jobs import StoredJob
from harness.verifying.mismatch import differences

if TYPE_CHECKING:
    import pyarrow as pa

# As harness.collect has it: two clocks are read one after the other.
CLOCK_SLACK_S = 0.05
# Where below the job's folder, what is stored, what follows.
Told = Iterator[tuple[str, str, str]]
Check = Callable[[StoredJob], Told]


def check(job: StoredJob) -> Told:
    """Samples are those that the spec asks for, and the record counts them rightly.

    Raises:
        FileError: the query sample cannot be read.
        OSError, ValueError, KeyError, TypeError: from pyarrow, where the file is damaged.
    """
    table = job.samples()
    if job.result.outcome is Outcome.OK and not table.num_rows:
        yield stored_jobs.SAMPLES, "no samples", f"those of {job.result.spec.sample_size} queries: the job ended ok"
        return
    asked = job.sample_ids()
    if len(asked) != job.result.spec.sample_size:
        yield (
            f"{stored_jobs.RESULT}: spec.sample_size",
            f"{job.result.spec.sample_size}",
            f"{len(asked)}, as many as its query sample has",
        )
    trials = [int(trial) for trial in table.column("trial").to_pylist()]
    ids = table.column("query_id").to_pylist()
    latency_ns = table.column("latency_ns").to_pylist()
    yield from _times(table)
    yield from _trials(job, trials)
    if job.result.outcome is Outcome.OK:
        counts = Counter(zip(trials, ids, strict=True))
        timed = tuple(query for query in asked if (WARMUP_TRIAL, query) not in counts)
        if len(asked) - len(timed) != job.result.spec.held_out:
            follows = f"{len(asked) - len(timed)}, as many queries of the sample as warmed up"
            yield f"{stored_jobs.RESULT}: spec.held_out", f"{job.result.spec.held_out}", follows
        yield from _whole(job, counts, timed)
    yield from _facts(job, trials, latency_ns)
    yield from _probes(job, trials, latency_ns)
    yield from _worked(job, table)


def _times(table: pa.Table) -> Told:
    for name in table.column_names:
        if name.endswith("_ns"):
            least = 1 if name == "latency_ns" else 0
            values = table.column(name).to_pylist()
            wrong = [value for value in values if (value is None and least) or (value is not None and value < least)]
            if wrong:
                yield (
                    f"{stored_jobs.SAMPLES}: {name}",
                    f"{len(wrong)} such as {wrong[0]}",
                    f"at least {least} ns throughout",
                )


def _trials(job: StoredJob, trials: list[int]) -> Told:
    """No trial that is not this job's."""
    first, count = _numbers(job)
    wrong = sorted(set(trials) - {WARMUP_TRIAL, REPEAT_TRIAL, *range(first, first + count)})
    if wrong:
        follows = f"{first} to {first + count - 1}, by its spec"
        yield f"{stored_jobs.SAMPLES}: trial", ", ".join(map(str, wrong[:5])), follows


def _numbers(job: StoredJob) -> tuple[int, int]:
    """The first trial of a job, and how many it has or, where a search ended early, may have."""
    spec = job.result.spec
    if spec.cell.scenario == "server":
        return spec.job * MAX_PROBES, len(job.result.probes) if job.result.outcome is Outcome.OK else MAX_PROBES
    return spec.job * spec.trials, spec.trials


def _whole(job: StoredJob, counts: Counter[tuple[int, str]], asked: tuple[str, ...]) -> Told:
    """Each query once in each trial and nothing else; those that were repeated, twice."""
    first, count = _numbers(job)
    wanted = Counter((trial, query) for trial in range(first, first + count) for query in asked)
    timed = Counter({each: number for each, number in counts.items() if each[0] >= 0})
    for what, found in (("missing", wanted - timed), ("too many", timed - wanted)):
        if found:
            trial, query = min(found)
            many = f"{found.total()} samples {what}, e.g. query {query!r} of trial {trial}"
            yield stored_jobs.SAMPLES, many, f"{len(asked)} queries in each of {count} trials"
    spec = job.result.spec
    again = Counter({query: number for (trial, query), number in counts.items() if trial == REPEAT_TRIAL})
    expected = min(spec.repeats, spec.timed_queries) if spec.cell.scenario == "single_stream" else 0
    if len(again) != expected or set(again.values()) - {2} or set(again) - set(asked):
        yield f"{stored_jobs.SAMPLES}: repeats", f"{again.total()} of {len(again)} queries", f"2 of each of {expected}"


def _facts(job: StoredJob, trials: list[int], latency_ns: list[Any]) -> Told:
    """What the record says of its samples."""
    result = job.result
    by_trial = Counter(trial for trial in trials if trial >= 0)
    finished = sum(count == result.spec.timed_queries for count in by_trial.values())
    first_s = latency_ns[0] / 1e9 if latency_ns else None
    for name, stored, follows in (
        ("trials_finished", result.trials_finished, finished),
        ("warmup_done", result.warmup_done, trials.count(WARMUP_TRIAL)),
        ("first_query_s", result.first_query_s, first_s),
    ):
        for each in differences(f"{stored_jobs.RESULT}: {name}", stored, follows):
            yield each.place, each.stored, f"{each.follows}, by {stored_jobs.SAMPLES}"


def _worked(job: StoredJob, table: pa.Table) -> Told:
    """Compare the time that the samples claim with the job's own, as :mod:`harness.collect` does."""
    result = job.result
    if result.spec.cell.scenario == "server" or result.outcome is not Outcome.OK:
        return
    rows = table.select([name for name in ("trial", "latency_ns", "batch") if name in table.column_names]).to_pylist()
    batches = {(row["trial"], row["batch"]): row["latency_ns"] for row in rows if row.get("batch") is not None}
    alone = sum(row["latency_ns"] for row in rows if row.get("batch") is None)
    worked_s = (result.load_s or 0) + (alone + sum(batches.values())) / 1e9
    if worked_s > result.wall_s + CLOCK_SLACK_S:
        yield f"{stored_jobs.RESULT}: wall_s", f"{result.wall_s}", f"at least {worked_s}, by {stored_jobs.SAMPLES}"


def _probes(job: StoredJob, trials: list[int], latency_ns: list[Any]) -> Told:
    """What each probe of scenario ``server`` shows, and the rate that the job believes."""
    result, target = job.result, job.result.spec.scenario_params
    if result.spec.cell.scenario != "server" or result.outcome is not Outcome.OK:
        return
    for number, probe in enumerate(result.probes, start=1):
        timed = sorted(ns for trial, ns in zip(trials, latency_ns, strict=True) if trial == probe.trial)
        if not timed or target.latency_percentile is None or target.latency_target_s is None:
            continue
        # As harness.measure.rate judges it; the guard keeps 0.95 * 200 from becoming rank 191 by rounding.
        rank = max(1, math.ceil(target.latency_percentile / 100 * len(timed) - 1e-9))
        late = sum(ns > round(target.latency_target_s * 1e9) for ns in timed)
        stored = {"queries": probe.queries, "late": probe.late, "latency_s": probe.latency_s}
        follows = {"queries": len(timed), "late": late, "latency_s": timed[rank - 1] / 1e9}
        for each in differences(f"{stored_jobs.RESULT}: probe {number}", stored, follows):
            yield each.place, each.stored, f"{each.follows}, by {stored_jobs.SAMPLES}"
    believed = [probe.rate_qps for probe in result.probes if probe.check and probe.passed]
    for each in differences(f"{stored_jobs.RESULT}: rate_qps", result.rate_qps, believed[-1] if believed else None):
        yield each.place, each.stored, f"{each.follows}, the rate that passed twice"
