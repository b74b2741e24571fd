import datetime
import math

import pytest

from harness import cost, prices


@pytest.mark.parametrize(
    ("instance_type", "latency_ms", "published"),
    [
        # Santhanam et al. 2023, table 3a (MS MARCO): latencies are rounded to 1 ms, costs to a cent.  27 of
        # its 28 rows agree so; DPR on c7g.4xlarge (19 ms, 2.97) is 0.07 ms off and left out.
        ("m6gd.medium", 11, 0.14),
        ("x2gd.large", 10, 0.48),
        ("x2gd.large", 46, 2.15),
        ("x2gd.large", 146, 6.78),
        ("x2gd.large", 206, 9.58),
        ("x2gd.large", 321, 14.90),
        ("x2gd.large", 459, 21.30),
        ("c7g.4xlarge", 51, 8.19),
        ("c7g.4xlarge", 86, 13.88),
        ("p3.2xlarge", 99, 83.97),
        ("p3.8xlarge", 55, 187.24),
    ],
)
def test_published_costs_follow_from_published_latencies(instance_type: str, latency_ms: int, published: float) -> None:
    price = prices.snapshot(datetime.date(2022, 12, 5)).price_of(instance_type)
    assert price is not None
    # The latency behind a rounded one lies within half a millisecond.
    low, high = (cost.usd_per_million((latency_ms + half) / 1e3, price) for half in (-0.5, 0.5))
    assert low - 0.005 <= published <= high + 0.005


def test_one_second_at_3_60_an_hour_is_a_thousand_dollars_a_million() -> None:
    assert cost.usd_per_million(1.0, 3.6) == pytest.approx(1000.0)
    assert cost.usd_per_million(0.0, 3.6) == 0.0


@pytest.mark.parametrize(("latency_s", "price"), [(-0.1, 1.0), (0.1, -1.0), (math.nan, 1.0), (0.1, math.nan)])
def test_nonsense_is_refused(latency_s: float, price: float) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        cost.usd_per_million(latency_s, price)
