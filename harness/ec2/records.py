"""What the orchestrator writes down in S3, so that any later one can go on: its run, and what it launched."""

from __future__ import annotations

from dataclasses import dataclass

from harness.remote.records import VERSION, IndexBuild, PartJob


@dataclass(frozen=True)
class Group:
    """What one box after another is to do until it is done: each box's part is the group's name and an attempt.

    ``needs`` are keys of indexes that other groups build.  ``expected_s`` is the time that a box will take,
    ``worst_s`` what the protocol's time-outs allow, ``measured`` that nothing of it is assumed.
    """

    name: str
    instance_type: str
    usd_per_hour: float
    disk_gib: int
    jobs: tuple[PartJob, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    needs: tuple[str, ...] = ()
    expected_s: float = 0.0
    worst_s: float = 0.0
    measured: bool = False
    gpus: int = 0


@dataclass(frozen=True)
class Run:
    """A run: ``run.json``.  ``results`` and ``owner`` say whose it is, by hashes that tell nothing else; ``cap_usd`` is
    the ``--max-usd`` that it was begun with.
    """

    run_id: str
    suite: str
    results: str
    owner: str
    region: str
    groups: tuple[Group, ...]
    spot: bool = False
    cap_usd: float | None = None
    version: int = VERSION


@dataclass(frozen=True)
class Launch:
    """Written before an instance is asked for: the most that it can cost, and in which zone it is asked for now.

    ``at`` is AWS' own time, seconds since 1970.
    """

    part: str
    instance_type: str
    usd_per_hour: float
    limit_s: float
    at: float
    zone: str | None = None
    version: int = VERSION


@dataclass(frozen=True)
class Settled:
    """Written when an instance is gone for certain: how long it lived at most, and what that cost."""

    part: str
    instance_id: str | None
    lived_s: float
    usd: float
    version: int = VERSION


@dataclass(frozen=True)
class Closed:
    """``closed.json``: all is home and nothing is alive."""

    jobs: int
    instances: int
    usd: float
    version: int = VERSION


def part_name(group: str, attempt: int) -> str:
    """The name of a group's part for its n-th box."""
    return f"{group}-{attempt}"


def attempt_of(part: str) -> tuple[str, int]:
    """Group and attempt of a part's name."""
    group, _, attempt = part.rpartition("-")
    return group, int(attempt)
