"""What became of a paper's costs: the same machines at other prices, and what one would rent instead.

Latencies are the paper's throughout: on another machine they were not measured again.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from harness.analysis.published.recompute import Cost, costs, fraction, lines, machine, per_million
from harness.analysis.published.tables import Hardware, Published
from harness.pricing import offers
from harness.pricing.instances import Instance
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.records import Envelope


@dataclass(frozen=True)
class Rent:
    """What one hardware, on the type that the paper names, costs an hour (US$).

    ``same`` is that type at the later date (``None``: it has no price there), ``successor`` what then has at least
    the same of everything, where the later prices are the same provider's. The four others provide what the hardware
    asks for, at the two dates, on any architecture and on x86_64: without GPUs never a type that has some, with GPUs
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


@dataclass(frozen=True)
class Moved:
    """A printed cost (US$), what it is with the rents of another date, and its rank by cost in its table.

    The rank is that of the printed cost and that with the cheapest machines of the later date.
    """

    cost: Cost
    rent: Rent
    same: Fraction | None
    cheapest: Fraction | None
    cheapest_x86: Fraction | None
    rank_then: int | None
    rank: int | None


def rents(published: Published, then: Snapshot, now: Snapshot) -> tuple[Rent, ...]:
    """Each hardware with each type that the paper puts it on, once, in the tables' order.

    Raises:
        FileError: a type has no price in ``then``.
    """
    found: dict[tuple[Hardware, str], Rent] = {}
    for _, _, line in lines(published):
        key = (line.hardware, line.instance_type)
        if key not in found:
            found[key] = _rent(line.hardware, machine(published, line, then), then, now)
    return tuple(found.values())


def moved(published: Published, then: Snapshot, now: Snapshot) -> tuple[Moved, ...]:
    """Every cost of Tables 2 and 3 with the rents of ``now``; FileError as :func:`rents`."""
    by_type = {(rent.hardware, rent.instance_type): rent for rent in rents(published, then, now)}
    every = costs(published, then)
    pairs = [(cost, by_type[cost.hardware, cost.instance_type]) for cost in every]
    cheapest = [_at(cost, rent.cheapest) for cost, rent in pairs]
    return tuple(
        Moved(
            cost=cost,
            rent=rent,
            same=None if rent.same is None else per_million(cost.latency.value, rent.same),
            cheapest=new,
            cheapest_x86=_at(cost, rent.cheapest_x86),
            rank_then=_rank(cost.printed.value, [each.printed.value for each in every if each.table == cost.table]),
            rank=_rank(new, [value for each, value in zip(every, cheapest, strict=True) if each.table == cost.table]),
        )
        for (cost, rent), new in zip(pairs, cheapest, strict=True)
    )


def _rent(hardware: Hardware, facts: Instance, then: Snapshot, now: Snapshot) -> Rent:
    price, same = then.price_of(facts.instance_type), now.price_of(facts.instance_type)
    assert price is not None, "its facts are from there"
    return Rent(
        hardware=hardware,
        instance_type=facts.instance_type,
        then=fraction(price),
        same=None if same is None else fraction(same),
        successor=offers.successor(facts, now) if same is None and facts.provider == now.provider else None,
        cheapest_then=_cheapest(hardware, facts, then),
        cheapest=_cheapest(hardware, facts, now),
        cheapest_x86_then=_cheapest(hardware, facts, then, "x86_64"),
        cheapest_x86=_cheapest(hardware, facts, now, "x86_64"),
    )


def _cheapest(hardware: Hardware, facts: Instance, snapshot: Snapshot, architecture: str | None = None) -> Offer | None:
    """The cheapest that provides the hardware; its GPUs hold what the paper's do, or the model may not fit."""
    envelope = Envelope(hardware.profile, hardware.cpus, hardware.memory_bytes, hardware.gpus)
    return offers.cheapest(envelope, snapshot, architecture, gpu_memory_bytes=facts.gpu_memory_bytes)


def _at(cost: Cost, offer: Offer | None) -> Fraction | None:
    return None if offer is None else per_million(cost.latency.value, fraction(offer.usd_per_hour))


def _rank(value: Fraction | None, among: list[Fraction] | list[Fraction | None]) -> int | None:
    """1 for the least; equal ones share the rank; what is missing has none."""
    return None if value is None else 1 + sum(each is not None and each < value for each in among)
