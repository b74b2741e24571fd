"""Records of a report, between the free half's stages and the writers of ``harness/report``; names have units."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from harness.analysis.update_records import UpdateFigures
from harness.driver.records import Envelope, Outcome
from harness.errors import counted
from harness.estimate import Estimate
from harness.pricing.serverless import ServerlessQuote
from harness.results.isolation import Isolation
from harness.results.schema import NULL_SYSTEM, DataFault, SweepPoint
from harness.results.suite_record import ToldMachine
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
    CLIENT = "client"
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
    FAILED_QUERIES = "failed_queries"


def ended(outcome: Outcome, detail: object) -> str:
    """Say how a failed job or row ended, and why."""
    return f"{outcome.value}: {detail or 'no detail was stored'}"


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

    @property
    def processor(self) -> str:
        """The processor, the GPUs, and the type in the cloud, which times depend on."""
        return " ".join(str(name) for name in (self.cpu_model, *self.gpu_models, self.instance_type) if name)


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
class Judged:
    """Coverage of a row's run by the judgements.

    ``unjudged_share`` of the first ``unjudged_depth`` hits has no judgement: the mean over queries with hits.
    ``rejudged`` names judgements that replace the stored ones.
    """

    queries: int | None = None
    unjudged: tuple[str, ...] = ()
    unjudged_depth: int | None = None
    unjudged_share: float | None = None
    rejudged: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Latency:
    """End-to-end latencies of a row, with the interval for other such queries in fresh processes.

    ``like_queries_s`` and ``these_queries_s`` hold the two parts of that interval, by ``mean``, ``p50``, ``p95`` and
    ``p99``: other queries in these processes, and these queries in other processes.  ``at_most_s`` bounds each
    percentile from above (LoadGen's rule, confidence 0.99).  ``spread_s`` holds standard deviations by ``query``,
    ``trial``, ``job`` and ``residual``.  ``stages_s`` holds the times that the adapter reports for its stages, and the
    time outside them (``other``); ``selectivity_s`` the latencies of filtered queries, by the share of documents that
    their filters let through.
    """

    mean_s: Estimate = Estimate(None)
    p50_s: Estimate = Estimate(None)
    p95_s: Estimate = Estimate(None)
    p99_s: Estimate = Estimate(None)
    like_queries_s: dict[str, Estimate] = field(default_factory=dict)
    these_queries_s: dict[str, Estimate] = field(default_factory=dict)
    at_most_s: dict[str, Estimate] = field(default_factory=dict)
    service_s: Timing | None = None
    stages_s: dict[str, Timing] = field(default_factory=dict)
    selectivity_s: dict[str, Timing] = field(default_factory=dict)
    spread_s: dict[str, Estimate] = field(default_factory=dict)
    trial_means_s: tuple[float, ...] = ()
    trial_spread_s: float | None = None


def _pooled(path: str, rule: Callable[[Sequence[Any]], Any]) -> Any:
    """Declare a figure of a row's jobs: its place in a result, and the rule that makes the jobs' values one."""
    return field(default=None, metadata={"path": path, "rule": rule})


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources that the jobs of a row used; a job without a value is left out.

    ``gpu_energy_j`` is the energy of the GPUs during the trials of all jobs, with idle draw; it is missing if one job
    did not measure it.
    """

    peak_anon_bytes: int | None = _pooled("observed.memory.peak_anon_bytes", max)
    peak_mapped_bytes: int | None = _pooled("observed.memory.peak_mapped_bytes", max)
    peak_cgroup_bytes: int | None = _pooled("observed.memory.peak_cgroup_bytes", max)
    peak_gpu_bytes: int | None = _pooled("observed.memory.peak_gpu_bytes", max)
    gpu_energy_j: float | None = None
    load_s: float | None = _pooled("measured.load_s", statistics.median_low)
    ready_s: float | None = _pooled("observed.ready_s", statistics.median_low)
    first_query_s: float | None = _pooled("answers.first_query_s", statistics.median_low)

    @property
    def cold_start_s(self) -> float | None:
        """Return the time from the start to the first answer; ``None``: not measured."""
        return None if self.ready_s is None or self.first_query_s is None else self.ready_s + self.first_query_s


@dataclass(frozen=True, kw_only=True)
class CpuUse:
    """CPU time of a query over all trials, as the kernel counted it, and the mean number of busy CPUs meanwhile.

    ``package_j`` is the energy of a query: of the whole packages over the trials, harness's work and waiting included.
    Harness's own parts (``driver_``) are the null system's figures in the same envelope; ``None``: not known.
    """

    per_query_s: Estimate = Estimate(None)
    busy_cpus: float | None = None
    driver_s: float | None = None
    package_j: Estimate = Estimate(None)
    instructions: Estimate = Estimate(None)
    driver_instructions: float | None = None

    @property
    def of_system_instructions(self) -> Estimate:
        """Return the instructions of a query without harness's own, where those are known."""
        return self.instructions.map(lambda count: max(0.0, count - (self.driver_instructions or 0.0)))

    @property
    def of_system_s(self) -> Estimate:
        """Return the CPU time of a query without harness's own part, where that is known."""
        return self.per_query_s.map(lambda seconds: max(0.0, seconds - (self.driver_s or 0.0)))

    @property
    def busy_with_system(self) -> float | None:
        """Return the mean number of CPUs that were busy with the system; ``None``: not known."""
        whole_s, own_s = self.per_query_s.value, self.of_system_s.value
        if self.busy_cpus is None or not whole_s or own_s is None:
            return self.busy_cpus
        return self.busy_cpus * own_s / whole_s


@dataclass(frozen=True)
class LoadPoint:
    """A load that a job tried: what was asked or answered a second, and the latency then.

    Under ``server`` the rate is the scheduled one, and the latency that at the target's percentile, which ``kept`` says
    was in the target; by ``connections`` at once, the rate is what was answered, and the latency the median.
    """

    queries_per_s: float
    latency_s: float
    kept: bool
    connections: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClientUse:
    """The client of a service.  A service is not charged for its client's figures.

    ``cpu_per_query_s`` is its CPU time.  ``null_s`` is the mean latency of a service that answers at once, in the same
    envelope: the client's and the network's part of each latency (``None``: not measured).
    """

    cpu_per_query_s: float | None = None
    null_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class IndexFigures:
    """The index of a row and its build.

    ``envelope`` and ``machine`` are ``None`` if they are unknown or differ between components.  ``parts_s`` holds each
    component's share of ``build_s``; ``validity`` says how far that time can be trusted.  ``cpu_s`` is the CPU time of
    the build without components, of a service the server's; ``client_cpu_s`` is its client's.
    """

    size_bytes: int | None = None
    build_s: float | None = None
    cpu_s: float | None = None
    client_cpu_s: float | None = None
    envelope: Envelope | None = None
    machine: Machine | None = None
    validity: Validity = Validity.UNKNOWN
    findings: tuple[Finding, ...] = ()
    parts_s: dict[str, float] = field(default_factory=dict)
    documents: int | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Money, in US$, once :mod:`harness.analysis.row_pricing` has priced the row.

    ``sequential``, ``saturated`` and ``metered`` are the cost of a million queries by those models.
    ``metered_quote`` is the serverless offer behind ``metered``, and ``serverless`` holds all offers that could run the
    row, the cheapest first.  ``tokens`` is the cost of the tokens of a
    million queries at ``token_price``, which comes on top.  ``build`` is the cost of indexing a million documents on
    the type of ``build_price``.
    """

    sequential: Estimate = Estimate(None)
    saturated: Estimate = Estimate(None)
    metered: Estimate = Estimate(None)
    metered_quote: ServerlessQuote | None = None
    serverless: tuple[ServerlessQuote, ...] = ()
    tokens: Estimate = Estimate(None)
    token_price: TokenPrice | None = None
    build: Estimate = Estimate(None)
    storage_per_month: Estimate = Estimate(None)
    build_price: Price | None = None


@dataclass(frozen=True, kw_only=True)
class Carbon:
    """Greenhouse gas of a million queries, g CO2e, as an estimate (:mod:`harness.analysis.row_carbon`).

    ``grams`` has the least and the most of all ``cases``: each of the ``processors`` that may have run the queries,
    with and without a power of memory, at both ends of the spread between estimates.  ``cpu_measured`` and
    ``gpu_measured``: the joules of CPU packages (then no processor is named) and of GPUs are in it, as measured.
    ``date``: the factors' date; ``grid`` has ``grams_per_kwh``.
    """

    grams: Estimate = Estimate(None)
    processors: tuple[str, ...] = ()
    cases: tuple[float, ...] = ()
    date: str | None = None
    grid: str | None = None
    grams_per_kwh: float | None = None
    cpu_measured: bool = False
    gpu_measured: bool = False

    @property
    def source(self) -> str | None:
        """Return which energy was measured and which estimated, in words; ``None``: the CO2e is not known."""
        if self.grams.value is None:
            return None
        gpus = self.gpu_measured
        if self.cpu_measured:
            return f"CPU packages{' and GPUs' if gpus else ''} measured, memory estimated"
        return "GPUs measured, CPUs and memory estimated" if gpus else "estimated"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One cell measured in one kind of isolation, from the jobs that could be pooled (``jobs``, ``keys``).

    A failed row has an outcome and a detail, and every figure is missing.  A published row was not measured here: it
    has no machine, start or hashes; ``published_type`` is the instance type that the paper prices, and
    ``gpu_memory_bytes`` the memory of each of its GPUs.

    ``key`` names the job whose run is judged; ``attempts`` counts the stored jobs of the cell, with failed ones.
    ``measured_again`` counts the jobs of a newer measurement that is not whole, and that the row does not show.
    ``notes`` are sentences about the row; the texts of ``findings``, which decide ``validity``, are among them.
    ``transient``: some reasons for doubt may disappear when the cell is measured again.  ``nominal_memory_bytes`` is
    the profile's memory if that is the whole machine; the limit is what its host leaves (:attr:`memory_bytes`).
    ``harness_apart``: harness kept off the job's CPUs (``None``: not known).  ``price`` is ``None`` if no price in the
    snapshot fits the profile; ``price_note`` says why, or how the priced machine differs from the measured one.
    ``counts`` holds the work of a query (pairs, tokens, flop ...), the mean over all timed samples; it does not
    depend on the machine.  ``token_model`` is the language model whose token prices the system names.  ``backend``
    ran the encoder of queries, ``document_backend`` the encoder of documents.  ``failed_queries`` counts the
    queries of an open loop that got no answer at the rate that was kept.  ``load`` are the loads that its jobs
    tried.  ``updates``: of scenario ``mixed``, whose latency counts the queries during updates.  ``client`` is a
    service's client; ``None``: the system was in the driver's process.  ``stand_in`` says
    which checkpoint replaces the published one; ``pinned_at_first_use`` names the files that the run pinned.
    ``sweep`` is a point of a sweep or curve.  ``models`` are the models of its parts, as ``name@revision``; ``foreign``
    is the quality that others report of its model (:mod:`harness.analysis.foreign_quality`), by column.
    ``origin`` names the merged results (:mod:`harness.results.merge`); jobs of two origins never share a row.
    ``predicted_from``: the most documents behind a row that was not measured (:mod:`harness.analysis.larger_sizes`).
    ``one_pass_warmup`` counts the warm-up queries if warm-up was one pass.  ``data_faults`` are faults of the corpus.
    ``told`` is the machine of a service that ran already, as its user told it (``None``: the user did not).
    ``throughput_qps`` was asked to keep ``latency_percentile`` per cent of the queries within ``latency_target_s``.
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
    told: ToldMachine | None = None
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
    models: tuple[str, ...] = ()
    origin: str | None = None
    predicted_from: int | None = None
    queries: int | None = None
    trials: int | None = None
    judged: Judged = Judged()
    measures: dict[str, Estimate] = field(default_factory=dict)
    foreign: dict[str, Estimate] = field(default_factory=dict)
    latency: Latency = Latency()
    throughput_qps: Estimate = Estimate(None)
    failed_queries: int | None = None
    updates: UpdateFigures | None = None
    cpu: CpuUse = CpuUse()
    client: ClientUse | None = None
    load: tuple[LoadPoint, ...] = ()
    latency_target_s: float | None = None
    latency_percentile: float | None = None
    counts: dict[str, float] = field(default_factory=dict)
    first_stage: FirstStage | None = None
    token_model: str | None = None
    resources: Resources = Resources()
    index: IndexFigures = IndexFigures()
    data_faults: tuple[DataFault, ...] = ()
    one_pass_warmup: int | None = None
    cost: Cost = Cost()
    carbon: Carbon = Carbon()
    attempts: int = 1
    measured_again: int = 0
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
    def usd_per_million(self) -> Estimate:
        """US$ per million queries by the model of its scenario: sequential for single queries, else saturated."""
        return self.cost.sequential if self.scenario == "single_stream" else self.cost.saturated

    @property
    def build_usd(self) -> float | None:
        """US$ of the build of its whole index; ``None``: not known."""
        usd, documents = self.cost.build.value, self.index.documents
        return None if usd is None or not documents else usd * documents / 1e6

    def measured(self, measure: str) -> float | None:
        """Return the value of a measure, if there is one."""
        return self.measures.get(measure, Estimate(None)).value

    @property
    def idle_share(self) -> float | None:
        """Return the share of the priced machine's CPU time that the trials left unused; ``None``: not known."""
        busy = self.cpu.busy_with_system
        return None if busy is None or self.price is None else max(0.0, 1 - busy / self.price.vcpus)

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
    """The time that harness itself adds to a query: a null system in the same envelope (measuring rule 23).

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
    latency: Latency = Latency()
    cpu: CpuUse = CpuUse()
    origin: str | None = None
    system: str = NULL_SYSTEM


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
    profile.  ``cost_formula`` belongs to the model ``sequential``; ``cost_formulas`` holds all, by name.
    ``unreadable``: sentences about records that could not be read and are left out.
    ``rounded_to``: the step to which published rows print a measure (0.001 for tenths of a per cent).
    ``rates``: exchange rates of published scores.  ``foreign``: columns of quality that others report.
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
    foreign: tuple[str, ...] = ()
