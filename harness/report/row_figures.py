"""The registry: one entry for each figure of a row, in blocks.

To add a figure, add its entry to a block of ``FIXED``; the entry's ``read`` is the only place that reads the row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness import stats
from harness.analysis import notes, row_pricing
from harness.analysis.table import OTHER, Row, Table, Timing, Validity
from harness.pricing import cost, token_prices
from harness.report.columns import STAGE, Column, Kind, optional
from harness.report.document import MIB, MISSING, Escape, Footnotes, digits, number
from harness.report.figures import (
    DATA,
    EVERYWHERE,
    FIRST,
    FOREMOST,
    Figure,
    Place,
    Prices,
    Screen,
)
from harness.report.hardware import other_machine_mark, size
from harness.stats import Estimate

_NONE = Estimate(None)
# Figures that would crowd the wide table.
_DETAIL = frozenset({Place.PROGRAMS, Place.PAGE, Place.ON_REQUEST})
_LIKE = "95 % interval, for similar queries"
# Figures that other modules ask for, by their short names.
LATENCY, THROUGHPUT, COST, BUILD = "latency", "throughput", "cost", "build"
COST_HEADER = "US$/1M queries"


def _fact(
    name: str, meaning: str, read: str | Callable[[Row], Any] = "", kind: Kind = Kind.TEXT, unit: str = ""
) -> Figure:
    """Return a fact for programs, read from the attribute of its name by default."""
    get = operator.attrgetter(read or name) if isinstance(read, str) else read
    return Figure(name=name, meaning=meaning, kind=kind, unit=unit, read=get, places=DATA)


def _number(name: str, unit: str, meaning: str, read: str | Callable[[Row], Any] = "") -> Figure:
    return _fact(name, meaning, read, Kind.NUMBER, unit)


def _count(name: str, unit: str, meaning: str, read: str | Callable[[Row], Any] = "") -> Figure:
    return _fact(name, meaning, read, Kind.COUNT, unit)


def _scaled(field: str, scale: float) -> Callable[[Row], float | None]:
    read = operator.attrgetter(field)
    return lambda row: None if (value := read(row)) is None else value * scale


def _of(field: str, key: str, scale: float = 1.0) -> Callable[[Row], Estimate]:
    """Return a function that reads one estimate of a dictionary, such as that of a measure."""
    read = operator.attrgetter(field)
    return lambda row: read(row).get(key, _NONE).map(lambda value: value * scale)


def _latency(name: str, meaning: str, label: str, **more: Any) -> Figure:
    read = operator.attrgetter(f"{label}_s" if label != "latency mean" else "latency_mean_s")
    return Figure(
        **{
            "name": name,
            "unit": "ms",
            "meaning": f"latency: {meaning} timed queries",
            "interval": "95 % interval, for other queries and fresh processes",
            "label": label,
            "read": lambda row: read(row).map(lambda seconds: seconds * 1e3),
            "method": notes.PERCENTILE_METHOD,
            "told": "Latency",
            **more,
        }
    )


def _memory(name: str, meaning: str, label: str, field: str, **more: Any) -> Figure:
    def cell(row: Row) -> str:
        size_bytes = getattr(row, field)
        return MISSING if size_bytes is None else size(size_bytes)

    return Figure(
        **{
            "name": name,
            "unit": "MiB",
            "meaning": meaning,
            "label": label,
            "read": _scaled(field, 1 / MIB),
            "method": notes.MEMORY_METHOD,
            "told": "Memory",
            **more,
            "screen": Screen(cell=cell, **more.get("screen", {})),
        }
    )


def _measure(name: str) -> Figure:
    return Figure(
        name=name,
        meaning="effectiveness over the judged queries of the sample, computed by ir_measures (a fraction)",
        interval=_LIKE,
        read=_of("measures", name),
        decimals=3,
        header=name,
        label=name,
        higher=True,
        method="ir_measures computes it for each judged query of the first trial's run; the number is their mean. Its "
        f"95 % interval is a bootstrap over queries, from {stats.INTERVAL_MIN_QUERIES} on.",
        told="Quality",
        screen=Screen(header=name, heading=lambda cell: f"{name} {cell}"),
        places=FIRST,
    )


# Counts of work by the names that adapters give: column, unit, meaning, factor to that unit.  Each is the mean of a
# query, which no machine changes.
COUNTS: Mapping[str, tuple[str, str, str, float]] = {
    "pairs": ("pairs", "pairs", "query-document pairs scored", 1),
    "windows": ("windows", "sequences", "sequences fed to the model: a long document is cut into several", 1),
    "tokens": ("tokens", "tokens", "tokens fed to the model, without padding", 1),
    "padded_tokens": ("padded_tokens", "tokens", "tokens computed, with padding", 1),
    "calls": ("calls", "calls", "calls of the model", 1),
    "prompt_tokens": ("prompt_tokens", "tokens", "tokens of the prompts to a language model", 1),
    "completion_tokens": ("completion_tokens", "tokens", "tokens that a language model wrote", 1),
    "provider_ms": (
        "provider_ms",
        "ms",
        "time of the provider of recorded answers, not measured here and in no latency",
        1,
    ),
    "flop": (
        "GFLOP",
        "GFLOP",
        "arithmetic of the models by formula, on padded lengths, without heads but those over a vocabulary; searches of"
        " an index are not counted",
        1e-9,
    ),
    "parameters": ("parameters", "parameters", "parameters of the models that a query runs through", 1),
}
_FIRST_COUNTS = {"tokens": 4, "pairs": 5}
_PADDING = Figure(
    name="padding_share",
    unit="fraction",
    meaning="share of the computed tokens that only fill up",
    read=lambda row: row.padding_share,
    header="padding, %",
    percent=True,
    applies=lambda row: row.padding_share is not None,
    method="1 - tokens / padded_tokens.",
    told="Work",
)


def _work(name: str) -> tuple[Figure, ...]:
    """Return the figure of a count; that of the padded tokens has the share of padding beside it."""
    column, unit, meaning, scale = COUNTS.get(name, (f"count_{name}", "", "a count of the adapter's own", 1))
    label = column.replace("_", " ")
    header, shown = ("M parameters", 1e-6) if name == "parameters" else (label, scale)
    count = Figure(
        name=column,
        unit=unit,
        meaning=f"{meaning}; mean of a query, the same on every machine",
        read=lambda row: None if (value := row.counts.get(name)) is None else value * scale,
        label=label,
        header=label,
        optional=True,
        applies=lambda row: name in row.counts,
        method=f"{notes.COUNT_METHOD} {notes.FLOP_METHOD}" if name == "flop" else notes.COUNT_METHOD,
        told="Work",
        screen=Screen(
            header=header,
            cell=lambda row: number(row.counts.get(name), shown),
            heading=lambda cell: f"{cell} {header}",
            dropped=_FIRST_COUNTS.get(name, 0),
        ),
        places=FIRST if name in _FIRST_COUNTS else EVERYWHERE,
    )
    return (count, _PADDING) if name == "padded_tokens" else (count,)


def _first_stage_cell(row: Row, footnotes: Footnotes) -> str:
    stage = row.first_stage
    if stage is None:
        return MISSING
    note = None if stage.measured else f"first stage not measured: {stage.system} is a stored ranking"
    return f"{footnotes.escape(stage.system)}, depth {stage.depth}{footnotes.mark(note)}"


def _second_stage(measures: Sequence[str], of: str) -> Iterator[Figure]:
    """Yield what a first stage leaves to find, and gain and harm by the first measure that has them."""

    def of_gain(place: int) -> Callable[[Row], Estimate]:
        return lambda row: _NONE if (found := row.gain(measures)) is None else (found[1], found[2])[place]

    def alone(name: str) -> Callable[[Row], float | None]:
        return lambda row: row.first_stage.measures.get(name, _NONE).value if row.first_stage else None

    def harm(row: Row) -> str:
        value = of_gain(1)(row).value
        return MISSING if value is None else f"{value * 100:.0f} %"

    def ceiling(row: Row) -> Estimate:
        return row.first_stage.ceiling if row.first_stage else _NONE

    yield Figure(
        name="first_stage",
        kind=Kind.TEXT,
        meaning="system whose ranking the second stage was given",
        read=optional("first_stage", "system"),
        cell=_first_stage_cell,
        places=DATA | {Place.WIDE},
    )
    yield _fact(
        "first_stage_measured",
        "no: a stored ranking, so latency and cost are the second stage's alone",
        lambda row: row.first_stage and ("yes" if row.first_stage.measured else "no"),
    )
    yield _count("depth", "hits", "hits that the first stage was asked for", optional("first_stage", "depth"))
    told: dict[str, Any] = {"unit": "fraction", "bounds": "95 %", "optional": True, "told": "First stage"}
    yield Figure(
        name="ceiling",
        meaning="R@depth of the first stage: no second stage has a better recall (a fraction)",
        interval=_LIKE,
        read=ceiling,
        header="ceiling: R@depth (95 %)",
        decimals=3,
        higher=True,
        method=notes.CEILING_METHOD,
        screen=Screen(header="R@depth", cell=lambda row: digits(ceiling(row).value, ".3f")),
        **told,
    )
    yield Figure(
        name="gain",
        meaning="first measure less that of the first stage alone, query by query (a fraction)",
        interval="paired 95 % interval",
        read=of_gain(0),
        header=f"gain, points {of} (95 %)",
        decimals=1,
        percent=True,
        higher=True,
        method=notes.GAIN_METHOD,
        screen=Screen(header="gain, points (95 %)"),
        **told,
    )
    yield Figure(
        name="harm",
        meaning="share of judged queries that the second stage makes worse",
        interval=_LIKE,
        read=of_gain(1),
        header="queries made worse (95 %), %",
        decimals=1,
        percent=True,
        method=notes.HARM_METHOD,
        screen=Screen(header="made worse", cell=harm),
        **told,
    )
    for name in measures:
        yield _number(f"first_stage_{name}", "", "effectiveness of the first stage alone (a fraction)", alone(name))


def _timings(name: str, label: str, meaning: str, get: Callable[[Row], Timing | None]) -> tuple[Figure, ...]:
    """Return the mean and the median of a stage or of service time."""

    def ms(field: str) -> Callable[[Row], float | None]:
        read = operator.attrgetter(f"{field}.value")
        return lambda row: None if (t := get(row)) is None or (s := read(t)) is None else s * 1e3

    return tuple(
        Figure(
            name=f"{name}_{short}_ms",
            unit="ms",
            meaning=f"{meaning}: {word}",
            label=f"{label}: {word}",
            read=ms(field),
            optional=True,
            applies=lambda row: get(row) is not None,
            places=_DETAIL,
        )
        for short, word, field in (("mean", "mean", "mean_s"), ("p50", "median", "p50_s"))
    )


def _stage(name: str) -> tuple[Figure, ...]:
    meaning = "time that no stage counts" if name.rpartition(".")[2] == OTHER else STAGE
    return _timings(f"stage_{name}", f"stage {name}", meaning, lambda row: row.stages_s.get(name))


def _interval_parts(name: str, key: str) -> tuple[Figure, ...]:
    """Return the two intervals behind a latency's interval."""
    return tuple(
        Figure(
            name=f"{name}_{part}",
            unit="ms",
            meaning=f"latency: {interval}",
            interval=f"95 % interval: {interval}",
            ends_alone=True,
            read=_of(f"{part}_s", key, 1e3),
            places=DATA,
        )
        for part, interval in (
            ("like_queries", "other queries, same processes"),
            ("these_queries", "same queries, other processes"),
        )
    )


def _at_most(name: str, share: str) -> Figure:
    """Return LoadGen's upper bound of a percentile (confidence 0.99)."""
    return Figure(
        name=f"{name}_at_most_ms",
        unit="ms",
        meaning=f"latency: {share} of similar queries take at most this (LoadGen's rule, confidence 0.99)",
        label=f"{name} at most (confidence 0.99)",
        read=_of("at_most_s", name, 1e3),
        optional=True,
        places=_DETAIL,
    )


def _deviation(name: str, cause: str) -> Figure:
    """Return a variance component's standard deviation."""
    return Figure(
        name=f"sd_{name}_ms",
        unit="ms",
        meaning=f"standard deviation of latency {cause}",
        label=f"standard deviation by {name}",
        read=_of("spread_s", name, 1e3),
        optional=True,
        places=_DETAIL,
    )


def _is_open(row: Row) -> bool:
    """Return whether queries do not wait for one another, so that a throughput was measured."""
    return row.scenario != "single_stream"


def _warmup(row: Row, _: Escape) -> str:
    return "" if row.one_pass_warmup is None else f" after {row.one_pass_warmup} warm-up queries"


def _token_price(row: Row, escape: Escape) -> str:
    price = row.token_price
    return "" if price is None else " " + escape(f"({price.model}, {price.date})")


def cost_cell(row: Row) -> str:
    """Return a row's cost, with a mark where another machine prices it."""
    mark = "" if row.cost.value is None else other_machine_mark(row, row.price)
    return number(row.cost.value) + mark


def _build_cell(row: Row) -> str:
    usd = row.usd_build_per_million_documents.value
    return MISSING if usd is None else number(usd) + doubt_mark(row.build_validity)


def doubt_mark(validity: Validity) -> str:
    """Return the mark of a figure that is noisy or invalid."""
    return {Validity.NOISY: " ~", Validity.INVALID: " !"}.get(validity, "")


_COST_INTERVAL = "interval, from the latency or throughput behind it"
_COST = "Cost"
_SEQUENTIAL, _SATURATED = (f"{model.formula}; {model.meaning}." for model in (cost.SEQUENTIAL, cost.SATURATED))
# Blocks whose figures do not depend on the table.
FIXED: dict[str, tuple[Figure, ...]] = {
    "names": (
        _fact("system", "name of the system"),
        _fact("hardware_profile", "limits of CPUs, memory and GPUs", "profile"),
        _fact("instance_type", "instance type that prices the row", optional("price", "instance_type")),
        _number("price_usd_per_hour", "US$/hour", "price of that type", optional("price", "usd_per_hour")),
        _fact("price_date", "date of that price", optional("price", "date"), Kind.DATE),
    ),
    "times": (
        _latency(
            "latency_mean_ms",
            "mean over all",
            "latency mean",
            bounds="95 %",
            method=notes.MEAN_METHOD,
            short=LATENCY,
            remark=_warmup,
            screen=Screen(header="latency ms (95 %)"),
            places=FOREMOST,
        ),
        _latency("p50_ms", "median of the", "p50"),
        _latency(
            "p95_ms",
            "95th percentile of the",
            "p95",
            short="p95",
            screen=Screen(header="p95", dropped=3),
            places=FOREMOST,
        ),
        _latency("p99_ms", "99th percentile of the", "p99"),
        Figure(
            name="throughput_qps",
            short=THROUGHPUT,
            unit="queries/s",
            meaning="queries answered per second; scenarios offline and server only",
            interval="interval over repeated measurements",
            label="throughput",
            bounds="interval",
            read=lambda row: row.throughput_qps,
            higher=True,
            optional=True,
            applies=_is_open,
            method=notes.THROUGHPUT_METHOD,
            told="Throughput",
            screen=Screen(header="queries/s", dropped=7),
            places=FOREMOST,
        ),
    ),
    "resources": (
        _memory(
            "peak_anon_mib",
            "peak of anonymous and shared memory, without file pages",
            "peak anonymous",
            "peak_anon_bytes",
            short="memory",
            screen={"header": "memory", "dropped": 6},
            places=FOREMOST,
        ),
        _memory(
            "peak_mapped_mib",
            "peak of mapped file pages",
            "peak mapped",
            "peak_mapped_bytes",
            optional=True,
            method=notes.MAPPED_METHOD,
        ),
        _memory(
            "peak_cgroup_mib",
            "peak of the memory charged to the job, with page cache",
            "peak cgroup",
            "peak_cgroup_bytes",
        ),
        _memory(
            "peak_gpu_mib",
            "peak of GPU memory, all GPUs together",
            "peak GPU",
            "peak_gpu_bytes",
            short="gpu_memory",
            applies=lambda row: bool(row.gpus) or row.peak_gpu_bytes is not None,
            screen={"header": "GPU memory", "dropped": 1},
            places=FIRST,
        ),
        Figure(
            name="gpu_energy_j",
            unit="J",
            meaning="energy of the GPUs during the trials of all jobs, with idle draw",
            label="energy of the GPUs",
            read=lambda row: row.gpu_energy_j,
            optional=True,
            places=_DETAIL,
        ),
        _memory(
            "index_mib",
            "size of the index",
            "index",
            "index_bytes",
            short="index",
            method="",
            told="Index",
            screen={"header": "index", "heading": lambda cell: f"index {cell}", "dropped": 2},
            places=FOREMOST,
        ),
        Figure(
            name="load_s",
            unit="s",
            meaning="time from the start to the first query; not part of any latency",
            label="load",
            read=lambda row: row.load_s,
            places=EVERYWHERE - {Place.EXPLAIN},
        ),
    ),
    "costs": (
        Figure(
            name=COST,
            unit="US$",
            meaning="cost of a million queries by the model of the row's scenario",
            label="US$ per million queries",
            read=lambda row: row.cost,
            bounds="interval",
            optional=True,
            prices=Prices.HOUR,
            method=f"{_SEQUENTIAL} In scenarios offline and server: {_SATURATED}",
            told=_COST,
            screen=Screen(header=COST_HEADER, cell=cost_cell),
            places=FOREMOST - {Place.PROGRAMS, Place.WIDE},
        ),
        Figure(
            name="usd_per_million_queries",
            unit="US$",
            meaning="cost of a million queries, sequential",
            interval=_COST_INTERVAL,
            header="US$ per million queries (interval), sequential",
            bounds="interval",
            read=lambda row: row.usd_per_million,
            prices=Prices.HOUR,
            noted=False,  # notes on a latency's interval are at the latency
            method=_SEQUENTIAL,
            told=_COST,
            places=DATA | {Place.WIDE},
        ),
        Figure(
            name="usd_per_million_queries_saturated",
            unit="US$",
            meaning="cost of a million queries, saturated",
            interval=_COST_INTERVAL,
            header="US$ per million queries (interval), saturated",
            bounds="interval",
            read=lambda row: row.usd_per_million_saturated,
            prices=Prices.HOUR,
            applies=_is_open,
            method=_SATURATED,
            told=_COST,
            places=DATA | {Place.WIDE},
        ),
    ),
    "tokens": (
        _fact("token_model", "language model whose token prices the system names"),
        _number(
            "token_usd_in", "US$", "price of a million prompt tokens", optional("token_price", "usd_per_million_in")
        ),
        _number(
            "token_usd_out", "US$", "that of a million completed ones", optional("token_price", "usd_per_million_out")
        ),
        _fact("token_price_date", "date of those prices", optional("token_price", "date"), Kind.DATE),
        Figure(
            name="usd_tokens_per_million_queries",
            short="token_price",
            unit="US$",
            meaning="tokens of a million queries at list price, beside the cost of the instance",
            label="tokens of a million queries",
            header="US$ per million queries, tokens",
            read=lambda row: row.usd_tokens_per_million,
            optional=True,
            prices=Prices.OTHER,
            remark=_token_price,
            method=f"{token_prices.FORMULA}; at list prices, without cache or batch discount.",
            told="Token prices",
            screen=Screen(header="tokens US$/1M", dropped=8),
            places=FIRST,
        ),
    ),
    "verdicts": (
        _fact("outcome", "how the job ended: ok, oom, timeout, crash ...", "outcome.value"),
        _fact("validity", "validity of the figures: clean, noisy, invalid, unknown", "validity.value"),
        _fact(
            "isolation",
            "what enforced the limits: container, process, fake; published: not measured here",
            "isolation.value",
        ),
        _fact("suite", "suite of the cell"),
    ),
    "origin": (_fact("origin", "origin, in merged results"),),
    "counts": (
        _fact("dataset", "dataset: corpus, queries and judgements"),
        _fact("scenario", "arrival of queries: single_stream, offline, server"),
        _count("queries", "queries", "timed queries, each once per trial"),
        _count("trials", "trials", "passes over the queries, in all jobs together"),
        _count("queries_judged", "queries", "judged queries, which the measures are over"),
        _number("unjudged_share", "fraction", "share of unjudged documents among the first hits"),
        _count("unjudged_depth", "hits", "number of first hits for unjudged_share"),
        _fact("rejudged", "judgements, where not the stored ones", lambda row: "; ".join(row.rejudged) or None),
        _count("jobs", "jobs", "fresh processes pooled in the row"),
    ),
    "spreads": (
        *_interval_parts("latency_mean_ms", "mean"),
        *_interval_parts("p50_ms", "p50"),
        *_interval_parts("p95_ms", "p95"),
        *_interval_parts("p99_ms", "p99"),
        _at_most("p50", "half"),
        _at_most("p95", "95 per cent"),
        _at_most("p99", "99 per cent"),
        _number(
            "trial_spread_ms", "ms", "standard deviation of the trials' mean latencies", _scaled("trial_spread_s", 1e3)
        ),
        _deviation("query", "between queries"),
        _deviation("trial", "between the trials of a job"),
        _deviation("job", "between jobs, which are fresh processes"),
        _deviation("residual", "not explained by query, trial or job"),
        *_timings("service", "service time", "service time of scenario server", lambda row: row.service_s),
    ),
    "sweeps": (
        _fact("swept_system", "swept system or curve, of a point of one", optional("sweep", "system")),
        _fact(
            "swept_params", "parameters of that point that differ there, with their values", optional("sweep", "text")
        ),
    ),
    "builds": (
        Figure(
            name="first_query_s",
            unit="s",
            meaning="latency of the first query after loading",
            label="first query",
            read=lambda row: row.first_query_s,
            optional=True,
            places=_DETAIL,
        ),
        _number("one_pass_warmup", "queries", "warm-up queries, where warm-up was one pass"),
        _number("index_build_s", "s", "time to build the index"),
        _fact("index_build_profile", "limits during the build", optional("build_envelope", "name")),
        _fact(
            "build_validity",
            "validity of that time: clean, noisy, invalid, unknown",
            lambda row: None if row.index_build_s is None else row.build_validity.value,
        ),
        _fact(
            "build_findings",
            "reasons to doubt that time, and remarks",
            lambda row: "; ".join(finding.text for finding in row.build_findings) or None,
        ),
        _fact(
            "build_measured_type", "instance type of the machine that built", optional("build_machine", "instance_type")
        ),
        _fact("build_measured_cpu", "CPU model of that machine", optional("build_machine", "cpu_model")),
        _count("corpus_documents", "documents", "documents in the index"),
        _fact("build_instance_type", "instance type that prices the build", optional("build_price", "instance_type")),
        _number("build_price_usd_per_hour", "US$/hour", "price of that type", optional("build_price", "usd_per_hour")),
        Figure(
            name="usd_build_per_million_documents",
            short=BUILD,
            unit="US$",
            meaning="cost of indexing a million documents",
            read=lambda row: row.usd_build_per_million_documents.value,
            optional=True,
            prices=Prices.OTHER,
            method=f"{cost.BUILD_FORMULA}.",
            told="Index cost",
            screen=Screen(header="build US$/1M docs", cell=_build_cell),
            places=DATA | {Place.ON_REQUEST},
        ),
        Figure(
            name="usd_storage_per_month",
            unit="US$/month",
            meaning="cost of storing the index",
            read=lambda row: row.usd_storage_per_month.value,
            prices=Prices.OTHER,
            method=f"{cost.STORAGE_FORMULA}.",
            places=DATA,
        ),
        _fact("price_term", "price term: on-demand, reserved-1y, reserved-3y, spot", optional("price", "term")),
        _fact("published_type", "published rows: instance type in the paper"),
        _number("memory_limit_mib", "MiB", "limit of the job's memory", _scaled("memory_limit_bytes", 1 / MIB)),
        _number(
            "profile_memory_mib",
            "MiB",
            "memory that the profile asks for; the limit is less on a whole machine",
            _scaled("memory_bytes", 1 / MIB),
        ),
        _fact(
            "price_basis",
            "why that type prices the row: published, measured (it measured the row), substitute, cheapest",
            row_pricing.basis,
        ),
        _fact(
            "price_substitutes",
            "type without a price at that date, which instance_type replaces",
            optional("price", "substitutes"),
        ),
    ),
    "evidence": (
        _fact("instance_architecture", "architecture of the instance type", optional("price", "architecture")),
        _fact(
            "measured_architecture", "architecture of the machine that measured", optional("machine", "architecture")
        ),
        _fact("measured_cpu", "CPU model of the machine that measured", optional("machine", "cpu_model")),
        _fact("started_at", "start of the job", kind=Kind.TIME),
        _fact("key", "key of the job whose run is judged (a folder's name)"),
        _fact("detail", "reason for an outcome other than ok"),
        _fact("backend", "inference backend that encoded the queries"),
        _fact("document_backend", "inference backend that the system names for documents"),
        _fact("stand_in", "checkpoint, where it is not the published one"),
        _fact("pinned_at_first_use", "model files that the run pinned, as no file did before, and their commits"),
        _fact("notes", "reasons for doubt, and other notes", lambda row: "; ".join(row.notes) or None),
    ),
}
# Blocks that only some kinds of rows have.
_KINDS: dict[str, Callable[[Row], bool]] = {
    "second stage": lambda row: row.first_stage is not None,
    "tokens": lambda row: row.token_model is not None,
    "origin": lambda row: row.origin is not None,
    "sweeps": lambda row: row.sweep is not None,
}
# The order of files, which stays, and that of people, who read quality before its price.
_OF_FILES = (
    *("names", "measures", "times", "resources", "costs", "verdicts", "origin", "counts", "spreads", "stages"),
    *("work", "second stage", "tokens", "sweeps", "builds", "evidence"),
)
_OF_PEOPLE = (
    *("names", "measures", "second stage", "times", "work", "resources", "costs", "tokens", "spreads", "stages"),
    *("builds", "verdicts", "origin", "counts", "sweeps", "evidence"),
)


def _blocks(
    measures: Sequence[str], stages: Iterable[str], counts: Collection[str], gain_of: str = ""
) -> dict[str, tuple[Figure, ...]]:
    ordered = (*(name for name in COUNTS if name in counts), *sorted(set(counts) - COUNTS.keys()))
    blocks = {
        **FIXED,
        "measures": tuple(map(_measure, measures)),
        "second stage": tuple(_second_stage(measures, gain_of)),
        "stages": tuple(figure for name in stages for figure in _stage(name)),
        "work": tuple(figure for name in ordered for figure in _work(name)),
    }
    for name, applies in _KINDS.items():
        blocks[name] = tuple(figure.only(applies) for figure in blocks[name])
    return blocks


def _of_table(table: Table) -> dict[str, tuple[Figure, ...]]:
    blocks = _blocks(
        table.measures,
        sorted({name for row in table.rows for name in row.stages_s}),
        {name for row in table.rows for name in row.counts},
        next((found[0] for row in table.rows if (found := row.gain(table.measures))), ""),
    )
    kinds = {name for name, applies in _KINDS.items() if any(map(applies, table.rows))}
    return {name: block for name, block in blocks.items() if name in kinds or name not in _KINDS}


def table_figures(table: Table, place: Place) -> tuple[Figure, ...]:
    """Return the figures of a table's rows that are shown in a place, in the order of people."""
    blocks = _of_table(table)
    every = (figure for name in _OF_PEOPLE for figure in blocks.get(name, ()) if place in figure.places)
    return tuple(
        figure
        for figure in every
        if any(map(figure.applies, table.rows))
        and not (figure.optional and all(figure.value(row) is None for row in table.rows))
    )


def table_columns(table: Table) -> tuple[Column[Row], ...]:
    """Return the columns of a table for programs."""
    return _columns(_of_table(table))


def all_columns(measures: Sequence[str], stages: Sequence[str]) -> tuple[Column[Row], ...]:
    """Return the columns for programs that any table may have.

    Args:
        measures: names as ir_measures writes them.
        stages: names from the adapters.
    """
    return _columns(_blocks(measures, stages, COUNTS))


def _columns(blocks: Mapping[str, Sequence[Figure]]) -> tuple[Column[Row], ...]:
    figures = (figure for name in _OF_FILES for figure in blocks.get(name, ()) if Place.PROGRAMS in figure.places)
    return tuple(column for figure in figures for column in figure.columns())


def all_figures(table: Table, measures: Sequence[str] = ()) -> tuple[Figure, ...]:
    """Return the figures that any row may have, in the order of people; ``measures``: by default the table's."""
    present = _of_table(table)
    blocks = {**_blocks(measures or table.measures, (), COUNTS), **{"stages": present["stages"]}}
    own = {figure.name for figure in blocks["work"]}
    blocks["work"] += tuple(figure for figure in present["work"] if figure.name not in own)
    return tuple(figure for name in _OF_PEOPLE for figure in blocks[name])


def work(row: Row) -> tuple[Figure, ...]:
    """Return the counts of work of a row, in the adapter's order."""
    return tuple(_work(name)[0] for name in row.counts)


def untold() -> tuple[Figure, ...]:
    """Return the figures that have a paragraph of their own in an explanation of a row."""
    return tuple(each for block in FIXED.values() for each in block if Place.EXPLAIN in each.places and not each.told)


def priced_by_hour() -> tuple[Figure, ...]:
    """Return the figures that the price of an instance's hour multiplies, besides the costs that a repricing ranks."""
    every = (figure for block in FIXED.values() for figure in block)
    return tuple(figure for figure in every if figure.prices is Prices.HOUR and figure.told != _COST)


def priced_from(measures: Sequence[str]) -> tuple[Figure, ...]:
    """Return what a repricing shows of a row as measured: measures, and what its cost is made of."""
    return *map(_measure, measures), *(each for each in FIXED["times"] if each.alias in (LATENCY, THROUGHPUT))
