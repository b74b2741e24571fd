"""The registry: one entry for each figure of a row, in blocks.

To add a figure, add its entry to a block of ``FIXED``; the entry's ``read`` is the only place that reads the row.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.analysis import notes, row_pricing
from harness.analysis.table import OTHER, Row, Table, Validity
from harness.estimate import INTERVAL_MIN_QUERIES, Estimate, Varies
from harness.pricing import carbon, cost, token_prices
from harness.report import foreign_figures
from harness.report.columns import STAGE, Column, Kind
from harness.report.document import MIB, MISSING, Escape, Footnotes, Value, number
from harness.report.figures import (
    DATA,
    EVERYWHERE,
    FIRST,
    FOREMOST,
    Figure,
    FirstScreen,
    Place,
    Prices,
    amount,
    built,
    count_of,
    fact,
    figure_of,
    fixed,
)
from harness.report.hardware import other_machine_mark
from harness.report.stage_figures import (
    COUNTS,
    DETAIL,
    LIKE,
    latency_detail,
    of_count,
    of_selectivity,
    second_stage,
    share_of,
    timings,
)
from harness.report.update_figures import UPDATES

_NONE = Estimate(None)
# Figures that other modules ask for, by their short names.
LATENCY, THROUGHPUT, COST, BUILD = "latency", "throughput", "cost", "build"
COST_HEADER = "US$/1M queries"
CARBON = "carbon"
CARBON_HEADER = "gCO2e/1M queries (estimate)"


def _of(field: str, key: str) -> Callable[[Row], Estimate]:
    """Return a function that reads one estimate of a dictionary, such as a measure."""
    read = operator.attrgetter(field)
    return lambda row: read(row).get(key, _NONE)


def _latency(name: str, meaning: str, field: str, **more: Any) -> Figure:
    interval = "95 % interval, for other queries and fresh processes"
    fixed: dict[str, Any] = {"interval": interval, "told": "Latency", "method": notes.PERCENTILE_METHOD}
    return figure_of(name, "ms", f"latency: {meaning} timed queries", field, 1e3, **(fixed | more))


def _memory(name: str, meaning: str, field: str, **more: Any) -> Figure:
    more = {"told": "Memory", "method": notes.MEMORY_METHOD, "varies": Varies.PROCESS} | more
    return figure_of(name, "MiB", meaning, field, 1 / MIB, **more)


def _measure(name: str) -> Figure:
    method = (
        "ir_measures computes it for each judged query of the first trial's run; the number is their mean. Its "
        f"95 % interval is a bootstrap over queries, from {INTERVAL_MIN_QUERIES} on."
    )
    meaning = "effectiveness over the judged queries of the sample, computed by ir_measures (a fraction)"
    screen = FirstScreen(name, heading=lambda cell: f"{name} {cell}")
    more: dict[str, Any] = {"label": name, "decimals": 3, "higher": True, "screen": screen, "places": FIRST}
    more |= {"interval": LIKE, "method": method, "told": "Quality", "varies": Varies.QUERY}
    return figure_of(name, "", meaning, _of("measures", name), **more)


def _stage(name: str) -> tuple[Figure, ...]:
    meaning = "time that no stage counts" if name.rpartition(".")[2] == OTHER else STAGE
    return timings(f"stage_{name}", f"stage {name}", meaning, lambda row: row.latency.stages_s.get(name))


def _interval_parts(name: str, key: str) -> tuple[Figure, ...]:
    """Return the two intervals behind a latency's interval."""

    def ends(part: str, which: str) -> Figure:
        more: dict[str, Any] = {"interval": f"95 % interval: {which}", "ends_alone": True, "places": DATA}
        return figure_of(f"{name}_{part}", "ms", f"latency: {which}", _of(f"latency.{part}_s", key), 1e3, **more)

    return (
        ends("like_queries", "other queries, same processes"),
        ends("these_queries", "same queries, other processes"),
    )


def _at_most(name: str, share: str) -> Figure:
    """Return LoadGen's upper bound of a percentile (confidence 0.99)."""
    meaning = f"latency: {share} of similar queries take at most this (LoadGen's rule, confidence 0.99)"
    label = f"{name} at most (confidence 0.99)"
    return latency_detail(f"{name}_at_most_ms", label, meaning, _of("latency.at_most_s", name))


def _deviation(name: str, cause: str) -> Figure:
    """Return a variance component's standard deviation."""
    label = f"standard deviation by {name}"
    return latency_detail(
        f"sd_{name}_ms", label, f"standard deviation of latency {cause}", _of("latency.spread_s", name)
    )


def _is_open(row: Row) -> bool:
    """Return whether queries do not wait for one another, so that a throughput was measured."""
    return row.scenario not in ("single_stream", "mixed")


def _warmup(row: Row, _: Escape) -> str:
    return "" if row.one_pass_warmup is None else f" after {row.one_pass_warmup} warm-up queries"


def _offer(row: Row, escape: Escape) -> str:
    quote = row.cost.metered_quote
    return "" if quote is None else " " + escape(f"({quote.offer}, {quote.date})")


def _token_price(row: Row, escape: Escape) -> str:
    price = row.cost.token_price
    return "" if price is None else " " + escape(f"({price.model}, {price.date})")


def cost_cell(row: Row) -> str:
    """Return a row's cost, with a mark where another machine prices it."""
    mark = "" if row.usd_per_million.value is None else other_machine_mark(row, row.price)
    return number(row.usd_per_million.value) + mark


def carbon_cell(row: Row) -> str:
    """Return a row's range of CO2e."""
    grams = row.carbon.grams
    return MISSING if grams.value is None else f"{number(grams.low)}–{number(grams.high)}"


def _carbon_cell(row: Row, footnotes: Footnotes) -> str:
    grams = row.carbon.grams
    return footnotes.missing(grams.reason) if grams.value is None else carbon_cell(row)


def _build_time_cell(row: Row, footnotes: Footnotes) -> str:
    """Return the time of a build, with the machine that built and the reasons to doubt the time."""
    if row.index.build_s is None:
        return MISSING
    place = notes.build_place(row)
    marks = footnotes.mark(place and f"built on {place}", *(finding.text for finding in row.index.findings))
    return number(row.index.build_s) + doubt_mark(row.index.validity) + marks


def _build_cell(row: Row) -> str:
    usd = row.cost.build.value
    return MISSING if usd is None else number(usd) + doubt_mark(row.index.validity)


def _limit(name: str) -> Callable[[Row], int | None]:
    """Return a reader of a limit; a service that ran already has none that is known."""
    return lambda row: None if row.isolation.attached else getattr(row, name)


def doubt_mark(validity: Validity) -> str:
    """Return the mark of a figure that is noisy or invalid."""
    return {Validity.NOISY: " ~", Validity.INVALID: " !"}.get(validity, "")


_TOLD_COST = "Cost"
_SEQUENTIAL, _SATURATED, _METERED = (f"{model.formula}; {model.meaning}." for model in cost.MODELS)


def _cost(name: str, model: str, read: str, **more: Any) -> Figure:
    header = f"US$ per million queries (interval), {model}"
    more |= {"prices": Prices.HOUR, "header": header, "bounds": "interval", "told": _TOLD_COST}
    more |= {"interval": "interval, from the latency or throughput behind it", "places": DATA | {Place.WIDE}}
    return figure_of(name, "US$", f"cost of a million queries, {model}", read, **more)


# Blocks whose figures do not depend on the table.  An entry is easier to read in few lines.
# fmt: off
FIXED: dict[str, tuple[Figure, ...]] = {
    "names": (
        fact("system", "name of the system"),
        fact("hardware_profile", "limits of CPUs, memory and GPUs", "profile"),
        fact("instance_type", "instance type that prices the row", "price.instance_type"),
        fixed("price_usd_per_hour", "US$/hour", "price of that type", "price.usd_per_hour"),
        fact("price_date", "date of that price", "price.date", Kind.DATE),
    ),
    "times": (
        _latency(
            "latency_mean_ms", "mean over all", "latency.mean_s",
            short=LATENCY, label="latency mean", bounds="95 %", method=notes.MEAN_METHOD,
            remark=_warmup, screen=FirstScreen("latency ms (95 %)"), places=FOREMOST,
        ),
        _latency("p50_ms", "median of the", "latency.p50_s", label="p50"),
        _latency(
            "p95_ms", "95th percentile of the", "latency.p95_s",
            short="p95", label="p95", screen=FirstScreen("p95", dropped=3), places=FOREMOST,
        ),
        _latency("p99_ms", "99th percentile of the", "latency.p99_s", label="p99"),
        figure_of(
            "throughput_qps", "queries/s", "queries answered per second; scenarios offline and server only",
            "throughput_qps", interval="interval over repeated measurements", label="throughput", bounds="interval",
            short=THROUGHPUT, higher=True, optional=True, applies=_is_open, told="Throughput",
            method=notes.THROUGHPUT_METHOD, screen=FirstScreen("queries/s", dropped=7), places=FOREMOST,
        ),
        figure_of(
            "failed_queries", "queries", "queries without an answer at the rate that was kept; they count as late",
            "failed_queries", label="failed queries", optional=True, places=DETAIL,
        ),
    ),
    "updates": UPDATES,
    "resources": (
        _memory(
            "peak_anon_mib", "peak of anonymous and shared memory, without file pages", "resources.peak_anon_bytes",
            short="memory", label="peak anonymous", screen=FirstScreen("memory", dropped=6), places=FOREMOST,
        ),
        _memory(
            "peak_mapped_mib", "peak of mapped file pages", "resources.peak_mapped_bytes",
            label="peak mapped", optional=True, method=notes.MAPPED_METHOD,
        ),
        _memory(
            "peak_cgroup_mib", "peak of the memory charged to the job, with page cache", "resources.peak_cgroup_bytes",
            label="peak cgroup",
        ),
        _memory(
            "peak_gpu_mib", "peak of GPU memory, all GPUs together", "resources.peak_gpu_bytes",
            applies=lambda row: bool(row.gpus) or row.resources.peak_gpu_bytes is not None,
            short="gpu_memory", label="peak GPU", screen=FirstScreen("GPU memory", dropped=1), places=FIRST,
        ),
        figure_of(
            "gpu_energy_j", "J", "energy of the GPUs during the trials of all jobs, with idle draw",
            "resources.gpu_energy_j",
            label="energy of the GPUs", optional=True, places=DETAIL,
        ),
        figure_of(
            "joules_per_query", "J", "energy of a query, measured: whole CPU packages, with idle draw", "cpu.package_j",
            interval="95 % interval, for fresh processes", bounds="95 %", label="energy of the CPU packages",
            header="CPU J per query (95 %)", optional=True, method=notes.PACKAGE_METHOD,
        ),
        _memory(
            "index_mib", "size of the index", "index.size_bytes",
            short="index", label="index", method="", told="Index", varies=Varies.NOTHING, places=FOREMOST,
            screen=FirstScreen("index", heading=lambda cell: f"index {cell}", dropped=2),
        ),
        figure_of(
            "cpu_per_query_ms", "ms", "CPU time of a query, all threads together, less harness's own where known",
            "cpu.of_system_s", 1e3,
            interval="95 % interval, for fresh processes", bounds="95 %", short="cpu", label="CPU time of a query",
            header="CPU ms per query (95 %)", optional=True, told="CPU time", method=notes.CPU_METHOD,
            varies=Varies.CPU,
        ),
        figure_of(
            "instructions_per_query", "instructions",
            "instructions of a query in user mode, less harness's own where known", "cpu.of_system_instructions",
            interval="95 % interval, for fresh processes", bounds="95 %", short="instructions", optional=True,
            label="instructions of a query", method=notes.INSTRUCTIONS_METHOD, varies=Varies.CPU,
        ),
        figure_of(
            "client_ms", "ms", "client's and network's part of a service's latency: that of null-service",
            "client.null_s", 1e3,
            label="client's part", header="client's part, ms", optional=True, method=notes.CLIENT_METHOD,
        ),
        figure_of(
            "client_cpu_per_query_ms", "ms", "CPU time of a service's client for a query, on CPUs that are not priced",
            "client.cpu_per_query_s", 1e3,
            label="CPU time of the client", optional=True, varies=Varies.CPU,
        ),
        figure_of(
            "idle_share", "fraction", "share of the priced machine's CPU time that the trials left unused",
            "idle_share", short="idle", label="idle", percent=True, optional=True, told="CPU time",
            method=notes.IDLE_METHOD,
        ),
        figure_of(
            "load_s", "s", "time from the start to the first query; not part of any latency", "resources.load_s",
            label="load", places=EVERYWHERE - {Place.EXPLAIN},
        ),
    ),
    "costs": (
        figure_of(
            COST, "US$", "cost of a million queries by the model of the row's scenario", "usd_per_million",
            label="US$ per million queries", bounds="interval", optional=True, prices=Prices.HOUR,
            method=f"{_SEQUENTIAL} In scenarios offline and server: {_SATURATED}", told=_TOLD_COST,
            screen=FirstScreen(COST_HEADER, cell=cost_cell), places=FOREMOST - {Place.PROGRAMS, Place.WIDE},
        ),
        # Notes on a latency's interval are at the latency.
        _cost("usd_per_million_queries", "sequential", "cost.sequential", method=_SEQUENTIAL, noted=False),
        _cost(
            "usd_per_million_queries_saturated", "saturated", "cost.saturated",
            method=_SATURATED, applies=_is_open,
        ),
        figure_of(
            "usd_per_million_queries_metered", "US$",
            "cost of a million queries, metered: at the cheapest serverless offer that is paid by the request",
            "cost.metered",
            interval="interval, from the latency behind it", bounds="interval", short="metered", noted=False,
            header="US$ per million queries (interval), metered", label="metered US$ per million queries",
            optional=True, applies=lambda row: not _is_open(row), remark=_offer, prices=Prices.OTHER,
            method=_METERED, told="Metered cost",
        ),
        fact("metered_offer", "the serverless offer of that price", "cost.metered_quote.offer"),
        fact("metered_price_date", "date of that price", "cost.metered_quote.date", Kind.DATE),
        figure_of(
            "gco2e_per_million", "g", "estimated CO2e of a million queries", "carbon.grams",
            interval="range", ends_alone=True, short=CARBON, header=CARBON_HEADER, cell=_carbon_cell, optional=True,
            told="Carbon", method=f"{carbon.FORMULA}.", screen=FirstScreen(CARBON_HEADER, cell=carbon_cell),
            places=DATA | {Place.ON_REQUEST, Place.WIDE},
        ),
        fact("energy_source", "what of the energy behind the CO2e was measured, and what estimated", "carbon.source"),
        fact("carbon_date", "date of the factors of that estimate", "carbon.date", Kind.DATE),
        fact("carbon_grid", "region of the electricity, or the number that was given", "carbon.grid"),
        fixed("carbon_grams_per_kwh", "g", "CO2e of a kWh there", "carbon.grams_per_kwh"),
    ),
    "tokens": (
        fact("token_model", "language model whose token prices the system names"),
        fixed("token_usd_in", "US$", "price of a million prompt tokens", "cost.token_price.usd_per_million_in"),
        fixed("token_usd_out", "US$", "price of a million completed tokens", "cost.token_price.usd_per_million_out"),
        fact("token_price_date", "date of those prices", "cost.token_price.date", Kind.DATE),
        figure_of(
            "usd_tokens_per_million_queries", "US$",
            "tokens of a million queries at list price, added to the cost of the instance", "cost.tokens",
            short="token_price", label="tokens of a million queries", optional=True, varies=Varies.NOTHING,
            header="US$ per million queries, tokens", prices=Prices.OTHER, remark=_token_price, told="Token prices",
            method=f"{token_prices.FORMULA}; at list prices, without cache or batch discount.",
            screen=FirstScreen("tokens US$/1M", dropped=8), places=FIRST,
        ),
    ),
    "verdicts": (
        fact("outcome", "how the job ended: ok, oom, timeout, crash ...", "outcome.value"),
        fact("validity", "validity of the figures: clean, noisy, invalid, unknown", "validity.value"),
        fact(
            "isolation",
            "isolation, what enforced the limits: container, process, fake, or a launcher's own; attached: nothing is"
            " known of the service's machine; published: not measured here",
            "isolation.name",
        ),
        fact("suite", "suite of the cell"),
    ),
    "origin": (fact("origin", "origin, in merged results"),),
    "counts": (
        fact("dataset", "dataset: corpus, queries and judgements"),
        fact("scenario", "arrival of queries: single_stream, offline, server, mixed"),
        count_of("queries", "queries", "timed queries, each once per trial"),
        count_of("trials", "trials", "passes over the queries, in all jobs together"),
        count_of("queries_judged", "queries", "judged queries, which the measures are over", "judged.queries"),
        fixed("unjudged_share", "fraction", "share of unjudged documents in the first hits", "judged.unjudged_share"),
        count_of("unjudged_depth", "hits", "number of first hits for unjudged_share", "judged.unjudged_depth"),
        fact("rejudged", "judgements, where not the stored ones", lambda row: "; ".join(row.judged.rejudged) or None),
        count_of("jobs", "jobs", "fresh processes pooled in the row"),
    ),
    "spreads": (
        *_interval_parts("latency_mean_ms", "mean"),
        *_interval_parts("p50_ms", "p50"),
        *_interval_parts("p95_ms", "p95"),
        *_interval_parts("p99_ms", "p99"),
        _at_most("p50", "half"),
        _at_most("p95", "95 per cent"),
        _at_most("p99", "99 per cent"),
        amount(
            "trial_spread_ms", "ms", "standard deviation of the trials' mean latencies", "latency.trial_spread_s", 1e3
        ),
        _deviation("query", "between queries"),
        _deviation("trial", "between the trials of a job"),
        _deviation("job", "between jobs, which are fresh processes"),
        _deviation("residual", "not explained by query, trial or job"),
        *timings("service", "service time", "service time of an open loop", lambda row: row.latency.service_s),
    ),
    "sweeps": (
        fact("swept_system", "swept system or curve, of a point of one", "sweep.system"),
        fact("swept_params", "parameters of that point that differ there, with their values", "sweep.text"),
    ),
    "builds": (
        figure_of(
            "first_query_s", "s", "latency of the first query after loading", "resources.first_query_s",
            label="first query", optional=True, places=DETAIL,
        ),
        figure_of(
            "cold_start_s", "s", "time from the start of the container to the first answer, that query included",
            "resources.cold_start_s",
            label="cold start", short="cold_start", optional=True, places=DETAIL | {Place.WIDE},
        ),
        amount("one_pass_warmup", "queries", "warm-up queries, where warm-up was one pass"),
        figure_of(
            "index_build_s", "s", "time to build the index", "index.build_s",
            label="index build", optional=True, varies=Varies.BUILD, cell=_build_time_cell, places=DATA | {Place.WIDE},
        ),
        built("index_build_cpu_s", "s", "CPU time of the build, of a service its server's", "index.cpu_s"),
        built("index_build_client_cpu_s", "s", "CPU time of a service's client in the build", "index.client_cpu_s"),
        fact("index_build_profile", "limits during the build", "index.envelope.name"),
        fact(
            "build_validity", "validity of that time: clean, noisy, invalid, unknown",
            lambda row: None if row.index.build_s is None else row.index.validity.value,
        ),
        fact(
            "build_findings", "reasons to doubt that time, and remarks",
            lambda row: "; ".join(finding.text for finding in row.index.findings) or None,
        ),
        fact("build_measured_type", "instance type of the machine that built", "index.machine.instance_type"),
        fact("build_measured_cpu", "CPU model of that machine", "index.machine.cpu_model"),
        count_of("corpus_documents", "documents", "documents in the index", "index.documents"),
        fact("build_instance_type", "instance type that prices the build", "cost.build_price.instance_type"),
        fixed("build_price_usd_per_hour", "US$/hour", "price of that type", "cost.build_price.usd_per_hour"),
        figure_of(
            "usd_build_per_million_documents", "US$", "cost of indexing a million documents",
            "cost.build",
            short=BUILD, header="index, US$ per million documents", optional=True, prices=Prices.OTHER,
            varies=Varies.BUILD,
            told="Index cost", method=f"{cost.BUILD_FORMULA}.",
            screen=FirstScreen("build US$/1M docs", cell=_build_cell),
            places=DATA | {Place.ON_REQUEST, Place.WIDE},
        ),
        figure_of(
            "usd_storage_per_month", "US$/month", "cost of storing the index", "cost.storage_per_month",
            header="index storage, US$ per month", optional=True, varies=Varies.NOTHING,
            prices=Prices.OTHER, method=f"{cost.STORAGE_FORMULA}.", places=DATA | {Place.WIDE},
        ),
        fact("price_term", "price term: on-demand, reserved-1y, reserved-3y, spot", "price.term"),
        fact("published_type", "published rows: instance type in the paper"),
        fixed("memory_limit_mib", "MiB", "limit of the job's memory", _limit("memory_limit_bytes"), 1 / MIB),
        fixed(
            "profile_memory_mib", "MiB", "memory that the profile asks for; the limit is less on a whole machine",
            _limit("memory_bytes"), 1 / MIB,
        ),
        fact(
            "price_basis",
            "why that type prices the row: published, measured (it measured the row), told, substitute, cheapest",
            row_pricing.basis,
        ),
        fact("price_substitutes", "type without a price at that date; instance_type replaces it", "price.substitutes"),
    ),
    "evidence": (
        fact("instance_architecture", "architecture of the instance type", "price.architecture"),
        fact("measured_architecture", "architecture of the machine that measured", "machine.architecture"),
        fact("measured_cpu", "CPU model of the machine that measured", "machine.cpu_model"),
        fact("started_at", "start of the job", kind=Kind.TIME),
        fact("key", "key of the job whose run is judged (a folder's name)"),
        fact("detail", "reason for an outcome other than ok"),
        fact("backend", "inference backend that encoded the queries"),
        fact("document_backend", "inference backend that the system names for documents"),
        fact("stand_in", "checkpoint, where it is not the published one"),
        fact("pinned_at_first_use", "model files that the run pinned, as no file did before, and their commits"),
        fact("notes", "reasons for doubt, and other notes", lambda row: "; ".join(row.notes) or None),
    ),
}
# fmt: on
# Blocks that only some kinds of rows have.
_KINDS: dict[str, Callable[[Row], bool]] = {
    "second stage": lambda row: row.first_stage is not None,
    "updates": lambda row: row.updates is not None,
    "tokens": lambda row: row.token_model is not None,
    "origin": lambda row: row.origin is not None,
    "sweeps": lambda row: row.sweep is not None,
}
# Files keep their order; people read quality before its price.
_OF_FILES = (
    *("names", "measures", "foreign", "times", "updates", "resources", "costs", "verdicts", "origin", "counts"),
    *("spreads", "stages", "filters", "work", "second stage", "tokens", "sweeps", "builds", "evidence"),
)
_OF_PEOPLE = (
    *("names", "measures", "foreign", "second stage", "times", "updates", "work", "resources", "costs", "tokens"),
    *("spreads", "stages", "filters", "builds", "verdicts", "origin", "counts", "sweeps", "evidence"),
)


def _blocks(
    measures: Sequence[str],
    stages: Iterable[str],
    counts: Collection[str],
    gain_of: str = "",
    shares: Iterable[str] = (),
    foreign: Iterable[str] = (),
) -> dict[str, tuple[Figure, ...]]:
    ordered = (*(name for name in COUNTS if name in counts), *sorted(set(counts) - COUNTS.keys()))
    blocks = {
        **FIXED,
        "measures": tuple(map(_measure, measures)),
        "foreign": tuple(map(foreign_figures.figure_of_column, foreign)),
        "second stage": tuple(second_stage(measures, gain_of)),
        "stages": tuple(figure for name in stages for figure in _stage(name)),
        "filters": tuple(figure for name in shares for figure in of_selectivity(name)),
        "work": tuple(figure for name in ordered for figure in of_count(name)),
    }
    for name, applies in _KINDS.items():
        blocks[name] = tuple(figure.only(applies) for figure in blocks[name])
    return blocks


def _of_table(table: Table, measures: Sequence[str] = (), counts: Iterable[str] = ()) -> dict[str, tuple[Figure, ...]]:
    """Return the blocks of a table's rows, with all counts that rows have and some more."""
    return _blocks(
        measures or table.measures,
        sorted({name for row in table.rows for name in row.latency.stages_s}),
        {*counts, *(name for row in table.rows for name in row.counts)},
        next((found[0] for row in table.rows if (found := row.gain(table.measures))), ""),
        sorted({name for row in table.rows for name in row.latency.selectivity_s}, key=share_of),
        table.foreign,
    )


def _present(table: Table) -> dict[str, tuple[Figure, ...]]:
    """Return the blocks of a table, but for the kinds that none of its rows has."""
    absent = {name for name, applies in _KINDS.items() if not any(map(applies, table.rows))}
    return {name: block for name, block in _of_table(table).items() if name not in absent}


def table_figures(table: Table, place: Place) -> tuple[Figure, ...]:
    """Return the figures of a table's rows that are shown in a place, in the order of people."""
    blocks = _present(table)
    return tuple(
        figure
        for name in _OF_PEOPLE
        for figure in blocks.get(name, ())
        if place in figure.places
        and any(map(figure.applies, table.rows))
        and not (figure.optional and all(figure.value(row) is None for row in table.rows))
    )


def table_columns(table: Table) -> tuple[Column[Row], ...]:
    """Return the columns of a table for programs."""
    return _columns(_present(table))


def every_fixed() -> Iterator[Figure]:
    """Return the figures that do not depend on the table."""
    return itertools.chain.from_iterable(FIXED.values())


@functools.cache
def _fixed_columns() -> dict[str, Column[Row]]:
    return {column.name: column for figure in every_fixed() for column in figure.columns()}


def facts(row: Row, *names: str) -> dict[str, Value]:
    """Return some columns of a row for programs."""
    return {name: _fixed_columns()[name].get(row) for name in names}


def all_columns(measures: Sequence[str], stages: Sequence[str]) -> tuple[Column[Row], ...]:
    """Return the columns for programs that any table may have.

    Args:
        measures: names as ir_measures writes them.
        stages: names from the adapters.
    """
    return _columns(_blocks(measures, stages, COUNTS, shares=("10 %",), foreign=("mteb SciFact nDCG@10",)))


def _columns(blocks: Mapping[str, Sequence[Figure]]) -> tuple[Column[Row], ...]:
    figures = (figure for name in _OF_FILES for figure in blocks.get(name, ()) if Place.PROGRAMS in figure.places)
    return tuple(column for figure in figures for column in figure.columns())


def all_figures(table: Table, measures: Sequence[str] = ()) -> tuple[Figure, ...]:
    """Return the figures that any row may have, in the order of people; ``measures``: by default the table's."""
    blocks = _of_table(table, measures, COUNTS)
    return tuple(figure for name in _OF_PEOPLE for figure in blocks[name])


def work(row: Row) -> tuple[Figure, ...]:
    """Return the counts of work of a row, in the adapter's order."""
    return tuple(of_count(name)[0] for name in row.counts)


def untold() -> tuple[Figure, ...]:
    """Return the figures that have a paragraph of their own in an explanation of a row."""
    return tuple(each for each in every_fixed() if Place.EXPLAIN in each.places and not each.told)


def priced_by_hour() -> tuple[Figure, ...]:
    """Return the figures that the price of an instance's hour multiplies, besides the costs that a repricing ranks."""
    return tuple(each for each in every_fixed() if each.prices is Prices.HOUR and each.told != _TOLD_COST)


def priced_from(measures: Sequence[str]) -> tuple[Figure, ...]:
    """Return what a repricing shows of a row as measured: measures, and what its cost is made of."""
    return *map(_measure, measures), *(each for each in FIXED["times"] if each.alias in (LATENCY, THROUGHPUT))
