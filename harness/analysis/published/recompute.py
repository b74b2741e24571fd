"""Every cost that a paper prints, made again from its latency and the instance's price, exactly.

US$ per million queries = mean latency (ms) / 1000 x US$ per hour / 3600 x 1,000,000.  A printed latency stands for all
that round to it, so the cost that follows is an interval; a printed cost agrees if some number that rounds to it lies
in there.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from harness.analysis.published.rounding import Interval, Printed
from harness.analysis.published.tables import Hardware, Published, Reported, Timed, Viable
from harness.errors import FileError
from harness.pricing.instances import Instance
from harness.pricing.prices import Snapshot

# US$ per million queries, of one millisecond at one US$ per hour.
_PER_MS = Fraction(1_000_000, 1000 * 3600)


@dataclass(frozen=True)
class Cost:
    """One printed cost and what follows for it.  ``exact`` takes the printed latency at its word, in US$.

    ``number`` counts the rows of its table from 1; ``taken_from`` is the row of Table 1 that Table 2's latency is from.
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
        """To within the rounding of both printed figures."""
        return self.follows.meets(self.printed.interval)


def costs(published: Published, snapshot: Snapshot) -> tuple[Cost, ...]:
    """All costs of Tables 2 and 3, in the tables' order.

    Raises:
        FileError: a row names an instance type that has no price in ``snapshot``, or no row of Table 1.
    """
    found = []
    for table, number, line in lines(published):
        latency, taken_from = published.latency_of(line)
        price = exact_price(published, line, snapshot)
        found.append(
            Cost(
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
                follows=latency.interval.times(per_million(Fraction(1), price)),
            )
        )
    return tuple(found)


def lines(published: Published) -> list[tuple[str, int, Viable | Timed]]:
    """The rows that have a machine and a cost: the table's number, the row's, the row."""
    found: list[tuple[str, int, Viable | Timed]] = [
        ("2", number, line) for number, line in enumerate(published.table2, start=1)
    ]
    for dataset in published.about.datasets:
        found += [(dataset.table3, number, each) for number, each in enumerate(published.table3[dataset.name], start=1)]
    return found


def per_million(latency_ms: Fraction, usd_per_hour: Fraction) -> Fraction:
    """US$ per million queries, one after the other."""
    return latency_ms * usd_per_hour * _PER_MS


def fraction(usd_per_hour: float) -> Fraction:
    """A price as the price list writes it (the shortest text that reads back the same), exactly."""
    return Fraction(repr(usd_per_hour))


def exact_price(published: Published, line: Viable | Timed, snapshot: Snapshot) -> Fraction:
    """US$ per hour of a row's own instance type; FileError as :func:`costs`."""
    price = snapshot.price_of(line.instance_type)
    if price is None:
        raise _unknown(published, line, snapshot)
    return fraction(price)


def machine(published: Published, line: Viable | Timed, snapshot: Snapshot) -> Instance:
    """The facts of a row's own instance type; FileError as :func:`costs`."""
    instance = snapshot.instance(line.instance_type)
    if instance is None:
        raise _unknown(published, line, snapshot)
    return instance


def _unknown(published: Published, line: Viable | Timed, snapshot: Snapshot) -> FileError:
    return FileError(
        f"{published.folder}: {line.system!r} stands on instance type {line.instance_type!r}, which has no price in"
        f" {snapshot}; correct the type, or name another date"
    )
