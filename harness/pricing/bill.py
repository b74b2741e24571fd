"""Compute a month's bill of a system at some traffic: rented machines, index builds, re-encoded documents, storage.

A bill is for machines that are rented all month, busy or not.  Pure.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from harness.config import ConfigModel, read_toml, validate
from harness.estimate import Estimate

# A month as clouds count it: 365 days of 24 hours over 12.
HOURS = 730
SECONDS = HOURS * 3600
# Bills that differ by less are called equal.
SAME_SHARE = 0.01
# How far to look for the traffic at which another system becomes the cheapest.
_MOST_STEPS, _MOST_QUERIES = 20_000, 1e13

FORMULA = (
    "US$ a month = machines x US$ per hour x 730 + builds + changed documents + storage; machines = the peak rate over "
    "what one machine answers, rounded up"
)


class Traffic(ConfigModel):
    """``[traffic]``: the queries and documents of a service."""

    queries_per_month: float = Field(ge=0, le=1e15, description="queries in a month of 730 hours")
    peak: float = Field(default=3.0, ge=1, le=1e6, description="rate of the busiest hour over the mean rate")
    documents: int | None = Field(
        default=None, ge=1, le=10**13, description="documents; by default as many as were measured"
    )
    changed: float = Field(
        default=0.0, ge=0, le=1000, description="share of the documents that are indexed again each month"
    )
    builds: float = Field(default=1.0, ge=0, le=1e5, description="builds of the whole index each month")
    machines: int = Field(default=1, ge=1, le=10**6, description="fewest machines; 2 where one may fail")

    @property
    def mean_qps(self) -> float:
        """Return the mean rate, in queries a second."""
        return self.queries_per_month / SECONDS

    @property
    def peak_qps(self) -> float:
        """Return the rate of the busiest hour, in queries a second."""
        return self.peak * self.mean_qps


def read_traffic(path: Path, given: Mapping[str, Any]) -> Traffic:
    """Read the table ``[traffic]`` of a TOML file; numbers that are ``given`` replace its own.

    Raises:
        FileError: the file cannot be read, or a number is wrong.
    """
    table = read_toml(path).get("traffic", {})
    return validate(Traffic, {**table, **given} if isinstance(table, dict) else table, path, "traffic")


@dataclass(frozen=True, kw_only=True)
class Service:
    """The measured and priced facts of a system that its bill is made of.

    ``capacity_qps`` is what one machine answers.  ``build_usd`` and ``storage_usd_per_month`` are for the ``documents``
    that were measured; ``None``: not known, and left out of the bill.
    """

    capacity_qps: Estimate
    usd_per_hour: float
    documents: int | None = None
    build_usd: float | None = None
    storage_usd_per_month: float | None = None

    def times_larger(self, traffic: Traffic) -> float:
        """Return how many times as many documents the service has as were measured."""
        return traffic.documents / self.documents if traffic.documents and self.documents else 1.0


@dataclass(frozen=True)
class Bill:
    """A month's bill in US$.  ``busy``: the share of the month in which the machines answer queries."""

    machines: int
    busy: float
    search_usd: float
    builds_usd: float | None
    changes_usd: float | None
    storage_usd: float | None
    total_usd: Estimate
    usd_per_million: float | None


def machines(traffic: Traffic, capacity_qps: float) -> int:
    """Return how many machines the busiest hour needs.

    Raises:
        ValueError: the capacity is not positive.
    """
    if not capacity_qps > 0:
        raise ValueError(f"capacity_qps is {capacity_qps}; write a positive number")
    # A rate that fills n machines exactly needs n, whatever the last digit of the quotient is.
    return max(traffic.machines, math.ceil(traffic.peak_qps / capacity_qps * (1 - 1e-12)))


def bill(service: Service, traffic: Traffic) -> Bill:
    """Return the bill of a service that has a capacity; builds and storage grow with the documents, linearly.

    The interval comes from the capacity's: fewer queries a second may need one machine more.
    """
    capacity = service.capacity_qps
    assert capacity.value is not None, "a service without a capacity has no bill"
    scale = service.times_larger(traffic)
    count = machines(traffic, capacity.value)
    builds = None if service.build_usd is None else service.build_usd * scale * traffic.builds
    changes = None if service.build_usd is None else service.build_usd * scale * traffic.changed
    storage = None if service.storage_usd_per_month is None else service.storage_usd_per_month * scale * count

    def total(rate: float) -> float:
        needed = machines(traffic, rate)
        stored = (service.storage_usd_per_month or 0.0) * scale * needed
        return needed * service.usd_per_hour * HOURS + stored + (builds or 0.0) + (changes or 0.0)

    low, high = (None if end is None or end <= 0 else total(end) for end in (capacity.high, capacity.low))
    whole = total(capacity.value)
    return Bill(
        machines=count,
        busy=traffic.mean_qps / (count * capacity.value),
        search_usd=count * service.usd_per_hour * HOURS,
        builds_usd=builds,
        changes_usd=changes,
        storage_usd=storage,
        total_usd=Estimate(whole, low, high, reason=capacity.reason),
        usd_per_million=whole / traffic.queries_per_month * 1e6 if traffic.queries_per_month else None,
    )


def cheapest(services: Mapping[str, Service], traffic: Traffic) -> tuple[str, ...]:
    """Return the services whose bill is the least, or within 1 % of it, in their order."""
    totals = {name: bill(each, traffic).total_usd.value or 0.0 for name, each in services.items()}
    least = min(totals.values(), default=0.0)
    return tuple(name for name, total in totals.items() if total <= least * (1 + SAME_SHARE))


@dataclass(frozen=True)
class Change:
    """The monthly queries from which on other services are the cheapest, and which."""

    queries_per_month: float
    cheapest: tuple[str, ...]


def next_change(services: Mapping[str, Service], traffic: Traffic) -> Change | None:
    """Return the next more traffic at which other services are the cheapest; ``None``: none up to 10 trillion queries.

    A bill changes only where the busiest hour needs one machine more, so only these steps are looked at.
    """
    now = cheapest(services, traffic)
    for queries in itertools.islice(_steps(services.values(), traffic), _MOST_STEPS):
        if queries > _MOST_QUERIES:
            break
        then = cheapest(services, traffic.model_copy(update={"queries_per_month": queries * (1 + 1e-9)}))
        if then != now:
            return Change(queries, then)
    return None


def _steps(services: Collection[Service], traffic: Traffic) -> Iterator[float]:
    """Yield the monthly queries beyond which some service needs one machine more, ascending."""

    def of_one(service: Service) -> Iterator[float]:
        assert service.capacity_qps.value is not None
        full = service.capacity_qps.value * SECONDS / traffic.peak
        return (count * full for count in itertools.count(machines(traffic, service.capacity_qps.value)))

    return heapq.merge(*map(of_one, services))
