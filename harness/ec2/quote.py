"""What is about to be launched, and what it will cost: told before anything starts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.ec2 import money
from harness.ec2.estimates import Estimate
from harness.ec2.machines import Machine
from harness.ec2.records import Group

# A longer table is read by nobody.
_MOST_ROWS = 24


@dataclass(frozen=True)
class Quote:
    """All that the user is asked about.

    ``quotas`` by instance type, ``None``: not known; ``zones`` that offer a type; ``prices`` names the snapshot.
    """

    groups: tuple[Group, ...]
    region: str
    prices: str
    amis: tuple[str, ...]
    zones: Mapping[str, tuple[str, ...]]
    quotas: Mapping[str, str | None]
    most: int
    cap_usd: float | None
    spot: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def expected_usd(self) -> float:
        """At the estimates."""
        return sum(usd(group) for group in self.groups)

    @property
    def worst_usd(self) -> float:
        """If every box lives as long as it is allowed to: what the time limits on the boxes hold it to, or the cap."""
        limits = sum(
            money.committed_usd(group.usd_per_hour, money.usual_limit_s(estimate(group))) for group in self.groups
        )
        return limits if self.cap_usd is None else min(limits, self.cap_usd)

    @property
    def timeouts_usd(self) -> float:
        """If every job and build ran into the protocol's time-outs, and boxes were started again until all is done."""
        return sum(group.usd_per_hour * group.worst_s / 3600 for group in self.groups)

    @property
    def hours(self) -> float:
        """From the first launch to the last end, about: builds first, then as many at once as are allowed."""
        builds = [group.expected_s for group in self.groups if not group.jobs]
        others = [group.expected_s for group in self.groups if group.jobs]
        return (_span(builds, self.most) + _span(others, self.most)) / 3600


def estimate(group: Group) -> Estimate:
    """A group's time."""
    return Estimate(group.expected_s, group.worst_s, group.measured)


def usd(group: Group) -> float:
    """What it is expected to cost."""
    return group.usd_per_hour * max(group.expected_s, money.LEAST_BILLED_S) / 3600


def _span(seconds: Sequence[float], most: int) -> float:
    loads = [0.0] * max(1, min(most, len(seconds)))
    for each in sorted(seconds, reverse=True):
        loads[loads.index(min(loads))] += each
    return max(loads)


def remarks(machines: Mapping[str, Machine]) -> tuple[str, ...]:
    """What is to be said of the machines."""
    return tuple(dict.fromkeys(machine.remark for machine in machines.values() if machine.remark))


def show(quote: Quote, console: Console) -> None:
    """Print it: a table and what it leaves unsaid."""
    table = Table(box=None, pad_edge=False)
    for head in ("part", "type", "builds", "jobs", "disk", "hours", "", "US$/h", "US$"):
        table.add_column(head, justify="left" if head in ("part", "type", "") else "right", no_wrap=True)
    for row in rows(quote.groups):
        table.add_row(*row)
    console.print(table)
    for line in lines(quote):
        console.print(escape(line), highlight=False, soft_wrap=True)


def rows(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    """A row for each part; where they are many, one for those that follow one another on one type."""
    together = len(groups) > _MOST_ROWS
    runs = itertools.groupby(groups, lambda group: (group.instance_type, not group.jobs) if together else group.name)
    return [_row(list(same)) for _, same in runs]


def _row(same: list[Group]) -> tuple[str, ...]:
    first, last = same[0], same[-1]
    return (
        first.name if first is last else f"{first.name}-{last.name}",
        first.instance_type,
        str(sum(len(group.builds) for group in same)),
        str(sum(len(group.jobs) for group in same)),
        f"{max(group.disk_gib for group in same)} GiB",
        f"{sum(group.expected_s for group in same) / 3600:.2f}",
        "measured" if all(group.measured for group in same) else "assumed",
        f"{max(group.usd_per_hour for group in same):.4f}",
        f"{sum(usd(group) for group in same):.2f}",
    )


def lines(quote: Quote) -> list[str]:
    """What stands below the table."""
    types = sorted({group.instance_type for group in quote.groups})
    said = [
        f"region: {quote.region}; prices: {quote.prices}, with disk (gp3) and a public address each"
        + ("; spot capacity costs at most that" if quote.spot else ""),
        f"machine images: {', '.join(quote.amis)}",
        *(
            f"{name}: offered in {', '.join(quote.zones.get(name, ())) or 'no zone'};"
            f" quota: {quote.quotas.get(name) or 'not known'}"
            for name in types
        ),
        *quote.remarks,
        f"{len(quote.groups)} instances, at most {quote.most} at once, about {quote.hours:.1f} h in all",
        f"about US$ {quote.expected_usd:.2f}; never more than US$ {quote.worst_usd:.2f} for these instances, by the"
        f" time limit on each"
        + (" and --max-usd" if quote.cap_usd is not None else "")
        + f" (were every job to run into its time-out: US$ {quote.timeouts_usd:.2f})",
    ]
    if quote.cap_usd is None:
        said.append("lost instances are replaced, up to twice each; --max-usd holds all of it to a sum")
    return said
