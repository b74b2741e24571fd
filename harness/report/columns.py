"""The columns of tables for programs: rows, stored jobs and samples.

CSV, data frames, exports and docs/reference/columns.md read these lists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic

from harness.analysis.table import Row, Table, Timing
from harness.report.document import MIB, Item, Value
from harness.results.reader import StoredJob
from harness.stats import Estimate

_PERCENTILES = {"p50": "half", "p95": "95 per cent", "p99": "99 per cent"}
_SPREADS = {
    "query": "between queries",
    "trial": "between the trials of a job",
    "job": "between jobs, which are fresh processes",
    "residual": "not explained by query, trial or job",
}


class Kind(str, Enum):
    """Kind of a column's values; any cell may be missing."""

    TEXT = "text"
    NUMBER = "number"
    COUNT = "whole number"
    FLAG = "true or false"
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


def table_columns(table: Table) -> tuple[Column[Row], ...]:
    """Return the columns of a table: the fixed ones, and those of its measures, stages and origins."""
    stages = sorted({name for row in table.rows for name in row.stages_s})
    return row_columns(table.measures, stages, origins=any(row.origin is not None for row in table.rows))


def row_columns(measures: Sequence[str], stages: Sequence[str], *, origins: bool) -> tuple[Column[Row], ...]:
    """Return the columns of the printed table in its order, then the other facts of a row.

    Args:
        measures: names as ir_measures writes them.
        stages: names from the adapters.
        origins: some row is from merged results.
    """
    return (
        *_NAMED,
        *(column for name in measures for column in _measure(name)),
        *_latency("latency_mean_ms", "mean over all timed queries", lambda row: row.latency_mean_s),
        *_latency("p50_ms", "median of the timed queries", lambda row: row.p50_s),
        *_latency("p95_ms", "95th percentile of the timed queries", lambda row: row.p95_s),
        *_latency("p99_ms", "99th percentile of the timed queries", lambda row: row.p99_s),
        *_bounded(
            "throughput_qps",
            "queries/s",
            "queries answered per second; scenarios offline and server only",
            "interval over repeated measurements",
            lambda row: row.throughput_qps,
        ),
        *_SIZES,
        *_cost("usd_per_million_queries", "sequential", lambda row: row.usd_per_million),
        *_cost("usd_per_million_queries_saturated", "saturated", lambda row: row.usd_per_million_saturated),
        *_JUDGED,
        *(_ORIGIN if origins else ()),
        *_COUNTED,
        *_SPREAD,
        *_timings("service", "service time of scenario server", lambda row: row.service_s),
        *(column for name in stages for column in _stage(name)),
        *_BUILT,
        *_EVIDENCE,
    )


def _text(name: str, meaning: str, get: Callable[[Item], Value]) -> Column[Item]:
    return Column(name, Kind.TEXT, "", meaning, get)


def _number(name: str, unit: str, meaning: str, get: Callable[[Item], Value]) -> Column[Item]:
    return Column(name, Kind.NUMBER, unit, meaning, get)


def _count(name: str, unit: str, meaning: str, get: Callable[[Item], Value]) -> Column[Item]:
    return Column(name, Kind.COUNT, unit, meaning, get)


def _mib(name: str, meaning: str, get: Callable[[Item], int | None]) -> Column[Item]:
    return _number(name, "MiB", meaning, lambda item: None if (size := get(item)) is None else size / MIB)


def _seconds(name: str, meaning: str, get: Callable[[Item], Value]) -> Column[Item]:
    return _number(name, "s", meaning, get)


def _bounded(
    name: str, unit: str, meaning: str, interval: str, get: Callable[[Row], Estimate], scale: float = 1
) -> list[Column[Row]]:
    """Return the columns of an estimate and of the two ends of its interval."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * scale

    return [
        _number(name, unit, meaning, lambda row: scaled(get(row).value)),
        _number(f"{name}_low", unit, f"lower end of its {interval}", lambda row: scaled(get(row).low)),
        _number(f"{name}_high", unit, f"upper end of its {interval}", lambda row: scaled(get(row).high)),
    ]


def _measure(name: str) -> list[Column[Row]]:
    meaning = "effectiveness over the judged queries of the sample, computed by ir_measures (a fraction)"
    interval = "95 % interval, for similar queries"
    return _bounded(name, "", meaning, interval, lambda row: row.measures.get(name, Estimate(None)))


def _latency(name: str, meaning: str, get: Callable[[Row], Estimate]) -> list[Column[Row]]:
    interval = "95 % interval, for other queries and fresh processes"
    return _bounded(name, "ms", f"latency: {meaning}", interval, get, 1e3)


def _parts(name: str) -> list[Column[Row]]:
    """Return the columns of the two intervals behind a latency's interval."""
    key = name.removeprefix("latency_").removesuffix("_ms")
    found: list[Column[Row]] = []
    for part, interval, read in (
        ("like", "other queries, same processes", lambda row: row.like_queries_s),
        ("these", "same queries, other processes", lambda row: row.these_queries_s),
    ):
        get = functools.partial(_part, read, key)
        found += _bounded(f"{name}_{part}_queries", "ms", "", f"95 % interval: {interval}", get, 1e3)[1:]
    return found


def _part(read: Callable[[Row], dict[str, Estimate]], key: str, row: Row) -> Estimate:
    return read(row).get(key, Estimate(None))


def _cost(name: str, meaning: str, get: Callable[[Row], Estimate]) -> list[Column[Row]]:
    return _bounded(
        name, "US$", f"cost of a million queries, {meaning}", "interval, from the latency or throughput behind it", get
    )


def _at_most(name: str) -> Column[Row]:
    """Return the column of LoadGen's upper bound of a percentile (confidence 0.99)."""
    meaning = f"latency: {_PERCENTILES[name]} of similar queries take at most this (LoadGen's rule, confidence 0.99)"
    return _number(f"{name}_at_most_ms", "ms", meaning, lambda row: _ms(row.at_most_s.get(name, Estimate(None)).value))


def _spread(name: str, what: str) -> Column[Row]:
    """Return the column of a variance component's standard deviation."""
    meaning = f"standard deviation of latency {what}"
    return _number(f"sd_{name}_ms", "ms", meaning, lambda row: _ms(row.spread_s.get(name, Estimate(None)).value))


def _stage(name: str) -> list[Column[Row]]:
    return _timings(
        f"stage_{name}", "time of this stage, as the adapter reports it", lambda row: row.stages_s.get(name)
    )


def _timings(name: str, meaning: str, get: Callable[[Row], Timing | None]) -> list[Column[Row]]:
    """Return the columns of the mean and the median of a stage or of service time."""

    def part(row: Row, which: str) -> float | None:
        timing = get(row)
        return None if timing is None else _ms(getattr(timing, which).value)

    return [
        _number(f"{name}_mean_ms", "ms", f"{meaning}: mean", lambda row: part(row, "mean_s")),
        _number(f"{name}_p50_ms", "ms", f"{meaning}: median", lambda row: part(row, "p50_s")),
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


_NAMED: tuple[Column[Row], ...] = (
    _text("system", "name of the system", lambda row: row.system),
    _text("hardware_profile", "limits of CPUs, memory and GPUs", lambda row: row.profile),
    _text(
        "instance_type",
        "instance type that prices the row",
        lambda row: row.price.instance_type if row.price else None,
    ),
    _number(
        "price_usd_per_hour",
        "US$/hour",
        "price of that type",
        lambda row: row.price.usd_per_hour if row.price else None,
    ),
    Column("price_date", Kind.DATE, "", "date of that price", lambda row: row.price.date if row.price else None),
)
_SIZES: tuple[Column[Row], ...] = (
    _mib("peak_anon_mib", "peak of anonymous and shared memory, without file pages", lambda row: row.peak_anon_bytes),
    _mib("peak_mapped_mib", "peak of mapped file pages", lambda row: row.peak_mapped_bytes),
    _mib(
        "peak_cgroup_mib", "peak of the memory charged to the job, with page cache", lambda row: row.peak_cgroup_bytes
    ),
    _mib("peak_gpu_mib", "peak of GPU memory, all GPUs together", lambda row: row.peak_gpu_bytes),
    _number(
        "gpu_energy_j",
        "J",
        "energy of the GPUs during the trials of all jobs, with idle draw",
        lambda row: row.gpu_energy_j,
    ),
    _mib("index_mib", "size of the index", lambda row: row.index_bytes),
    _number("load_s", "s", "time from the start to the first query; not part of any latency", lambda row: row.load_s),
)
_JUDGED: tuple[Column[Row], ...] = (
    _text("outcome", "how the job ended: ok, oom, timeout, crash ...", lambda row: row.outcome.value),
    _text("validity", "validity of the figures: clean, noisy, invalid, unknown", lambda row: row.validity.value),
    _text(
        "isolation",
        "what enforced the limits: container, process, fake; published: not measured here",
        lambda row: row.isolation.value,
    ),
    _text("suite", "suite of the cell", lambda row: row.suite),
)
_ORIGIN: tuple[Column[Row], ...] = (_text("origin", "origin, in merged results", lambda row: row.origin),)
_COUNTED: tuple[Column[Row], ...] = (
    _text("dataset", "dataset: corpus, queries and judgements", lambda row: row.dataset),
    _text("scenario", "arrival of queries: single_stream, offline, server", lambda row: row.scenario),
    _count("queries", "queries", "timed queries, each once per trial", lambda row: row.queries),
    _count("trials", "trials", "passes over the queries, in all jobs together", lambda row: row.trials),
    _count("queries_judged", "queries", "judged queries, which the measures are over", lambda row: row.queries_judged),
    _number(
        "unjudged_share", "fraction", "share of unjudged documents among the first hits", lambda row: row.unjudged_share
    ),
    _count("unjudged_depth", "hits", "number of first hits for unjudged_share", lambda row: row.unjudged_depth),
    _text("rejudged", "judgements, where not the stored ones", lambda row: "; ".join(row.rejudged) or None),
    _count("jobs", "jobs", "fresh processes pooled in the row", lambda row: row.jobs),
)
_SPREAD: tuple[Column[Row], ...] = (
    *(column for name in ("latency_mean_ms", "p50_ms", "p95_ms", "p99_ms") for column in _parts(name)),
    *(_at_most(name) for name in _PERCENTILES),
    _number(
        "trial_spread_ms", "ms", "standard deviation of the trials' mean latencies", lambda row: _ms(row.trial_spread_s)
    ),
    *(_spread(name, what) for name, what in _SPREADS.items()),
)
_BUILT: tuple[Column[Row], ...] = (
    _number("first_query_s", "s", "latency of the first query after loading", lambda row: row.first_query_s),
    _number(
        "one_pass_warmup",
        "queries",
        "warm-up queries, where warm-up was one pass",
        lambda row: row.one_pass_warmup,
    ),
    _number("index_build_s", "s", "time to build the index", lambda row: row.index_build_s),
    _text(
        "index_build_profile",
        "limits during the build",
        lambda row: row.build_envelope.name if row.build_envelope else None,
    ),
    _count("corpus_documents", "documents", "documents in the index", lambda row: row.corpus_documents),
    _text(
        "build_instance_type",
        "instance type that prices the build",
        lambda row: row.build_price.instance_type if row.build_price else None,
    ),
    _number(
        "build_price_usd_per_hour",
        "US$/hour",
        "price of that type",
        lambda row: row.build_price.usd_per_hour if row.build_price else None,
    ),
    _number(
        "usd_build_per_million_documents",
        "US$",
        "cost of indexing a million documents",
        lambda row: row.usd_build_per_million_documents.value,
    ),
    _number(
        "usd_storage_per_month", "US$/month", "cost of storing the index", lambda row: row.usd_storage_per_month.value
    ),
    _text(
        "price_term",
        "price term: on-demand, reserved-1y, reserved-3y, spot",
        lambda row: row.price.term if row.price else None,
    ),
    _text("published_type", "published rows: instance type in the paper", lambda row: row.published_type),
    _text(
        "price_substitutes",
        "type without a price at that date, which instance_type replaces",
        lambda row: row.price.substitutes if row.price else None,
    ),
)
_EVIDENCE: tuple[Column[Row], ...] = (
    _text(
        "instance_architecture",
        "architecture of the instance type",
        lambda row: row.price.architecture if row.price else None,
    ),
    _text(
        "measured_architecture",
        "architecture of the machine that measured",
        lambda row: row.machine.architecture if row.machine else None,
    ),
    _text(
        "measured_cpu",
        "CPU model of the machine that measured",
        lambda row: row.machine.cpu_model if row.machine else None,
    ),
    Column("started_at", Kind.TIME, "", "start of the job", lambda row: row.started_at),
    _text("key", "key of the job whose run is judged (a folder's name)", lambda row: row.key),
    _text("detail", "reason for an outcome other than ok", lambda row: row.detail),
    _text("stand_in", "checkpoint, where it is not the published one", lambda row: row.stand_in),
    _text("notes", "reasons for doubt, and other notes", lambda row: "; ".join(row.notes) or None),
)

# The texts in front name a job, and stand beside each of its samples.
JOBS: tuple[Column[StoredJob], ...] = (
    _text("key", "key of the job: hash of everything that decides the measurement", lambda job: job.result.key),
    _text("origin", "origin, in merged results", lambda job: job.origin),
    _text("suite", "suite of the cell", lambda job: job.result.spec.cell.suite),
    _text("system", "name of the system", lambda job: job.result.spec.cell.system),
    _text("dataset", "dataset: corpus, queries and judgements", lambda job: job.result.spec.cell.dataset),
    _text("scenario", "arrival of queries: single_stream, offline, server", lambda job: job.result.spec.cell.scenario),
    _text("hardware_profile", "limits of CPUs, memory and GPUs", lambda job: job.result.spec.cell.profile),
    _text(
        "isolation", "what enforced the limits: container, process, fake", lambda job: job.result.spec.isolation.value
    ),
    _text("outcome", "how the job ended: ok, oom, timeout, crash ...", lambda job: job.result.outcome.value),
    _count("job", "", "number within its cell, from 0", lambda job: job.result.spec.job),
    _count("jobs", "jobs", "number of jobs in its cell", lambda job: job.result.spec.jobs),
    _count("repetition", "", "number of the attempt, from 0", lambda job: job.result.spec.repetition),
    _text("detail", "reason for an outcome other than ok", lambda job: job.result.detail),
    Column("started_at", Kind.TIME, "", "start of the job", lambda job: job.result.started_at),
    _seconds("wall_s", "time from start to end", lambda job: job.result.wall_s),
    _seconds("load_s", "time to load before the first query", lambda job: job.result.load_s),
    _seconds("first_query_s", "latency of the first query after loading", lambda job: job.result.first_query_s),
    _count("trials", "trials", "planned passes", lambda job: job.result.spec.trials),
    _count("trials_finished", "trials", "passes that answered every query", lambda job: job.result.trials_finished),
    _count("queries", "queries", "size of the query sample, all judged", lambda job: job.result.spec.sample_size),
    _count("held_out", "queries", "warm-up queries of the sample, never timed", lambda job: job.result.spec.held_out),
    _count("warmup_done", "queries", "finished warm-up queries", lambda job: job.result.warmup_done),
    _seconds("compiled_s", "CPU time of JIT compiler threads during the trials", lambda job: job.result.compiled_s),
    _count("k", "hits", "requested hits", lambda job: job.result.spec.k),
    _count("cpus", "CPUs", "limit of CPUs", lambda job: job.result.spec.envelope.cpus),
    _mib("memory_limit_mib", "limit of memory", lambda job: job.result.spec.envelope.memory_bytes),
    _count("gpus", "GPUs", "number of GPUs", lambda job: job.result.spec.envelope.gpus),
    _mib("peak_anon_mib", "peak of anonymous and shared memory", lambda job: job.result.memory.peak_anon_bytes),
    _mib("peak_mapped_mib", "peak of mapped file pages", lambda job: job.result.memory.peak_mapped_bytes),
    _mib("peak_cgroup_mib", "peak of the memory charged to the job", lambda job: job.result.memory.peak_cgroup_bytes),
    _mib("peak_gpu_mib", "peak of GPU memory", lambda job: job.result.memory.peak_gpu_bytes),
    _mib("index_mib", "size of the index", lambda job: job.result.index.index_bytes if job.result.index else None),
    _seconds(
        "index_build_s", "time to build the index", lambda job: job.result.index.build_s if job.result.index else None
    ),
    Column(
        "rate_qps",
        Kind.NUMBER,
        "queries/s",
        "scenario server: rate that the job sustained twice",
        lambda job: job.result.rate_qps,
    ),
    _text("measured_cpu", "CPU model of the machine that measured", lambda job: job.result.environment.cpu_model),
    _text("measured_architecture", "architecture of that machine", lambda job: job.result.environment.architecture),
    _count("host_cpus", "CPUs", "CPUs available to harness and job", lambda job: job.result.environment.host_cpus),
    _text("kernel", "kernel of that machine", lambda job: job.result.environment.kernel),
    _text("harness_commit", "commit of the harness that measured", lambda job: job.result.environment.harness_commit),
    _text("image_digest", "image of the system", lambda job: job.result.spec.image_digest),
    _text("stand_in", "checkpoint, where it is not the published one", lambda job: job.result.stand_in),
)

SAMPLES: tuple[ColumnMeaning, ...] = (
    *(ColumnMeaning(each.name, each.kind, each.unit, each.meaning) for each in JOBS[:10]),
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


def stage_column(name: str) -> ColumnMeaning:
    """Return the column ``stage_<name>_s`` of samples."""
    return ColumnMeaning(name, Kind.NUMBER, "s", "time of this stage, as the adapter reports it")
