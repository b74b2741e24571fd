"""Published tables as rows of a report: what the paper prints, and a reason wherever it prints nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

from harness.instances import Instance
from harness.prices import Snapshot
from harness.published.about import Dataset
from harness.published.errata import Erratum, errata
from harness.published.printed import Printed
from harness.published.recompute import costs, exact_price, machine, per_million
from harness.published.tables import GIB, Published, Reported, Timed, Viable
from harness.records import Isolation, Outcome
from harness.table import Figure, Price, Row, Table, Validity

NO_SAMPLES = "no samples: the paper prints the mean alone"
NOT_JUDGED = "published, not measured here: the paper prints no samples, so nothing of the run can be judged"
MEASURES = ("RR@10", "Success@10")
FORMULA = "US$ per million queries = mean latency x US$ per hour / 3600 x 1,000,000, as the paper prints it"


def table(published: Published, follows: Snapshot, now: Snapshot | None = None) -> Table:
    """Tables 2 and 3 as a report's table.

    Table 3 is the suite of the paper's name, Table 2 the suite ``<name>-table2``: its latencies were not measured on
    the machines that price them. Measures are fractions (0.187), where the paper prints per cent (18.7).

    Args:
        published: the tables.
        follows: the prices that the paper follows.
        now: other prices, for the same instance types; without, costs are the printed ones.

    Raises:
        FileError: a row names an instance type that has no price.
    """
    marked: dict[tuple[str, int], list[Erratum]] = defaultdict(list)
    for each in errata(published, follows):
        marked[each.table, each.number].append(each)
    prices = now or follows
    found = [_viable(published, number, line, prices, now) for number, line in enumerate(published.table2, start=1)]
    for dataset in published.about.datasets:
        for number, line in enumerate(published.table3[dataset.name], start=1):
            found.append(_timed(published, dataset, number, line, prices, now))
    places = [(cost.table, cost.number) for cost in costs(published, follows)]
    noted = [_with_errata(row, marked[place]) for row, place in zip(found, places, strict=True)]
    return Table(
        rows=tuple(noted),
        measures=MEASURES,
        price_provider=prices.provider,
        price_region=prices.region,
        price_date=str(prices.as_of),
        price_source=prices.source,
        cost_formula=FORMULA,
        notes=(f"Published: {published.about.citation()}",),
    )


def _timed(
    published: Published, dataset: Dataset, number: int, line: Timed, prices: Snapshot, now: Snapshot | None
) -> Row:
    """A row of Table 3."""
    accuracy, protocol = published.accuracy(line.system, dataset), published.about.protocol
    missing = Figure(None, reason="Table 3c does not have it")
    return _row(
        published,
        line,
        prices,
        now,
        suite=published.about.name,
        key=f"{published.about.name}/table{dataset.table3}/{number}",
        dataset=dataset,
        latency=line.latency_ms,
        measures={
            "RR@10": _share(accuracy.mrr_at_10) if accuracy else missing,
            "Success@10": _share(accuracy.success_at_10) if accuracy else missing,
        },
        measured_on=line.instance_type,
        queries=protocol.queries,
        trials=protocol.trials,
    )


def _viable(published: Published, number: int, line: Viable, prices: Snapshot, now: Snapshot | None) -> Row:
    """A row of Table 2, with the latency, accuracy and index of its row of Table 1."""
    latency, taken = published.latency_of(line)
    assert taken is not None, "every latency of Table 2 is from Table 1"
    return _row(
        published,
        line,
        prices,
        now,
        suite=f"{published.about.name}-table2",
        key=f"{published.about.name}/table2/{number}",
        dataset=published.about.datasets[0],
        latency=latency,
        measures={"RR@10": _share(taken.mrr_at_10), "Success@10": Figure(None, reason="Table 1 does not have it")},
        measured_on=None,
        taken=taken,
    )


def _row(
    published: Published,
    line: Viable | Timed,
    prices: Snapshot,
    now: Snapshot | None,
    *,
    suite: str,
    key: str,
    dataset: Dataset,
    latency: Printed,
    measures: dict[str, Figure],
    measured_on: str | None,
    taken: Reported | None = None,
    queries: int | None = None,
    trials: int | None = None,
) -> Row:
    hourly = exact_price(published, line, prices)
    cost = line.cost_usd_per_million.value if now is None else per_million(latency.value, hourly)
    unknown = Figure(None, reason=NO_SAMPLES)
    return Row(
        suite=suite,
        system=line.system,
        dataset=dataset.name,
        scenario=published.about.protocol.scenario,
        profile=line.hardware.profile,
        isolation=Isolation.PUBLISHED,
        outcome=Outcome.OK,
        detail=None,
        validity=Validity.CLEAN,
        key=key,
        started_at=None,
        machine=None,
        cpus=line.cpu,
        memory_limit_bytes=line.hardware.memory_bytes,
        gpus=line.gpu,
        price=_price(machine(published, line, prices), hourly, prices),
        price_note=None if taken is None else _elsewhere(taken),
        k=published.about.protocol.k,
        sample_sha256=None,
        corpus_sha256=None,
        qrels_sha256=None,
        measured_on=measured_on,
        queries=queries,
        trials=trials,
        measures=measures,
        latency_mean_s=Figure(float(latency.value / 1000)),
        p50_s=unknown,
        p95_s=unknown,
        p99_s=unknown,
        latency_these_queries_s=unknown,
        at_most_s=dict.fromkeys(("p50", "p95", "p99"), unknown),
        throughput_qps=unknown,
        index_bytes=None if taken is None or taken.index_gib is None else int(taken.index_gib.value) * GIB,
        usd_per_million=Figure(float(cost)),
        keys=(key,),
        notes=(NOT_JUDGED,),
    )


def _price(facts: Instance, usd_per_hour: Fraction, prices: Snapshot) -> Price:
    return Price(
        instance_type=facts.instance_type,
        architecture=facts.architecture,
        vcpus=facts.vcpus,
        memory_bytes=facts.memory_bytes,
        region=prices.region,
        term=prices.term,
        usd_per_hour=float(usd_per_hour),
        date=str(prices.as_of),
    )


def _share(percent: Printed) -> Figure:
    return Figure(float(Fraction(percent.value, 100)))


def _elsewhere(taken: Reported) -> str:
    on = "" if taken.cpu is None else f", on a machine with {taken.cpu} CPUs"
    return f"the latency was not measured on this type: Table 1 has it from {taken.reference}{on}"


def _with_errata(row: Row, wrong: list[Erratum]) -> Row:
    told = (f"erratum ({each.kind.value}): {each.printed}; {each.follows}; {each.evidence}" for each in wrong)
    return replace(row, notes=(*row.notes, *told))
