"""What the orchestrator and its boxes tell each other: JSON objects in S3, validated by whoever reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from harness.errors import AwsError
from harness.records import to_json
from harness.result import Cell

# Version of all records here; both sides come from one bundle, so that only a stranger's differ.
VERSION = 1
# No record of ours is larger.
MOST_BYTES = 16 << 20

T = TypeVar("T")

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


@dataclass(frozen=True)
class Input:
    """Something that is shipped: ``name`` below the work place, what its content must hash to, and its size."""

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class ShippedImage:
    """A system's image; ``digest`` is what the engine must call it once it is loaded."""

    image: str
    digest: str
    reference: str
    file: Input | None = None
    repository_digest: str | None = None


@dataclass(frozen=True)
class PartJob:
    """One job of the plan; ``key`` is what the box must plan it as, or it has other inputs than the orchestrator."""

    cell: Cell
    job: int
    repetition: int
    key: str


@dataclass(frozen=True)
class IndexBuild:
    """An index that a box is to build and hand over, before any job that needs it."""

    key: str
    system: str
    dataset: str


@dataclass(frozen=True)
class PlannedPart:
    """What one machine does: index builds, then jobs.

    ``needs`` are keys of indexes that other parts build.  ``expected_s`` is the time that it takes, ``worst_s`` what
    the protocol's time-outs allow; ``measured``: no estimate is assumed.
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
class Launch:
    """Written before AWS is asked for machines: ``limit_s`` of each part, ``attempts`` of a part whose host is lost.

    ``at`` is AWS' own time, seconds since 1970; ``usd_per_hour`` of all parts; ``machines``: part -> instance id.
    """

    name: str
    parts: tuple[str, ...]
    limit_s: int
    attempts: int
    at: float
    usd_per_hour: float
    machines: dict[str, str] = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True)
class Run:
    """A run: ``run.json``.  ``results`` and ``owner`` are hashes."""

    run_id: str
    suite: str
    results: str
    owner: str
    region: str
    parts: tuple[PlannedPart, ...]
    cap_usd: float | None = None
    version: int = VERSION


@dataclass(frozen=True)
class Part:
    """What one box is to do: builds, then jobs.

    ``name`` is unique in the run; a part that is planned again after a box was lost has a new one.  ``suite`` is the
    suite file's content with datasets that lie beside it.  ``indexes`` are there already.
    """

    name: str
    run_id: str
    instance_type: str
    suite: dict[str, Any]
    jobs: tuple[PartJob, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    images: tuple[ShippedImage, ...] = ()
    datasets: dict[str, Input] = field(default_factory=dict)
    indexes: dict[str, Input] = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True)
class Assignment:
    """A part, and the place in S3 where its jobs are handed over; ``status`` is the file that says how far it is."""

    work: str
    part: Part
    status: str
    version: int = VERSION


@dataclass(frozen=True)
class Status:
    """How far a part is, from the process that does it to the agent that tells of it: as in :class:`Beat`, and
    :class:`End`.  ``troubles`` says in a line each what was not handed over, or built.
    """

    phase: str
    done: int = 0
    total: int = 0
    current: str | None = None
    handed_over: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    version: int = VERSION


@dataclass(frozen=True)
class Beat:
    """A box's sign of life.  S3's own time of the object says when; the box's clock is not asked.

    ``phase`` is ``installing``, ``fetching``, ``building``, ``measuring`` or ``finishing``; ``current`` the key of the
    job that runs; ``notice`` what EC2 announced (a spot interruption), if it did.
    """

    part: str
    instance_id: str
    phase: str
    done: int = 0
    total: int = 0
    current: str | None = None
    says: str = ""
    notice: str | None = None
    version: int = VERSION


@dataclass(frozen=True)
class End:
    """How a box ended: ``ok`` when it did all that it could do; else ``detail`` says in one line why not.

    ``handed_over`` are the keys of the jobs that it stored in S3.  ``cut_off``: the machine was taken away or failed,
    so that the job that the last sign of life names says nothing about its system.
    """

    part: str
    instance_id: str
    ok: bool
    detail: str = ""
    handed_over: tuple[str, ...] = ()
    cut_off: bool = False
    version: int = VERSION


def dump(record: Any) -> bytes:
    """A record as it is stored."""
    return to_json(record).encode("utf-8")


def read(kind: type[T], name: str, content: bytes) -> T:
    """Read a record.

    Args:
        kind: one of the records here.
        name: says in errors where it is from.

    Raises:
        AwsError: it is no such record, or of another version of harness.
    """
    try:
        if kind not in _ADAPTERS:
            _ADAPTERS[kind] = TypeAdapter(kind)
        found: T = _ADAPTERS[kind].validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise AwsError(f"{name}: no record of this harness (key {where!r}: {first['msg']})", "BadRecord") from error
    if getattr(found, "version", VERSION) != VERSION:
        raise AwsError(f"{name}: written by another version of harness; use the one that started the run", "BadRecord")
    return found
