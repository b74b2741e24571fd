"""What a million queries cost, after Santhanam et al. 2023 (Findings of ACL, section 3).

One instance serves one query at a time, so a query costs its latency's share of the hourly price.  That is
true of closed-loop latency (scenario ``single_stream``) only: under load, latency holds waiting as well.
"""

from __future__ import annotations

FORMULA = "US$ per million queries = mean latency (s) x US$ per hour / 3600 x 1,000,000"


def usd_per_million(mean_latency_s: float, price_usd_per_hour: float) -> float:
    """US$ per million queries, one after the other, on an instance of that price.

    Args:
        mean_latency_s: the mean, never a percentile: only the mean adds up over queries.
        price_usd_per_hour: the instance's price.

    Raises:
        ValueError: one of the two is negative or no number.
    """
    if not (mean_latency_s >= 0 and price_usd_per_hour >= 0):
        raise ValueError(f"latency {mean_latency_s} s and price {price_usd_per_hour} US$/h must not be negative")
    return mean_latency_s * price_usd_per_hour / 3600 * 1e6
