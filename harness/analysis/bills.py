"""A month's bill of each measured system at some traffic, and the traffic at which another one is the cheapest.

Systems are billed on rented machines, and compared with the ways to run them without: serverless offers, and the API of
the language model that a system names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from harness.analysis import axes
from harness.analysis.pareto_front import reason_not_ranked, sort_out
from harness.analysis.table import Row, Table
from harness.estimate import Estimate
from harness.pricing import bill, bill_curve
from harness.pricing.bill import Bill, Service, Traffic
from harness.pricing.bill_curve import Change, MonthlyCost

# The figures that a target may be for.
FIGURES = ("mean", "p50", "p95", "p99")


class BillPlace(NamedTuple):
    """The properties that rows must share for their bills to be compared."""

    dataset: str
    isolation: str
    suite: str | None
    corpus_sha256: str | None


@dataclass(frozen=True)
class SystemBill:
    """A row with its bill; ``loaded``: one machine's capacity was measured under load (scenario ``server``).

    ``offer`` is the serverless offer or the API that runs it; empty: rented machines.  ``cheaper_below`` is the monthly
    queries below which an offer that is paid by the query costs less than the row's own machines; ``None``: not known,
    or at any traffic.
    """

    row: Row
    service: Service
    bill: Bill
    offer: str = ""
    cheaper_below: float | None = None

    @property
    def loaded(self) -> bool:
        """Return whether queries arrived by themselves when the capacity was measured."""
        return self.row.scenario == "server"


@dataclass(frozen=True)
class BillGroup:
    """Bills of rows that may be compared, the least first; ``left_out``: the other rows, with the reason.

    ``change`` is the next more traffic at which others are the cheapest; ``None``: there is none.  ``others`` are the
    bills without rented machines, the least first.  The first of them that is paid by the query at ``until`` queries a
    month, ``by_query``, costs less than all machines up to there: from this traffic on where that is so now
    (``saves``), else from no traffic on.  ``until``: ``None``: at any traffic.
    """

    place: BillPlace
    bills: tuple[SystemBill, ...]
    left_out: tuple[tuple[Row, str], ...]
    cheapest: tuple[SystemBill, ...] = ()
    change: Change | None = None
    then: tuple[SystemBill, ...] = ()
    others: tuple[SystemBill, ...] = ()
    by_query: SystemBill | None = None
    saves: bool = False
    until: float | None = None


def find(table: Table, traffic: Traffic, targets: Mapping[str, float]) -> tuple[BillGroup, ...]:
    """Return the bills of each group of comparable rows.

    Args:
        table: priced rows.
        traffic: of the service.
        targets: most seconds of the ``mean``, ``p50``, ``p95`` or ``p99``; a row that exceeds one is left out.
    """
    return tuple(_group(place, rows, traffic, targets) for place, rows in by_place(table.rows).items())


def by_place(rows: Iterable[Row]) -> dict[BillPlace, list[Row]]:
    """Return the rows whose costs may be compared with one another, in their order."""
    return axes.grouped(rows, place_of)


def place_of(row: Row) -> BillPlace:
    """Return the properties that a row shares with the rows that it is compared with."""
    suite = row.suite if row.isolation.published else None
    return BillPlace(row.dataset, row.isolation.name, suite, row.corpus_sha256)


def _group(place: BillPlace, rows: Sequence[Row], traffic: Traffic, targets: Mapping[str, float]) -> BillGroup:
    every, left_out = sort_out(rows, lambda row: reason_without_bill(row, targets))
    # A capacity under load outranks that of one query at a time.
    loaded = {(row.system, row.profile) for row in every if row.scenario == "server"}
    able = [row for row in every if row.scenario == "server" or (row.system, row.profile) not in loaded]
    bills = [SystemBill(row, service := service_of(row), bill.bill(service, traffic)) for row in able]
    bills.sort(key=_order)
    services = {one.row.per_query_key: one.service for one in bills}
    by_key = {one.row.per_query_key: one for one in bills}
    change = bill_curve.next_change(services, traffic)
    # The machines of a row that is billed under load are those of the other row.
    own = {(one.row.system, one.row.profile): one.service for one in bills if one.loaded}
    machines = [services.get(row.per_query_key) or own[row.system, row.profile] for row in every]
    others = sorted(
        (other for row, service in zip(every, machines, strict=True) for other in _others(row, service, traffic)),
        key=_order,
    )
    by_query, saves, until = _by_query(others, services, traffic)
    return BillGroup(
        place,
        tuple(bills),
        tuple(left_out),
        tuple(by_key[key] for key in bill.cheapest(services, traffic)),
        change,
        tuple(by_key[key] for key in change.cheapest) if change else (),
        tuple(others),
        by_query,
        saves,
        until,
    )


def _order(one: SystemBill) -> tuple[float, float, str]:
    return one.bill.total_usd.value or 0.0, one.row.latency.mean_s.value or 0.0, one.row.key


def _offers(row: Row) -> dict[str, Service]:
    """Return a row of single queries as a service at each serverless offer, and at the API of its language model.

    A task of an offer that is billed all along counts as a machine.  A row that replays an API's answers pays its
    tokens anyway; another row's model could be replaced by the API, which leaves its first stage out.
    """
    if row.scenario != "single_stream":
        return {}
    services = {
        quote.offer: _service(row, usd_per_million=quote.usd)
        if quote.per_request
        else _service(row, capacity_of(row), quote.usd_per_hour)
        for quote in row.cost.serverless
        if quote.usd.value is not None
    }
    if row.cost.tokens.value is not None and not _pays_tokens(row):
        services[f"API of {row.token_model}"] = _service(row, usd_per_million=row.cost.tokens)
    return services


def _others(row: Row, machines: Service, traffic: Traffic) -> Iterator[SystemBill]:
    """Yield the bills of a row at its offers."""
    for offer, service in _offers(row).items():
        below = None if service.rented else bill_curve.break_even([service], [machines], traffic, 0.0)
        yield SystemBill(row, service, bill.bill(service, traffic), offer, below)


def paid_service(row: Row) -> tuple[str, Service] | None:
    """Return the cheapest offer that is paid by the query, and the row's service at it; ``None``: there is none."""
    paid = [(offer, service) for offer, service in _offers(row).items() if not service.rented]
    return min(paid, key=lambda each: _usd_per_million(each[1]), default=None)


def _usd_per_million(service: Service) -> float:
    price = service.usd_per_million
    return 0.0 if price is None else price.value or 0.0


def _by_query(
    others: Sequence[SystemBill], rented: Mapping[str, Service], traffic: Traffic
) -> tuple[SystemBill | None, bool, float | None]:
    """Return the cheapest bill that is paid by the query, whether it saves, and up to which traffic."""
    services = {str(place): one.service for place, one in enumerate(others) if not one.service.rented}
    if not services or not rented:
        return None, False, None
    first = others[int(next(iter(services)))]
    least = min(bill.bill(each, traffic).total_usd.value or 0.0 for each in rented.values())
    if (first.bill.total_usd.value or 0.0) < least:
        return first, True, bill_curve.break_even(services.values(), rented.values(), traffic)
    until = bill_curve.break_even(services.values(), rented.values(), traffic, 0.0)
    at = traffic if until is None else traffic.model_copy(update={"queries_per_month": until})
    best = bill.cheapest(services, at)
    return others[int(best[0])], False, until


def _pays_tokens(row: Row) -> bool:
    """Return whether a row replays the recorded answers of an API, whose tokens come on top of its machine."""
    return row.token_model is not None and "provider_ms" in row.counts


def system_costs(group: BillGroup, traffic: Traffic) -> dict[str, MonthlyCost]:
    """Return each system's cost over the queries of a month, on the cheapest of its machines at each traffic."""
    by_system = axes.grouped(group.bills, lambda one: one.row.system)
    return {system: MonthlyCost(tuple(one.service for one in bills), traffic) for system, bills in by_system.items()}


def paid_by_query(group: BillGroup, traffic: Traffic) -> MonthlyCost | None:
    """Return the least cost over the queries of a month without machines; ``None``: no row can be paid by the query."""
    services = tuple(one.service for one in group.others if not one.service.rented)
    return MonthlyCost(services, traffic) if services else None


def reason_without_bill(row: Row, targets: Mapping[str, float]) -> str | None:
    """Return why a row has no bill; ``None``: it has one."""
    if (reason := reason_not_ranked(row, ())) is not None:
        return reason
    if row.price is None:
        return row.price_note or "it has no price"
    if row.scenario == "mixed":
        return "scenario mixed has no price: the queries share the engine's time with updates"
    if row.scenario not in ("single_stream", "server"):
        return f"scenario {row.scenario} has no latency of single queries"
    capacity = capacity_of(row)
    if not capacity.value:
        return f"no queries per second are known: {capacity.reason or 'not measured'}"
    for figure, most_s in targets.items():
        measured = getattr(row.latency, f"{figure}_s")
        if measured.value is None:
            return f"no {figure}: {measured.reason or 'not measured'}"
        if measured.value > most_s:
            return f"{figure} {measured.value * 1e3:.3g} ms is more than {most_s * 1e3:.4g} ms"
    return None


def capacity_of(row: Row) -> Estimate:
    """Return the queries per second that one machine answers: under load where measured, else one after the other."""
    if row.scenario == "server":
        return row.throughput_qps
    mean_s = row.latency.mean_s
    return replace(mean_s, low=mean_s.low or None).map_decreasing(lambda seconds: 1 / seconds if seconds else 0.0)


def service_of(row: Row) -> Service:
    """Return the facts of a bill of a priced row that has one, on rented machines."""
    assert row.price is not None, "a row without a price has no bill"
    return _service(row, capacity_of(row), row.price.usd_per_hour)


def _service(
    row: Row,
    capacity_qps: Estimate = Estimate(None),
    usd_per_hour: float = 0.0,
    usd_per_million: Estimate | None = None,
) -> Service:
    return Service(
        capacity_qps=capacity_qps,
        usd_per_hour=usd_per_hour,
        usd_per_million=usd_per_million,
        tokens_usd_per_million=row.cost.tokens.value if _pays_tokens(row) else None,
        documents=row.index.documents,
        build_usd=row.build_usd,
        storage_usd_per_month=row.cost.storage_per_month.value,
    )
