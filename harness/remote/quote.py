"""The quote of a run on other machines: where it runs, what it costs at most, how long it takes, how to stop it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.pricing.offers import ChosenMachine
from harness.progress import duration
from harness.remote import partition
from harness.remote.records import PlannedPart
from harness.report.plan import SUBSTITUTE
from harness.untrusted import escaped


@dataclass(frozen=True)
class Quote:
    """A run that could begin: its parts, and the bounds of their cost.

    ``most``: machines at once; ``attempts``: machines that the service gives a part without a cap, one after the other;
    ``ending``: the command that ends all machines.
    """

    parts: Sequence[PlannedPart]
    machines: Mapping[str, ChosenMachine]
    cap_usd: float | None
    most: int
    attempts: int
    ending: str

    @property
    def expected_usd(self) -> float:
        """Cost at the estimates."""
        return partition.expected_usd(self.parts)

    @property
    def worst_usd(self) -> float:
        """Cost if every machine lives as long as it may."""
        return partition.worst_usd(self.parts, self.attempts, self.cap_usd)

    @property
    def expected_s(self) -> float:
        """From the first launch to the last end, if a part waits for the whole part that builds its index."""
        built: dict[str, float] = {}
        ends = [0.0]
        for part in self.parts:
            begin = max((built.get(key, 0.0) for key in part.needs), default=0.0)
            ends.append(begin + part.expected_s)
            built |= {build.key: ends[-1] for build in part.builds}
        return max(*ends, sum(part.expected_s for part in self.parts) / self.most)

    def show(self, notes: Sequence[str], to: Console, *, wide: bool) -> None:
        """Print the machines, what they cost, and how to stop them; ``wide``: every part, and all remarks."""
        priced = any(part.usd_per_hour for part in self.parts)
        if priced or wide:
            to.print(self._table(wide))
        for line in (*notes, *self._remarks(wide), *(self._sums() if priced else self._times())):
            to.print(escape(escaped(line)), highlight=False, soft_wrap=True)

    def _table(self, wide: bool) -> Table:
        """Return a row for each part (``wide``), or for each instance type."""
        table = Table(box=None, pad_edge=False)
        for head in ("part" if wide else "parts", "machine", "builds", "jobs", "disk", "time", "US$", "profiles"):
            left = head in ("part", "machine", "profiles")
            table.add_column(head, justify="left" if left else "right", no_wrap=True)
        for same in [[part] for part in self.parts] if wide else self._by_type():
            names = dict.fromkeys(job.cell.profile for part in same for job in part.jobs)
            table.add_row(
                same[0].name if wide else str(len(same)),
                same[0].instance_type + (f" {SUBSTITUTE}" if any(self._substitutes(name) for name in names) else ""),
                *_counts(same),
                f"{max(part.disk_gib for part in same)} GiB",
                ("" if all(part.measured for part in same) else "~") + duration(sum(part.expected_s for part in same)),
                f"{partition.expected_usd(same):.2f}",
                ", ".join(map(self._profile, names)),
            )
        return table

    def _substitutes(self, profile: str) -> bool:
        """Return whether the profile's machine stands in for the suite's own."""
        machine = self.machines.get(profile)
        return machine is not None and machine.substitutes is not None

    def _profile(self, name: str) -> str:
        """Return a profile's name, and the limit of its jobs where that is less than it asks for."""
        machine = self.machines.get(name)
        if machine is None or machine.limit_bytes >= machine.asked_bytes:
            return name
        return f"{name} (limit {machine.limit_bytes / 2**30:.1f} GiB)"

    def _by_type(self) -> list[list[PlannedPart]]:
        """Return the parts of each instance type, the dearest first."""
        ordered = sorted(self.parts, key=lambda part: part.instance_type)
        groups = [list(same) for _, same in itertools.groupby(ordered, lambda part: part.instance_type)]
        return sorted(groups, key=partition.expected_usd, reverse=True)

    def _remarks(self, wide: bool) -> Iterator[str]:
        chosen = self.machines.values()
        substituted = [machine.remark for machine in chosen if machine.substitutes and machine.remark]
        yield from (f"{SUBSTITUTE} {remark}" for remark in dict.fromkeys(substituted))
        others = (machine.remark for machine in chosen if machine.remark and not machine.substitutes)
        remarks = list(dict.fromkeys(others))
        if wide or len(remarks) < 2:
            yield from remarks
        else:
            yield f"{remarks[0]} ({len(remarks) - 1} more profiles likewise: --wide; --instance names a type)"

    def _times(self) -> Iterator[str]:
        """Yield what the machines do where they cost nothing."""
        builds, jobs = _counts(self.parts)
        one, all_ = duration(sum(part.expected_s for part in self.parts)), duration(self.expected_s)
        yield f"{len(self.parts)} parts with {jobs} jobs and {builds} index builds"
        yield f"about {one} with one worker, {all_} with a worker for each part"
        yield f"to stop: {self.ending}"

    def _sums(self) -> Iterator[str]:
        assumed = "" if all(part.measured for part in self.parts) else " (~: assumed, not from stored results)"
        yield f"about US$ {self.expected_usd:.2f}, done in about {duration(self.expected_s)}{assumed}"
        cap = self.cap_usd is not None
        longest_s = max(map(partition.usual_limit_s, self.parts)) + partition.BEYOND_LIMIT_S
        again = "" if cap or self.attempts == 1 else f" and {self.attempts} machines a part"
        by = "time limits and --max-usd" if cap else "time limits"
        yield f"never more than US$ {self.worst_usd:.2f}, {duration(longest_s)} a machine{again}, by {by}"
        yield f"to stop: {self.ending} ends every machine; Ctrl-C leaves them running"


def _counts(parts: Sequence[PlannedPart]) -> tuple[str, str]:
    return str(sum(len(part.builds) for part in parts)), str(sum(len(part.jobs) for part in parts))
