"""The records that cross a boundary: host to container, stage to stage, run to disk.

Frozen dataclasses, standard library only: this module is copied into every system image.  The host
validates what comes back with pydantic (which reads plain dataclasses); the in-image driver only builds
them.  Units stand in the names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

# Version of result.json.  History:
#   1  first version
SCHEMA_VERSION = 1

# Version of the container contract (spec.json, out/): see docs/container-contract.md.  History:
#   1  first version
PROTOCOL_VERSION = 1

Scalar = str | int | float | bool


class Outcome(str, Enum):
    """How a job ended.  Every cell has one; none is ever blank."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASH = "crash"
    BAD_OUTPUT = "bad_output"
    ENVELOPE_MISMATCH = "envelope_mismatch"
    NOT_APPLICABLE = "not_applicable"


class Isolation(str, Enum):
    """What held the envelope around a job.  Results of different isolation are never mixed unmarked."""

    CONTAINER = "container"
    PROCESS = "process"
    FAKE = "fake"


@dataclass(frozen=True)
class Envelope:
    """The limits that are asked for.  ``name`` is the hardware profile's."""

    name: str
    cpus: int
    memory_bytes: int
    gpus: int = 0
    pids: int = 512


@dataclass(frozen=True)
class Query:
    """One topic: an id and a text."""

    query_id: str
    text: str


@dataclass(frozen=True)
class Hit:
    """One retrieved document with its score; higher scores are better."""

    doc_id: str
    score: float


@dataclass(frozen=True)
class JobSpec:
    """What the driver inside the image is told: the content of ``/job/spec.json``.

    ``kind`` is ``build`` or ``search``.  ``params`` belong to the adapter and are opaque to us.
    A build job has no queries; a search job has warm-up queries and a sample that share no query id.  Warm-up
    runs through its queries once, and again until it is steady or has asked ``warmup_cap`` queries.
    """

    kind: str
    system: str
    params: dict[str, Scalar]
    envelope: Envelope
    isolation: Isolation
    scenario: str = "single_stream"
    k: int = 10
    trials: int = 0
    seed: int = 0
    corpus_size: int = 0
    fewer_hits_ok: bool = False
    warmup_cap: int = 0
    warmup: tuple[Query, ...] = ()
    sample: tuple[Query, ...] = ()
    protocol_version: int = PROTOCOL_VERSION


@dataclass(frozen=True)
class EffectiveEnvelope:
    """The limits in force, read from inside the job.  ``None``: could not be read here, not "no limit".

    ``memory_bytes`` and ``swap_bytes`` are ``-1`` when the kernel says "unlimited".  ``threads`` is what
    each library says of itself, e.g. ``{"torch_intraop": 1}``.
    """

    cpus: tuple[int, ...]
    cgroup_version: int | None
    memory_bytes: int | None
    swap_bytes: int | None
    cpu_quota: float | None
    pids: int | None
    gpus: int
    network_interfaces: tuple[str, ...]
    root_read_only: bool | None
    effective_capabilities: int | None
    no_new_privileges: bool | None
    uid: int
    threads: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Phase:
    """One stretch of a job, on the monotonic clock that host and container share."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Measurement:
    """What the driver says at the end of a job: the content of ``out/measurement.json``.

    ``outcome`` is the driver's own view; the host may know better (an OOM kill, a time-out).
    ``peak_cgroup_bytes`` is the kernel's own high-water mark, ``throttled_periods`` and ``oom_kills``
    its counters, all read from inside just before the end; ``None`` where the kernel shows none.
    ``warmup_steady`` is ``None`` when warm-up had only one pass, with nothing to compare.
    """

    outcome: Outcome
    detail: str | None
    effective: EffectiveEnvelope | None
    phases: tuple[Phase, ...] = ()
    load_s: float | None = None
    build_s: float | None = None
    peak_cgroup_bytes: int | None = None
    throttled_periods: int | None = None
    oom_kills: int | None = None
    libraries: dict[str, str] = field(default_factory=dict)
    device: str | None = None
    warmup_steady: bool | None = None
    protocol_version: int = PROTOCOL_VERSION


@dataclass(frozen=True)
class Memory:
    """Peak memory of a job as seen from outside it.

    ``peak_anon_bytes`` is anonymous plus shared memory, sampled every ``sample_interval_s``; it never counts
    file pages.  ``peak_cgroup_bytes`` is the kernel's high-water mark of everything charged, page
    cache included.  ``None`` means not measured; it is never 0.
    """

    peak_anon_bytes: int | None = None
    peak_cgroup_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    peak_anon_by_phase_bytes: dict[str, int] = field(default_factory=dict)
    source: str | None = None
    samples: int = 0
    sample_interval_s: float | None = None


@dataclass(frozen=True)
class Cell:
    """One point of the product that a suite declares."""

    suite: str
    system: str
    dataset: str
    scenario: str
    profile: str


@dataclass(frozen=True)
class ResultSpec:
    """Everything that decides what was measured; its hash is the job key (see :func:`job_key`).

    ``index_key`` names the inputs of the index (image digest, corpus, build parameters); ``isolation``
    keeps container, process and fake results apart.
    """

    cell: Cell
    protocol: str
    envelope: Envelope
    isolation: Isolation
    params: dict[str, Scalar]
    image_digest: str
    index_key: str
    corpus_sha256: str
    qrels_sha256: str
    sample_sha256: str
    warmup_sha256: str
    sample_size: int
    warmup_queries: int
    trials: int
    k: int
    seed: int
    warmup_cap: int | None = None
    repetition: int = 0


@dataclass(frozen=True)
class IndexFacts:
    """What building the index cost, and what came out."""

    build_s: float
    index_bytes: int
    peak_anon_bytes: int | None
    peak_cgroup_bytes: int | None
    content_sha256: str
    envelope: Envelope


@dataclass(frozen=True)
class Environment:
    """What a job ran on."""

    cpu_model: str
    architecture: str
    host_cpus: int
    host_memory_bytes: int
    kernel: str
    cgroup_version: int | None
    docker_version: str | None
    harness_version: str
    harness_commit: str | None
    gpu_models: tuple[str, ...] = ()
    gpu_driver: str | None = None
    instance_type: str | None = None


@dataclass(frozen=True)
class Result:
    """One stored job: spec, environment, measurement and outcome.  Immutable; no money in it.

    ``ranking_disagreements`` counts sample queries whose ranked ids differ between trials (the stored run is
    the first trial's).  ``warmup_done`` counts the warm-up queries that were asked.  ``files`` maps each file
    beside ``result.json`` to its sha256.
    """

    key: str
    spec: ResultSpec
    outcome: Outcome
    detail: str | None
    started_at: str
    wall_s: float
    environment: Environment
    effective: EffectiveEnvelope | None = None
    index: IndexFacts | None = None
    memory: Memory = Memory()
    load_s: float | None = None
    first_query_s: float | None = None
    phases: tuple[Phase, ...] = ()
    throttled_periods: int | None = None
    oom_kills: int | None = None
    exit_code: int | None = None
    image_bytes: int | None = None
    device: str | None = None
    libraries: dict[str, str] = field(default_factory=dict)
    warmup_done: int = 0
    warmup_steady: bool | None = None
    trials_finished: int = 0
    ranking_disagreements: int | None = None
    files: dict[str, str] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION


def to_json(record: Any, *, indent: int | None = None) -> str:
    """Write a record (or a mapping of plain values) as JSON with a stable key order."""
    value = dataclasses.asdict(record) if dataclasses.is_dataclass(record) else record  # type: ignore[arg-type]
    return json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Hash a record or plain value: sha256 (hex) of its canonical JSON."""
    return hashlib.sha256(to_json(value).encode("utf-8")).hexdigest()


def job_key(spec: ResultSpec) -> str:
    """The name of a stored job: the first 16 hex digits of the hash of all that decides what is measured."""
    return digest(spec)[:16]


def spec_from_json(text: str) -> JobSpec:
    """Read a :class:`JobSpec` inside the image, where pydantic is not.

    Raises:
        ValueError: the text is no JSON, a key is missing or unknown, or the contract's version is another.
    """
    try:
        raw = json.loads(text)
        version = raw.get("protocol_version")
        if version != PROTOCOL_VERSION:
            raise ValueError(f"contract version {version!r}, this image speaks {PROTOCOL_VERSION}")
        raw["envelope"] = Envelope(**raw["envelope"])
        raw["isolation"] = Isolation(raw["isolation"])
        for name in ("warmup", "sample"):
            raw[name] = tuple(Query(**query) for query in raw[name])
        return JobSpec(**raw)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"spec.json does not follow the contract: {error}") from error
