"""Compute a month's bill of a system at some traffic: search, tokens, index builds, re-encoded documents, storage.

A service rents machines all month, busy or not, or it is paid by the query.  Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from harness.config import ConfigModel, read_toml, validate
from harness.errors import FileError, did_you_mean
from harness.estimate import Estimate

# A month as clouds count it: 365 days of 24 hours over 12.
HOURS = 730
SECONDS = HOURS * 3600
# Bills that differ by less are called equal.
SAME_SHARE = 0.01

FORMULA = (
    "US$ a month = machines x US$ per hour x 730 + tokens + builds + changed documents + storage; machines = the peak "
    "rate over what one machine answers, rounded up"
)
BY_QUERY_FORMULA = (
    "US$ a month where queries are paid one by one = queries x US$ per million / 1,000,000 + tokens + builds + changed "
    "documents + storage of one index"
)


class Traffic(ConfigModel):
    """``[traffic]``: the queries and documents of a service."""

    queries_per_month: float = Field(ge=0, le=1e15, description="queries in a month of 730 hours")
    peak: float = Field(default=3.0, ge=1, le=1e6, description="rate of the busiest hour over the mean rate")
    documents: int | None = Field(
        default=None, ge=1, le=10**13, description="documents; by default as many as were measured"
    )
    changed: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="share of the documents that are indexed anew each month: changed or added",
    )
    builds: float = Field(default=1.0, ge=0, le=1e5, description="builds of the whole index each month")
    machines: int = Field(default=1, ge=1, le=10**6, description="fewest machines; 2 where one may fail")
    max_latency: tuple[str, ...] = Field(
        default=(), description='most latency, e.g. ["p95=20ms"]; only systems that meet it get a bill'
    )

    @property
    def mean_qps(self) -> float:
        """Return the mean rate, in queries a second."""
        return self.queries_per_month / SECONDS

    @property
    def peak_qps(self) -> float:
        """Return the rate of the busiest hour, in queries a second."""
        return self.peak * self.mean_qps


# The traffic of a page, and of ``harness explain``, until somebody chooses another.
USUAL = Traffic(queries_per_month=3e6)


def read_traffic(path: Path, given: Mapping[str, Any]) -> Traffic:
    """Read the table ``[traffic]`` of a TOML file; numbers that are ``given`` replace its own.

    Raises:
        FileError: the file cannot be read, or a number is wrong.
    """
    content = read_toml(path)
    if "traffic" not in content:
        near = did_you_mean("traffic", content)
        raise FileError(f"{path}: has no table [traffic]{near or '; add it'}")
    table = content["traffic"]
    return validate(Traffic, {**table, **given} if isinstance(table, dict) else table, path, "traffic")


@dataclass(frozen=True, kw_only=True)
class Service:
    """The measured and priced facts of a system that its bill is made of.

    A service on machines has ``capacity_qps``, what one machine answers, and ``usd_per_hour``.  A service that is paid
    by the query has ``usd_per_million`` (queries) instead.  ``build_usd`` and ``storage_usd_per_month`` are for the
    ``documents`` that were measured, ``tokens_usd_per_million`` for queries; ``None``: not known, and left out of the
    bill.
    """

    capacity_qps: Estimate = Estimate(None)
    usd_per_hour: float = 0.0
    usd_per_million: Estimate | None = None
    tokens_usd_per_million: float | None = None
    documents: int | None = None
    build_usd: float | None = None
    storage_usd_per_month: float | None = None

    @property
    def rented(self) -> bool:
        """Return whether it runs on machines that are rented all month."""
        return self.usd_per_million is None

    def times_larger(self, traffic: Traffic) -> float:
        """Return how many times as many documents the service has as were measured."""
        return traffic.documents / self.documents if traffic.documents and self.documents else 1.0


@dataclass(frozen=True)
class Bill:
    """A month's bill in US$.

    ``busy``: the share of the month in which the machines answer queries; ``None``, with no machine, where queries are
    paid one by one.
    """

    machines: int
    busy: float | None
    search_usd: float
    tokens_usd: float | None
    builds_usd: float | None
    changes_usd: float | None
    storage_usd: float | None
    total_usd: Estimate
    usd_per_million: Estimate


def machines(queries: float, traffic: Traffic, capacity_qps: float) -> int:
    """Return how many machines the busiest hour of a month of so many queries needs; the capacity is positive."""
    return max(traffic.machines, round_up(queries / SECONDS * traffic.peak / capacity_qps))


def round_up(machines: float) -> int:
    """Return whole machines; a rate that fills n of them exactly needs n, in spite of rounding errors."""
    return math.ceil(machines * (1 - 1e-12))


def bill(service: Service, traffic: Traffic) -> Bill:
    """Return the bill of a service that has a capacity or a price; builds and storage grow linearly with documents.

    The interval comes from the capacity's (fewer queries a second may need one machine more), or from the price's.
    """
    scale, millions = service.times_larger(traffic), traffic.queries_per_month / 1e6
    price, capacity = service.usd_per_million, service.capacity_qps
    known = capacity if price is None else price
    assert known.value is not None, "a service without a capacity or a price has no bill"
    count = 0 if price is not None else machines(traffic.queries_per_month, traffic, known.value)
    builds = None if service.build_usd is None else service.build_usd * scale * traffic.builds
    changes = None if service.build_usd is None else service.build_usd * scale * traffic.changed
    storage = service.storage_usd_per_month
    # Fewer queries a second cost more.
    ends = (known.low, known.high) if price is not None else (known.high or None, known.low or None)
    low, high = (None if end is None else total_usd(service, traffic, traffic.queries_per_month, end) for end in ends)
    total = Estimate(total_usd(service, traffic, traffic.queries_per_month), low, high, reason=known.reason)
    return Bill(
        machines=count,
        busy=traffic.mean_qps / (count * known.value) if price is None else None,
        search_usd=count * service.usd_per_hour * HOURS if price is None else known.value * millions,
        tokens_usd=None if service.tokens_usd_per_million is None else service.tokens_usd_per_million * millions,
        builds_usd=builds,
        changes_usd=changes,
        storage_usd=None if storage is None else storage * scale * max(1, count),
        total_usd=total,
        usd_per_million=total.map(lambda usd: usd / millions) if millions else Estimate(None, reason="no queries"),
    )


def total_usd(service: Service, traffic: Traffic, queries: float, rate_or_price: float | None = None) -> float:
    """Return US$ of a month of so many queries, at another capacity or price than the service's.

    It is apart from the parts of a bill, because finding a traffic asks for it a million times.
    """
    scale = service.times_larger(traffic)
    each = (service.storage_usd_per_month or 0.0) * scale
    fixed = (service.build_usd or 0.0) * scale * (traffic.builds + traffic.changed)
    fixed += (service.tokens_usd_per_million or 0.0) * queries / 1e6
    if service.usd_per_million is not None:
        price = service.usd_per_million.value if rate_or_price is None else rate_or_price
        return (price or 0.0) * queries / 1e6 + each + fixed
    rate = service.capacity_qps.value if rate_or_price is None else rate_or_price
    count = machines(queries, traffic, rate or 0.0)
    return count * (service.usd_per_hour * HOURS + each) + fixed


def cheapest(services: Mapping[str, Service], traffic: Traffic) -> tuple[str, ...]:
    """Return the services whose bill is the least, or within 1 % of it, in their order."""
    return least({name: total_usd(each, traffic, traffic.queries_per_month) for name, each in services.items()})


def least(totals: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the least bill and of those within 1 % of it, in their order."""
    most = min(totals.values(), default=0.0) * (1 + SAME_SHARE)
    return tuple(name for name, total in totals.items() if total <= most)
