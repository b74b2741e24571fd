"""Records that the orchestrator and its workers exchange through the storage, and the names of their objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from harness.errors import RemoteError
from harness.jobs.inputs import IndexBuild
from harness.remote.storage import Storage
from harness.results.schema import Cell
from harness.untrusted import ForeignText, check_names, mistake, to_json

INPUTS = "inputs"
BUNDLES, IMAGES, DATASETS = f"{INPUTS}/bundles", f"{INPUTS}/images", f"{INPUTS}/datasets"
RUNS, OPEN, WORKERS = "runs", "open", "workers"
# Below a run's folder.
RUN, PARTS, LAUNCHES = "run.json", "parts", "launches"
# Below a worker's folder.
HEARTBEAT, END, LOG, JOBS = "heartbeat.json", "end.json", "log.txt", "jobs"
# Below the folder of inputs, and below a worker's.
INDEXES = "indexes"
ARCHIVE = ".tar.gz"
# Of all records here: both sides run one bundle, so another version is a stranger's.
VERSION = 1
MOST_BYTES = 16 << 20
T = TypeVar("T")
_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def run(run_id: str) -> str:
    """Return a run's folder."""
    return f"{RUNS}/{run_id}"


def is_open(run_id: str) -> str:
    """Name the object that is there while a run is open."""
    return f"{OPEN}/{run_id}"


def part(name: str) -> str:
    """Name a part, below its run."""
    return f"{PARTS}/{name}.json"


def launch(name: str) -> str:
    """Name a launch, below its run."""
    return f"{LAUNCHES}/{name}.json"


def worker(worker_id: str) -> str:
    """Return a worker's folder."""
    return f"{WORKERS}/{worker_id}"


def job(key: str) -> str:
    """Name a finished job, below its worker."""
    return f"{JOBS}/{key}.tar"


def job_of(name: str) -> str:
    """Return the key of a finished job by its name."""
    return name.removeprefix(f"{JOBS}/").removesuffix(".tar")


def index(key: str) -> str:
    """Name an index, below the inputs or its worker."""
    return f"{INDEXES}/{key}{ARCHIVE}"


@dataclass(frozen=True)
class ShippedInput:
    """A shipped object: its name below the work place, hash and size."""

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class ShippedImage:
    """A system's image; ``digest`` is its id in the engine."""

    image: str
    digest: str
    reference: str
    file: ShippedInput


@dataclass(frozen=True)
class PartJob:
    """One job of a plan; workers must plan it under its key."""

    cell: Cell
    job: int
    repetition: int
    key: str


@dataclass(frozen=True)
class PlannedPart:
    """The work of one machine, as planned.

    ``needs``: keys of indexes that other parts build; ``expected_s``: its estimated time; ``worst_s``: the most that
    the protocol's time-outs allow; ``measured``: the estimate rests on measured times alone;
    ``instance_type`` is empty where any machine will do.
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
class RemoteRun:
    """A run: ``results`` and ``owner`` are hashes, ``cap_usd`` is the first ``--max-usd``, ``terms`` are the backend's
    own facts, such as a region."""

    run_id: str
    launcher: str
    suite: str
    results: str
    owner: str
    parts: tuple[PlannedPart, ...]
    terms: dict[str, str] = field(default_factory=dict)
    cap_usd: float | None = None
    version: int = VERSION


@dataclass(frozen=True)
class Launch:
    """A request for a part's machine, written before the backend gets it; ``name`` is the part's.

    ``at`` is the storage's time in seconds since 1970, ``notes`` what the backend remembers of its last request,
    ``machine`` the machine's id, and ``usd`` the cost once the launch is over.
    """

    name: str
    limit_s: int
    attempts: int
    at: float
    usd_per_hour: float
    notes: dict[str, str] = field(default_factory=dict)
    machine: str | None = None
    usd: float | None = None
    version: int = VERSION


@dataclass(frozen=True)
class WorkerPart:
    """The work of one worker: builds, then jobs.

    ``suite`` is the suite as JSON, ``indexes`` are in the storage already, ``platforms`` are the machines' by profile
    (empty: this worker's own), ``pins`` the lock of pins at first use (:mod:`harness.results.pin_lock`).  The
    orchestrator rewrites the file before a further attempt at the part.
    """

    name: str
    instance_type: str
    suite: dict[str, Any]
    jobs: tuple[PartJob, ...] = ()
    builds: tuple[IndexBuild, ...] = ()
    images: tuple[ShippedImage, ...] = ()
    datasets: dict[str, ShippedInput] = field(default_factory=dict)
    indexes: dict[str, ShippedInput] = field(default_factory=dict)
    platforms: dict[str, str] = field(default_factory=dict)
    pins: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION


@dataclass(frozen=True)
class Heartbeat:
    """A worker's heartbeat, dated by the storage.

    ``phase`` is ``installing``, ``fetching``, ``building``, ``measuring`` or ``finishing``; ``current`` the running
    job's key; ``notice`` a spot interruption that EC2 announced.
    """

    phase: str
    current: str | None = None
    notice: str | None = None
    version: int = VERSION


@dataclass(frozen=True)
class WorkerEnd:
    """The end of a worker: ``ok``, or the cause in ``detail``.

    ``cut_off``: the machine failed or was taken away, so the job that ran last says nothing about its system.
    """

    ok: bool
    detail: ForeignText | None = None
    cut_off: bool = False
    version: int = VERSION


def dump(record: Any) -> bytes:
    """Return a record as it is stored."""
    return to_json(record).encode("utf-8")


def read(kind: type[T], name: str, content: bytes) -> T:
    """Parse a record, or raise a `RemoteError` that begins with its ``name``."""
    try:
        adapter = _ADAPTERS.get(kind) or _ADAPTERS.setdefault(kind, TypeAdapter(kind))
        record: T = adapter.validate_json(content)
        check_names(record)
    except ValidationError as error:
        raise RemoteError(f"{name}: no record of this harness ({mistake(error)})", "BadRecord") from error
    except ValueError as error:
        raise RemoteError(f"{name}: no record of this harness ({error})", "BadRecord") from error
    if getattr(record, "version", VERSION) != VERSION:
        raise RemoteError(
            f"{name}: another version of harness wrote it; use the version that started the run", "BadRecord"
        )
    return record


def fetch(kind: type[T], place: Storage, name: str) -> T | None:
    """Read a record from the storage, if it is there."""
    content = place.get(name, MOST_BYTES)
    return None if content is None else read(kind, place.where(name), content)
