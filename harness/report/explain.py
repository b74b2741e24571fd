"""Texts on how a number was made: of a row, of a column, of a finding's cause.

``harness explain`` prints these texts, and the page's evidence shows them.  The page has prices of many dates, so it
fills in the templates of a cost itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from harness.analysis import bills, causes, notes, row_carbon, row_pricing
from harness.analysis.axes import cell_of
from harness.analysis.comparison import called
from harness.analysis.table import Cause, Finding, FirstStage, Price, Row, Table, Validity
from harness.analysis.update_records import UpdateFigures
from harness.driver.records import Outcome
from harness.errors import counted
from harness.estimate import Estimate
from harness.pricing import bill, carbon, cost
from harness.pricing.bill import Traffic
from harness.pricing.serverless import ServerlessQuote
from harness.report import row_figures, summary
from harness.report.columns import Column
from harness.report.document import bounded, number
from harness.report.figures import Figure
from harness.report.hardware import hardware
from harness.results import pin_lock
from harness.results.schema import matches

# A title and what it says.
Paragraph = tuple[str, str]
COST, INDEX_COST, STORED_JOBS = "Cost", "Index cost", "Stored jobs"
# The page has the same templates; figures are filled in as texts.
_USD = "US$ {usd} per million queries = "
SEQUENTIAL = _USD + "{mean_s} s x US$ {price} / 3600 x 1,000,000: " + cost.SEQUENTIAL.meaning + "."
SATURATED = _USD + "US$ {price} / ({rate} queries/s x 3600) x 1,000,000: " + cost.SATURATED.meaning + "."
MACHINE = "{type} ({architecture}, {vcpus} vCPU, {memory} GiB) costs US$ {price} an hour, {term} in {region} on {date}."
NO_COST = "There is no cost: {reason}."
BILL = "Monthly bill"
NO_BILL = "There is no bill: {reason}."
# Sentences of a bill's arithmetic, in their order.
BILL_PARTS = {
    "rate": f"{{queries}} queries / {bill.SECONDS:,} s x peak {{peak}} = {{rate}} queries/s in the busiest hour.",
    "single": "One machine answers 1 / {mean_s} s = {capacity} a second, one after the other.",
    "loaded": "One machine answers {capacity} a second under load.",
    "machines": "{rate} / {capacity} = {needed}, rounded up: {machines} x {type}.",
    "fewest": "{rate} / {capacity} = {needed}, rounded up, and at least {fewest}: {machines} x {type}.",
    "search": f"Search: {{machines}} x US$ {{price}} x {bill.HOURS} h = US$ {{search}}.",
    "tokens": "Tokens: {queries} / 1,000,000 x US$ {tokens} = US$ {usd}.",
    "larger": "Builds and storage count {times} times, for {documents} documents in place of {measured}.",
    "builds": "Builds: {many} x US$ {build} = US$ {usd}.",
    "changes": "Changed documents: {many} x US$ {build} = US$ {usd}.",
    "storage": "Storage: {machines} x US$ {index} = US$ {usd}.",
    "unknown": "The cost of {part} is not known; the sum leaves it out.",
    "sum": "The sum is US$ {total} a month; / {queries} x 1,000,000 = US$ {per_million} per million queries.",
}


def row_paragraphs(row: Row, traffic: Traffic = bill.USUAL) -> Iterator[Paragraph]:
    """Yield how each number of a row was made, then what to doubt and what to do; a bill is at this traffic."""
    if row.outcome is not Outcome.OK:
        yield "Outcome", f"{_sentence(summary.failure(row))} This row has no numbers: {row.detail or 'no detail'}."
    else:
        yield "Latency", _latency(row)
        if row.throughput_qps.value is not None:
            yield "Throughput", f"{bounded(row.throughput_qps)} queries/s. {notes.THROUGHPUT_METHOD}"
        if row.updates is not None:
            yield "Updates", _updates(row.updates)
        if row.measures:
            yield "Quality", _quality(row)
        if row.foreign:
            yield (
                "Quality by others",
                "; ".join(f"{name} {item.value:.4f}: {item.reason}" for name, item in row.foreign.items()),
            )
        if row.first_stage is not None:
            yield "First stage", _first_stage(row.first_stage)
        if row.counts:
            yield "Work", _work(row)
        yield from _costs(row, traffic)
        yield from _resources(row)
        if row.index.size_bytes is not None:
            yield from _index(row)
        yield from _other_figures(row)
    yield from _system(row)
    yield "Measured on", _machine(row)
    yield "Trust", _trust(row)
    for note in row.own_notes if row.isolation.published else ():
        yield "Published", _sentence(note)
    said: set[Cause] = set()
    for finding in row.findings:
        yield _mark(finding), _finding(finding, with_effect=finding.cause not in said)
        said.add(finding.cause)
    if row.keys:
        yield "Job" if row.isolation.of_passport else STORED_JOBS, ", ".join(row.keys)


def _other_figures(row: Row) -> Iterator[Paragraph]:
    """Yield the figures that no other paragraph tells."""
    for figure in row_figures.untold():
        item = figure.estimate(row)
        if figure.applies(row) and not (figure.optional and item.value is None):
            known = f"{figure.written(item)} {figure.unit}".rstrip() if item.value is not None else str(item.reason)
            yield figure.title, f"{known}: {_sentence(figure.meaning)} {figure.method}".rstrip()


def _updates(figures: UpdateFigures) -> str:
    """Say what inserts and deletes took, when searches saw them, and what they left behind."""
    parts = [
        f"{number(figures.query_qps)} queries and {number(figures.update_qps)} updates a second were answered",
        f"without updates a query took {bounded(figures.idle_mean_s, 1e3)} ms",
    ]
    for what, times, seen in (
        ("insert", figures.insert, figures.found),
        ("delete", figures.delete, figures.gone),
    ):
        parts.append(
            f"the median {what} took {bounded(times.p50_s, 1e3)} ms, and the median time until a search saw it was"
            f" {bounded(seen.p50_s, 1e3)} ms, of {seen.count:,} that were looked for ({seen.missing:,} not seen)"
        )
    parts.append(f"{figures.lost:,} of {counted(figures.checked, 'document')} were lost")
    parts.append(f"recall against a rebuilt index: {bounded(figures.recall, 1, 4)}")
    return " ".join((*map(_sentence, parts), notes.UPDATE_METHOD))


def _system(row: Row) -> Iterator[Paragraph]:
    """Yield the curve, the encoder's backends and the pinned files of a row's system."""
    if row.sweep is not None:
        yield "Curve", f"{row.sweep.text}: a point of {row.sweep.system}."
    backends = ((row.backend, "queries"), (row.document_backend, "documents"))
    if texts := [f"{what} under {backend}" for backend, what in backends if backend]:
        yield "Encoder", f"{', '.join(texts)}."
    if row.pinned_at_first_use:
        yield "Pinned at first use", _sentence(f"{row.pinned_at_first_use}; the suite's {pin_lock.FILE} has the hashes")


def _latency(row: Row) -> str:
    mean = row.latency.mean_s
    if mean.value is None:
        return f"There is no mean latency: {mean.reason or 'not measured'}."
    if row.queries is None or row.trials is None or row.isolation.published:
        return f"{bounded(mean, 1e3)} ms, as published: there are no samples."
    made = (
        f"{bounded(mean, 1e3)} ms: the mean of {row.queries * row.trials:,} samples, {row.queries:,} queries in each "
        f"of {row.trials} trials, in {counted(row.jobs, 'fresh process')}."
    )
    parts = [
        f"{what} {bounded(part[key], 1e3)}"
        for what, part, key in (
            ("other such queries", row.latency.like_queries_s, "mean"),
            ("other processes", row.latency.these_queries_s, "mean"),
        )
        if key in part and part[key].value is not None
    ]
    joined = "The 95 % interval joins two" if mean.low is not None else "There is no 95 % interval of both"
    interval = f" {joined}: {' and '.join(parts)}." if parts else ""
    reason = f" {_sentence(mean.reason)}" if mean.reason else ""
    percentiles = [
        f"{name} {number(each.value * 1e3)}"
        for name, each in (("p50", row.latency.p50_s), ("p95", row.latency.p95_s), ("p99", row.latency.p99_s))
        if each.value is not None
    ]
    all_of = f" Percentiles of all samples, ms: {', '.join(percentiles)}." if percentiles else ""
    return f"{made}{interval}{reason}{all_of}"


def _quality(row: Row) -> str:
    known = {name: estimate for name, estimate in row.measures.items() if estimate.value is not None}
    shown = ", ".join(f"{name} {bounded(estimate, decimals=4)}" for name, estimate in known.items())
    if row.judged.queries is not None and known:
        means = "means" if len(known) > 1 else "the mean"
        shown += f": {means} over {row.judged.queries:,} judged queries of the first trial's run, by ir_measures"
        if any(estimate.low is not None for estimate in known.values()):
            shown += "; in brackets 95 % for other such queries"
    said = [shown] if shown else []
    reasons: dict[str, list[str]] = {}
    for name, estimate in row.measures.items():
        if estimate.reason or name not in known:
            reasons.setdefault(estimate.reason or "not measured", []).append(name)
    said += [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    if row.judged.unjudged_share:
        hits = f"the first {row.judged.unjudged_depth} hits"
        said.append(f"Nobody judged {row.judged.unjudged_share:.0%} of {hits}; they count as not relevant")
    if row.judged.unjudged:
        said.append(f"{len(row.judged.unjudged):,} queries have no judgements and do not count")
    said += [f"Judged {text}" for text in row.judged.rejudged]
    return ". ".join(said) + "."


def _first_stage(stage: FirstStage) -> str:
    """Say what the first stage finds, what the second one adds to it, and how many queries lose."""
    said = [f"{stage.system} gave its first {stage.depth} hits to the second stage"]
    if not stage.measured:
        said.append("It is a stored ranking, which was not measured: latency and cost are the second stage's alone")
    known = stage.ceiling.value is not None
    ceiling = f"{bounded(stage.ceiling, decimals=4)}, which no order of these documents exceeds"
    said.append(f"R@{stage.depth} {ceiling}" if known else f"The ceiling is not known: {stage.ceiling.reason}")
    for name, gain in stage.gain.items():
        alone, harm = stage.measures.get(name, Estimate(None)), stage.harm[name]
        said.append(
            f"{name} {number(alone.value)} alone, gain {bounded(gain, decimals=4)} by a paired test; "
            f"{bounded(harm, 100, decimals=0)} % of the queries made worse"
        )
        said += [f"The gain has no interval: {gain.reason}"] if gain.reason else []
    return ". ".join(said) + "."


def _work(row: Row) -> str:
    """Say how much work a mean query takes."""
    parts = [f"{figure.title} {figure.written(figure.estimate(row))}" for figure in row_figures.work(row)]
    padding = f" {row.padding_share:.0%} of the computed tokens only fill up." if row.padding_share is not None else ""
    return f"Of a mean query: {', '.join(parts)}.{padding} {notes.WORK_METHOD}"


def _tokens(row: Row) -> str:
    """Say what the tokens of a million queries cost, with the calculation."""
    usd, price = row.cost.tokens, row.cost.token_price
    if usd.value is None or price is None:
        return NO_COST.format(reason=usd.reason or "no token prices")
    made = (
        f"{_plain(row.counts['prompt_tokens'], 6)} x US$ {_plain(price.usd_per_million_in, 6)} + "
        f"{_plain(row.counts['completion_tokens'], 6)} x US$ {_plain(price.usd_per_million_out, 6)}"
    )
    batch = ""
    if price.batch_discount:
        batch = f" Sent as batches: US$ {number(usd.value * (1 - price.batch_discount))}."
    return (
        f"US$ {number(usd.value)} per million queries = {made}: prompt and completion tokens of a mean query at the "
        f"prices of {price.model} on {price.date}, added to the cost of the instance.{batch} Source: {price.source}."
    )


def _metered(row: Row, quote: ServerlessQuote) -> str:
    """Say what queries cost at the cheapest serverless offer, with the calculation, and the other offers' prices."""
    made = "the CPU time and the memory that it used"
    if quote.bills == "configured":
        made = f"{_plain((quote.billed_s or 0.0) * 1e3, 4)} ms x US$ {_plain(quote.usd_per_hour, 6)} / 3600 x 1,000"
    if quote.usd_per_million_requests:
        made += f" + {quote.usd_per_million_requests:g} for the requests"
    others = [
        f"{each.offer} {number(each.usd.value)}{'' if each.per_request else ' (a task that is always busy)'}"
        for each in row.cost.serverless
        if each != quote
    ]
    more = f" Other offers: {', '.join(others)}." if others else ""
    return (
        f"US$ {bounded(quote.usd)} per million queries = {made}, on {quote.offer} ({_plain(quote.vcpus, 3)} vCPU, "
        f"{_plain(quote.memory_gib, 4)} GiB) in {quote.region} on {quote.date}: {cost.METERED.meaning}.{more}"
    )


def _cost(row: Row) -> str:
    estimate = row.usd_per_million
    if estimate.value is None or row.price is None:
        return NO_COST.format(reason=estimate.reason or row.price_note or "no price")
    figures = {
        "usd": number(estimate.value),
        "mean_s": _plain(row.latency.mean_s.value or 0.0, 4),
        "rate": _plain(row.throughput_qps.value or 0.0, 4),
        "price": _plain(row.price.usd_per_hour, 6),
    }
    template = SEQUENTIAL if row.scenario == "single_stream" else SATURATED
    note = f" {_sentence(row.price_note)}" if row.price_note else ""
    return f"{template.format(**figures)} {_priced_machine(row.price)}{note}"


def _carbon(row: Row) -> str:
    """Say how the CO2e of a million queries was estimated, and what of it was measured."""
    found, work = row.carbon, row_carbon.query_work(row)
    if found.grams.value is None or isinstance(work, str):
        return f"There is no estimate of CO2e: {found.grams.reason}."
    gpus = f", {number(work.gpu_j)} J of GPUs as measured" if found.gpu_measured else ""
    cpus = f"{number(work.cpu_s, 1e3)} ms of CPU time, {number(work.idle_cpu_s, 1e3)} ms of idle CPUs"
    watts = f"Watts of a vCPU of {' or '.join(found.processors)}, "
    if found.cpu_measured:
        cpus, watts = f"{number(work.package_j)} J of CPU packages as measured", "Electricity of "
    return (
        f"{row_figures.carbon_cell(row)} g CO2e per million queries, {found.source}. A query takes {cpus}, "
        f"{number(work.machine_s, 1e3)} ms of {work.memory_gib:.3g} GiB{gpus}. {watts}"
        f"{found.grams_per_kwh:.4g} g per kWh ({found.grid}), factors of {found.date}. {carbon.FORMULA}. {carbon.RANGE}"
    )


def _priced_machine(price: Price) -> str:
    if price.instance_type == row_pricing.TOLD_TYPE:
        return ""
    return MACHINE.format(
        type=price.instance_type,
        architecture=price.architecture,
        vcpus=price.vcpus,
        memory=_plain(price.memory_bytes / 2**30, 6),
        price=_plain(price.usd_per_hour, 6),
        term=price.term,
        region=price.region,
        date=price.date,
    )


def _bill(row: Row, traffic: Traffic) -> Iterator[str]:
    """Yield the arithmetic of a row's bill, with its numbers."""
    reason = bills.reason_without_bill(row, {})
    if reason is not None or row.price is None:
        yield NO_BILL.format(reason=reason)
        return
    service = bills.service_of(row)
    found, capacity = bill.bill(service, traffic), service.capacity_qps.value or 0.0
    needed, times, documents = traffic.peak_qps / capacity, service.times_larger(traffic), service.documents
    known = {
        "queries": f"{traffic.queries_per_month:,.0f}",
        "peak": _plain(traffic.peak, 6),
        "rate": _plain(traffic.peak_qps, 4),
        "mean_s": _plain(row.latency.mean_s.value or 0.0, 4),
        "capacity": _plain(capacity, 4),
        "needed": _plain(needed, 4),
        "machines": found.machines,
        "fewest": traffic.machines,
        "type": row.price.instance_type,
        "price": _plain(service.usd_per_hour, 6),
        "search": _plain(found.search_usd, 6),
        "build": _plain((service.build_usd or 0.0) * times, 6),
        "index": _plain((service.storage_usd_per_month or 0.0) * times, 6),
        "tokens": _plain(service.tokens_usd_per_million or 0.0, 6),
        "total": _plain(found.total_usd.value or 0.0, 6),
        "per_million": _plain(found.usd_per_million.value or 0.0, 6),
    }

    def part(name: str, **others: str) -> str:
        return BILL_PARTS[name].format(**known | others)

    yield part("rate")
    yield part("loaded" if row.scenario == "server" else "single")
    yield part("fewest" if found.machines > bill.round_up(needed) else "machines")
    yield part("search")
    if found.tokens_usd is not None:
        yield part("tokens", usd=_plain(found.tokens_usd, 6))
    if times != 1:
        measured = {"documents": f"{traffic.documents:,}", "measured": f"{documents:,}"}
        yield part("larger", times=_plain(times, 4), **measured)
    parts = [("builds", found.builds_usd, traffic.builds), ("storage", found.storage_usd, None)]
    if traffic.changed:
        parts.insert(1, ("changes", found.changes_usd, traffic.changed))
    for name, usd, many in parts:
        if usd is not None:
            yield part(name, usd=_plain(usd, 6), many=_plain(many or 0.0, 6))
    if unknown := [name for name, usd, _ in parts if usd is None and name != "changes"]:
        yield part("unknown", part=" and ".join(unknown))
    yield part("sum")


def _plain(value: float, digits: int) -> str:
    """Return a number in at most this many significant digits, whole ones in any case, without an exponent."""
    if abs(value) >= 10**digits:
        return f"{value:.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):f}"


def _costs(row: Row, traffic: Traffic) -> Iterator[Paragraph]:
    """Yield what queries cost, by each model and by the month, and what they emit."""
    yield COST, _cost(row)
    yield BILL, " ".join(_bill(row, traffic))
    if row.cost.metered_quote is not None:
        yield "Metered cost", _metered(row, row.cost.metered_quote)
    if row.carbon.grams.value is not None or row.carbon.grams.reason:
        yield "Carbon", _carbon(row)
    if row.token_model is not None:
        yield "Token prices", _tokens(row)


def _resources(row: Row) -> Iterator[Paragraph]:
    """Yield the CPU time and the memory that the jobs used."""
    if row.cpu.busy_cpus is not None:
        yield "CPU time", _cpu(row)
    if row.resources.peak_anon_bytes is not None:
        yield "Memory", _memory(row)


def _cpu(row: Row) -> str:
    """Return the CPU time of a query, harness's part of it, and how busy the priced machine was."""
    counted_s, own_s = row.cpu.per_query_s, row.cpu.driver_s
    text = f"{bounded(row.cpu.of_system_s, 1e3)} ms a query"
    if own_s is not None:
        text += f" = {number(counted_s.value, 1e3)} ms counted - {number(own_s, 1e3)} ms of harness itself (null)"
    text += "."
    if row.price is not None and row.idle_share is not None:
        vcpus, busy = counted(row.price.vcpus, "vCPU"), number(row.cpu.busy_with_system)
        text += (
            f" The trials kept {busy} CPUs busy on average: of the {vcpus} of {row.price.instance_type}"
            f" {row.idle_share:.0%} stayed idle."
        )
    return f"{text} {notes.CPU_METHOD}"


def _memory(row: Row) -> str:
    used, limit = row.resources.peak_anon_bytes or 0, row.memory_limit_bytes
    peak = f"{used / 2**20:,.0f} MiB of a limit of {limit / 2**20:,.0f} MiB"
    if row.memory_bytes != row.memory_limit_bytes:
        peak += f" (what the host leaves of the {row.memory_bytes / 2**20:,.0f} MiB of a whole machine)"
    return f"{peak}: the largest of {counted(row.jobs, 'job')}. {notes.MEMORY_METHOD}"


def _index(row: Row) -> Iterator[Paragraph]:
    """Yield an index's size and build, what the build costs, and the reasons to doubt it."""
    yield "Index", " ".join((f"{(row.index.size_bytes or 0) / 2**20:,.1f} MiB.", *_built(row)))
    usd, price = row.cost.build.value, row.cost.build_price
    if usd is not None and price is not None:
        made = f"{row.index.build_s:.4g} s x US$ {price.usd_per_hour:g} / 3600 / {row.index.documents:,} x 1,000,000"
        yield INDEX_COST, f"US$ {number(usd)} per million documents = {made}, on {price.instance_type}."
    for finding in row.index.findings:
        yield f"Build, {_mark(finding)}", _sentence(finding.text)


def _built(row: Row) -> Iterator[str]:
    """Yield the build's time, where it ran, what it costs, and how far that can be trusted."""
    if row.index.build_s is None:
        return
    documents = "" if row.index.documents is None else f" of {row.index.documents:,} documents"
    place = notes.build_place(row)
    on = f" on {place}" if place else ""
    own = row.index.build_s - sum(row.index.parts_s.values())
    each = "".join(f"{name} {number(seconds)} s + " for name, seconds in row.index.parts_s.items())
    parts = f" ({each}joining {number(own)} s; its size counts them too)" if each else ""
    yield f"Built{documents} in {number(row.index.build_s)} s{on}{parts}: one measurement, without an interval."
    yield {
        Validity.CLEAN: "Its time is clean: no check found a reason to doubt it.",
        Validity.NOISY: "Its time is noisy, for the reasons below.",
        Validity.INVALID: "Its time is invalid, for the reasons below.",
        Validity.UNKNOWN: "Its time could not be checked: nothing is stored of its machine.",
    }[row.index.validity]


def _machine(row: Row) -> str:
    machine = row.machine
    if machine is None:
        if row.isolation.attached:
            return f"{hardware(row)}: {row.isolation.sentence}."
        return "a machine that is not known: these numbers were published."
    parts = (machine.cpu_model, machine.architecture, counted(machine.host_cpus, "CPU"), *machine.gpu_models)
    return f"{', '.join(map(str, parts))}; profile {row.profile}; {_enforced(row)}."


def _enforced(row: Row) -> str:
    isolation = row.isolation
    return isolation.sentence if isolation.of_passport else isolation.marked(isolation.sentence)


def _trust(row: Row) -> str:
    if row.outcome is not Outcome.OK:
        return "A failed row has nothing to doubt."
    if row.isolation.of_passport:
        return f"{row.validity.value}, as the passport says: no sample is here that could be checked."
    return {
        Validity.CLEAN: "clean: no check found a reason to doubt these numbers.",
        Validity.NOISY: "noisy: the numbers are doubtful, for these reasons.",
        Validity.INVALID: "invalid: do not use these numbers, for these reasons.",
        Validity.UNKNOWN: "unknown: there are no samples, so nothing could be checked.",
    }[row.validity]


def _mark(finding: Finding) -> str:
    doubt = "" if finding.validity is Validity.CLEAN else f"{finding.validity.value}: "
    return doubt + finding.cause.value


def _finding(finding: Finding, *, with_effect: bool) -> str:
    effect = f" {causes.TEXTS[finding.cause].effect}" if with_effect and finding.validity is not Validity.CLEAN else ""
    return f"{_sentence(finding.text)}{effect}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def cause_paragraphs(cause: Cause, rows: Sequence[Row]) -> Iterator[Paragraph]:
    """Yield what a cause means, what to do, and the rows that have it."""
    text = causes.TEXTS[cause]
    yield cause.value, f"{_sentence(text.short)} {text.effect}"
    if text.advice:
        yield "What to do", text.advice
    for row in rows:
        for named, findings in ((called(row), row.findings), (f"{called(row)}, index build", row.index.findings)):
            for finding in findings:
                if finding.cause is cause:
                    yield named, _sentence(finding.text)


def column_paragraphs(name: str, table: Table) -> Iterator[Paragraph]:
    """Yield the meaning, unit and method of a figure, by a column's name or the short one; nothing if it is unknown."""
    figures = row_figures.all_figures(table)
    by_alias = ((figure.alias, figure, figure) for figure in figures)
    by_column = ((column.name, column, figure) for figure in figures for column in figure.columns())
    known: Iterable[tuple[str, Column[Row] | Figure, Figure]] = (*by_alias, *by_column)
    for each, column, figure in known:
        if each == name:
            unit = f" ({column.unit})" if column.unit else ""
            yield f"{column.name}{unit}", _sentence(column.meaning)
            if figure.method:
                yield "How it is made", figure.method
            return


def names(table: Table) -> tuple[str, ...]:
    """Return everything that can be explained: short names of figures, all columns, the causes of findings."""
    figures = row_figures.all_figures(table)
    return (
        *(figure.short for figure in figures if figure.short),
        *(column.name for figure in figures for column in figure.columns()),
        *(cause.value for cause in Cause),
    )


def is_named(row: Row, name: str) -> bool:
    """Return whether a name is a row's: a glob of cells, a swept system, or the beginning of a job's key."""
    swept = row.sweep is not None and row.sweep.system == name
    return swept or matches(cell_of(row), name) or any(key.startswith(name) for key in row.keys if len(name) >= 4)


def doubts(row: Row) -> str:
    """Return the causes of a row's findings in a few words each, else its validity."""
    causes_ = [_cause(finding.cause) for finding in row.findings]
    causes_ += [f"index build: {_cause(finding.cause)}" for finding in row.index.findings]
    return "; ".join(dict.fromkeys(causes_)) or row.validity.value


def _cause(cause: Cause) -> str:
    return f"{cause.value} ({causes.TEXTS[cause].short})"
