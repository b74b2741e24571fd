"""The columns of a table of rows, for programs: the one list that CSV, frames, exports and docs/reference/columns.md read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.analysis.table import Row, Table, Timing
from harness.report.job_columns import Described, Kind
from harness.stats import Estimate

MIB = 2**20
Value = str | int | float | bool | None
Get = Callable[[Row], Value]

_PERCENTILES = {"p50": "half", "p95": "95 per cent", "p99": "99 per cent"}
_SPREADS = {
    "query": "between queries",
    "trial": "between the trials of a job",
    "job": "between jobs, which are fresh processes",
    "residual": "that neither query, trial nor job explains",
}


@dataclass(frozen=True)
class Column(Described):
    """A column of rows; ``get`` reads a row's cell, ``None``: missing."""

    get: Get


def of(table: Table) -> tuple[Column, ...]:
    """The columns of a table: those that all tables have, and those of its measures, stages and origins."""
    stages = sorted({name for row in table.rows for name in row.stages_s})
    return listed(table.measures, stages, origins=any(row.origin is not None for row in table.rows))


def listed(measures: Sequence[str], stages: Sequence[str], *, origins: bool) -> tuple[Column, ...]:
    """The table that people see, in its order; then what else is known of each row.

    Args:
        measures: names as ir_measures writes them.
        stages: names as adapters say them.
        origins: some row is from merged results.
    """
    return (
        *_NAMED,
        *(column for name in measures for column in _measure(name)),
        *_latency("latency_mean_ms", "mean over all timed queries", lambda row: row.latency_mean_s),
        *_latency("p50_ms", "half of the timed queries took at most this", lambda row: row.p50_s),
        *_latency("p95_ms", "95 per cent of them took at most this", lambda row: row.p95_s),
        *_latency("p99_ms", "99 per cent of them took at most this", lambda row: row.p99_s),
        *_bounded(
            "throughput_qps",
            "queries/s",
            "queries answered a second; scenarios offline and server alone",
            "interval over repeated measurements",
            lambda row: row.throughput_qps,
        ),
        *_SIZES,
        *_cost("usd_per_million_queries", "one query after the other", lambda row: row.usd_per_million),
        *_cost("usd_per_million_queries_saturated", "kept busy", lambda row: row.usd_per_million_saturated),
        *_JUDGED,
        *(_ORIGIN if origins else ()),
        *_COUNTED,
        *_SPREAD,
        *_timings("service", "service time of scenario server", lambda row: row.service_s),
        *(column for name in stages for column in _stage(name)),
        *_BUILT,
        *_EVIDENCE,
    )


def _text(name: str, meaning: str, get: Get) -> Column:
    return Column(name, Kind.TEXT, "", meaning, get)


def _number(name: str, unit: str, meaning: str, get: Get) -> Column:
    return Column(name, Kind.NUMBER, unit, meaning, get)


def _count(name: str, unit: str, meaning: str, get: Get) -> Column:
    return Column(name, Kind.COUNT, unit, meaning, get)


def _bounded(
    name: str, unit: str, meaning: str, interval: str, get: Callable[[Row], Estimate], scale: float = 1
) -> list[Column]:
    """A figure and the two ends of its interval."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * scale

    return [
        _number(name, unit, meaning, lambda row: scaled(get(row).value)),
        _number(f"{name}_low", unit, f"lower end of its {interval}", lambda row: scaled(get(row).low)),
        _number(f"{name}_high", unit, f"upper end of its {interval}", lambda row: scaled(get(row).high)),
    ]


def _measure(name: str) -> list[Column]:
    meaning = (
        "effectiveness over the judged queries of the sample, as ir_measures computes it (a fraction, no per cent)"
    )
    interval = "95 % interval, for queries like these"
    return _bounded(name, "", meaning, interval, lambda row: row.measures.get(name, Estimate(None)))


def _latency(name: str, meaning: str, get: Callable[[Row], Estimate]) -> list[Column]:
    interval = "95 % interval: measured again, other queries, fresh processes"
    return _bounded(name, "ms", f"latency: {meaning}", interval, get, 1e3)


def _parts(name: str) -> list[Column]:
    """The two intervals that a latency's one is made of."""
    key = name.removeprefix("latency_").removesuffix("_ms")
    found: list[Column] = []
    for part, interval, read in (
        ("like", "other queries, these processes", lambda row: row.like_queries_s),
        ("these", "these queries, other processes", lambda row: row.these_queries_s),
    ):
        get = functools.partial(_part, read, key)
        found += _bounded(f"{name}_{part}_queries", "ms", "", f"95 % interval: {interval}", get, 1e3)[1:]
    return found


def _part(read: Callable[[Row], dict[str, Estimate]], key: str, row: Row) -> Estimate:
    return read(row).get(key, Estimate(None))


def _cost(name: str, meaning: str, get: Callable[[Row], Estimate]) -> list[Column]:
    return _bounded(name, "US$", f"cost of a million queries, {meaning}", "interval, that of what it is made of", get)


def _at_most(name: str) -> Column:
    """LoadGen's bound: the percentile is at most this, at confidence 0.99."""
    meaning = f"latency: {_PERCENTILES[name]} of all such queries take at most this (LoadGen's rule, confidence 0.99)"
    return _number(f"{name}_at_most_ms", "ms", meaning, lambda row: _ms(row.at_most_s.get(name, Estimate(None)).value))


def _spread(name: str, what: str) -> Column:
    """A component's standard deviation."""
    meaning = f"standard deviation of latency {what}"
    return _number(f"sd_{name}_ms", "ms", meaning, lambda row: _ms(row.spread_s.get(name, Estimate(None)).value))


def _stage(name: str) -> list[Column]:
    return _timings(f"stage_{name}", "what the adapter says of this stage", lambda row: row.stages_s.get(name))


def _timings(name: str, meaning: str, get: Callable[[Row], Timing | None]) -> list[Column]:
    """Mean and median of a stage or of service time."""

    def part(row: Row, which: str) -> float | None:
        timing = get(row)
        return None if timing is None else _ms(getattr(timing, which).value)

    return [
        _number(f"{name}_mean_ms", "ms", f"{meaning}: mean", lambda row: part(row, "mean_s")),
        _number(f"{name}_p50_ms", "ms", f"{meaning}: median", lambda row: part(row, "p50_s")),
    ]


def _mib(name: str, meaning: str, get: Callable[[Row], int | None]) -> Column:
    return _number(name, "MiB", meaning, lambda row: None if (size := get(row)) is None else size / MIB)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


_NAMED = (
    _text("system", "what was measured", lambda row: row.system),
    _text("hardware_profile", "the envelope of CPUs, memory and GPUs that it had", lambda row: row.profile),
    _text(
        "instance_type",
        "the instance type that prices the row",
        lambda row: row.price.instance_type if row.price else None,
    ),
    _number(
        "price_usd_per_hour",
        "US$/hour",
        "what that type costs",
        lambda row: row.price.usd_per_hour if row.price else None,
    ),
    Column("price_date", Kind.DATE, "", "when it cost that", lambda row: row.price.date if row.price else None),
)
_SIZES = (
    _mib("peak_anon_mib", "most anonymous and shared memory at once, no file pages", lambda row: row.peak_anon_bytes),
    _mib("peak_mapped_mib", "most file pages that the job had mapped at once", lambda row: row.peak_mapped_bytes),
    _mib(
        "peak_cgroup_mib", "most that was charged to it at once, page cache included", lambda row: row.peak_cgroup_bytes
    ),
    _mib("peak_gpu_mib", "most GPU memory at once, all its GPUs together", lambda row: row.peak_gpu_bytes),
    _number(
        "gpu_energy_j",
        "J",
        "what the GPUs took while the trials of all its jobs ran, idle draw included",
        lambda row: row.gpu_energy_j,
    ),
    _mib("index_mib", "size of the index", lambda row: row.index_bytes),
    _number("load_s", "s", "from the start to the first query; in no latency", lambda row: row.load_s),
)
_JUDGED = (
    _text("outcome", "how it ended: ok, oom, timeout, crash ...", lambda row: row.outcome.value),
    _text(
        "validity", "how far its numbers can be trusted: clean, noisy, invalid, unknown", lambda row: row.validity.value
    ),
    _text(
        "isolation",
        "what held the envelope: container, process, fake; published: not measured here",
        lambda row: row.isolation.value,
    ),
    _text("suite", "the suite that asked for it", lambda row: row.suite),
)
_ORIGIN = (_text("origin", "of merged results: whose they are", lambda row: row.origin),)
_COUNTED = (
    _text("dataset", "corpus, queries and judgements", lambda row: row.dataset),
    _text("scenario", "how queries came: single_stream, offline, server", lambda row: row.scenario),
    _count("queries", "queries", "queries that were timed, each once a trial", lambda row: row.queries),
    _count("trials", "trials", "passes over them, in all jobs together", lambda row: row.trials),
    _count("queries_judged", "queries", "those of them that the measures are over", lambda row: row.queries_judged),
    _number("unjudged_share", "fraction", "share of the first hits that nobody judged", lambda row: row.unjudged_share),
    _count("unjudged_depth", "hits", "how many first hits unjudged_share is of", lambda row: row.unjudged_depth),
    _text("rejudged", "how it is judged, where not by what was stored", lambda row: "; ".join(row.rejudged) or None),
    _count("jobs", "jobs", "fresh processes that the row is made of", lambda row: row.jobs),
)
_SPREAD = (
    *(column for name in ("latency_mean_ms", "p50_ms", "p95_ms", "p99_ms") for column in _parts(name)),
    *(_at_most(name) for name in _PERCENTILES),
    _number(
        "trial_spread_ms", "ms", "standard deviation of the trials' mean latencies", lambda row: _ms(row.trial_spread_s)
    ),
    *(_spread(name, what) for name, what in _SPREADS.items()),
)
_BUILT = (
    _number("first_query_s", "s", "the first query after loading", lambda row: row.first_query_s),
    _number(
        "one_pass_warmup",
        "queries",
        "warm-up queries, where they were one pass",
        lambda row: row.one_pass_warmup,
    ),
    _number("index_build_s", "s", "what building the index took", lambda row: row.index_build_s),
    _text(
        "index_build_profile",
        "the envelope that it was built in",
        lambda row: row.build_envelope.name if row.build_envelope else None,
    ),
    _count("corpus_documents", "documents", "what it was built of", lambda row: row.corpus_documents),
    _text(
        "build_instance_type",
        "the instance type that prices the build",
        lambda row: row.build_price.instance_type if row.build_price else None,
    ),
    _number(
        "build_price_usd_per_hour",
        "US$/hour",
        "what that type costs",
        lambda row: row.build_price.usd_per_hour if row.build_price else None,
    ),
    _number(
        "usd_build_per_million_documents",
        "US$",
        "cost of indexing a million documents",
        lambda row: row.usd_build_per_million_documents.value,
    ),
    _number(
        "usd_storage_per_month", "US$/month", "cost of keeping the index", lambda row: row.usd_storage_per_month.value
    ),
    _text("price_term", "on-demand, reserved-1y, reserved-3y, spot", lambda row: row.price.term if row.price else None),
    _text(
        "published_type", "of a published row: the instance type that its paper names", lambda row: row.published_type
    ),
    _text(
        "price_substitutes",
        "the type whose place instance_type took, as it had no price then",
        lambda row: row.price.substitutes if row.price else None,
    ),
)
_EVIDENCE = (
    _text(
        "instance_architecture",
        "of the instance type that prices the row",
        lambda row: row.price.architecture if row.price else None,
    ),
    _text(
        "measured_architecture",
        "of the machine that it was measured on",
        lambda row: row.machine.architecture if row.machine else None,
    ),
    _text("measured_cpu", "that machine's CPU model", lambda row: row.machine.cpu_model if row.machine else None),
    Column("started_at", Kind.TIME, "", "when the job began", lambda row: row.started_at),
    _text("key", "the job whose run is judged; a folder's name", lambda row: row.key),
    _text("detail", "why it ended otherwise than ok", lambda row: row.detail),
    _text("stand_in", "what its checkpoint was, where not the published one", lambda row: row.stand_in),
    _text("notes", "reasons to doubt, and what else is to be said", lambda row: "; ".join(row.notes) or None),
)
