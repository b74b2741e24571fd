"""Records of a report, between the free half's stages and the writers in ``harness/report/``.

Frozen dataclasses, standard library only.  Units stand in the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from harness.driver.records import Envelope, Isolation, Outcome
from harness.errors import counted
from harness.results.schema import DataFault, SweepPoint
from harness.stats import Estimate
from harness.untrusted import ForeignText


class Validity(str, Enum):
    """Trust in a result's numbers; independent of its outcome."""

    CLEAN = "clean"
    NOISY = "noisy"
    INVALID = "invalid"
    # Published: without samples nothing can be judged.
    UNKNOWN = "unknown"

    @property
    def doubt(self) -> str:
        """Its word if the numbers are in doubt, else empty."""
        return self.value if self in (Validity.NOISY, Validity.INVALID) else ""


class Cause(str, Enum):
    """The cause of a finding: a word that no version changes."""

    ISOLATION = "isolation"
    PROTOCOL = "protocol"
    THROTTLING = "throttling"
    SWAP = "swap"
    COUNTERS = "counters"
    STEAL = "steal"
    FOREIGN_CPU = "foreign_cpu"
    OVERSUBSCRIPTION = "oversubscription"
    PAGE_FAULTS = "page_faults"
    CANARY = "canary"
    SLOW_MACHINE = "slow_machine"
    GPU_THROTTLING = "gpu_throttling"
    GPU_SHARED = "gpu_shared"
    GPU_CLOCK = "gpu_clock"
    GPU_UNSAID = "gpu_unsaid"
    PLACEMENT = "placement"
    SHARED_HOST = "shared_host"
    PAGE_CACHE = "page_cache"
    THREADS_UNSAID = "threads_unsaid"
    INCOMPLETE = "incomplete"
    RANKINGS = "rankings"
    WARMUP = "warmup"
    DRIFT = "drift"
    RESULT_CACHE = "result_cache"
    UNACCOUNTED_TIME = "unaccounted_time"
    STAGES = "stages"
    FEW_SAMPLES = "few_samples"
    LATENCY_TARGET = "latency_target"


def processors(cpus: int, gpus: int) -> str:
    """Return CPUs and GPUs in words: ``2 CPUs``, ``1 CPU, 1 GPU``."""
    return ", ".join((counted(cpus, "CPU"), *([counted(gpus, "GPU")] if gpus else [])))


@dataclass(frozen=True)
class Finding:
    """A finding: the fact, its figure and the next command (measuring rule 22).

    ``validity`` is its effect on the result; ``clean`` makes it a remark.  ``transient``: it may disappear when the
    cell is measured again unchanged.
    """

    cause: Cause
    validity: Validity
    text: str
    transient: bool = False


@dataclass(frozen=True)
class Price:
    """The instance type that prices a row, with its price on a date.

    ``gpus`` counts all GPUs of the type, of the model ``gpu_model``.  ``substitutes`` names the row's own type if that
    had no price on the date: this type replaces it, and nothing was measured on it.
    """

    instance_type: str
    architecture: str
    vcpus: int
    memory_bytes: int
    region: str
    term: str
    usd_per_hour: float
    date: str
    gpus: int = 0
    gpu_model: str | None = None
    substitutes: str | None = None


@dataclass(frozen=True)
class Machine:
    """Machine that measured a row.  ``host_cpus`` are the CPUs of harness and job together."""

    cpu_model: ForeignText
    architecture: ForeignText
    kernel: ForeignText
    cgroup_version: int | None
    docker_version: ForeignText | None
    harness_version: ForeignText
    harness_commit: ForeignText | None
    gpu_models: tuple[ForeignText, ...]
    instance_type: ForeignText | None
    host_cpus: int


# The stage that no adapter reports: time outside its stages.
OTHER = "other"


@dataclass(frozen=True)
class Timing:
    """Mean and median of a second clock, a stage or the service time; it never replaces the end-to-end clock."""

    mean_s: Estimate
    p50_s: Estimate


@dataclass(frozen=True)
class TokenPrice:
    """Price of a language model's tokens on a date, in US$ per million; ``None``: the source does not give it.

    ``batch_discount`` is the share of the price saved by batches.
    """

    model: str
    usd_per_million_in: float
    usd_per_million_out: float
    usd_per_million_cached_in: float | None
    batch_discount: float | None
    date: str
    source: str


@dataclass(frozen=True)
class FirstStage:
    """The ranking given to a row's second stage, scored by the row's own judgements.

    ``system`` made it; ``measured`` is false for a stored run, which takes no time.  ``depth`` is the number of hits
    asked for.  By measure: ``measures`` of the first stage alone, cut at the row's ``k``; ``gain``, the row's value
    less the first stage's, with a paired 95 % interval; ``harm``, the share of judged queries that the second stage
    makes worse.  ``ceiling`` is R@depth, the best recall that any order of these documents can have.
    """

    system: str
    measured: bool
    depth: int
    ceiling: Estimate
    measures: dict[str, Estimate] = field(default_factory=dict)
    gain: dict[str, Estimate] = field(default_factory=dict)
    harm: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell measured in one kind of isolation, from the jobs that could be pooled (``jobs``, ``keys``).

    Latencies have the interval for other such queries in fresh processes.  ``like_queries_s`` and ``these_queries_s``
    hold the two that it is made of, by ``mean``, ``p50``, ``p95`` and ``p99``: other queries in these processes, these
    queries in other processes.  ``at_most_s`` holds, by percentile, what it is at most (LoadGen's rule, confidence
    0.99); ``spread_s`` standard deviations by ``query``, ``trial``, ``job`` and ``residual``; ``stages_s`` what the
    adapter says of its stages, with the time that they leave out (``other``).  ``key`` names the job whose run is
    judged.  ``load_s`` and ``first_query_s`` are medians over the jobs, memory figures their largest.  ``gpu_energy_j``
    is what the GPUs took while the trials of all its jobs ran, idle draw included; missing where any job did not
    measure it.  ``one_pass_warmup`` is how many queries warmed up where warm-up did not go on until steady.

    A failed row has an outcome and a detail, and every figure is missing. ``notes`` are sentences about this row;
    each states a fact, its figure and, where something can be done, the next command. The texts of ``findings``, which
    decide ``validity``, are among them. ``transient``: some of its reasons to doubt may pass when it is measured
    again. ``nominal_memory_bytes`` is what the profile asks for, where that is the whole machine and the limit is what
    its host leaves (:attr:`memory_bytes`). ``harness_apart``: the harness kept off the job's CPUs (``None``: not
    known). ``price`` is ``None`` when nothing in the snapshot provides the profile; ``price_note`` says that, or how
    the priced machine differs from the measured one. A row that was published and not measured here has no machine, no
    start and no hashes; its ``published_type`` is the instance type that the paper prices it on, and
    ``gpu_memory_bytes`` what each GPU of that one has. ``attempts`` counts the stored jobs of this cell, failed ones
    included.
    ``unjudged_share`` of the first ``unjudged_depth`` hits has no judgement (mean over queries with hits);
    ``rejudged`` says how it is judged, where not by what was stored with it.
    ``counts`` holds the work of a query (pairs, tokens, flop ...), the mean over all timed samples: no machine changes
    it.  ``token_model`` is the language model whose token prices the system names.
    ``backend`` names what ran the encoder of queries, ``document_backend`` what the system names for documents.
    ``stand_in`` says what the system's checkpoint was, where it was not the published one; ``pinned_at_first_use``
    which of its files the run pinned; ``sweep`` which point of a sweep or curve it is; ``origin`` whose results these
    are, where they were merged (:mod:`harness.results.merge`): jobs of two origins never share a row.

    Money is there once a row was priced (:mod:`harness.analysis.row_pricing`): ``usd_per_million`` is that of the model
    ``sequential``, ``usd_per_million_saturated`` that of the other, ``usd_tokens_per_million`` what the tokens of a
    million queries cost at ``token_price``, beside those; what a million documents cost to index is on
    ``build_price``. ``build_envelope`` is what the index build had and ``build_machine`` where it ran (``None``: not
    known, or its components had another); ``index_parts_s`` what each component took of ``index_build_s``;
    ``build_validity`` how far that time can be trusted; ``corpus_documents`` what it indexed and ``data_faults`` what
    is wrong with it;
    ``latency_percentile`` per cent of the queries within ``latency_target_s`` was asked of a throughput.
    """

    suite: str
    system: str
    dataset: str
    scenario: str
    profile: str
    isolation: Isolation
    outcome: Outcome
    detail: ForeignText | None = None
    validity: Validity
    key: str
    started_at: str | None = None
    machine: Machine | None = None
    cpus: int
    memory_limit_bytes: int
    nominal_memory_bytes: int | None = None
    gpus: int
    price: Price | None = None
    price_note: str | None = None
    k: int
    sample_sha256: str | None = None
    corpus_sha256: str | None = None
    qrels_sha256: str | None = None
    published_type: str | None = None
    gpu_memory_bytes: int | None = None
    backend: ForeignText | None = None
    document_backend: ForeignText | None = None
    stand_in: ForeignText | None = None
    pinned_at_first_use: ForeignText | None = None
    sweep: SweepPoint | None = None
    origin: str | None = None
    queries: int | None = None
    trials: int | None = None
    queries_judged: int | None = None
    queries_unjudged: tuple[str, ...] = ()
    unjudged_depth: int | None = None
    unjudged_share: float | None = None
    rejudged: tuple[str, ...] = ()
    measures: dict[str, Estimate] = field(default_factory=dict)
    latency_mean_s: Estimate = Estimate(None)
    p50_s: Estimate = Estimate(None)
    p95_s: Estimate = Estimate(None)
    p99_s: Estimate = Estimate(None)
    like_queries_s: dict[str, Estimate] = field(default_factory=dict)
    these_queries_s: dict[str, Estimate] = field(default_factory=dict)
    at_most_s: dict[str, Estimate] = field(default_factory=dict)
    throughput_qps: Estimate = Estimate(None)
    latency_target_s: float | None = None
    latency_percentile: float | None = None
    service_s: Timing | None = None
    stages_s: dict[str, Timing] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    first_stage: FirstStage | None = None
    token_model: str | None = None
    spread_s: dict[str, Estimate] = field(default_factory=dict)
    trial_means_s: tuple[float, ...] = ()
    trial_spread_s: float | None = None
    peak_anon_bytes: int | None = None
    peak_mapped_bytes: int | None = None
    peak_cgroup_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    gpu_energy_j: float | None = None
    index_bytes: int | None = None
    index_build_s: float | None = None
    build_envelope: Envelope | None = None
    build_machine: Machine | None = None
    build_validity: Validity = Validity.UNKNOWN
    build_findings: tuple[Finding, ...] = ()
    index_parts_s: dict[str, float] = field(default_factory=dict)
    corpus_documents: int | None = None
    data_faults: tuple[DataFault, ...] = ()
    load_s: float | None = None
    first_query_s: float | None = None
    one_pass_warmup: int | None = None
    usd_per_million: Estimate = Estimate(None)
    usd_per_million_saturated: Estimate = Estimate(None)
    usd_tokens_per_million: Estimate = Estimate(None)
    token_price: TokenPrice | None = None
    usd_build_per_million_documents: Estimate = Estimate(None)
    usd_storage_per_month: Estimate = Estimate(None)
    build_price: Price | None = None
    attempts: int = 1
    jobs: int = 1
    keys: tuple[str, ...] = ()
    transient: bool = False
    page_cache: ForeignText | None = None
    harness_apart: bool | None = None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def per_query_key(self) -> str:
        """The key of the row's values by query; jobs of two origins may share ``key``."""
        return self.key if self.origin is None else f"{self.origin}/{self.key}"

    @property
    def memory_bytes(self) -> int:
        """The memory that its profile asks for; for a whole machine, more than the job's limit."""
        return max(self.nominal_memory_bytes or 0, self.memory_limit_bytes)

    @property
    def cost(self) -> Estimate:
        """US$ per million queries by the model of its scenario: sequential for single queries, else saturated."""
        return self.usd_per_million if self.scenario == "single_stream" else self.usd_per_million_saturated

    def measured(self, measure: str) -> float | None:
        """Return the value of a measure, if there is one."""
        return self.measures.get(measure, Estimate(None)).value

    @property
    def padding_share(self) -> float | None:
        """Return the share of computed tokens that are padding; ``None``: not counted."""
        real, padded = self.counts.get("tokens"), self.counts.get("padded_tokens")
        return 1 - real / padded if real is not None and padded else None

    def gain(self, measures: Sequence[str]) -> tuple[str, Estimate, Estimate] | None:
        """Return the first measure that has a gain over the first stage, with gain and harm."""
        stage = self.first_stage
        name = next((name for name in measures if stage and name in stage.gain), None)
        return None if stage is None or name is None else (name, stage.gain[name], stage.harm[name])

    @property
    def own_notes(self) -> list[str]:
        """Notes that are not the texts of findings."""
        texts = {finding.text for finding in self.findings}
        return [note for note in self.notes if note not in texts]


@dataclass(frozen=True)
class Overhead:
    """The time that harness itself adds to a query: the null system in the same envelope (measuring rule 23).

    Its fields are from the null system's row, with the texts of that row's findings.
    """

    suite: str
    profile: str
    isolation: Isolation
    outcome: Outcome
    detail: ForeignText | None
    validity: Validity
    reasons: tuple[str, ...]
    key: str
    latency_mean_s: Estimate = Estimate(None)
    p50_s: Estimate = Estimate(None)
    p99_s: Estimate = Estimate(None)
    origin: str | None = None


@dataclass(frozen=True)
class PublishedRates:
    """Exchange rates (AMRS) behind published scores: units of each metric for a point of ``measure``.

    They apply to the rows of one dataset and suite; ``source`` names the paper's table.
    """

    source: str
    dataset: str
    suite: str
    measure: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Table:
    """Rows in reading order, with the facts about all rows; :func:`harness.analysis.row_pricing.price` adds the prices.

    ``measures`` are the measure names in column order, as ir_measures writes them.  ``notes`` are sentences about
    the table: methods, formulas, and rows that must not be compared.  ``overhead`` holds the null system on each
    profile.  ``cost_formula`` is that of the model ``sequential``; ``cost_formulas`` holds all, by name.
    ``unreadable``: sentences about records that could not be read and are left out.
    ``rounded_to``: the step to which published rows print a measure (0.001 for tenths of a per cent).
    ``rates``: exchange rates of published scores.
    """

    rows: tuple[Row, ...]
    measures: tuple[str, ...]
    price_provider: str = ""
    price_region: str = ""
    price_date: str = ""
    price_source: str = ""
    cost_formula: str = ""
    overhead: tuple[Overhead, ...] = ()
    notes: tuple[str, ...] = ()
    price_term: str = "on-demand"
    price_architecture: str = "measured"
    price_generation: str = "current"
    price_machine: str = "measured"
    price_tokens_date: str = ""
    cost_formulas: dict[str, str] = field(default_factory=dict)
    rounded_to: dict[str, float] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    rates: tuple[PublishedRates, ...] = ()
