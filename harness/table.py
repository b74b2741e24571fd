"""What a report shows: the records between the free half's stages and the writers in ``harness/report/``.

Frozen dataclasses, standard library only.  Units stand in the names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from harness.records import Isolation, Outcome


class Validity(str, Enum):
    """How far a result's numbers can be trusted; apart from its outcome."""

    CLEAN = "clean"
    NOISY = "noisy"
    INVALID = "invalid"


@dataclass(frozen=True)
class Figure:
    """A number and what bounds it.  ``value`` is ``None`` when it is missing, and ``reason`` then says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Price:
    """The instance type that prices a row, and its price on a date."""

    instance_type: str
    architecture: str
    vcpus: int
    memory_bytes: int
    region: str
    usd_per_hour: float
    date: str


@dataclass(frozen=True)
class Machine:
    """What a row was measured on.  ``host_cpus`` are those that the harness and the job had between them."""

    cpu_model: str
    architecture: str
    kernel: str
    cgroup_version: int | None
    docker_version: str | None
    harness_version: str
    harness_commit: str | None
    gpu_models: tuple[str, ...]
    instance_type: str | None
    host_cpus: int


@dataclass(frozen=True)
class Row:
    """One cell measured in one kind of isolation.

    A failed row has an outcome and a detail, and every figure is missing.  ``notes`` are sentences about this row;
    each states a fact, its figure and, where something can be done, the next command.  ``price`` is ``None`` when
    nothing in the snapshot provides the profile; ``price_note`` says that, or how the priced machine differs from the
    measured one.  ``attempts`` counts the stored jobs of this cell, failed ones included.
    """

    suite: str
    system: str
    dataset: str
    scenario: str
    profile: str
    isolation: Isolation
    outcome: Outcome
    detail: str | None
    validity: Validity
    key: str
    started_at: str
    machine: Machine
    cpus: int
    memory_limit_bytes: int
    gpus: int
    price: Price | None
    price_note: str | None
    k: int
    sample_sha256: str
    corpus_sha256: str
    qrels_sha256: str
    queries: int | None = None
    trials: int | None = None
    queries_judged: int | None = None
    queries_unjudged: tuple[str, ...] = ()
    measures: dict[str, Figure] = field(default_factory=dict)
    latency_mean_s: Figure = Figure(None)
    p50_s: Figure = Figure(None)
    p95_s: Figure = Figure(None)
    p99_s: Figure = Figure(None)
    trial_means_s: tuple[float, ...] = ()
    trial_spread_s: float | None = None
    peak_anon_bytes: int | None = None
    peak_cgroup_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    index_bytes: int | None = None
    index_build_s: float | None = None
    load_s: float | None = None
    first_query_s: float | None = None
    usd_per_million: Figure = Figure(None)
    attempts: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows in reading order, with what holds for all of them.

    ``measures`` are the measure names in column order, as ir_measures writes them.  ``notes`` are sentences about
    the table: methods, formula, and rows that must not be compared.
    """

    rows: tuple[Row, ...]
    measures: tuple[str, ...]
    price_provider: str
    price_region: str
    price_date: str
    price_source: str
    cost_formula: str
    notes: tuple[str, ...] = ()
