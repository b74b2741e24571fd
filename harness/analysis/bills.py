"""A month's bill of each measured system at some traffic, and the traffic at which another one is the cheapest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.analysis.pareto_front import reason_not_ranked
from harness.analysis.table import Row, Table
from harness.estimate import Estimate
from harness.pricing import bill
from harness.pricing.bill import Bill, Change, Service, Traffic

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
    """A row with its bill; ``loaded``: one machine's capacity was measured under load (scenario ``server``)."""

    row: Row
    service: Service
    bill: Bill

    @property
    def loaded(self) -> bool:
        """Return whether queries arrived by themselves when the capacity was measured."""
        return self.row.scenario == "server"


@dataclass(frozen=True)
class BillGroup:
    """Bills of rows that may be compared, the least first; ``left_out``: the other rows, with the reason.

    ``change`` is the next more traffic at which others are the cheapest; ``None``: there is none.
    """

    place: BillPlace
    bills: tuple[SystemBill, ...]
    left_out: tuple[tuple[Row, str], ...]
    cheapest: tuple[SystemBill, ...] = ()
    change: Change | None = None
    then: tuple[SystemBill, ...] = ()


def find(table: Table, traffic: Traffic, targets: Mapping[str, float]) -> tuple[BillGroup, ...]:
    """Return the bills of each group of comparable rows.

    Args:
        table: priced rows.
        traffic: of the service.
        targets: most seconds of the ``mean``, ``p50``, ``p95`` or ``p99``; a row that exceeds one is left out.
    """
    groups: dict[BillPlace, list[Row]] = {}
    for row in table.rows:
        suite = row.suite if row.isolation.published else None
        groups.setdefault(BillPlace(row.dataset, row.isolation.name, suite, row.corpus_sha256), []).append(row)
    return tuple(_group(place, rows, traffic, targets) for place, rows in groups.items())


def _group(place: BillPlace, rows: Sequence[Row], traffic: Traffic, targets: Mapping[str, float]) -> BillGroup:
    reasons = [(row, _reason(row, targets)) for row in rows]
    able = [row for row, reason in reasons if reason is None]
    # A capacity under load outranks that of one query at a time.
    loaded = {(row.system, row.profile) for row in able if row.scenario == "server"}
    able = [row for row in able if row.scenario == "server" or (row.system, row.profile) not in loaded]
    bills = []
    for row in able:
        assert row.price is not None
        service = _service(row, row.price.usd_per_hour)
        bills.append(SystemBill(row, service, bill.bill(service, traffic)))
    bills.sort(key=lambda one: (one.bill.total_usd.value or 0.0, one.row.latency.mean_s.value or 0.0, one.row.key))
    services = {one.row.per_query_key: one.service for one in bills}
    by_key = {one.row.per_query_key: one for one in bills}
    left_out = tuple((row, reason) for row, reason in reasons if reason is not None)
    change = bill.next_change(services, traffic)
    return BillGroup(
        place,
        tuple(bills),
        left_out,
        tuple(by_key[key] for key in bill.cheapest(services, traffic)),
        change,
        tuple(by_key[key] for key in change.cheapest) if change else (),
    )


def _reason(row: Row, targets: Mapping[str, float]) -> str | None:
    """Return why a row has no bill; ``None``: it has one."""
    if (reason := reason_not_ranked(row, ())) is not None:
        return reason
    if row.price is None:
        return row.price_note or "it has no price"
    if row.scenario not in ("single_stream", "server"):
        return f"scenario {row.scenario} has no latency of single queries"
    capacity = _capacity(row)
    if not capacity.value:
        return f"no queries per second are known: {capacity.reason or 'not measured'}"
    for figure, most_s in targets.items():
        measured = getattr(row.latency, f"{figure}_s")
        if measured.value is None:
            return f"no {figure}: {measured.reason or 'not measured'}"
        if measured.value > most_s:
            return f"{figure} {measured.value * 1e3:.3g} ms is more than {most_s * 1e3:.4g} ms"
    return None


def _capacity(row: Row) -> Estimate:
    """Return the queries per second that one machine answers: under load where measured, else one after the other."""
    if row.scenario == "server":
        return row.throughput_qps
    mean_s = row.latency.mean_s
    # Ends swap: the slower, the fewer.
    turned = Estimate(mean_s.value, mean_s.high, mean_s.low or None, mean_s.reason)
    return turned.map(lambda seconds: 1 / seconds if seconds else 0.0)


def _service(row: Row, usd_per_hour: float) -> Service:
    return Service(
        capacity_qps=_capacity(row),
        usd_per_hour=usd_per_hour,
        documents=row.index.documents,
        build_usd=row.build_usd,
        storage_usd_per_month=row.cost.storage_per_month.value,
    )
