"""What queries, an index and its storage cost: numbers x a price.  The one place that has the formulas.

There are two models of what a million queries cost, and a table shows both by name.  ``sequential`` takes them one
after the other on a machine that does nothing else, as Santhanam et al. 2023 do (Findings of ACL, section 3).
``saturated`` takes them as fast as the whole instance was measured to answer them (the throughput is MLPerf's:
Reddi et al. 2020, ISCA).  Neither is ever made from a percentile, nor from 1 / latency in the place of a throughput.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.stats import Estimate

GIB = 2**30


@dataclass(frozen=True)
class CostModel:
    """One way to say what a million queries cost: its name, its formula, and what the formula takes for granted."""

    name: str
    formula: str
    meaning: str


SEQUENTIAL = CostModel(
    "sequential",
    "US$ per million queries = mean latency (s) x US$ per hour / 3600 x 1,000,000",
    "one query after the other, with the instance rented for that alone (Santhanam et al. 2023, section 3)",
)
SATURATED = CostModel(
    "saturated",
    "US$ per million queries = US$ per hour / (queries/s x 3600) x 1,000,000",
    "the whole instance kept as busy as it was measured to stand: the highest throughput within the latency target "
    "(scenario server), or with no latency target (scenario offline)",
)
MODELS = (SEQUENTIAL, SATURATED)
BUILD_FORMULA = "US$ per million documents = build (s) x US$ per hour / 3600 / documents x 1,000,000"
STORAGE_FORMULA = "US$ per month = index (GiB) x US$ per GiB-month"


def usd_per_million(mean_latency_s: float, price_usd_per_hour: float) -> float:
    """Model ``sequential``: US$ per million queries, one after the other, on an instance of that price.

    Args:
        mean_latency_s: the mean of closed-loop latency (under load it holds waiting as well), never a percentile:
            only the mean adds up over queries.
        price_usd_per_hour: the instance's price.

    Raises:
        ValueError: one of the two is negative or no number.
    """
    if not (mean_latency_s >= 0 and price_usd_per_hour >= 0):
        raise ValueError(f"latency {mean_latency_s} s and price {price_usd_per_hour} US$/h must not be negative")
    return mean_latency_s * price_usd_per_hour / 3600 * 1e6


def usd_per_million_saturated(throughput_qps: float, price_usd_per_hour: float) -> float:
    """Model ``saturated``: US$ per million queries on an instance of that price that answers so many per second.

    Args:
        throughput_qps: as measured on the whole instance, never 1 / latency.
        price_usd_per_hour: the instance's price.

    Raises:
        ValueError: the throughput is not positive, or the price is negative; or one is no number.
    """
    if not (throughput_qps > 0 and price_usd_per_hour >= 0):
        raise ValueError(
            f"throughput {throughput_qps}/s must be positive, price {price_usd_per_hour} US$/h not negative"
        )
    return price_usd_per_hour / (throughput_qps * 3600) * 1e6


def build_usd_per_million_documents(build_s: float, price_usd_per_hour: float, documents: int) -> float:
    """US$ to index a million documents, at the pace at which ``documents`` of them were indexed.

    Raises:
        ValueError: there are no documents, or a number is negative or none.
    """
    if not (documents > 0 and build_s >= 0 and price_usd_per_hour >= 0):
        raise ValueError(f"{build_s} s, {price_usd_per_hour} US$/h, {documents} documents: negative, or no documents")
    return build_s * price_usd_per_hour / 3600 / documents * 1e6


def storage_usd_per_month(index_bytes: int, usd_per_gib_month: float) -> float:
    """US$ per month to keep an index on a disk of that price.

    Raises:
        ValueError: one of the two is negative or no number.
    """
    if not (index_bytes >= 0 and usd_per_gib_month >= 0):
        raise ValueError(f"{index_bytes} bytes and {usd_per_gib_month} US$ per GiB-month must not be negative")
    return index_bytes / GIB * usd_per_gib_month


def sequential(mean_latency_s: Estimate, price_usd_per_hour: float) -> Estimate:
    """Model ``sequential`` with the latency's interval and reason; missing where the latency is."""
    return _follow(mean_latency_s, lambda seconds: usd_per_million(seconds, price_usd_per_hour))


def saturated(throughput_qps: Estimate, price_usd_per_hour: float) -> Estimate:
    """Model ``saturated`` with the throughput's interval, its ends changed over; missing where the throughput is."""
    turned = Estimate(throughput_qps.value, throughput_qps.high, throughput_qps.low, throughput_qps.reason)
    return _follow(turned, lambda rate: usd_per_million_saturated(rate, price_usd_per_hour))


def _follow(measured: Estimate, price: Callable[[float], float]) -> Estimate:
    value, low, high = (None if each is None else price(each) for each in (measured.value, measured.low, measured.high))
    return Estimate(value, low, high, measured.reason)
