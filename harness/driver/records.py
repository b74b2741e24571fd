"""The records that cross the boundary between host and container.

Immutable records, standard library only: this module is copied into every system image.  The host
validates what comes back with pydantic (which reads plain dataclasses); the in-image driver only builds
them.  Field names contain units.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

# Most rates that one job of the server scenario tries.
MAX_PROBES = 32


# The deepest first stage of a system of two.
MAX_DEPTH = 1000

# Version of the container contract (spec.json, out/): see docs/reference/container-contract.md.
PROTOCOL_VERSION = 2

Scalar = str | int | float | bool
# The type of free text: ``str`` for who writes it, a marked text for the host, who did not.
Text = TypeVar("Text")


class Outcome(str, Enum):
    """Outcome of a job; every cell has one.

    ``interrupted``: its machine was taken away (spot capacity, a failed host), so that the system is not at fault.
    """

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASH = "crash"
    BAD_OUTPUT = "bad_output"
    ENVELOPE_MISMATCH = "envelope_mismatch"
    NOT_APPLICABLE = "not_applicable"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Envelope:
    """The limits that are asked for.  ``name`` is the hardware profile's."""

    name: str
    cpus: int
    memory_bytes: int
    gpus: int = 0
    pids: int = 512


@dataclass(frozen=True)
class Cpuset:
    """The host CPUs that a job is pinned to, and the NUMA nodes of its memory (empty: any)."""

    cpus: tuple[int, ...]
    numa_nodes: tuple[int, ...] = ()


# A field that JSON leaves out at its default: drivers in older images, and hashes, do not know it.
LATER = {"later": True}


@dataclass(frozen=True)
class ScenarioParams:
    """Parameters of a scenario: ``offline`` has a batch size, ``server`` a latency target, ``mixed`` two rates.

    The target reads: ``latency_percentile`` per cent of the queries answered within ``latency_target_s`` of their
    scheduled arrival.  Up to ``deleted_share`` of the corpus is deleted and inserted again.
    """

    batch_size: int | None = None
    latency_target_s: float | None = None
    latency_percentile: float | None = None
    query_qps: float | None = field(default=None, metadata=LATER)
    update_qps: float | None = field(default=None, metadata=LATER)
    deleted_share: float | None = field(default=None, metadata=LATER)


# Fields and the values that a document must have in them, by name.
Filter = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Query:
    """One topic: an id and a text, and perhaps a ``filter`` on the documents' fields.

    ``matching``: how many documents of the corpus the filter lets through; the host counts them, and tells no image.
    """

    query_id: str
    text: str
    filter: Filter = field(default=(), metadata=LATER)
    matching: int | None = field(default=None, metadata=LATER)


class Hit(NamedTuple):  # made in a third of a dataclass's time, and inside the clock
    """One retrieved document with its score; higher scores are better."""

    doc_id: str
    score: float


@dataclass(frozen=True)
class Updates:
    """Updates of the ``mixed`` scenario: the content of ``/job/updates.json``.

    ``documents`` are lines of the corpus, in the order in which they are deleted and inserted again.
    """

    query_qps: float
    update_qps: float
    documents: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class JobSpec:
    """Input of the driver inside the image: the content of ``/job/spec.json``.

    ``kind`` is ``build``, ``search``, or ``remove`` for the index that a build left in a service that runs already.
    ``params`` belong to the adapter and are opaque to us.
    A build job has no queries; a search job has warm-up queries and a sample that share no query id.  Warm-up
    runs through its queries once, and again until it is steady or has asked ``warmup_cap`` queries.  The trials of this
    job are numbered from ``first_trial``.  After them ``repeats`` queries are each asked again at once, which shows a
    result cache.  With ``pause`` the file holds no queries: the driver waits before warm-up, each trial and the repeats
    until the host hands over theirs.
    The launcher sets ``cpuset`` once it has chosen CPUs; ``None``: any CPUs, as many as the envelope has.
    ``enforced`` names the fields of :class:`EffectiveEnvelope` that the launcher limits, which the driver verifies.
    ``service_url`` is the address of the server that the adapter asks; ``None``: the engine is in this process.
    ``updates`` belong to the ``mixed`` scenario, in a file of their own.
    ``max_qps``: the most queries that the driver may send in a second; ``None``: as many as its scenario takes.
    """

    kind: str
    system: str
    params: dict[str, Scalar]
    envelope: Envelope
    enforced: tuple[str, ...]
    scenario: str = "single_stream"
    k: int = 10
    trials: int = 0
    first_trial: int = 0
    repeats: int = 0
    pause: bool = False
    scenario_params: ScenarioParams = ScenarioParams()
    seed: int = 0
    corpus_size: int = 0
    fewer_hits_ok: bool = False
    warmup_cap: int = 0
    warmup: tuple[Query, ...] = ()
    sample: tuple[Query, ...] = ()
    cpuset: Cpuset | None = None
    service_url: str | None = field(default=None, metadata=LATER)
    updates: Updates | None = field(default=None, metadata=LATER)
    max_qps: float | None = field(default=None, metadata=LATER)
    protocol_version: int = PROTOCOL_VERSION

    @property
    def probes(self) -> bool:
        """True where its trials are probes, in which queries overlap: tried rates, or numbers of connections."""
        return self.scenario == "server" or (self.scenario == "offline" and self.service_url is not None)

    @property
    def overlaps(self) -> bool:
        """True where the queries of some trials overlap."""
        return self.probes or self.scenario == "mixed"

    def is_open(self, trial: int) -> bool:
        """Return whether the queries of a trial overlap: it is a probe, or they arrive during updates."""
        return trial >= 0 and (self.probes or (self.scenario == "mixed" and trial == self.first_trial + 1))


@dataclass(frozen=True)
class EffectiveEnvelope:
    """The limits in force, read from inside the job.  ``None``: could not be read here, not "no limit".

    ``memory_bytes`` and ``swap_bytes`` are ``-1`` when the kernel says "unlimited".  ``threads`` is what
    each library reports, e.g. ``{"torch_intraop": 1}``.  ``numa_nodes`` may hold its memory.
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
    numa_nodes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Phase:
    """One stretch of a job, on the monotonic clock that host and container share."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Probe:
    """One rate that the ``server`` scenario tried: trial number, scheduled rate, and what came of it.

    In the ``offline`` scenario of a service: one number of connections (``streams``), each with a query at all times;
    ``rate_qps`` is what was answered, ``latency_s`` the median.

    ``latency_s`` is the latency, from the scheduled arrival, at the target's percentile; ``late`` counts queries
    beyond the target, ``failed`` the queries among them that got no answer.  ``passed`` asks more than ``late`` alone:
    see :mod:`harness.driver.server`.  ``check`` marks a probe that tries again, with other arrivals, a rate that the
    search believes in.
    """

    trial: int
    rate_qps: float
    queries: int
    latency_s: float
    late: int
    passed: bool
    check: bool
    failed: int = 0
    streams: int | None = None


@dataclass
class Measurement(Generic[Text]):
    """Output of the driver: the content of ``out/measurement.json``.  It grows, so that a crash loses no fact.

    ``outcome`` is the driver's own view; the host may know better (an OOM kill, a time-out).
    ``peak_cgroup_bytes`` is the kernel's own high-water mark, ``throttled_periods`` and ``oom_kills``
    its counters, all read from inside just before the end; ``None`` where the kernel shows none.
    ``warmup_steady`` is ``None`` when warm-up had only one pass, with nothing to compare.  ``rate_qps`` is the highest
    rate of the ``server`` scenario that met its target and met it again (``None`` where none did), or what a service
    answered a second by the best number of connections.  ``resumed_s`` is the
    part of ``build_s`` that earlier attempts spent on what this build took over from them.  ``compiled_s`` is the CPU
    time of just-in-time compiler threads while the trials ran; ``None`` where there are none.  ``max_qps`` is the limit
    of queries a second that the job kept; ``capped``: it ended the search of a rate, which the system did not.
    """

    outcome: Outcome
    detail: Text | None
    effective: EffectiveEnvelope | None
    phases: tuple[Phase, ...] = ()
    load_s: float | None = None
    build_s: float | None = None
    resumed_s: float | None = None
    peak_cgroup_bytes: int | None = None
    throttled_periods: int | None = None
    oom_kills: int | None = None
    libraries: dict[str, Text] = field(default_factory=dict)
    device: Text | None = None
    warmup_steady: bool | None = None
    probes: tuple[Probe, ...] = ()
    rate_qps: float | None = None
    compiled_s: float | None = None
    max_qps: float | None = None
    capped: bool = False
    protocol_version: int = PROTOCOL_VERSION


def most_first_stage(spec: JobSpec) -> int:
    """Return the most hits that a job's first stage may find: its parameter ``depth``, and no fewer than ``k``."""
    depth = spec.params.get("depth")
    return max(spec.k, min(depth, MAX_DEPTH)) if type(depth) is int else 0


def to_json(record: Any, *, indent: int | None = None) -> str:
    """Write a record (or a mapping of plain values) as JSON with a stable key order."""
    return json.dumps(record, default=values_of, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def values_of(record: Any) -> dict[str, Any]:
    """Return a record's fields as they are, because ``dataclasses.asdict`` would copy all of them first.

    Of the fields marked :data:`LATER`, only those that are not at their default.

    Raises:
        TypeError: it is not a record.
    """
    return {
        each.name: value
        for each in dataclasses.fields(type(record))
        if (value := getattr(record, each.name)) != each.default or "later" not in each.metadata
    }


def digest(value: Any) -> str:
    """Hash a record or plain value: sha256 (hex) of its canonical JSON."""
    return hashlib.sha256(to_json(value).encode("utf-8")).hexdigest()


def spec_from_json(text: str) -> JobSpec:
    """Read a :class:`JobSpec` inside the image, where pydantic is not.

    Raises:
        ValueError: the text is not JSON, a key is missing or unknown, or the contract's version is another.
    """
    try:
        raw = json.loads(text)
        version = raw.get("protocol_version")
        if version != PROTOCOL_VERSION:
            raise ValueError(f"contract version {version!r}, this image speaks {PROTOCOL_VERSION}")
        raw["envelope"] = Envelope(**raw["envelope"])
        raw["enforced"] = tuple(raw["enforced"])
        raw["scenario_params"] = ScenarioParams(**raw["scenario_params"])
        if raw.get("cpuset") is not None:
            raw["cpuset"] = Cpuset(**{name: tuple(numbers) for name, numbers in raw["cpuset"].items()})
        for name in ("warmup", "sample"):
            raw[name] = tuple(map(query_of, raw[name]))
        return JobSpec(**raw)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"spec.json does not follow the contract: {error}") from error


def updates_from_json(text: str) -> Updates:
    """Read the updates of a job inside the image."""
    raw = json.loads(text)
    return Updates(raw["query_qps"], raw["update_qps"], tuple(raw["documents"]))


def query_of(raw: dict[str, Any]) -> Query:
    """Return a query from the object that :func:`to_json` made of it."""
    pairs = tuple((name, value) for name, value in raw.get("filter", ()))
    return Query(raw["query_id"], raw["text"], pairs, raw.get("matching"))


def fits(metadata: Mapping[str, object], wanted: Filter) -> bool:
    """Return whether a document with these fields passes a filter."""
    return all(name in metadata and metadata[name] == value for name, value in wanted)


def corpus_line(doc_id: str, title: str, text: str, metadata: Mapping[str, Scalar] | None = None) -> bytes:
    """Write a prepared document; a corpus's hash is the hash of all its lines."""
    document: dict[str, object] = {"_id": doc_id, "title": title, "text": text}
    if metadata:
        document["metadata"] = dict(sorted(metadata.items()))
    return json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
