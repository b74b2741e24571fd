"""The columns of tables of stored jobs and of their samples, as :mod:`harness.report.columns` lists those of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from harness.results.reader import StoredJob

# MERGED harness.report.job_columns: What a column of a table for programs is: its name, what it holds, in which unit, and what
# that means.


class Kind(str, Enum):
    """What a column holds; any cell of it may be missing."""

    TEXT = "text"
    NUMBER = "number"
    COUNT = "whole number"
    FLAG = "true or false"
    TIME = "time"
    DATE = "date"


@dataclass(frozen=True)
class Described:
    """A column.  ``unit`` is empty where there is none; ``meaning`` is one line."""

    name: str
    kind: Kind
    unit: str
    meaning: str


MIB = 2**20
Value = str | int | float | bool | None


@dataclass(frozen=True)
class Column(Described):
    """A column of stored jobs; ``get`` reads a job's cell, ``None``: missing."""

    get: Callable[[StoredJob], Value]


def _text(name: str, meaning: str, get: Callable[[StoredJob], Value]) -> Column:
    return Column(name, Kind.TEXT, "", meaning, get)


def _count(name: str, unit: str, meaning: str, get: Callable[[StoredJob], Value]) -> Column:
    return Column(name, Kind.COUNT, unit, meaning, get)


def _seconds(name: str, meaning: str, get: Callable[[StoredJob], Value]) -> Column:
    return Column(name, Kind.NUMBER, "s", meaning, get)


def _mib(name: str, meaning: str, get: Callable[[StoredJob], int | None]) -> Column:
    def read(job: StoredJob) -> float | None:
        size = get(job)
        return None if size is None else size / MIB

    return Column(name, Kind.NUMBER, "MiB", meaning, read)


# The texts in front name a job, and stand beside each of its samples.
JOBS = (
    _text("key", "names the job: hash of all that decides what is measured", lambda job: job.result.key),
    _text("origin", "of merged results: whose they are", lambda job: job.origin),
    _text("suite", "the suite that asked for it", lambda job: job.result.spec.cell.suite),
    _text("system", "what was measured", lambda job: job.result.spec.cell.system),
    _text("dataset", "corpus, queries and judgements", lambda job: job.result.spec.cell.dataset),
    _text("scenario", "how queries came: single_stream, offline, server", lambda job: job.result.spec.cell.scenario),
    _text("hardware_profile", "the envelope that it had", lambda job: job.result.spec.cell.profile),
    _text("isolation", "what held the envelope: container, process, fake", lambda job: job.result.spec.isolation.value),
    _text("outcome", "how it ended: ok, oom, timeout, crash ...", lambda job: job.result.outcome.value),
    _count("job", "", "its number among the jobs of its cell, from 0", lambda job: job.result.spec.job),
    _count("jobs", "jobs", "how many jobs its cell takes", lambda job: job.result.spec.jobs),
    _count("repetition", "", "number of the attempt at this job, from 0", lambda job: job.result.spec.repetition),
    _text("detail", "why it ended otherwise than ok", lambda job: job.result.detail),
    Column("started_at", Kind.TIME, "", "when it began", lambda job: job.result.started_at),
    _seconds("wall_s", "from its start to its end", lambda job: job.result.wall_s),
    _seconds("load_s", "loading before the first query", lambda job: job.result.load_s),
    _seconds("first_query_s", "the first query after that", lambda job: job.result.first_query_s),
    _count("trials", "trials", "passes that were asked for", lambda job: job.result.spec.trials),
    _count("trials_finished", "trials", "passes that answered every query", lambda job: job.result.trials_finished),
    _count("queries", "queries", "size of the query sample, all judged", lambda job: job.result.spec.sample_size),
    _count("held_out", "queries", "of the sample, for warm-up: never timed", lambda job: job.result.spec.held_out),
    _count("warmup_done", "queries", "warm-up queries asked", lambda job: job.result.warmup_done),
    _seconds("compiled_s", "CPU time of JIT compiler threads during the trials", lambda job: job.result.compiled_s),
    _count("k", "hits", "hits asked for", lambda job: job.result.spec.k),
    _count("cpus", "CPUs", "of the envelope", lambda job: job.result.spec.envelope.cpus),
    _mib("memory_limit_mib", "of the envelope", lambda job: job.result.spec.envelope.memory_bytes),
    _count("gpus", "GPUs", "of the envelope", lambda job: job.result.spec.envelope.gpus),
    _mib("peak_anon_mib", "most anonymous and shared memory at once", lambda job: job.result.memory.peak_anon_bytes),
    _mib("peak_mapped_mib", "most file pages mapped at once", lambda job: job.result.memory.peak_mapped_bytes),
    _mib("peak_cgroup_mib", "most that was charged to it at once", lambda job: job.result.memory.peak_cgroup_bytes),
    _mib("peak_gpu_mib", "most GPU memory at once", lambda job: job.result.memory.peak_gpu_bytes),
    _mib("index_mib", "size of the index", lambda job: job.result.index.index_bytes if job.result.index else None),
    _seconds("index_build_s", "building it", lambda job: job.result.index.build_s if job.result.index else None),
    Column(
        "rate_qps",
        Kind.NUMBER,
        "queries/s",
        "scenario server: the rate that it kept twice",
        lambda job: job.result.rate_qps,
    ),
    _text("measured_cpu", "CPU model of the machine", lambda job: job.result.environment.cpu_model),
    _text("measured_architecture", "of that machine", lambda job: job.result.environment.architecture),
    _count("host_cpus", "CPUs", "that the harness and the job had", lambda job: job.result.environment.host_cpus),
    _text("kernel", "of that machine", lambda job: job.result.environment.kernel),
    _text("harness_commit", "what measured it", lambda job: job.result.environment.harness_commit),
    _text("image_digest", "the system's image", lambda job: job.result.spec.image_digest),
    _text("stand_in", "what its checkpoint was, where not the published one", lambda job: job.result.stand_in),
)

SAMPLES: tuple[Described, ...] = (
    *(Described(each.name, each.kind, each.unit, each.meaning) for each in JOBS[:10]),
    Described("query_id", Kind.TEXT, "", "the query"),
    Described("trial", Kind.COUNT, "", "which pass, from 0 over the jobs of a cell; warm-up -1, repeats -2"),
    Described("part", Kind.TEXT, "", "timed (the latencies that count), warmup, or repeat (asked twice in a row)"),
    Described(
        "latency_s", Kind.NUMBER, "s", "query in, hits out; offline: of the whole batch; server: from its arrival"
    ),
    Described("scheduled_s", Kind.NUMBER, "s", "scenario server: its arrival, since the trial's start"),
    Described("service_s", Kind.NUMBER, "s", "scenario server: without its wait in the queue"),
    Described("batch", Kind.COUNT, "", "scenario offline: the batch that it was in"),
)


def stage(name: str) -> Described:
    """The column ``stage_<name>_s`` of samples."""
    return Described(name, Kind.NUMBER, "s", "what the adapter says of this stage")
