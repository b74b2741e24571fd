"""A run as it stands in S3: begun, found again, and all that was written down about its parts."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from harness.aws.objects import Objects, Stored
from harness.ec2.money import committed_usd
from harness.ec2.records import Closed, Launch, Run, Settled, attempt_of
from harness.errors import AwsError, UsageError
from harness.remote import layout
from harness.remote.records import MOST_BYTES, Beat, End, Part, dump, read

T = TypeVar("T")
_READERS = 16


def run_id(suite: str, now: str) -> str:
    """A name for a new run.

    Args:
        suite: its suite's name.
        now: UTC as ``yyyymmddThhmmss``, by AWS' clock.
    """
    return f"{suite}-{now}-{secrets.token_hex(3)}"


def open_runs(work: Objects) -> list[Run]:
    """All runs below a work place that are not closed; what is damaged is skipped.

    Raises:
        AwsError: it cannot be listed.
    """
    names: dict[str, set[str]] = {}
    for each in _folders(work):
        place = work.below(layout.run(each))
        names[each] = {name for name in (layout.RUN, layout.CLOSED) if place.size(name) is not None}
    found = []
    for each, there in sorted(names.items()):
        if layout.RUN in there and layout.CLOSED not in there:
            content = work.below(layout.run(each)).get(layout.RUN, MOST_BYTES)
            if content is None:
                continue
            try:
                found.append(read(Run, f"{each}/{layout.RUN}", content))
            except AwsError:
                continue  # another version's; it can be seen to with that
    return found


def _folders(work: Objects) -> list[str]:
    """Names of runs: a request for each thousand, however many objects they have."""
    from harness.aws.failures import aws_errors

    prefix = work.place.key(layout.RUNS) + "/"
    found = []
    with aws_errors(f"listing {work.place}"):
        pages = work.client.get_paginator("list_objects_v2").paginate(
            Bucket=work.place.bucket, Prefix=prefix, Delimiter="/"
        )
        for page in pages:
            found += [each["Prefix"].removeprefix(prefix).rstrip("/") for each in page.get("CommonPrefixes", ())]
    return found


def find(work: Objects, suite: str, results: str, owner: str) -> Run | None:
    """Our open run of that suite into those results.

    Raises:
        UsageError: there are several.
    """
    mine = [run for run in open_runs(work) if (run.suite, run.results, run.owner) == (suite, results, owner)]
    if len(mine) > 1:
        names = " and ".join(run.run_id for run in mine)
        raise UsageError(f"{names} are both open; bring one home with another --results, or remove its run.json")
    return mine[0] if mine else None


@dataclass
class Signs:
    """What boxes have said, by part; times are S3's own, in seconds since 1970."""

    beats: dict[str, Beat] = field(default_factory=dict)
    beat_at: dict[str, float] = field(default_factory=dict)
    ends: dict[str, End] = field(default_factory=dict)
    jobs: set[str] = field(default_factory=set)


class Book:
    """One run's objects."""

    def __init__(self, work: Objects, run: Run) -> None:
        self.run = run
        self.objects = work.below(layout.run(run.run_id))
        self.parts: dict[str, Part] = {}
        self.launches: dict[str, Launch] = {}
        self.settled: dict[str, Settled] = {}
        self.signs = Signs()
        self._read: dict[str, str] = {}

    def begin(self) -> None:
        """Write the run down."""
        self.objects.put_new(layout.RUN, dump(self.run))

    def recall(self) -> None:
        """Read what an earlier orchestrator wrote."""
        self.parts = self._recalled(Part, layout.PARTS)
        self.launches = self._recalled(Launch, layout.LAUNCHES)
        self.settled = self._recalled(Settled, layout.SETTLED)

    def _recalled(self, kind: type[T], folder: str) -> dict[str, T]:
        found = self._all(kind, self.objects.list(f"{folder}/"))
        return {_stem(name): record for name, record in found.items()}

    def attempt(self, group: str) -> int:
        """The latest attempt at a group that was begun; 0: none."""
        return max((attempt_of(name)[1] for name in self.launches if attempt_of(name)[0] == group), default=0)

    def look(self) -> Signs:
        """Read what is new of the boxes."""
        self.signs.jobs = {_stem(each.name) for each in self.objects.list(f"{layout.JOBS}/")}
        beats = list(self.objects.list(f"{layout.BEATS}/"))
        self.signs.beat_at = {_stem(each.name): each.modified.timestamp() for each in beats}
        self.signs.beats |= {_stem(name): beat for name, beat in self._all(Beat, beats).items()}
        ends = [each for each in self.objects.list(f"{layout.ENDS}/") if _stem(each.name) not in self.signs.ends]
        self.signs.ends |= {_stem(name): end for name, end in self._all(End, ends).items()}
        return self.signs

    def _all(self, kind: type[T], listed: Iterable[Stored]) -> dict[str, T]:
        """Those records that were not read before, or have changed."""
        new = [each for each in listed if self._read.get(each.name) != each.etag]

        def one(each: Stored) -> tuple[Stored, T | None]:
            content = self.objects.get(each.name, MOST_BYTES)
            return each, None if content is None else read(kind, each.name, content)

        found: dict[str, T] = {}
        with ThreadPoolExecutor(_READERS) as pool:
            for each, record in pool.map(one, new):
                if record is not None:
                    found[each.name] = record
                    self._read[each.name] = each.etag
        return found

    def put_part(self, part: Part) -> None:
        """What a box is to do; only before an instance is asked for, so that no box reads it twice."""
        self.objects.put(layout.part(part.name), dump(part))
        self.parts[part.name] = part

    def put_launch(self, launch: Launch) -> None:
        """That an instance is about to be asked for."""
        self.objects.put(layout.launch(launch.part), dump(launch))
        self.launches[launch.part] = launch

    def drop_launch(self, part: str) -> None:
        """That EC2 has refused: there is no instance."""
        self.objects.delete([layout.launch(part)])
        del self.launches[part]

    def put_settled(self, settled: Settled) -> None:
        """That an instance is gone."""
        self.objects.put_new(layout.settled(settled.part), dump(settled))
        self.settled.setdefault(settled.part, settled)

    def put_console(self, part: str, text: str) -> str:
        """What an instance's console showed; where it lies."""
        name = layout.console(part)
        self.objects.put(name, text.encode())
        return str(self.objects.place.below(name))

    def close(self) -> None:
        """That all is home."""
        closed = Closed(len(self.signs.jobs), len(self.launches), sum(each.usd for each in self.settled.values()))
        self.objects.put(layout.CLOSED, dump(closed))

    @property
    def committed_usd(self) -> float:
        """What was spent, and the most that those who live can cost."""
        spent = sum(each.usd for each in self.settled.values())
        return spent + sum(
            committed_usd(each.usd_per_hour, each.limit_s)
            for name, each in self.launches.items()
            if name not in self.settled
        )


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0]
