"""US$ a month over the queries of a month, reckoned on paper."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.estimate import Estimate
from harness.pricing import bill, bill_curve
from harness.pricing.bill import SECONDS, Service, Traffic
from harness.pricing.bill_curve import MonthlyCost
from tests.pricing.test_bill import LARGE, service

FLAT = Traffic(queries_per_month=1, peak=1)
SMALL, BIG = MonthlyCost((service(100),), FLAT), MonthlyCost((service(1000, LARGE),), FLAT)
# US$ 5 a month and 2 for a million queries.
BY_QUERY = MonthlyCost((Service(usd_per_million=Estimate(2.0), storage_usd_per_month=5.0),), FLAT)


def test_curve_has_both_ends_of_each_step() -> None:
    # 100 queries a second are 262.8 million a month; a machine costs 0.05132 x 730 = US$ 37.4636.
    points = bill_curve.curve(SMALL, 1e4, 7e8)
    assert [queries for queries, _ in points] == pytest.approx([1e4, 262.8e6, 262.8e6, 525.6e6, 525.6e6, 7e8])
    assert [usd for _, usd in points] == pytest.approx([37.4636, 37.4636, 74.9272, 74.9272, 112.3908, 112.3908])


def test_line_that_is_not_level_has_points_on_it_that_are_near_one_another() -> None:
    points = bill_curve.curve(BY_QUERY, 1e4, 1e8)
    assert all(usd == pytest.approx(5 + 2e-6 * queries) for queries, usd in points)
    assert all(1 < after / before < 1.2 for (before, _), (after, _) in itertools.pairwise(points))


@pytest.mark.parametrize(
    ("costs", "most", "expected"),
    [
        # A large machine costs as much as 5.963 small ones.  Up to 1,000 a second it is one: five small ones are
        # cheaper, six are within 1 %.  Up to 2,000 it is two (11.925): eleven are cheaper, twelve within 1 %.
        (
            {"small": SMALL, "big": BIG},
            1e10,
            [(500, "small big"), (600, "big"), (1000, "small"), (1100, "small big"), (1200, "big")],
        ),
        # 37.4636 / 1.01 = 37.0927 = 5 + 2 x 16.046 million; 37.4636 x 1.01 = 37.8382 = 5 + 2 x 16.419 million.
        (
            {"small": SMALL, "metered": BY_QUERY},
            2e8,
            [(16.04634653e6 / SECONDS, "small metered"), (16.419118e6 / SECONDS, "small")],
        ),
        # The cheaper of both is the small one up to 500 a second, and where small ones alone cost the same.
        ({"small": SMALL, "either": MonthlyCost((*SMALL.services, *BIG.services), FLAT)}, 1.7e9, [(600, "either")]),
    ],
)
def test_cheapest_changes_where_it_does_on_paper(
    costs: dict[str, MonthlyCost], most: float, expected: list[tuple[float, str]]
) -> None:
    found = list(bill_curve.changes(costs, 1e6, most))
    assert [" ".join(change.cheapest) for change in found] == [names for _, names in expected]
    assert [change.queries_per_month / SECONDS for change in found] == pytest.approx([at for at, _ in expected])


@pytest.mark.slow
@given(st.floats(0.1, 1e5), st.floats(0, 1e12), st.floats(1, 20), st.floats(0, 100), st.integers(1, 5))
def test_curve_costs_what_the_bill_says(qps: float, queries: float, peak: float, usd: float, fewest: int) -> None:
    priced = service(qps, documents=1000, build_usd=usd, storage_usd_per_month=usd / 10)
    traffic = Traffic(queries_per_month=queries, peak=peak, changed=0.5, machines=fewest)
    cost = MonthlyCost((priced,), traffic)
    assert cost.monthly(queries) == pytest.approx(bill.bill(priced, traffic).total_usd.value)
    steps = list(itertools.islice(cost.steps(), 200))
    assert all(cost.monthly(step) < cost.monthly(step * bill_curve.BEYOND) for step in steps)
