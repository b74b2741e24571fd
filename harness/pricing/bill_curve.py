"""Compute US$ a month over the queries of a month, and the queries at which others become the cheapest.  Pure.

Machines are whole, so that the cost of rented machines is a flight of steps.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.pricing import bill
from harness.pricing.bill import Change, Service, Traffic

# The queries of a month that curves span.
LEAST_QUERIES, MOST_QUERIES = 1e4, 1e10
# Machines that steps add one by one; beyond them a step adds 2 %, which no picture shows.
SINGLE_STEPS, STEP_SHARE = 50, 0.02
# From a step on, a machine more is needed: the queries just beyond it, over its own.
BEYOND = 1 + 1e-9
# A line that is not level bends on logarithmic axes: it gets a point for each such factor of queries.
_BEND = 1.15


class MonthlyCost(Protocol):
    """A way to answer the queries of a month.  Its cost is linear between two steps."""

    def monthly(self, queries: float) -> float:
        """Return US$ a month."""
        ...

    def steps(self) -> Iterator[float]:
        """Yield the monthly queries beyond which the cost leaps, ascending, perhaps without end."""
        ...


@dataclass(frozen=True)
class ServiceCost:
    """A service at any number of queries; ``traffic`` has everything else."""

    service: Service
    traffic: Traffic

    @property
    def full(self) -> float:
        """Return the monthly queries that fill one rented machine in the busiest hour."""
        assert self.service.capacity_qps.value is not None, "a service without a capacity rents no machine"
        return self.service.capacity_qps.value * bill.SECONDS / self.traffic.peak

    def monthly(self, queries: float) -> float:
        """Return US$ a month."""
        return bill.total_usd(self.service, self.traffic, queries)

    def steps(self) -> Iterator[float]:
        """Yield the monthly queries beyond which a machine more is needed; beyond 50 machines, 2 % more of them."""
        machines = self.traffic.machines
        while self.service.rented:
            yield machines * self.full
            machines += math.ceil(machines * STEP_SHARE) if machines >= SINGLE_STEPS else 1


@dataclass(frozen=True)
class CheapestOf:
    """Several ways to answer the queries, of which the cheapest is taken at each traffic."""

    costs: tuple[MonthlyCost, ...]

    def monthly(self, queries: float) -> float:
        """Return US$ a month."""
        return min(cost.monthly(queries) for cost in self.costs)

    def steps(self) -> Iterator[float]:
        """Yield the steps of all ways, ascending."""
        return heapq.merge(*(cost.steps() for cost in self.costs))


def curve(
    cost: MonthlyCost, least: float = LEAST_QUERIES, most: float = MOST_QUERIES
) -> tuple[tuple[float, float], ...]:
    """Return points of queries and US$ a month: both ends of each step, and more where the cost grows between steps."""
    steps = itertools.takewhile(lambda step: step < most, cost.steps())
    inside = [queries for step in steps if step >= least for queries in (step, step * BEYOND)]
    points = [(queries, cost.monthly(queries)) for queries in (least, *inside, most)]
    bent = []
    for (start, low), (end, high) in itertools.pairwise(points):
        bends = math.floor(math.log(end / start, _BEND)) if low != high else 0
        between = (start * (end / start) ** (place / (bends + 1)) for place in range(1, bends + 1))
        bent += [(start, low), *((queries, cost.monthly(queries)) for queries in between)]
    return (*bent, points[-1])


def changes(
    costs: Mapping[str, MonthlyCost], least: float = LEAST_QUERIES, most: float = MOST_QUERIES
) -> Iterator[Change]:
    """Yield each traffic from which on others are the cheapest, or within 1 % of it, ascending.

    The place is exact.  Beyond 50 machines, a change that lasts for less than 2 % more queries may be missed.
    """

    def cheapest(queries: float) -> tuple[str, ...]:
        return bill.least({name: cost.monthly(queries) for name, cost in costs.items()})

    def same(queries: float) -> bool:
        return cheapest(queries) == now

    places = sorted({queries for cost in costs.values() for queries, _ in curve(cost, least, most)})
    before, now = least, cheapest(least)
    for after in places:
        then = cheapest(after)
        while now != then:
            before = _boundary(same, before, after)
            now = cheapest(before)
            yield Change(before, now)
        before = after


def _boundary(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the first queries at which a condition fails that holds at ``low`` and fails at ``high``, by bisection."""
    while high - low > 1e-11 * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high
