"""A table as CSV: one column a figure, units in the names, full precision, empty where missing."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from harness.report.text import printable
from harness.table import Figure, Row, Table, Timing

MIB = 2**20
Value = str | int | float | bool | None
Column = tuple[str, Callable[[Row], Value]]


def render(table: Table) -> str:
    """CSV with a header line, as RFC 4180 but for lines that end with a newline alone.

    Numbers read back unchanged.  Texts are one printable line (JSON keeps them as they are); one that a
    spreadsheet would take for a formula gets an apostrophe in front.
    """
    columns = _columns(table)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(name for name, _ in columns)
    writer.writerows([written(get(row)) for _, get in columns] for row in table.rows)
    return stream.getvalue()


def written(value: Value) -> str:
    """A cell: numbers that read back unchanged, texts that no spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = printable(value)
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return repr(value)


def _columns(table: Table) -> list[Column]:
    """The table that people see, in its order; then what else is known of each row."""
    stages = sorted({name for row in table.rows for name in row.stages_s})
    return [
        ("system", lambda row: row.system),
        ("hardware_profile", lambda row: row.profile),
        ("instance_type", lambda row: row.price.instance_type if row.price else None),
        ("price_usd_per_hour", lambda row: row.price.usd_per_hour if row.price else None),
        ("price_date", lambda row: row.price.date if row.price else None),
        *(column for name in table.measures for column in _measure(name)),
        *_bounded("latency_mean_ms", lambda row: row.latency_mean_s, 1e3),
        *_bounded("p50_ms", lambda row: row.p50_s, 1e3),
        *_bounded("p95_ms", lambda row: row.p95_s, 1e3),
        *_bounded("p99_ms", lambda row: row.p99_s, 1e3),
        *_bounded("throughput_qps", lambda row: row.throughput_qps, 1),
        ("peak_anon_mib", lambda row: _mib(row.peak_anon_bytes)),
        ("peak_mapped_mib", lambda row: _mib(row.peak_mapped_bytes)),
        ("peak_cgroup_mib", lambda row: _mib(row.peak_cgroup_bytes)),
        ("peak_gpu_mib", lambda row: _mib(row.peak_gpu_bytes)),
        ("gpu_energy_j", lambda row: row.gpu_energy_j),
        ("index_mib", lambda row: _mib(row.index_bytes)),
        ("load_s", lambda row: row.load_s),
        *_bounded("usd_per_million_queries", lambda row: row.usd_per_million, 1),
        *_bounded("usd_per_million_queries_saturated", lambda row: row.usd_per_million_saturated, 1),
        ("outcome", lambda row: row.outcome.value),
        ("validity", lambda row: row.validity.value),
        ("isolation", lambda row: row.isolation.value),
        ("suite", lambda row: row.suite),
        ("dataset", lambda row: row.dataset),
        ("scenario", lambda row: row.scenario),
        ("queries", lambda row: row.queries),
        ("trials", lambda row: row.trials),
        ("queries_judged", lambda row: row.queries_judged),
        ("jobs", lambda row: row.jobs),
        # The same mean as latency_mean_ms: its interval there is for queries like these, here for these very queries.
        *_bounded("latency_mean_ms_these_queries", lambda row: row.latency_these_queries_s, 1e3)[1:],
        *(_at_most(name) for name in ("p50", "p95", "p99")),
        ("trial_spread_ms", lambda row: _ms(row.trial_spread_s)),
        *(_spread(name) for name in ("query", "trial", "job", "residual")),
        *_timings("service", lambda row: row.service_s),
        *(column for name in stages for column in _stage(name)),
        ("first_query_s", lambda row: row.first_query_s),
        ("index_build_s", lambda row: row.index_build_s),
        ("index_build_profile", lambda row: row.build_envelope.name if row.build_envelope else None),
        ("corpus_documents", lambda row: row.corpus_documents),
        ("build_instance_type", lambda row: row.build_price.instance_type if row.build_price else None),
        ("build_price_usd_per_hour", lambda row: row.build_price.usd_per_hour if row.build_price else None),
        ("usd_build_per_million_documents", lambda row: row.usd_build_per_million_documents.value),
        ("usd_storage_per_month", lambda row: row.usd_storage_per_month.value),
        ("price_term", lambda row: row.price.term if row.price else None),
        ("published_type", lambda row: row.published_type),
        ("price_substitutes", lambda row: row.price.substitutes if row.price else None),
        ("instance_architecture", lambda row: row.price.architecture if row.price else None),
        ("measured_architecture", lambda row: row.machine.architecture if row.machine else None),
        ("measured_cpu", lambda row: row.machine.cpu_model if row.machine else None),
        ("started_at", lambda row: row.started_at),
        ("key", lambda row: row.key),
        ("detail", lambda row: row.detail),
        ("stand_in", lambda row: row.stand_in),
        ("notes", lambda row: "; ".join(row.notes) or None),
    ]


def _measure(name: str) -> list[Column]:
    return _bounded(name, lambda row: row.measures.get(name, Figure(None)), 1)


def _at_most(name: str) -> Column:
    """LoadGen's bound: the percentile is at most this, at confidence 0.99."""
    return f"{name}_at_most_ms", lambda row: _ms(row.at_most_s.get(name, Figure(None)).value)


def _spread(name: str) -> Column:
    """A component's standard deviation."""
    return f"sd_{name}_ms", lambda row: _ms(row.spread_s.get(name, Figure(None)).value)


def _stage(name: str) -> list[Column]:
    return _timings(f"stage_{name}", lambda row: row.stages_s.get(name))


def _timings(name: str, get: Callable[[Row], Timing | None]) -> list[Column]:
    """Mean and median of a stage or of service time."""

    def part(row: Row, which: str) -> float | None:
        timing = get(row)
        return None if timing is None else _ms(getattr(timing, which).value)

    return [
        (f"{name}_mean_ms", lambda row: part(row, "mean_s")),
        (f"{name}_p50_ms", lambda row: part(row, "p50_s")),
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _bounded(name: str, get: Callable[[Row], Figure], scale: float) -> list[Column]:
    """A figure and the two ends of its interval."""

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * scale

    return [
        (name, lambda row: scaled(get(row).value)),
        (f"{name}_low", lambda row: scaled(get(row).low)),
        (f"{name}_high", lambda row: scaled(get(row).high)),
    ]


def _mib(value: int | None) -> float | None:
    return None if value is None else value / MIB
