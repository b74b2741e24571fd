"""Recompute every cost that the paper prints, exactly, and price it again at another date.

US$ per million queries = mean latency (ms) / 1000 x US$ per hour / 3600 x 1,000,000.  A printed latency stands for
every number that rounds to it, so the cost that follows is an interval; a printed cost agrees if some number that
rounds to it lies in that interval.  On another machine latencies were not measured again: they are the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from harness.analysis.published import Hardware, Printed, Published, Reported, TimedSystem, Viable
from harness.driver.records import Envelope
from harness.pricing import offers
from harness.pricing.instances import Instance
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.stats import competition_ranks

# US$ per million queries, of one millisecond at one US$ per hour.
_PER_MS = Fraction(1_000_000, 1000 * 3600)


@dataclass(frozen=True)
class Interval:
    """All numbers from ``low`` to ``high``, both included."""

    low: Fraction
    high: Fraction

    def times(self, factor: Fraction) -> Interval:
        """Scale by a factor of 0 or more."""
        return Interval(self.low * factor, self.high * factor)

    def meets(self, other: Interval) -> bool:
        """Return whether some number lies in both."""
        return self.low <= other.high and other.low <= self.high


def interval(figure: Printed) -> Interval:
    """Return every number that rounds to a printed figure: half a unit of its last digit to both sides.

    Both ends belong to it, because the paper does not say how it rounds a tie.
    """
    half = Fraction(1, 2 * 10**figure.decimals)
    return Interval(max(figure.value - half, Fraction(0)), figure.value + half)


def decimal(number: Fraction | float, decimals: int) -> str:
    """Write a number with ``decimals`` digits behind the point."""
    return f"{float(number):.{decimals}f}"


def per_million(latency_ms: Fraction, usd_per_hour: Fraction) -> Fraction:
    """Return US$ per million queries, one after the other."""
    return latency_ms * usd_per_hour * _PER_MS


def fraction(usd_per_hour: float) -> Fraction:
    """Return a price exactly as the price list writes it: the shortest text that reads back the same."""
    return Fraction(repr(usd_per_hour))


@dataclass(frozen=True)
class Cost:
    """A printed cost and the cost that follows from its latency and price.

    ``exact`` takes the printed latency at its word, in US$.  ``number`` counts the rows of its table from 1;
    ``taken_from`` is the row of Table 1 that gives Table 2 its latency.
    """

    table: str
    number: int
    system: str
    hardware: Hardware
    instance_type: str
    latency: Printed
    taken_from: Reported | None
    printed: Printed
    usd_per_hour: Fraction
    exact: Fraction
    follows: Interval

    @property
    def agrees(self) -> bool:
        """Return whether both printed figures agree to within their rounding."""
        return self.follows.meets(interval(self.printed))


def costs(published: Published, snapshot: Snapshot) -> tuple[Cost, ...]:
    """Recompute all costs of Tables 2 and 3, in the tables' order.

    Raises:
        FileError: a row names an instance type that has no price in ``snapshot``, or no row of Table 1.
    """
    return tuple(_cost(published, table, number, line, snapshot) for table, number, line in published.lines())


def _cost(published: Published, table: str, number: int, line: Viable | TimedSystem, snapshot: Snapshot) -> Cost:
    latency, taken_from = published.latency_of(line)
    price = fraction(_price(published.instance(line, snapshot), snapshot))
    return Cost(
        table=table,
        number=number,
        system=line.system,
        hardware=line.hardware,
        instance_type=line.instance_type,
        latency=latency,
        taken_from=taken_from,
        printed=line.cost_usd_per_million,
        usd_per_hour=price,
        exact=per_million(latency.value, price),
        follows=interval(latency).times(per_million(Fraction(1), price)),
    )


def _price(instance: Instance, snapshot: Snapshot) -> float:
    price = snapshot.price_of(instance.instance_type)
    assert price is not None, "a snapshot has the facts of priced types only"
    return price


@dataclass(frozen=True)
class Rent:
    """Prices per hour (US$) of one hardware, on the paper's type and on the cheapest types.

    ``same`` is the paper's type at the later date (``None``: it has no price there), ``successor`` the type that then
    has at least the same of everything, where the later prices are the same provider's. The four others provide the
    hardware, at the two dates, on any architecture and on x86_64: without GPUs never a type that has some, with GPUs
    never one with less GPU memory than the paper's.
    """

    hardware: Hardware
    instance_type: str
    then: Fraction
    same: Fraction | None
    successor: Offer | None
    cheapest_then: Offer | None
    cheapest: Offer | None
    cheapest_x86_then: Offer | None
    cheapest_x86: Offer | None


def rents(published: Published, then: Snapshot, now: Snapshot) -> tuple[Rent, ...]:
    """Price each hardware on each type that the paper puts it on, once, in the tables' order.

    Raises:
        FileError: a type has no price in ``then``.
    """
    rents: dict[tuple[Hardware, str], Rent] = {}
    for _, _, line in published.lines():
        key = (line.hardware, line.instance_type)
        if key not in rents:
            rents[key] = _rent(line.hardware, published.instance(line, then), then, now)
    return tuple(rents.values())


def _rent(hardware: Hardware, facts: Instance, then: Snapshot, now: Snapshot) -> Rent:
    same = now.price_of(facts.instance_type)
    return Rent(
        hardware=hardware,
        instance_type=facts.instance_type,
        then=fraction(_price(facts, then)),
        same=None if same is None else fraction(same),
        successor=offers.successor(facts, now) if same is None and facts.provider == now.provider else None,
        cheapest_then=_cheapest(hardware, facts, then),
        cheapest=_cheapest(hardware, facts, now),
        cheapest_x86_then=_cheapest(hardware, facts, then, "x86_64"),
        cheapest_x86=_cheapest(hardware, facts, now, "x86_64"),
    )


def _cheapest(hardware: Hardware, facts: Instance, snapshot: Snapshot, architecture: str | None = None) -> Offer | None:
    """Find the cheapest type for a hardware; its GPUs hold what the paper's do, or the model may not fit."""
    envelope = Envelope(hardware.profile, hardware.cpus, hardware.memory_bytes, hardware.gpus)
    provided = offers.find_offers(
        envelope, snapshot, architecture=architecture, gpu_memory_bytes=facts.gpu_memory_bytes
    )
    return provided.cheapest


@dataclass(frozen=True)
class RepricedCost:
    """A printed cost (US$), the cost at the rents of another date, and both ranks by cost in its table.

    ``rank_then`` is that of the printed cost, ``rank`` that with the cheapest machines of the later date.
    """

    cost: Cost
    rent: Rent
    same: Fraction | None
    cheapest: Fraction | None
    cheapest_x86: Fraction | None
    rank_then: int | None
    rank: int | None


def reprice(published: Published, then: Snapshot, now: Snapshot) -> tuple[RepricedCost, ...]:
    """Price every cost of Tables 2 and 3 with the rents of ``now``; FileError as :func:`rents`."""
    by_type = {(rent.hardware, rent.instance_type): rent for rent in rents(published, then, now)}
    pairs = [(cost, by_type[cost.hardware, cost.instance_type]) for cost in costs(published, then)]
    cheapest = [_at(cost, rent.cheapest) for cost, rent in pairs]

    every = [cost for cost, _ in pairs]
    ranks_then, ranks = _ranks(every, [cost.printed.value for cost in every]), _ranks(every, cheapest)
    return tuple(
        RepricedCost(
            cost=cost,
            rent=rent,
            same=None if rent.same is None else per_million(cost.latency.value, rent.same),
            cheapest=new,
            cheapest_x86=_at(cost, rent.cheapest_x86),
            rank_then=rank_then,
            rank=rank,
        )
        for (cost, rent), new, rank_then, rank in zip(pairs, cheapest, ranks_then, ranks, strict=True)
    )


def _at(cost: Cost, offer: Offer | None) -> Fraction | None:
    return None if offer is None else per_million(cost.latency.value, fraction(offer.usd_per_hour))


def _ranks(costs: Sequence[Cost], values: Sequence[Fraction | None]) -> list[int | None]:
    """Rank each cost's value among the costs of its table, the least first."""
    ranks: dict[int, int | None] = {}
    for table in {cost.table for cost in costs}:
        numbers = [number for number, cost in enumerate(costs) if cost.table == table]
        among = [None if (value := values[number]) is None else float(value) for number in numbers]
        ranks |= zip(numbers, competition_ranks(among), strict=True)
    return [ranks[number] for number in range(len(costs))]
