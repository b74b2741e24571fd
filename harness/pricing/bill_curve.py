"""Compute US$ a month over the queries of a month, and the queries at which others become the cheapest.  Pure.

Machines are whole, so that the cost of rented machines is a flight of steps.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from harness.pricing import bill
from harness.pricing.bill import Service, Traffic

# The queries of a month that curves span.
LEAST_QUERIES, MOST_QUERIES = 1e4, 1e10
# How far to look for a traffic at which something changes.
FAR_QUERIES = 1e13
# Machines that steps add one by one; beyond them a step adds 2 %, which no picture shows.
SINGLE_STEPS, STEP_SHARE = 50, 0.02
# From a step on, a machine more is needed: the queries just beyond it, over its own.
BEYOND = 1 + 1e-9
# A line that is not level bends on logarithmic axes: it gets a point for each such factor of queries.
_BEND = 1.15


@dataclass(frozen=True)
class MonthlyCost:
    """US$ for the queries of a month by the cheapest of some services; it is linear between two steps.

    ``traffic`` has everything but the number of queries.
    """

    services: tuple[Service, ...]
    traffic: Traffic

    def monthly(self, queries: float) -> float:
        """Return US$ a month."""
        return min(bill.total_usd(service, self.traffic, queries) for service in self.services)

    def steps(self) -> Iterator[float]:
        """Yield the monthly queries beyond which the cost leaps, ascending, perhaps without end."""
        return heapq.merge(*(_steps(service, self.traffic) for service in self.services if service.rented))


def _steps(service: Service, traffic: Traffic) -> Iterator[float]:
    """Yield the monthly queries beyond which a machine more is needed; beyond 50 machines, 2 % more of them."""
    assert service.capacity_qps.value is not None, "a service without a capacity rents no machine"
    full = service.capacity_qps.value * bill.SECONDS / traffic.peak
    machines = traffic.machines
    while True:
        yield machines * full
        machines += math.ceil(machines * STEP_SHARE) if machines >= SINGLE_STEPS else 1


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


@dataclass(frozen=True)
class Change:
    """The monthly queries from which on other services are the cheapest, and which."""

    queries_per_month: float
    cheapest: tuple[str, ...]


def changes(
    costs: Mapping[str, MonthlyCost], least: float = LEAST_QUERIES, most: float = MOST_QUERIES
) -> Iterator[Change]:
    """Yield each traffic from which on others are the cheapest, or within 1 % of it, ascending.

    The place is exact.  Beyond 50 machines, a change that lasts for less than 2 % more queries may be missed.
    """

    def cheapest(queries: float) -> tuple[str, ...]:
        return bill.least({name: cost.monthly(queries) for name, cost in costs.items()})

    def changed(queries: float) -> bool:
        return cheapest(queries) != now

    now, begin = cheapest(least), least
    while (found := first(costs.values(), changed, begin, most)) is not None:
        begin, now = found, cheapest(found)
        yield Change(found, now)


def next_change(services: Mapping[str, Service], traffic: Traffic) -> Change | None:
    """Return the next more traffic at which others are the cheapest; ``None``: none up to 10 trillion queries."""
    costs = {name: MonthlyCost((each,), traffic) for name, each in services.items()}
    return next(changes(costs, traffic.queries_per_month, FAR_QUERIES), None)


def break_even(
    by_query: Iterable[Service], rented: Iterable[Service], traffic: Traffic, queries: float | None = None
) -> float | None:
    """Return the first more traffic at which the cheapest machines cost no more than queries that are paid one by one.

    ``None``: up to 10 trillion queries they cost more.  At no traffic at all machines cost more, unless they are free.

    Args:
        by_query: services that are paid by the query.
        rented: services on machines.
        traffic: of the service.
        queries: where to begin; by default at the traffic.
    """
    paid, machines = (MonthlyCost(tuple(services), traffic) for services in (by_query, rented))
    begin = traffic.queries_per_month if queries is None else queries
    return first((paid, machines), lambda at: machines.monthly(at) <= paid.monthly(at), begin)


def first(
    costs: Collection[MonthlyCost], holds: Callable[[float], bool], begin: float, most: float = FAR_QUERIES
) -> float | None:
    """Return the first monthly queries beyond ``begin`` at which a condition on the costs holds; ``None``: none do.

    The condition is looked at on both sides of each step.  Between two steps each cost is a straight line.
    """
    before = begin
    steps = heapq.merge(*(cost.steps() for cost in costs))
    for step in itertools.takewhile(lambda step: step < most, itertools.dropwhile(lambda step: step < begin, steps)):
        for after in (step, step * BEYOND):
            if after > before and holds(after):
                return _boundary(holds, before, after)
            before = max(before, after)
    return _boundary(holds, before, most) if holds(most) else None


def _boundary(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the first queries at which a condition holds that fails at ``low`` and holds at ``high``, by bisection."""
    while high - low > 1e-11 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
