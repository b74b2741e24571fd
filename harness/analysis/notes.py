"""Notes under a table: how its numbers were made, what they leave out, which rows must not be compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from harness.analysis import query_prices
from harness.analysis.query_prices import QueryPrices
from harness.analysis.table import Overhead, Row, Table, Validity, processors
from harness.driver.records import Outcome
from harness.estimate import LATENCY_MIN_QUERIES, MIN_PROCESSES, MIN_QUERIES
from harness.evaluation.judged_runs import unjudged_share_notes
from harness.pricing import cost, token_prices
from harness.pricing.instances import TypeChoice
from harness.pricing.prices import Snapshot, StoragePrice
from harness.results.foreign import MARK
from harness.results.schema import NULL_SERVICE, NULL_SYSTEM, by_size

# The beginning of the note under a table with means over seeds.
SEEDS = "means over seeds"
# Notes that begin with one of these are on the first screen.
FOREMOST = (SEEDS, MARK)
FOREIGN_METHOD = (
    f"{MARK}: quality that others report of a system's model, by their own search: not measured here, and in no rank or"
    " score. A dash: none of its model was imported."
)
# Profiles that one note on the null system names: a longer note would be cut.
_MOST_PROFILES = 4
_MOST_PROCESSORS = 4
MEAN_METHOD = (
    "Latency mean: every timed sample counts. Its 95 % interval answers: measured again on this machine, with other "
    "such queries, in fresh processes. Two reaches are squared and added: over queries (corrected for skew, Hall 1992; "
    f"from {LATENCY_MIN_QUERIES} queries on) and over processes (Student; from {MIN_PROCESSES} on). CSV "
    "and JSON hold both. A dash: too few of either."
)
PERCENTILE_METHOD = (
    "Percentiles: the smallest latency that at least that share of all timed samples does not exceed; shown from "
    f"{MIN_QUERIES['p50']} queries (p50), {MIN_QUERIES['p95']} (p95), {MIN_QUERIES['p99']} (p99) on. "
    "CSV and JSON hold their 95 % intervals (as the mean's, with order statistics over queries) and what each is at "
    "most (LoadGen's rule, confidence 0.99)."
)
THROUGHPUT_METHOD = (
    "Throughput: offline, all queries over the summed durations of their batches; server, the highest rate of Poisson "
    "arrivals that kept the latency target and kept it again with other arrivals (median over jobs), whose latencies, "
    "from the scheduled arrival, the row shows. Never 1 / latency."
)
MEMORY_METHOD = (
    "Peak anonymous: anonymous and shared memory, no file pages. Peak cgroup: everything charged to the job, page "
    "cache included, so it may be as large as the limit."
)
COUNT_METHOD = "The adapter counts it for each query; the figure is the mean of all timed samples."
FLOP_METHOD = (
    "FLOP of a sequence of n tokens: layers x n x (24 H^2 + 4 n H) on padded lengths, without heads "
    "but those over a vocabulary, and without searches of an index; sparse and disentangled attention by their own."
)
WORK_METHOD = f"Work (pairs, tokens, GFLOP ...) depends on no machine. {COUNT_METHOD} {FLOP_METHOD}"
CEILING_METHOD = (
    "Ceiling: R@depth, the mean share of a query's relevant documents among those that the first stage gives to the "
    "second; unjudged documents count as not relevant."
)
GAIN_METHOD = (
    "Gain: the measure minus the first stage's own, at the same cutoff and with the same judgements; the interval "
    "comes from a paired randomisation test over queries."
)
HARM_METHOD = (
    "Harm: the share of judged queries whose measure is lower than the first stage's; the interval is Clopper and "
    "Pearson's."
)
FIRST_STAGE_METHOD = f"{CEILING_METHOD} {GAIN_METHOD} {HARM_METHOD}"
NULL_METHOD = "null answers at once, without a search: its latency is what harness itself adds to a query"
NULL_METHODS = {
    NULL_SYSTEM: NULL_METHOD,
    NULL_SERVICE: "null-service is a server that answers at once: its latency is what a client and the network add to a"
    " query of a service",
}
CLIENT_METHOD = (
    "A service has its profile's CPUs and memory, and is what is priced; its client has other CPUs of the machine, and"
    " its work is in the latency. The client's part is the mean latency of null-service, a server that answers at once,"
    " on the same profile: client and loopback network."
)
CPU_METHOD = (
    "CPU ms per query: the CPU time that the kernel counted for the job from just before each trial to just after it, "
    "over the trial's queries; its interval is Student's over processes. The part of harness itself is subtracted: the "
    "CPU time of a query of the null system in the same envelope, where that was measured; a service has it in its"
    " client, and so nothing is subtracted."
)
INSTRUCTIONS_METHOD = (
    "Instructions of a query: those that the job's threads executed in user mode, as the CPU counted them, between the "
    "same readings as the CPU time and by the same rule."
)
PACKAGE_METHOD = (
    "CPU J per query: the energy that the job's CPU packages took over the trials, by their own counters (RAPL), over "
    "the trials' queries. Idle draw and harness's own work and waiting are in it."
)
IDLE_METHOD = "Idle: 1 - CPU time / (length of the trials x CPUs of the priced machine)."
UPDATE_METHOD = (
    "Scenario mixed: latencies of queries and updates count from their scheduled arrival. A search for a document's own"
    " first words looks for a watched change every 10 ms, later every tenth of the time that it has taken, for 10 s."
    " Recall compares the hits after all updates with those of the index as it was built, which holds the same"
    " documents."
)

MAPPED_METHOD = "Peak mapped: file pages that the job had mapped; the kernel may take them back at any time."


def of_table(table: Table, snapshot: Snapshot, choice: TypeChoice, storage: StoragePrice | None) -> tuple[str, ...]:
    """Return all notes of a priced table, in reading order."""
    rows = table.rows
    notes = [*_overhead(table.overhead), *of_null(rows), MEAN_METHOD, PERCENTILE_METHOD]
    if any(row.scenario not in ("single_stream", "mixed") for row in rows):
        notes.append(THROUGHPUT_METHOD)
    mapped = any(row.resources.peak_mapped_bytes is not None for row in rows)
    notes.append(f"{MEMORY_METHOD} {MAPPED_METHOD}" if mapped else MEMORY_METHOD)
    notes += [f"{CPU_METHOD} {IDLE_METHOD}"] if any(row.cpu.busy_cpus is not None for row in rows) else []
    notes += [PACKAGE_METHOD] if any(row.cpu.package_j.value is not None for row in rows) else []
    notes += [WORK_METHOD] if any(row.counts for row in rows) else []
    notes += [UPDATE_METHOD] if any(row.updates for row in rows) else []
    notes += [FIRST_STAGE_METHOD] if any(row.first_stage for row in rows) else []
    notes += [*_of_cost(rows, choice), *_of_tokens(rows), *of_carbon(rows), *_of_index_cost(rows, storage)]
    market = f"{snapshot.provider} {snapshot.region}, Linux {snapshot.term}, {snapshot.as_of}"
    notes.append(f"Prices: {market} (source: {snapshot.source}).")
    return (
        *notes,
        *([FOREIGN_METHOD] if any(row.foreign for row in rows) else ()),
        *of_judgements(rows),
        *of_data(rows),
        *of_first_stages(rows),
        *of_recordings(rows),
        *of_unjudged(rows),
        *not_comparable(rows),
    )


def _of_cost(rows: Sequence[Row], choice: TypeChoice) -> Iterator[str]:
    """Yield how the cost of queries was computed, by cost model, and on which machines."""
    yield from cost.describe_models(row.scenario for row in rows)
    yield from of_metered(rows)
    if any(figure.low is not None for row in rows for figure in (row.cost.sequential, row.cost.saturated)):
        yield "A cost has the interval of its latency or throughput, scaled by the price; prices have no interval."
    if rows and all(row.scenario in ("single_stream", "mixed") for row in rows):
        yield (
            f"Cost, {cost.SATURATED.name}: not shown, no row here has a throughput; measure scenario server on a "
            "profile that is a whole instance."
        )
    if any(row.isolation.attached for row in rows):
        yield "A service that ran already is priced on the machine that its user names; harness verified none of it."
    if any(row.published_type is None and not row.isolation.attached for row in rows):
        elsewhere = (
            "Every row" if choice.cheapest else "A row measured on a known instance type is priced on it; another"
        )
        yield (
            f"{elsewhere} is priced on the cheapest instance type of the snapshot that provides the profile, burstable "
            f"and bare-metal ones left out, with preference for {choice}: its latency was measured elsewhere."
        )
    if any(row.published_type for row in rows):
        yield "A published row is priced on the instance type that its paper names."


def of_metered(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the model ``metered`` where a row has it, and the rows that it makes dearer than a busy machine does."""
    quote = next((row.cost.metered_quote for row in rows if row.cost.metered_quote is not None), None)
    if quote is None:
        return
    model = cost.METERED
    yield f"Cost, {model.name}: {model.formula}; {model.meaning} (serverless prices of {quote.date})."
    yield from dearer_by_query(query_prices.of_rows(rows))


def dearer_by_query(priced: Sequence[QueryPrices]) -> Iterator[str]:
    """Yield the systems whose queries cost more when paid one by one than on a busy machine of the same hardware."""
    dearer = [
        f"{one.row.system} on {one.row.profile} {one.metered_over_saturated:.3g} times as much"
        for one in priced
        if (one.metered_over_saturated or 0.0) > 1
    ]
    if dearer:
        yield f"Metered costs more than saturated on the same hardware: {', '.join(dearer)}."


def _of_index_cost(rows: Sequence[Row], storage: StoragePrice | None) -> Iterator[str]:
    if not any(row.cost.build_price for row in rows):
        return
    yield (
        f"Index build: {cost.BUILD_FORMULA}, on the instance type that built, else on the cheapest that provides what "
        "the build had; measured once, without an interval, at the size of this corpus."
    )
    yield from of_builds(rows)
    if storage is not None:
        yield (
            f"Index storage: {cost.STORAGE_FORMULA}, at {storage.usd_per_gib_month:g} ({storage.volume_type} of "
            f"{storage.as_of}; source: {storage.source})."
        )


def _of_tokens(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how the tokens of language models were priced."""
    found = next((row.cost.token_price for row in rows if row.cost.token_price is not None), None)
    if found is not None:
        yield (
            f"Cost, tokens: {token_prices.FORMULA}; at list prices of {found.date}, without cache or batch discount, "
            f"shown next to the instance's cost and never added to it (source: {found.source.rpartition('; ')[0]})."
        )


def of_carbon(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how the CO2e of the rows was estimated, and by which factors."""
    known = [row.carbon for row in rows if row.carbon.grams.value is not None]
    if known:
        names = list(dict.fromkeys(name for each in known for name in each.processors))
        processors = ", ".join(names) if len(names) <= _MOST_PROCESSORS else f"{len(names)} processors"
        watts = f"CPU time x watts of {processors} and " if names else ""
        cpus, gpus = any(each.cpu_measured for each in known), any(each.gpu_measured for each in known)
        parts = " and ".join([*(["CPU packages"] if cpus else []), *(["GPUs"] if gpus else [])])
        kind = (
            f"the joules of {parts} are measured, the rest is an estimate"
            if parts
            else "an estimate, not a measurement"
        )
        yield (
            f"gCO2e: {kind}, by {watts}{known[0].grams_per_kwh:.4g} g per kWh "
            f"({known[0].grid}), factors of {known[0].date}; other estimates of one machine are within the range."
        )


def of_first_stages(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows that rerank a stored ranking: their latency and cost hold no first stage."""
    unmeasured: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        if row.first_stage is not None and not row.first_stage.measured:
            unmeasured[row.first_stage.system].setdefault(row.system)
    for first, systems in unmeasured.items():
        yield (
            f"first stage not measured: {', '.join(systems)} rerank{'s' if len(systems) == 1 else ''} the stored "
            f"ranking {first}; latency and cost are the second stage's alone."
        )


def of_recordings(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows that replay recorded answers: their latency holds no time of the provider."""
    recorded = {row.system: row.counts["provider_ms"] for row in rows if "provider_ms" in row.counts}
    if recorded:
        named = ", ".join(f"{system} ({mean:,.0f} ms a query)" for system, mean in recorded.items())
        yield f"recorded answers: the provider's time, not measured here, is in no latency and no cost: {named}."


def of_builds(rows: Sequence[Row]) -> Iterator[str]:
    """Yield where index builds ran, if on different machines: their times and costs cannot be compared."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        if place := build_place(row):
            found[place].setdefault(row.system)
    if len(found) > 1:
        named = "; ".join(f"{', '.join(systems)} on {place}" for place, systems in sorted(found.items()))
        yield (
            f"Index builds ran on {len(found)} kinds of machine: do not compare their times or costs ({named}); "
            "build them on one, with one build_profile (--fresh-index)."
        )


def build_place(row: Row) -> str | None:
    """Return limits, machine and isolation of a row's index build; None: unknown."""
    limits, machine = row.index.envelope, row.index.machine
    if limits is None or row.index.build_s is None:
        return None
    has = f"{processors(limits.cpus, limits.gpus)}, {limits.memory_bytes / 2**30:.3g} GiB"
    names = () if machine is None else (machine.instance_type, machine.cpu_model, *machine.gpu_models[: limits.gpus])
    named = ", ".join(str(name) for name in names if name) or "an unknown machine, or several"
    return row.isolation.marked(f"{has} of {named}")


def _overhead(overhead: Sequence[Overhead]) -> Iterator[str]:
    """Yield the time that harness itself and a service's client add to a query, on each profile."""
    for system, method in NULL_METHODS.items():
        yield from _null_figures(system, method, [item for item in overhead if item.system == system])


def _null_figures(system: str, method: str, overhead: Sequence[Overhead]) -> Iterator[str]:
    suites = len({item.suite for item in overhead}) > 1
    origins = len({item.origin for item in overhead}) > 1
    said: list[str] = []
    doubted: list[str] = []
    for item in overhead:
        where = item.isolation.marked(item.profile)
        where += f" of {item.suite}" if suites else ""
        where += f" of {item.origin or 'no origin'}" if origins else ""
        if item.outcome is not Outcome.OK or item.latency.mean_s.value is None:
            why = item.detail or item.latency.mean_s.reason
            said.append(f"{where} not measured ({item.outcome.value}{f': {why}' if why else ''})")
            continue
        # Only the figures: the JSON report has the findings about the null system's row.
        facts = "; ".join(reason.partition("; ")[0] for reason in item.reasons)
        if item.validity is not Validity.CLEAN:
            doubted.append(f"{system} is {item.validity.value} on {where}: {facts}.")
        shown = (("mean", item.latency.mean_s), ("p50", item.latency.p50_s), ("p99", item.latency.p99_s))
        figures = ", ".join(f"{name} {figure.value * 1e6:.3g} µs" for name, figure in shown if figure.value is not None)
        said.append(f"{where} {figures}")
    if said:
        yield f"{method}; with the limits of each profile: {'; '.join(said[:_MOST_PROFILES])}."
    for start in range(_MOST_PROFILES, len(said), _MOST_PROFILES):
        yield f"{system} on more profiles: {'; '.join(said[start : start + _MOST_PROFILES])}."
    yield from doubted


def of_null(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what the latency of a null system means, where it has a row."""
    shown = {row.system for row in rows}
    yield from (f"{method}." for system, method in NULL_METHODS.items() if system in shown)


def not_comparable(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the notes on rows that must not be compared."""
    return (*_mixed(rows), *of_origins(rows))


def _mixed(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the datasets whose rows must not be compared."""
    for dataset in sorted({row.dataset for row in rows}, key=by_size):
        same = [row for row in rows if row.dataset == dataset and row.outcome is Outcome.OK]
        for what, name in (("query samples", "sample"), ("corpora", "corpus"), ("judgements", "qrels")):
            hashes = {getattr(row, f"{name}_sha256") for row in same}
            if len(hashes) > 1:
                yield (
                    f"Rows of {dataset} were measured with {len(hashes)} different {what}: do not compare them; "
                    "measure them again in one suite."
                )


def of_origins(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a note on merged rows from different machines: their times cannot be compared."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        if row.outcome is Outcome.OK and row.machine is not None:
            machine = row.machine
            parts = (f"{machine.host_cpus} CPUs of {machine.cpu_model}", machine.instance_type, *machine.gpu_models)
            found[row.origin or "no origin"][", ".join(str(part) for part in parts if part)] = None
    if len(found) > 1 and len({frozenset(machines) for machines in found.values()}) > 1:
        named = "; ".join(f"{origin}: {' and '.join(machines)}" for origin, machines in sorted(found.items()))
        yield (
            f"Rows of {len(found)} origins were measured on different machines ({named}): their times, and costs made "
            "of them, differ by machine as well as by system; their measures do not."
        )


def of_judgements(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the rows that were scored by other qrels than the stored ones."""
    for dataset, said in sorted({(row.dataset, row.judged.rejudged) for row in rows if row.judged.rejudged}):
        yield f"{dataset} is judged {', '.join(said)}."


def of_data(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the faults of each dataset, as stored with its jobs."""
    found = {row.dataset: dict[str, None]() for row in rows}
    for row in rows:
        found[row.dataset] |= dict.fromkeys(fault.text for fault in row.data_faults)
    for dataset, texts in sorted(found.items()):
        yield from (f"{dataset}: {text}." for text in texts)


def of_unjudged(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the systems with unjudged hits, which count as not relevant."""
    found: dict[tuple[str, int], dict[str, set[float]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        if row.judged.unjudged_share is not None and row.judged.unjudged_depth is not None:
            found[row.dataset, row.judged.unjudged_depth][row.system].add(row.judged.unjudged_share)
    for (dataset, depth), systems in sorted(found.items()):
        yield from unjudged_share_notes(dataset, depth, systems)
