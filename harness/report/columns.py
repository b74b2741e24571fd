"""The columns of tables for programs: rows, stored jobs and samples.

CSV, data frames, exports and docs/reference/columns.md read these lists.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic

from harness.analysis import row_pricing
from harness.analysis.table import OTHER, Row, Table
from harness.report.document import MIB, Item, Value
from harness.results.reader import StoredJob
from harness.stats import Estimate

_NONE = Estimate(None)
# A cell's attribute, such as `outcome.value` (by default the column's name), or a function of the row or job.
_Read = str | Callable[[Any], Any]


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


def table_columns(table: Table) -> tuple[Column[Row], ...]:
    """Return the columns of a table: the fixed ones, and the columns of its measures, stages and origins."""
    stages = sorted({name for row in table.rows for name in row.stages_s})
    counts = {name for row in table.rows for name in row.counts}
    return row_columns(
        table.measures,
        stages,
        origins=any(row.origin is not None for row in table.rows),
        counts=[*(name for name in COUNTS if name in counts), *sorted(counts - COUNTS.keys())],
        two_stages=any(row.first_stage is not None for row in table.rows),
        token_prices=any(row.token_model is not None for row in table.rows),
        sweeps=any(row.sweep is not None for row in table.rows),
    )


def row_columns(
    measures: Sequence[str],
    stages: Sequence[str],
    *,
    origins: bool,
    counts: Sequence[str] = (),
    two_stages: bool = False,
    token_prices: bool = False,
    sweeps: bool = False,
) -> tuple[Column[Row], ...]:
    """Return the columns of the printed table in its order, then the other facts of a row.

    Args:
        measures: names as ir_measures writes them.
        stages: names from the adapters.
        origins: some row is from merged results.
        counts: names of counts of work, from the adapters.
        two_stages: some row has a first and a second stage.
        token_prices: some row names the prices of a language model's tokens.
        sweeps: some row is a point of a sweep.
    """
    return (
        *_NAMES,
        *(column for name in measures for column in _measure(name)),
        *_FIGURES,
        *_VERDICTS,
        *([_text("origin", "origin, in merged results")] if origins else ()),
        *_COUNTS,
        *_SPREADS,
        *_timings("service", "service time of scenario server", lambda row: row.service_s),
        *(column for name in stages for column in _stage(name)),
        *(column for name in counts for column in _work(name)),
        *(_first_stage(measures) if two_stages else ()),
        *(_TOKENS if token_prices else ()),
        *(_SWEEPS if sweeps else ()),
        *_BUILDS,
        *_EVIDENCE,
    )


def _text(name: str, meaning: str, read: _Read = "") -> Column[Any]:
    return Column(name, Kind.TEXT, "", meaning, _getter(read or name))


def _count(name: str, unit: str, meaning: str, read: _Read = "") -> Column[Any]:
    return Column(name, Kind.COUNT, unit, meaning, _getter(read or name))


def _number(name: str, unit: str, meaning: str, read: _Read = "", scale: float | None = None) -> Column[Any]:
    get = _getter(read or name)
    if scale is None:
        return Column(name, Kind.NUMBER, unit, meaning, get)
    return Column(name, Kind.NUMBER, unit, meaning, lambda item: None if (v := get(item)) is None else v * scale)


def _mib(name: str, meaning: str, read: _Read) -> Column[Any]:
    return _number(name, "MiB", meaning, read, 1 / MIB)


def _getter(read: _Read) -> Callable[[Any], Any]:
    return operator.attrgetter(read) if isinstance(read, str) else read


def optional(path: str, name: str) -> Callable[[Any], Any]:
    """Return a function that reads an attribute of a part that may be missing, such as the price."""
    read_part, read = operator.attrgetter(path), operator.attrgetter(name)
    return lambda item: None if (part := read_part(item)) is None else read(part)


def _of_key(field: str, key: str) -> Callable[[Row], Any]:
    """Return a function that reads one estimate of a dictionary, such as that of a measure."""
    read = operator.attrgetter(field)
    return lambda row: read(row).get(key, _NONE)


def _bounded(
    name: str, unit: str, meaning: str, interval: str, read: _Read, scale: float | None = None
) -> tuple[Column[Any], ...]:
    """Return the columns of an estimate and of the two ends of its interval."""
    get = _getter(read)
    return (
        _number(name, unit, meaning, lambda row: get(row).value, scale),
        _number(f"{name}_low", unit, f"lower end of its {interval}", lambda row: get(row).low, scale),
        _number(f"{name}_high", unit, f"upper end of its {interval}", lambda row: get(row).high, scale),
    )


def _measure(name: str) -> tuple[Column[Any], ...]:
    meaning = "effectiveness over the judged queries of the sample, computed by ir_measures (a fraction)"
    return _bounded(name, "", meaning, "95 % interval, for similar queries", _of_key("measures", name))


def _latency(name: str, meaning: str, field: str) -> tuple[Column[Any], ...]:
    interval = "95 % interval, for other queries and fresh processes"
    return _bounded(name, "ms", f"latency: {meaning} timed queries", interval, field, 1e3)


def _interval_parts(name: str, key: str) -> tuple[Column[Any], ...]:
    """Return the columns of the two intervals behind a latency's interval."""
    like, these = "95 % interval: other queries, same processes", "95 % interval: same queries, other processes"
    return (
        *_bounded(f"{name}_like_queries", "ms", "", like, _of_key("like_queries_s", key), 1e3)[1:],
        *_bounded(f"{name}_these_queries", "ms", "", these, _of_key("these_queries_s", key), 1e3)[1:],
    )


def _cost(name: str, meaning: str, field: str) -> tuple[Column[Any], ...]:
    interval = "interval, from the latency or throughput behind it"
    return _bounded(name, "US$", f"cost of a million queries, {meaning}", interval, field)


def _at_most(name: str, share: str) -> Column[Any]:
    """Return the column of LoadGen's upper bound of a percentile (confidence 0.99)."""
    meaning = f"latency: {share} of similar queries take at most this (LoadGen's rule, confidence 0.99)"
    return _number(f"{name}_at_most_ms", "ms", meaning, lambda row: row.at_most_s.get(name, _NONE).value, 1e3)


def _deviation(name: str, cause: str) -> Column[Any]:
    """Return the column of a variance component's standard deviation."""
    meaning = f"standard deviation of latency {cause}"
    return _number(f"sd_{name}_ms", "ms", meaning, lambda row: row.spread_s.get(name, _NONE).value, 1e3)


@dataclass(frozen=True)
class CountMeaning:
    """Column of a count of work: its name, unit and meaning, and the factor to that unit."""

    name: str
    unit: str
    meaning: str
    scale: float | None = None


# By the names that adapters give; each is the mean of a query, which no machine changes.
COUNTS = {
    "pairs": CountMeaning("pairs", "pairs", "query-document pairs scored"),
    "windows": CountMeaning("windows", "sequences", "sequences fed to the model: a long document is cut into several"),
    "tokens": CountMeaning("tokens", "tokens", "tokens fed to the model, without padding"),
    "padded_tokens": CountMeaning("padded_tokens", "tokens", "tokens computed, with padding"),
    "calls": CountMeaning("calls", "calls", "calls of the model"),
    "prompt_tokens": CountMeaning("prompt_tokens", "tokens", "tokens of the prompts to a language model"),
    "completion_tokens": CountMeaning("completion_tokens", "tokens", "tokens that a language model wrote"),
    "provider_ms": CountMeaning(
        "provider_ms", "ms", "time of the provider of recorded answers, not measured here and in no latency"
    ),
    "flop": CountMeaning(
        "GFLOP",
        "GFLOP",
        "arithmetic of the models by formula, on padded lengths, without heads but those over a vocabulary; searches of"
        " an index are not counted",
        1e-9,
    ),
    "parameters": CountMeaning("parameters", "parameters", "parameters of the models that a query runs through"),
}


def _work(name: str) -> tuple[Column[Any], ...]:
    """Return the column of a count; that of the padded tokens has the share of padding beside it."""
    known = COUNTS.get(name) or CountMeaning(f"count_{name}", "", "a count of the adapter's own")
    meaning = f"{known.meaning}; mean of a query, the same on every machine"
    column = _number(known.name, known.unit, meaning, lambda row: row.counts.get(name), known.scale)
    if name != "padded_tokens":
        return (column,)
    return column, _number("padding_share", "fraction", "share of the computed tokens that only fill up")


def _first_stage(measures: Sequence[str]) -> tuple[Column[Row], ...]:
    """Return the columns of a first stage; gain and harm are by the first measure that has them."""

    def of_gain(place: int) -> Callable[[Row], Estimate]:
        return lambda row: _NONE if (found := row.gain(measures)) is None else (found[1], found[2])[place]

    def alone(name: str) -> Column[Row]:
        read = optional("first_stage", "measures")
        return _number(
            f"first_stage_{name}",
            "",
            "effectiveness of the first stage alone (a fraction)",
            lambda row: (read(row) or {}).get(name, _NONE).value,
        )

    interval = "95 % interval, for similar queries"
    return (
        _text("first_stage", "system whose ranking the second stage was given", optional("first_stage", "system")),
        _text(
            "first_stage_measured",
            "no: a stored ranking, so latency and cost are the second stage's alone",
            lambda row: row.first_stage and ("yes" if row.first_stage.measured else "no"),
        ),
        _count("depth", "hits", "hits that the first stage was asked for", optional("first_stage", "depth")),
        *_bounded(
            "ceiling",
            "",
            "R@depth of the first stage: no second stage has a better recall (a fraction)",
            interval,
            lambda row: row.first_stage.ceiling if row.first_stage else _NONE,
        ),
        *_bounded(
            "gain",
            "",
            "first measure less that of the first stage alone, query by query (a fraction)",
            "paired 95 % interval",
            of_gain(0),
        ),
        *_bounded("harm", "", "share of judged queries that the second stage makes worse", interval, of_gain(1)),
        *map(alone, measures),
    )


def _stage(name: str) -> tuple[Column[Any], ...]:
    meaning = _OTHER if name.rpartition(".")[2] == OTHER else _STAGE
    return _timings(f"stage_{name}", meaning, lambda row: row.stages_s.get(name))


def _timings(name: str, meaning: str, get: Callable[[Row], Any]) -> tuple[Column[Any], ...]:
    """Return the columns of the mean and the median of a stage or of service time."""
    return (
        _number(f"{name}_mean_ms", "ms", f"{meaning}: mean", lambda row: (t := get(row)) and t.mean_s.value, 1e3),
        _number(f"{name}_p50_ms", "ms", f"{meaning}: median", lambda row: (t := get(row)) and t.p50_s.value, 1e3),
    )


_STAGE = "time of this stage, as the adapter reports it"
_OTHER = "time that no stage counts"
_NAMES: tuple[Column[Row], ...] = (
    _text("system", "name of the system"),
    _text("hardware_profile", "limits of CPUs, memory and GPUs", "profile"),
    _text("instance_type", "instance type that prices the row", optional("price", "instance_type")),
    _number("price_usd_per_hour", "US$/hour", "price of that type", optional("price", "usd_per_hour")),
    Column("price_date", Kind.DATE, "", "date of that price", optional("price", "date")),
)
_FIGURES: tuple[Column[Row], ...] = (
    *_latency("latency_mean_ms", "mean over all", "latency_mean_s"),
    *_latency("p50_ms", "median of the", "p50_s"),
    *_latency("p95_ms", "95th percentile of the", "p95_s"),
    *_latency("p99_ms", "99th percentile of the", "p99_s"),
    *_bounded(
        "throughput_qps",
        "queries/s",
        "queries answered per second; scenarios offline and server only",
        "interval over repeated measurements",
        "throughput_qps",
    ),
    _mib("peak_anon_mib", "peak of anonymous and shared memory, without file pages", "peak_anon_bytes"),
    _mib("peak_mapped_mib", "peak of mapped file pages", "peak_mapped_bytes"),
    _mib("peak_cgroup_mib", "peak of the memory charged to the job, with page cache", "peak_cgroup_bytes"),
    _mib("peak_gpu_mib", "peak of GPU memory, all GPUs together", "peak_gpu_bytes"),
    _number("gpu_energy_j", "J", "energy of the GPUs during the trials of all jobs, with idle draw"),
    _mib("index_mib", "size of the index", "index_bytes"),
    _number("load_s", "s", "time from the start to the first query; not part of any latency"),
    *_cost("usd_per_million_queries", "sequential", "usd_per_million"),
    *_cost("usd_per_million_queries_saturated", "saturated", "usd_per_million_saturated"),
)
_SWEEPS: tuple[Column[Row], ...] = (
    _text("swept_system", "swept system or curve, of a point of one", optional("sweep", "system")),
    _text("swept_params", "parameters of that point that differ there, with their values", optional("sweep", "text")),
)
_TOKENS: tuple[Column[Row], ...] = (
    _text("token_model", "language model whose token prices the system names"),
    _number("token_usd_in", "US$", "price of a million prompt tokens", optional("token_price", "usd_per_million_in")),
    _number("token_usd_out", "US$", "that of a million completed ones", optional("token_price", "usd_per_million_out")),
    Column("token_price_date", Kind.DATE, "", "date of those prices", optional("token_price", "date")),
    _number(
        "usd_tokens_per_million_queries",
        "US$",
        "tokens of a million queries at list price, beside the cost of the instance",
        "usd_tokens_per_million.value",
    ),
)
_VERDICTS: tuple[Column[Row], ...] = (
    _text("outcome", "how the job ended: ok, oom, timeout, crash ...", "outcome.value"),
    _text("validity", "validity of the figures: clean, noisy, invalid, unknown", "validity.value"),
    _text(
        "isolation",
        "what enforced the limits: container, process, fake; published: not measured here",
        "isolation.value",
    ),
    _text("suite", "suite of the cell"),
)
_COUNTS: tuple[Column[Row], ...] = (
    _text("dataset", "dataset: corpus, queries and judgements"),
    _text("scenario", "arrival of queries: single_stream, offline, server"),
    _count("queries", "queries", "timed queries, each once per trial"),
    _count("trials", "trials", "passes over the queries, in all jobs together"),
    _count("queries_judged", "queries", "judged queries, which the measures are over"),
    _number("unjudged_share", "fraction", "share of unjudged documents among the first hits"),
    _count("unjudged_depth", "hits", "number of first hits for unjudged_share"),
    _text("rejudged", "judgements, where not the stored ones", lambda row: "; ".join(row.rejudged) or None),
    _count("jobs", "jobs", "fresh processes pooled in the row"),
)
_SPREADS: tuple[Column[Row], ...] = (
    *_interval_parts("latency_mean_ms", "mean"),
    *_interval_parts("p50_ms", "p50"),
    *_interval_parts("p95_ms", "p95"),
    *_interval_parts("p99_ms", "p99"),
    _at_most("p50", "half"),
    _at_most("p95", "95 per cent"),
    _at_most("p99", "99 per cent"),
    _number("trial_spread_ms", "ms", "standard deviation of the trials' mean latencies", "trial_spread_s", 1e3),
    _deviation("query", "between queries"),
    _deviation("trial", "between the trials of a job"),
    _deviation("job", "between jobs, which are fresh processes"),
    _deviation("residual", "not explained by query, trial or job"),
)
_BUILDS: tuple[Column[Row], ...] = (
    _number("first_query_s", "s", "latency of the first query after loading"),
    _number("one_pass_warmup", "queries", "warm-up queries, where warm-up was one pass"),
    _number("index_build_s", "s", "time to build the index"),
    _text("index_build_profile", "limits during the build", optional("build_envelope", "name")),
    _text(
        "build_validity",
        "validity of that time: clean, noisy, invalid, unknown",
        lambda row: None if row.index_build_s is None else row.build_validity.value,
    ),
    _text(
        "build_findings",
        "reasons to doubt that time, and remarks",
        lambda row: "; ".join(finding.text for finding in row.build_findings) or None,
    ),
    _text("build_measured_type", "instance type of the machine that built", optional("build_machine", "instance_type")),
    _text("build_measured_cpu", "CPU model of that machine", optional("build_machine", "cpu_model")),
    _count("corpus_documents", "documents", "documents in the index"),
    _text("build_instance_type", "instance type that prices the build", optional("build_price", "instance_type")),
    _number("build_price_usd_per_hour", "US$/hour", "price of that type", optional("build_price", "usd_per_hour")),
    _number(
        "usd_build_per_million_documents",
        "US$",
        "cost of indexing a million documents",
        "usd_build_per_million_documents.value",
    ),
    _number("usd_storage_per_month", "US$/month", "cost of storing the index", "usd_storage_per_month.value"),
    _text("price_term", "price term: on-demand, reserved-1y, reserved-3y, spot", optional("price", "term")),
    _text("published_type", "published rows: instance type in the paper"),
    _mib("memory_limit_mib", "limit of the job's memory", "memory_limit_bytes"),
    _mib(
        "profile_memory_mib", "memory that the profile asks for; the limit is less on a whole machine", "memory_bytes"
    ),
    _text(
        "price_basis",
        "why that type prices the row: published, measured (it measured the row), substitute, cheapest",
        row_pricing.basis,
    ),
    _text(
        "price_substitutes",
        "type without a price at that date, which instance_type replaces",
        optional("price", "substitutes"),
    ),
)
_EVIDENCE: tuple[Column[Row], ...] = (
    _text("instance_architecture", "architecture of the instance type", optional("price", "architecture")),
    _text("measured_architecture", "architecture of the machine that measured", optional("machine", "architecture")),
    _text("measured_cpu", "CPU model of the machine that measured", optional("machine", "cpu_model")),
    Column("started_at", Kind.TIME, "", "start of the job", _getter("started_at")),
    _text("key", "key of the job whose run is judged (a folder's name)"),
    _text("detail", "reason for an outcome other than ok"),
    _text("backend", "inference backend that encoded the queries"),
    _text("document_backend", "inference backend that the system names for documents"),
    _text("stand_in", "checkpoint, where it is not the published one"),
    _text("pinned_at_first_use", "model files that the run pinned, as no file did before, and their commits"),
    _text("notes", "reasons for doubt, and other notes", lambda row: "; ".join(row.notes) or None),
)

# The texts in front name a job, and stand beside each of its samples.
JOBS: tuple[Column[StoredJob], ...] = (
    _text("key", "key of the job: hash of everything that decides the measurement", "result.key"),
    _text("origin", "origin, in merged results"),
    _text("suite", "suite of the cell", "result.spec.cell.suite"),
    _text("system", "name of the system", "result.spec.cell.system"),
    _text("dataset", "dataset: corpus, queries and judgements", "result.spec.cell.dataset"),
    _text("scenario", "arrival of queries: single_stream, offline, server", "result.spec.cell.scenario"),
    _text("hardware_profile", "limits of CPUs, memory and GPUs", "result.spec.cell.profile"),
    _text("isolation", "what enforced the limits: container, process, fake", "result.spec.isolation.value"),
    _text("outcome", "how the job ended: ok, oom, timeout, crash ...", "result.outcome.value"),
    _count("job", "", "number within its cell, from 0", "result.spec.job"),
    _count("jobs", "jobs", "number of jobs in its cell", "result.spec.jobs"),
    _count("repetition", "", "number of the attempt, from 0", "result.spec.repetition"),
    _text("detail", "reason for an outcome other than ok", "result.detail"),
    Column("started_at", Kind.TIME, "", "start of the job", _getter("result.started_at")),
    _number("wall_s", "s", "time from start to end", "result.wall_s"),
    _number("load_s", "s", "time to load before the first query", optional("result.measured", "load_s")),
    _number("first_query_s", "s", "latency of the first query after loading", "result.answers.first_query_s"),
    _count("trials", "trials", "planned passes", "result.spec.trials"),
    _count("trials_finished", "trials", "passes that answered every query", "result.answers.trials_finished"),
    _count("queries", "queries", "size of the query sample, all judged", "result.spec.sample_size"),
    _count("held_out", "queries", "warm-up queries of the sample, never timed", "result.spec.held_out"),
    _count("warmup_done", "queries", "finished warm-up queries", "result.answers.warmup_done"),
    _number(
        "compiled_s",
        "s",
        "CPU time of JIT compiler threads during the trials",
        optional("result.measured", "compiled_s"),
    ),
    _count("k", "hits", "requested hits", "result.spec.k"),
    _count("cpus", "CPUs", "limit of CPUs", "result.spec.envelope.cpus"),
    _mib("memory_limit_mib", "limit of memory", "result.spec.envelope.memory_bytes"),
    _mib(
        "profile_memory_mib",
        "memory that the profile asks for; the limit is less on a whole machine",
        lambda job: job.result.provenance.nominal_memory_bytes or job.result.spec.envelope.memory_bytes,
    ),
    _count("gpus", "GPUs", "number of GPUs", "result.spec.envelope.gpus"),
    _mib("peak_anon_mib", "peak of anonymous and shared memory", "result.observed.memory.peak_anon_bytes"),
    _mib("peak_mapped_mib", "peak of mapped file pages", "result.observed.memory.peak_mapped_bytes"),
    _mib("peak_cgroup_mib", "peak of the memory charged to the job", "result.observed.memory.peak_cgroup_bytes"),
    _mib("peak_gpu_mib", "peak of GPU memory", "result.observed.memory.peak_gpu_bytes"),
    _mib("index_mib", "size of the index", optional("result.index", "index_bytes")),
    _number("index_build_s", "s", "time to build the index", optional("result.index", "build_s")),
    _number(
        "rate_qps",
        "queries/s",
        "scenario server: rate that the job sustained twice",
        optional("result.measured", "rate_qps"),
    ),
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
    _text("swept_system", "swept system or curve, of a point of one", optional("result.provenance.sweep", "system")),
    _text(
        "swept_params",
        "parameters of that point that differ there, with their values",
        optional("result.provenance.sweep", "text"),
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
    return ColumnMeaning(name, Kind.NUMBER, "s", _STAGE)
