"""Compute the cost of queries, an index and its storage: numbers x a price.  All formulas are here.

Three models give the cost of a million queries, and a table shows them by name.  ``sequential`` runs them one
after the other on a machine that does nothing else, as Santhanam et al. 2023 do (Findings of ACL, section 3).
``saturated`` runs them as fast as the whole instance was measured to answer them (the throughput is MLPerf's:
Reddi et al. 2020, ISCA).  ``metered`` pays a serverless offer for the time of each query
(:mod:`harness.pricing.serverless`).  None uses a percentile, nor 1 / latency as a throughput.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from harness.estimate import Estimate

GIB = 2**30


@dataclass(frozen=True)
class CostModel:
    """Model of the cost of a million queries: its name, its formula, and its assumption."""

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
    "a whole instance that is always as busy as it can be: the highest measured throughput within the latency target "
    "(scenario server), or with no latency target (scenario offline)",
)
METERED = CostModel(
    "metered",
    "US$ per million queries = billed (s) x (vCPUs x US$ per vCPU-second + GiB x US$ per GiB-second) x 1,000,000 "
    "+ US$ per million requests",
    "the cheapest serverless offer that is paid by the request and holds the hardware profile; time without queries "
    "costs nothing, and each query is rounded up as the provider does, by half a step on average",
)
MODELS = (SEQUENTIAL, SATURATED, METERED)
BUILD_FORMULA = "US$ per million documents = build (s) x US$ per hour / 3600 / documents x 1,000,000"
STORAGE_FORMULA = "US$ per month = index (GiB) x US$ per GiB-month"


def describe_models(scenarios: Iterable[str]) -> Iterator[str]:
    """Yield a sentence on each model that prices queries of these scenarios."""
    sequential = {scenario == "single_stream" for scenario in scenarios if scenario != "mixed"}
    for model, is_used in ((SEQUENTIAL, True in sequential), (SATURATED, False in sequential)):
        if is_used:
            yield f"Cost, {model.name}: {model.formula}; {model.meaning}."


def usd_per_million(mean_latency_s: float, price_usd_per_hour: float) -> float:
    """Return US$ per million queries in the model ``sequential``: one after the other.

    Args:
        mean_latency_s: mean closed-loop latency (under load it includes waiting), never a percentile: only the mean
            adds up over queries.
        price_usd_per_hour: the instance's price.
    """
    return mean_latency_s * price_usd_per_hour / 3600 * 1e6


def usd_per_million_saturated(throughput_qps: float, price_usd_per_hour: float) -> float:
    """Return US$ per million queries in the model ``saturated``: at the highest throughput.

    Args:
        throughput_qps: as measured on the whole instance, never 1 / latency.
        price_usd_per_hour: the instance's price.
    """
    return price_usd_per_hour / (throughput_qps * 3600) * 1e6


def build_usd_per_million_documents(build_s: float, price_usd_per_hour: float, documents: int) -> float:
    """Return US$ to index a million documents at the pace of ``documents`` in ``build_s``."""
    return build_s * price_usd_per_hour / 3600 / documents * 1e6


def storage_usd_per_month(index_bytes: int, usd_per_gib_month: float) -> float:
    """Return US$ per month to store an index."""
    return index_bytes / GIB * usd_per_gib_month


def sequential(mean_latency_s: Estimate, price_usd_per_hour: float) -> Estimate:
    """Return the cost in the model ``sequential``, with the latency's interval or missing reason."""
    return mean_latency_s.map(lambda seconds: usd_per_million(seconds, price_usd_per_hour))


def saturated(throughput_qps: Estimate, price_usd_per_hour: float) -> Estimate:
    """Return the cost in the model ``saturated``, with the throughput's interval (ends swapped) or missing reason.

    Nothing answered has no price, and an interval from 0 has no upper end.
    """
    if throughput_qps.value == 0:
        return Estimate(None, reason="no query was answered")
    rates = replace(throughput_qps, low=throughput_qps.low or None)
    return rates.map_decreasing(lambda rate: usd_per_million_saturated(rate, price_usd_per_hour))
