"""A month's bill, reckoned on paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.estimate import Estimate
from harness.pricing import bill, bill_curve
from harness.pricing.bill import Service, Traffic

SMALL, LARGE = 0.05132, 0.306  # US$ per hour


def service(qps: float, usd_per_hour: float = SMALL, **more: float | int | None) -> Service:
    return Service(capacity_qps=Estimate(qps), usd_per_hour=usd_per_hour, **more)  # type: ignore[arg-type]


def test_machine_that_is_idle_costs_the_same_for_a_fast_and_a_slow_system() -> None:
    # 3 million queries in 730 x 3,600 = 2,628,000 s are 1.1416 a second.  One machine: 0.05132 x 730 = US$ 37.46.
    traffic = Traffic(queries_per_month=3e6)
    slow, fast = bill.bill(service(570), traffic), bill.bill(service(6700), traffic)
    assert slow.machines == fast.machines == 1
    assert slow.total_usd.value == fast.total_usd.value == pytest.approx(37.4636)
    assert slow.busy == pytest.approx(0.0020027, rel=1e-4) and fast.busy == pytest.approx(0.00017038, rel=1e-4)
    assert slow.usd_per_million.value == pytest.approx(12.48787, rel=1e-5)


def test_number_of_machines_is_rounded_up_at_the_busiest_hour() -> None:
    # 262.8 million a month are 100 a second; three times that in the busiest hour.  100 a second each: exactly 3.
    traffic = Traffic(queries_per_month=262.8e6)
    assert bill.bill(service(100), traffic).machines == 3
    assert bill.bill(service(99.9), traffic).machines == 4
    held = bill.bill(service(299), traffic)
    assert held.machines == 2 and held.busy == pytest.approx(100 / 598)
    assert bill.bill(service(1000), traffic.model_copy(update={"machines": 2})).machines == 2


def test_order_turns_with_traffic() -> None:
    # One large machine (US$ 223.38 a month) answers 1,000 a second, a small one (37.46) 100.  With a flat rate the
    # small one is cheaper up to 5 machines (500 a second, 187.32), and the large one from 6 (224.78) on.
    services = {"small": service(100), "large": service(1000, LARGE)}
    flat = Traffic(queries_per_month=1e6, peak=1)
    assert bill.cheapest(services, flat) == ("small",)
    change = bill_curve.next_change(services, flat)
    assert change is not None and change.queries_per_month == pytest.approx(500 * 2_628_000)
    assert change.cheapest == ("small", "large"), "224.78 is within 1 % of 223.38"
    later = flat.model_copy(update={"queries_per_month": change.queries_per_month * 1.01})
    change = bill_curve.next_change(services, later)
    assert change is not None and change.queries_per_month == pytest.approx(600 * 2_628_000)
    assert change.cheapest == ("large",)


def test_documents_that_change_are_indexed_again() -> None:
    # An index of 5,000 documents cost US$ 0.02; the service has 10 million: 40 a build.  A build a month, a twentieth
    # of the documents again (2), 2,000 times 0.001 for storage on each of two machines (4), and 2 x 37.4636.
    indexed = service(100, documents=5000, build_usd=0.02, storage_usd_per_month=0.001)
    traffic = Traffic(queries_per_month=1e6, documents=10_000_000, changed=0.05, machines=2)
    found = bill.bill(indexed, traffic)
    assert (found.builds_usd, found.changes_usd, found.storage_usd) == pytest.approx((40.0, 2.0, 4.0))
    assert found.total_usd.value == pytest.approx(40 + 2 + 4 + 74.9272)


def test_month_without_queries_costs_machines_builds_and_storage() -> None:
    indexed = service(100, documents=1000, build_usd=0.5, storage_usd_per_month=0.25)
    found = bill.bill(indexed, Traffic(queries_per_month=0, builds=2))
    assert found.total_usd.value == pytest.approx(37.4636 + 1.0 + 0.25)
    assert found.usd_per_million.value is None and found.busy == 0
    # Paid by the query, two machines as a minimum do not store the index twice.
    offered = by_query(0.25, documents=1000, build_usd=0.5, storage_usd_per_month=0.25)
    found = bill.bill(offered, Traffic(queries_per_month=0, builds=2, machines=2))
    assert found.total_usd.value == pytest.approx(1.0 + 0.25) and found.search_usd == 0


def test_interval_of_the_capacity_may_cost_one_machine_more() -> None:
    uncertain = Service(capacity_qps=Estimate(310, 290, 330), usd_per_hour=SMALL)
    found = bill.bill(uncertain, Traffic(queries_per_month=262.8e6))
    for estimate, divisor in ((found.total_usd, 1), (found.usd_per_million, 262.8)):
        ends = (estimate.low, estimate.value, estimate.high)
        assert ends == pytest.approx((37.4636 / divisor, 37.4636 / divisor, 74.9272 / divisor))


def by_query(usd: float, **more: float | int | None) -> Service:
    return Service(usd_per_million=Estimate(usd, usd / 2, usd * 2), **more)  # type: ignore[arg-type]


def test_serverless_wins_below_a_rate() -> None:
    # US$ 0.25 a million against one machine of 37.4636 a month: the same at 149.8544 million queries.  The machine
    # answers 500 a second, three times the mean at 438 million, where a second one begins.
    services, offers = {"machine": service(500)}, {"lambda": by_query(0.25)}
    found = bill.bill(offers["lambda"], Traffic(queries_per_month=3e6))
    assert (found.machines, found.busy) == (0, None)
    assert found.total_usd == Estimate(pytest.approx(0.75), pytest.approx(0.375), pytest.approx(1.5))
    for queries in (0.0, 3e6):
        limit = bill_curve.break_even(offers.values(), services.values(), Traffic(queries_per_month=queries))
        assert limit == pytest.approx(149.8544e6)
    # US$ 0.10 a million: the machine, full at 438 million, costs 37.4636 there, and serverless 43.80.
    assert bill_curve.break_even([by_query(0.10)], services.values(), Traffic(queries_per_month=0)) == pytest.approx(
        374.636e6
    )
    # US$ 0.08 a million are less than the machines cost at any traffic: 37.4636 for each 438 million.
    assert bill_curve.break_even([by_query(0.08)], services.values(), Traffic(queries_per_month=0)) is None


def test_tokens_of_an_api_are_paid_by_the_query() -> None:
    # A reranker whose API costs US$ 500 a million, on a machine: 3 million queries are 1,500 + 37.4636.  Without it,
    # a machine of 223.38 costs less from 371,833 queries on: (223.38 - 37.4636) / 500 x 1e6.
    services = {"api": service(100, tokens_usd_per_million=500.0), "own": service(100, LARGE)}
    found = bill.bill(services["api"], Traffic(queries_per_month=3e6))
    assert (found.tokens_usd, found.total_usd.value) == pytest.approx((1500, 1537.4636))
    change = bill_curve.next_change(services, Traffic(queries_per_month=1e5))
    # Within 1 % of one another they are called equal: 223.38 <= 1.01 x (37.4636 + 0.0005 q) from 367,410 on.
    assert change is not None and change.queries_per_month == pytest.approx((223.38 / 1.01 - 37.4636) / 5e-4)
    assert change.cheapest == ("api", "own")


AMOUNTS = st.floats(0, 1e4)


@pytest.mark.slow
@given(
    st.floats(0.1, 1e5), st.floats(0.001, 100), st.floats(0, 1e12), st.floats(1, 20), AMOUNTS, AMOUNTS, st.floats(0, 3)
)
def test_parts_sum_to_the_total(
    qps: float, usd: float, queries: float, peak: float, build: float, storage: float, changed: float
) -> None:
    facts = {"documents": 1000, "build_usd": build, "storage_usd_per_month": storage, "tokens_usd_per_million": 3 * usd}
    traffic = Traffic(queries_per_month=queries, peak=peak, changed=changed)
    for indexed in (service(qps, usd, **facts), by_query(usd, **facts)):
        found = bill.bill(indexed, traffic)
        parts = (found.search_usd, found.tokens_usd, found.builds_usd, found.changes_usd, found.storage_usd)
        assert found.total_usd.value == pytest.approx(sum(part for part in parts if part is not None))
        assert found.busy is None or 0 <= found.busy <= 1 / peak * (1 + 1e-9)


@pytest.mark.slow
@given(st.floats(0.1, 1e5), st.floats(1, 1e9), st.floats(1, 10))
def test_query_gets_cheaper_until_the_machine_is_full(qps: float, queries: float, peak: float) -> None:
    less, more = (bill.bill(service(qps), Traffic(queries_per_month=n, peak=peak)) for n in (queries, 1.5 * queries))
    assert less.usd_per_million.value is not None and more.usd_per_million.value is not None
    if more.machines == less.machines:
        assert more.usd_per_million.value < less.usd_per_million.value
    assert more.machines >= less.machines
