"""Columns for programs (name, kind, unit, meaning), and the columns of stored jobs and of samples.

Data frames, exports and docs/reference/columns.md read these lists.  :mod:`harness.report.row_figures` has the columns
of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic

from harness.estimate import Estimate
from harness.report.document import MIB, Item, Value
from harness.results.reader import StoredJob

# An attribute of an item, such as `price.date` (by default the column's name), or a function of the item.
Read = str | Callable[[Any], Any]


class Kind(str, Enum):
    """Kind of a column's values; any cell may be missing."""

    TEXT = "text"
    NUMBER = "number"
    COUNT = "whole number"
    TIME = "time"
    DATE = "date"


@dataclass(frozen=True)
class ColumnMeaning:
    """Name, kind, unit (empty: none) and meaning of a column, on one line."""

    name: str
    kind: Kind
    unit: str
    meaning: str


@dataclass(frozen=True)
class Column(ColumnMeaning, Generic[Item]):
    """Column of rows or of stored jobs; ``get`` reads a cell, ``None``: missing."""

    get: Callable[[Item], Value]


def _text(name: str, meaning: str, read: Read = "") -> Column[Any]:
    return Column(name, Kind.TEXT, "", meaning, reader(read or name))


def _count(name: str, unit: str, meaning: str, read: Read = "") -> Column[Any]:
    return Column(name, Kind.COUNT, unit, meaning, reader(read or name))


def _number(name: str, unit: str, meaning: str, read: Read) -> Column[Any]:
    return Column(name, Kind.NUMBER, unit, meaning, reader(read))


def _mib(name: str, meaning: str, read: Read) -> Column[Any]:
    return _number(name, "MiB", meaning, reader(read, 1 / MIB))


def reader(read: Read, scale: float = 1) -> Callable[[Any], Any]:
    """Return a function that reads a value or an estimate, times a factor; any part of a path may be missing."""
    names = read.split(".") if isinstance(read, str) else ()

    def follow(item: Any) -> Any:
        for name in names:
            if item is None:
                return None
            item = getattr(item, name)
        return item

    get = follow if isinstance(read, str) else read
    if scale == 1:
        return get

    def scaled(item: Any) -> Any:
        found = get(item)
        if isinstance(found, Estimate):
            return _times(found, scale)
        return None if found is None else found * scale

    return scaled


@functools.lru_cache(maxsize=1 << 12)  # files read an estimate three times: its value and both ends
def _times(item: Estimate, scale: float) -> Estimate:
    return item.map(lambda value: value * scale)


# What a stage's time is.
STAGE = "time of this stage, as the adapter reports it"
# The first columns are texts that name a job; its samples have them too.
_ENFORCED = "isolation, what enforced the limits: container, process, fake, or a launcher's own"
JOBS: tuple[Column[StoredJob], ...] = (
    _text("key", "key of the job: hash of everything that decides the measurement", "result.key"),
    _text("origin", "origin, in merged results"),
    _text("suite", "suite of the cell", "result.spec.cell.suite"),
    _text("system", "name of the system", "result.spec.cell.system"),
    _text("dataset", "dataset: corpus, queries and judgements", "result.spec.cell.dataset"),
    _text("scenario", "arrival of queries: single_stream, offline, server, mixed", "result.spec.cell.scenario"),
    _text("hardware_profile", "limits of CPUs, memory and GPUs", "result.spec.cell.profile"),
    _text("isolation", _ENFORCED, "result.spec.isolation"),
    _text("outcome", "how the job ended: ok, oom, timeout, crash ...", "result.outcome.value"),
    _count("job", "", "number within its cell, from 0", "result.spec.job"),
    _count("jobs", "jobs", "number of jobs in its cell", "result.spec.jobs"),
    _count("repetition", "", "number of the attempt, from 0", "result.spec.repetition"),
    _text("detail", "reason for an outcome other than ok", "result.detail"),
    Column("started_at", Kind.TIME, "", "start of the job", reader("result.started_at")),
    _number("wall_s", "s", "time from start to end", "result.wall_s"),
    _number("load_s", "s", "time to load before the first query", "result.measured.load_s"),
    _number("first_query_s", "s", "latency of the first query after loading", "result.answers.first_query_s"),
    _count("trials", "trials", "planned passes", "result.spec.trials"),
    _count("trials_finished", "trials", "passes that answered every query", "result.answers.trials_finished"),
    _count("queries", "queries", "size of the query sample", "result.spec.sample_size"),
    _count("held_out", "queries", "warm-up queries of the sample, never timed", "result.spec.held_out"),
    _count("warmup_done", "queries", "finished warm-up queries", "result.answers.warmup_done"),
    _number("compiled_s", "s", "CPU time of JIT compiler threads during the trials", "result.measured.compiled_s"),
    _count("k", "hits", "requested hits", "result.spec.k"),
    _count("cpus", "CPUs", "limit of CPUs", lambda job: job.result.spec.envelope.cpus or None),
    _mib("memory_limit_mib", "limit of memory", lambda job: job.result.spec.envelope.memory_bytes or None),
    _mib(
        "profile_memory_mib",
        "memory that the profile asks for; the limit is less on a whole machine",
        lambda job: job.result.provenance.nominal_memory_bytes or job.result.spec.envelope.memory_bytes or None,
    ),
    _count("gpus", "GPUs", "number of GPUs", "result.spec.envelope.gpus"),
    _mib("peak_anon_mib", "peak of anonymous and shared memory", "result.observed.memory.peak_anon_bytes"),
    _mib("peak_mapped_mib", "peak of mapped file pages", "result.observed.memory.peak_mapped_bytes"),
    _mib("peak_cgroup_mib", "peak of the memory charged to the job", "result.observed.memory.peak_cgroup_bytes"),
    _mib("peak_gpu_mib", "peak of GPU memory", "result.observed.memory.peak_gpu_bytes"),
    _mib("index_mib", "size of the index", "result.index.index_bytes"),
    _number("index_build_s", "s", "time to build the index", "result.index.build_s"),
    _number("rate_qps", "queries/s", "scenario server: rate that the job sustained twice", "result.measured.rate_qps"),
    _text("measured_cpu", "CPU model of the machine that measured", "result.environment.cpu_model"),
    _text("measured_architecture", "architecture of that machine", "result.environment.architecture"),
    _count("host_cpus", "CPUs", "CPUs available to harness and job", "result.environment.host_cpus"),
    _text("kernel", "kernel of that machine", "result.environment.kernel"),
    _text("harness_commit", "commit of the harness that measured", "result.environment.harness_commit"),
    _text("image_digest", "image of the system", "result.provenance.image_digest"),
    _text("stand_in", "checkpoint, where it is not the published one", "result.provenance.stand_in"),
    _text(
        "pinned_at_first_use",
        "model files that the run pinned, as no file did before, and their commits",
        "result.provenance.pinned_at_first_use",
    ),
    _text("swept_system", "swept system or curve, of a point of one", "result.provenance.sweep.system"),
    _text(
        "swept_params",
        "parameters of that point that differ there, with their values",
        "result.provenance.sweep.text",
    ),
)

SAMPLES: tuple[ColumnMeaning, ...] = (
    *JOBS[:10],
    ColumnMeaning("query_id", Kind.TEXT, "", "id of the query"),
    ColumnMeaning(
        "trial", Kind.COUNT, "", "number of the pass, from 0 over the jobs of a cell; warm-up -1, repeats -2"
    ),
    ColumnMeaning("part", Kind.TEXT, "", "timed, warmup, or repeat (the same query twice in a row)"),
    ColumnMeaning(
        "latency_s", Kind.NUMBER, "s", "from query to hits; offline: of the whole batch; server: from the arrival"
    ),
    ColumnMeaning("scheduled_s", Kind.NUMBER, "s", "scenario server: arrival, since the start of the trial"),
    ColumnMeaning("service_s", Kind.NUMBER, "s", "scenario server: latency without the wait in the queue"),
    ColumnMeaning("batch", Kind.COUNT, "", "scenario offline: number of the batch"),
)


def count_column(name: str) -> ColumnMeaning:
    """Return the column ``count_<name>`` of samples."""
    return ColumnMeaning(name, Kind.COUNT, "", "work of this query, as the adapter counts it (as in rows)")


def stage_column(name: str) -> ColumnMeaning:
    """Return the column ``stage_<name>_s`` of samples."""
    return ColumnMeaning(name, Kind.NUMBER, "s", STAGE)
