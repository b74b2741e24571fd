"""How a run stands: its groups, the box that each has now, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.ec2 import money
from harness.ec2.book import Book, Signs
from harness.ec2.deciding import Box, Part, Patience, World
from harness.ec2.estimates import Estimate
from harness.ec2.fleet import Seen
from harness.ec2.homecoming import Home
from harness.ec2.money import BEYOND_LIMIT_S, Ask
from harness.ec2.records import Group, Settled, part_name
from harness.remote.records import PartJob

_ENDING = ("shutting-down", "stopping", "stopped")


@dataclass
class Standing:
    """One group.  ``fate`` is ``done``, ``given up`` or ``left`` once nothing more is to be done for it.

    ``asked``: EC2 has said that the present instance is launched; ``answered``: when it was last asked, or said so.
    ``ended``: EC2 has said that it was there and has ended.  ``refused_at``: since when EC2 has refused it for what may
    pass.
    """

    group: Group
    attempt: int
    jobs: tuple[PartJob, ...]
    asked: bool = False
    answered: float | None = None
    ended: bool = False
    refused_at: float | None = None
    told: float | None = None
    told_first: float | None = None
    seen: Seen | None = None
    avoid: str | None = None
    fate: str | None = None

    @property
    def part(self) -> str:
        """The name of its present part."""
        return part_name(self.group.name, self.attempt)


@dataclass(frozen=True)
class Terms:
    """What the user allows: instances at once, money (``None``: no cap), and how long to wait for signs of life."""

    most: int
    cap_usd: float | None = None
    patience: Patience = field(default_factory=Patience)


@dataclass
class Run:
    """All groups of a run."""

    book: Book
    home: Home
    terms: Terms
    groups: dict[str, Standing] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)
    held: dict[str, float] = field(default_factory=dict)
    # Since when no zone has had one, by instance type.
    short: dict[str, float] = field(default_factory=dict)
    # When an instance of ours was last seen alive.
    lived_at: float = float("-inf")
    # Jobs that arrived damaged: never taken.
    damaged: dict[str, str] = field(default_factory=dict)
    stopping: str | None = None
    now: float = 0.0

    def begin(self) -> None:
        """Take up each group where the book says that it stands."""
        for group in self.book.run.groups:
            attempt = self.book.attempt(group.name)
            if attempt:
                jobs = self.book.parts[part_name(group.name, attempt)].jobs
            else:
                attempt, jobs = 1, self.home.left(group)
            standing = Standing(group, attempt, jobs)
            launched = part_name(group.name, attempt) in self.book.launches
            if not launched and not jobs and not group.builds:
                standing.fate = "done"
            self.groups[group.name] = standing

    @property
    def by_part(self) -> dict[str, Standing]:
        """The groups by the names of their present parts."""
        return {standing.part: standing for standing in self.groups.values()}

    @property
    def open(self) -> list[Standing]:
        """Those that are not finished."""
        return [standing for standing in self.groups.values() if standing.fate is None]

    def awaited(self) -> set[str]:
        """Keys of indexes that somebody builds, and of which it is not known that they are there."""
        keys = {build.key for standing in self.open for build in standing.group.builds}
        return keys - self.indexes

    def see(self, boxes: list[Seen], now: float) -> list[Seen]:
        """Take in what EC2 shows; return living ones that belong to no present part."""
        self.now = now
        parts = self.by_part
        for standing in parts.values():
            standing.seen = None
        for box in boxes:
            if box.alive:
                self.lived_at = now
                self.short.pop(box.instance_type, None)  # once it ends there is one
        strays = []
        # A living one goes before one that has ended, should there ever be two.
        for box in sorted(boxes, key=lambda each: each.alive):
            owner = parts.get(box.part)
            if owner is not None and (owner.seen is None or not owner.seen.alive):
                owner.seen = box
                if box.state in _ENDING:
                    owner.told_first = owner.told_first or now
            elif box.alive:
                strays.append(box)
        return strays

    def outstanding(self, beside: Standing) -> bool:
        """Whether EC2 has taken on another instance that it does not show yet."""
        return any(each.asked and each.seen is None and not each.ended for each in self.open if each is not beside)

    def world(self) -> World:
        """All of it, for the decision."""
        signs = self.book.signs
        return World(
            now=self.now,
            parts=tuple(self._part(standing, signs) for standing in self.open),
            # What was interrupted is to be done again, also by one who finds it so.
            home=self.home.done,
            arrived=frozenset(signs.jobs - self.home.outcomes.keys() - self.damaged.keys()),
            indexes=frozenset(self.indexes),
            most=self.terms.most,
            cap_usd=self.terms.cap_usd,
            committed_usd=self.book.committed_usd,
            held=self.held,
            short=self.short,
            stopping=self.stopping is not None,
            patience=self.terms.patience,
        )

    def _part(self, standing: Standing, signs: Signs) -> Part:
        group, name, seen = standing.group, standing.part, standing.seen
        return Part(
            name=name,
            attempt=standing.attempt,
            instance_type=group.instance_type,
            ask=self.ask(standing),
            wants=frozenset(job.key for job in standing.jobs),
            builds=frozenset(build.key for build in group.builds),
            needs=frozenset(group.needs),
            launch=self.book.launches.get(name),
            asked=standing.asked,
            answered=standing.answered,
            ended=standing.ended,
            box=Box(seen.instance_id, name, seen.state, seen.launched, seen.zone, seen.reason) if seen else None,
            beat=signs.beats.get(name),
            beat_at=signs.beat_at.get(name),
            end=signs.ends.get(name),
            told=standing.told,
            told_first=standing.told_first,
            settled=name in self.book.settled,
        )

    def ask(self, standing: Standing) -> Ask:
        """What the group's next box would have: the share of the estimate that its jobs are."""
        group = standing.group
        share = len(standing.jobs) / len(group.jobs) if group.jobs else 1.0
        fixed = min(group.expected_s, 600.0)
        seconds = fixed + share * (group.expected_s - fixed)
        estimate = Estimate(seconds, group.worst_s, group.measured)
        return Ask(group.usd_per_hour, money.need_s(estimate), money.usual_limit_s(estimate))

    def settle(self, standing: Standing) -> None:
        """Write down that the present box is gone, and what it cost at most."""
        launch = self.book.launches.get(standing.part)
        if launch is None or standing.part in self.book.settled:
            return
        most, seen = launch.limit_s + BEYOND_LIMIT_S, standing.seen
        lived = most if seen is None else min(most, max(self.now - seen.launched, money.LEAST_BILLED_S))
        usd = launch.usd_per_hour * lived / 3600
        self.book.put_settled(Settled(standing.part, seen.instance_id if seen else None, lived, usd))

    @property
    def usd_so_far(self) -> float:
        """Spent until now, at the dated price."""
        spent = sum(each.usd for each in self.book.settled.values())
        for standing in self.groups.values():
            if standing.seen is not None and standing.part not in self.book.settled:
                lived = max(self.now - standing.seen.launched, money.LEAST_BILLED_S)
                spent += standing.group.usd_per_hour * lived / 3600
        return spent
