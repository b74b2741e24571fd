"""The records of a stored job: frozen dataclasses, whose field names contain units.

Records that cross into a container are in :mod:`harness.driver.records`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from pydantic import StringConstraints

from harness.commands import literal
from harness.driver.records import LATER, Cpuset, Envelope, Measurement, Outcome, Scalar, ScenarioParams, digest
from harness.results.isolation import NAME, Isolation, named
from harness.untrusted import ForeignText, split_list

# A model on the hub: its name, and its commit if known.
HubModel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}(@[0-9a-f]{40})?$")]
IsolationName = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
# The system that does nothing: what a query costs on it is the harness's own overhead (measuring rule 23).  As a
# service: what a query costs on it is its client's and the network's.
NULL_SYSTEM, NULL_SERVICE = "null", "null-service"
NULL_SYSTEMS = {NULL_SYSTEM: "harness's own cost", NULL_SERVICE: "the cost of a service's client"}


def system_words(system: str) -> str:
    """Return a system's name for people; a null system's says what it is."""
    return f"{system} ({NULL_SYSTEMS[system]})" if system in NULL_SYSTEMS else system


# Version of result.json, and those that are read (:mod:`harness.results.version1` reads version 1).
# 1: one flat record.  2: a spec holds the recipe of its image, which decides what is done; the driver's measurement as
# it came, what the host saw, answers and provenance (with the image's digest) are nested.
SCHEMA_VERSION = 2
READ_VERSIONS = (1, 2)

# The most by which a job's times may exceed its ``wall_s``: two clocks are read one after the other.
CLOCK_SLACK_S = 0.05

# A file of a job whose dataset has answers instead of judgements: its run's hits, judged by their texts.
JUDGED_HITS = "judged-hits.trec.gz"
# The depths of the answers in those texts.
ANSWER_DEPTHS = "answer-depths.tsv.gz"
# So ends the source of a job's counters where no cgroup counts its CPU time (:class:`Memory`).
CPU_OF_PROCESSES = ", CPU time of processes"
# The engine of stored rankings.  The run of a first stage has as its tag the system that made it, with this and a slash
# in front for a stored ranking, which was not measured.
STORED_RUN = "fixed-run"


@dataclass(frozen=True)
class Memory:
    """Peak memory of a job as seen from outside it.

    ``peak_anon_bytes`` is anonymous plus shared memory, sampled every ``sample_interval_s``; it never counts
    file pages.  ``peak_mapped_bytes`` is file pages mapped by the job, sampled likewise.  ``peak_cgroup_bytes`` is the
    kernel's high-water mark of everything charged, page cache included.  ``None`` means not measured; it is never 0.
    """

    peak_anon_bytes: int | None = None
    peak_mapped_bytes: int | None = None
    peak_cgroup_bytes: int | None = None
    peak_gpu_bytes: int | None = None
    peak_anon_by_phase_bytes: dict[str, int] = field(default_factory=dict)
    source: str | None = None
    samples: int = 0
    sample_interval_s: float | None = None


@dataclass(frozen=True)
class GpuReading:
    """A job's GPUs at one moment; ``None``: NVML does not report the figure for each GPU.

    ``sm_clock_mhz`` is their lowest clock, ``temperature_c`` their highest temperature.  ``clock_reasons`` holds NVML's
    reasons why a GPU does not run faster, sorted: some are throttling, and some, like ``gpu_idle``, are not.
    """

    sm_clock_mhz: int | None = None
    clock_reasons: tuple[str, ...] | None = None
    temperature_c: int | None = None


@dataclass(frozen=True)
class CanaryReading:
    """One look at the machine: how long fixed pieces of work took on the job's CPUs just then.

    ``when`` is ``before``, ``between`` or ``after`` (the trials, or the build of an index).  ``cpu_s`` is the slowest
    of the job's CPUs; ``frequency_mhz`` the lowest of theirs; ``cpu_pressure`` the share of the last 10 s in which some
    task of the host waited for a CPU (PSI). ``None``: this host does not show it.  ``gpu`` is there for a job with
    GPUs, which rest while the machine is looked at.
    """

    when: str
    t_ns: int
    took_s: float
    cpu_s: float
    memory_s: float
    disk_s: float | None
    load_1m: float | None = None
    frequency_mhz: float | None = None
    cpu_pressure: float | None = None
    gpu: GpuReading | None = None


@dataclass(frozen=True)
class Counters:
    """Kernel counters of the job's CPUs over the trials, or over the build; ``None``: the kernel does not show it.

    ``wall_s`` is what was counted: summed over the trials, each from the reading nearest to its start to the one
    nearest to its end. ``cpu_s`` is the job's own CPU time, ``foreign_cpu_s`` the time of everything else on its CPUs,
    ``steal_s`` what the hypervisor took from them, ``wait_s`` how long the job's threads were runnable without a CPU
    (summed over threads), ``throttled_s`` how long a quota stopped it, ``swap_bytes`` the most it had swapped out.
    Of a service the job is the server; ``client_cpu_s`` is the CPU time of its client.
    """

    wall_s: float | None = None
    cpu_s: float | None = None
    foreign_cpu_s: float | None = None
    steal_s: float | None = None
    wait_s: float | None = None
    throttled_s: float | None = None
    swap_bytes: int | None = None
    major_faults: int | None = None
    client_cpu_s: float | None = None


@dataclass(frozen=True)
class TrialCpu:
    """CPU time of one trial (``cpu_s``), by the counter that the kernel keeps for the whole job, and its length.

    The driver's own work for the trial is in it: a few milliseconds, as the null system's jobs show.  ``instructions``
    were executed by the job's threads in user mode; ``None``: the host cannot count them, or not all.
    """

    trial: int
    cpu_s: float
    wall_s: float
    instructions: int | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class TrialEnergy:
    """Energy of the CPU packages of a job (``package_j``) in one trial, by their counters (RAPL), idle draw included.

    Counted over ``wall_s``, from just before the trial to just after it.  Only of a job that had all CPUs of its
    packages, on a host without other jobs that is not a virtual machine.
    """

    trial: int
    package_j: float
    wall_s: float


@dataclass(frozen=True)
class GpuUse:
    """NVML's counters of a job's GPUs, all together; ``None``: not reported.

    While the trials ran: ``energy_j`` is what the whole GPUs took, idle draw included, counted over ``wall_s`` (as
    :class:`Counters` are); ``sm_clock_mhz`` the median over readings of the lowest clock; ``clock_reasons`` in how many
    of ``readings`` each reason not to run faster was in force.  From before the job to its end: the most processes at
    once that were not the job's (``foreign_processes``), and the memory that these held then (``foreign_bytes``).
    """

    wall_s: float | None = None
    energy_j: float | None = None
    readings: int = 0
    sm_clock_mhz: float | None = None
    clock_reasons: dict[str, int] | None = None
    foreign_processes: int | None = None
    foreign_bytes: int | None = None


@dataclass(frozen=True)
class Placement:
    """The host's CPUs that a job was pinned to, and those left to the harness while it ran.

    ``whole_cores`` says that no one else could be on the same physical cores (``None``: the topology is not shown).
    ``apart`` is false where the harness had to share the job's CPUs.  A service's client has ``client_cpus``: the
    harness's, and so the server's own where these are not apart.
    """

    cpus: tuple[int, ...]
    numa_nodes: tuple[int, ...]
    whole_cores: bool | None
    harness_cpus: tuple[int, ...]
    apart: bool
    client_cpus: tuple[int, ...] = ()

    @property
    def cpuset(self) -> Cpuset:
        """Return the CPUs of the job, as the kernel writes them."""
        return Cpuset(self.cpus, self.numa_nodes)


@dataclass(frozen=True)
class Cell:
    """One point of the product that a suite declares."""

    suite: str
    system: str
    dataset: str
    scenario: str
    profile: str

    @property
    def names(self) -> tuple[str, str, str, str]:
        """Return the names that tell it from the other cells of its suite."""
        return self.system, self.dataset, self.scenario, self.profile


@dataclass(frozen=True)
class SweepPoint:
    """Point of a sweep or a curve: the swept system or the curve's name, and the parameters that differ there."""

    system: str
    params: dict[str, Scalar]

    @property
    def text(self) -> str:
        """Return the swept parameters with their values: ``k1=0.9 b=0.4``."""
        return " ".join(f"{name}={value}" for name, value in self.params.items())

    @property
    def label(self) -> str:
        """Return the values alone: ``0.9, 0.4``."""
        return ", ".join(map(str, self.params.values()))


# The figures of the papers that named protocols follow, by the keys of a suite.
PAPERS: dict[str, dict[str, int | None]] = {
    "santhanam2023": {"warmup_queries": 10, "warmup_cap": None, "trials": 5, "k": 10, "sample_size": 1000},
}


# Between the name of a system and the name of a version of it.
VERSION = "@"


def base_system(name: str) -> str:
    """Return the system of a version's name: ``tantivy`` of ``tantivy@old``."""
    return name.partition(VERSION)[0]


_SIZED = re.compile(r"(.+)@([1-9]\d{0,8})")


def sized_name(dataset: str, documents: int) -> str:
    """Return the name of a dataset at a number of documents: ``scifact@100000``."""
    return f"{dataset}@{documents}"


def split_size(dataset: str) -> tuple[str, int | None]:
    """Return a dataset's name without its number of documents, and that number; ``None``: it names none."""
    found = _SIZED.fullmatch(dataset)
    return (found[1], int(found[2])) if found else (dataset, None)


def by_size(dataset: str) -> tuple[str, int]:
    """Return a key that sorts datasets by name, and the sizes of one by their numbers of documents."""
    name, documents = split_size(dataset)
    return name, documents or 0


@dataclass(frozen=True)
class ResultSpec:
    """Everything that decides what was measured; its hash is the job key (see :func:`job_key`).

    ``recipe`` is the hash of all that the image is made of (version 1 has its digest there, which no plan asks for).
    ``index_key`` names the inputs of the index (recipe, corpus, build parameters); ``isolation`` names what held the
    job to its envelope (:mod:`harness.results.isolation`).  A cell takes ``jobs`` container lives, of which this is
    number ``job``; each runs ``trials`` trials.  ``repetition`` counts attempts at the same job.  ``result_cache``: the
    system declares one.  ``instance_type`` is the machine that was asked for (``None``: any that runs the harness).
    ``held_out`` queries of the sample warm up: they are judged, and never timed.
    """

    cell: Cell
    protocol: str
    envelope: Envelope
    isolation: IsolationName
    params: dict[str, Scalar]
    recipe: str
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
    jobs: int = 1
    job: int = 0
    repeats: int = 0
    scenario_params: ScenarioParams = field(default_factory=ScenarioParams)
    result_cache: bool = False
    instance_type: str | None = None
    held_out: int = 0

    @property
    def timed_queries(self) -> int:
        """Queries of the sample that each trial times."""
        return self.sample_size - self.held_out


@dataclass(frozen=True)
class Environment:
    """Host of a job: hardware, kernel, engine, harness."""

    cpu_model: ForeignText
    architecture: ForeignText
    host_cpus: int
    host_memory_bytes: int
    kernel: ForeignText
    cgroup_version: int | None
    docker_version: ForeignText | None
    harness_version: ForeignText
    harness_commit: ForeignText | None
    gpu_models: tuple[ForeignText, ...] = ()
    gpu_driver: ForeignText | None = None
    instance_type: ForeignText | None = None

    @property
    def machine(self) -> Environment:
        """Return it without the harness: a driver of the same protocol measures alike."""
        return replace(self, harness_version=ForeignText(""), harness_commit=None)


@dataclass(frozen=True)
class RentedMachine:
    """The machine of EC2 that a job ran on, by its metadata service; ``None``: the service does not say.

    ``lifecycle`` is ``on-demand``, ``spot`` ...; ``placement_group`` and ``host_id`` (of a dedicated host) say who else
    may be near; ``cpu_platform`` is the processor's name.
    """

    instance_id: str
    instance_type: str
    availability_zone: str | None = None
    ami_id: str | None = None
    lifecycle: str | None = None
    placement_group: str | None = None
    host_id: str | None = None
    cpu_platform: str | None = None


class FaultKind(StrEnum):
    """Faults of a dataset that measures cannot show."""

    EMPTY_DOCUMENTS = "empty_documents"
    BLANK_QUERIES = "blank_queries"
    UNKNOWN_DOCUMENTS = "unknown_documents"
    UNKNOWN_QUERIES = "unknown_queries"
    REPEATED_JUDGEMENTS = "repeated_judgements"
    OTHER_UNICODE_FORM = "other_unicode_form"


# Each fault and its effect, around an example.
_FAULT_TEXTS = {
    FaultKind.EMPTY_DOCUMENTS: "documents are empty{}",
    FaultKind.BLANK_QUERIES: "queries are blank{}; they are asked anyway",
    FaultKind.UNKNOWN_DOCUMENTS: "judgements are of documents that the corpus lacks{}; no system can find them",
    FaultKind.UNKNOWN_QUERIES: "judgements are of queries that the dataset lacks{}; they count for nothing",
    FaultKind.REPEATED_JUDGEMENTS: "judgements repeat an earlier one{}; each counts once",
    FaultKind.OTHER_UNICODE_FORM: "judgements are of documents that the corpus has under ids in another Unicode"
    " normalisation (NFC, NFD){}; write all ids in one form",
}


@dataclass(frozen=True)
class DataFault:
    """A fault of a dataset: ``count`` of ``total`` documents, queries or judgements have it; an id as an example."""

    kind: FaultKind
    count: int
    total: int
    example: ForeignText | None = None

    @property
    def text(self) -> str:
        """Return the fault for people."""
        such = "" if self.example is None else f", such as {self.example!r}"
        return f"{self.count:,} of {self.total:,} {_FAULT_TEXTS[self.kind].format(such)}"


@dataclass(frozen=True)
class Observed:
    """Observations of a job or an index build by the host, from outside it; ``None``: not known.

    ``throttled_periods`` and ``oom_kills`` are the kernel's counters as the host read them, because an image's claim
    proves nothing. ``canary`` was read before, between and after the trials, or before and after the build.
    ``counters`` cover the trials, or the build alone; ``trial_cpu`` has each trial whose start and end were read,
    ``trial_energy`` as far as its packages were the job's. ``gpu`` is ``None`` for a job without GPUs, or where they
    could not be followed. ``ready_s``: from the start of the container or process until it asked for its first queries.
    ``shared_host``: other jobs of AWS Batch may have run there at the same time.
    """

    exit_code: int | None = None
    oom_kills: int | None = None
    throttled_periods: int | None = None
    memory: Memory = Memory()
    canary: tuple[CanaryReading, ...] = ()
    counters: Counters = Counters()
    trial_cpu: tuple[TrialCpu, ...] = ()
    trial_energy: tuple[TrialEnergy, ...] = ()
    gpu: GpuUse | None = None
    placement: Placement | None = None
    ready_s: float | None = None
    shared_host: bool = False


@dataclass(frozen=True)
class IndexFacts:
    """Cost and size of an index build, and what the host saw of it; ``None``: not known.

    ``resumed_s`` is the part of ``build_s`` that earlier attempts, which ended early, spent on what the last one took
    over; ``observed`` covers the last one.  Times and sizes include the joined indexes of ``components``;
    ``observed`` does not.
    """

    build_s: float
    index_bytes: int
    content_sha256: str
    envelope: Envelope
    resumed_s: float | None = None
    isolation: IsolationName | None = None
    started_at: str | None = None
    environment: Environment | None = None
    observed: Observed = Observed()
    components: dict[str, IndexFacts] = field(default_factory=dict)

    @property
    def own_build_s(self) -> float:
        """Return the build time without the components'."""
        return self.build_s - sum(facts.build_s for facts in self.components.values())

    @property
    def watched_s(self) -> float:
        """Return the own build time of the last attempt, which the readings describe."""
        earlier_s = sum(facts.resumed_s or 0.0 for facts in self.components.values())
        return self.own_build_s - ((self.resumed_s or 0.0) - earlier_s)


@dataclass(frozen=True)
class AnswerCounts:
    """Counts of a search job's answers.

    ``warmup_done`` counts the warm-up queries that were asked, ``trials_finished`` the trials with every query
    answered.  ``ranking_disagreements`` counts sample queries whose ranked ids differ between trials (the stored run is
    the first trial's); ``None``: there was no second one.
    """

    first_query_s: float | None = None
    warmup_done: int = 0
    trials_finished: int = 0
    ranking_disagreements: int | None = None


@dataclass(frozen=True)
class JobProvenance:
    """Origin of the measured system and its data, as far as it does not decide the job's key.

    ``image_digest`` names the image that ran (``None``: there was none); no plan compares it. ``stand_in`` says
    what the system's checkpoint was, where it was not the published one. ``pinned_at_first_use`` names the files
    that its file did not pin, with their commits: the suite's ``pins.json`` has their hashes. ``sweep`` is the
    point, where a suite sweeps the system. ``corpus_documents`` counts what the index was built of, ``data_faults``
    what is wrong with it. ``nominal_memory_bytes`` is the memory that the hardware profile asks for, where it is
    the whole machine and the limit in ``spec.envelope`` is what the host left of it; ``None``: the limit is the
    profile's. ``models`` names the models of its parts on the hub, as ``name@revision``.
    """

    image_digest: str | None = None
    image_bytes: int | None = None
    stand_in: ForeignText | None = None
    pinned_at_first_use: ForeignText | None = None
    sweep: SweepPoint | None = None
    corpus_documents: int | None = None
    data_faults: tuple[DataFault, ...] = ()
    nominal_memory_bytes: int | None = None
    models: tuple[HubModel, ...] | None = field(default=None, metadata=LATER)


@dataclass(frozen=True)
class Result:
    """One stored job: spec, environment, measurement and outcome.  Immutable; no money in it.

    ``measured`` is the driver's record as it came; ``None``: it left none that can be stored. ``outcome`` and
    ``detail`` are the host's verdict. ``instance`` is the machine, if EC2 rented it out. ``page_cache`` says what
    was done to the index's pages in the host's cache before the job (``dropped``, or ``None``: nothing). ``files`` maps
    each other file of its folder to its sha256. ``foreign_isolation`` is the record
    of an isolation that harness does not ship. ``seal`` is the digest of all other fields
    (:mod:`harness.results.seals`).
    """

    key: str
    spec: ResultSpec
    outcome: Outcome
    detail: ForeignText | None
    started_at: str
    wall_s: float
    environment: Environment
    instance: RentedMachine | None = None
    provenance: JobProvenance = JobProvenance()
    index: IndexFacts | None = None
    page_cache: ForeignText | None = None
    measured: Measurement[ForeignText] | None = None
    observed: Observed = Observed()
    answers: AnswerCounts = AnswerCounts()
    files: dict[str, str] = field(default_factory=dict)
    foreign_isolation: Isolation | None = None
    schema_version: int = SCHEMA_VERSION
    seal: str | None = None

    @property
    def isolation(self) -> Isolation:
        """Isolation that held the job to its envelope: harness's own record, else the stored one of that name."""
        stored = self.foreign_isolation
        return stored if stored is not None and stored.name == self.spec.isolation else named(self.spec.isolation)


def is_service(result: Result) -> bool:
    """Return whether the system was a server, with a client of its own."""
    placement = result.observed.placement
    return placement is not None and bool(placement.client_cpus)


def has_probes(result: Result) -> bool:
    """Return whether its trials are probes, as :attr:`harness.driver.records.JobSpec.probes` says."""
    scenario = result.spec.cell.scenario
    return scenario == "server" or (scenario == "offline" and is_service(result))


def measurements(results: Iterable[Result]) -> list[Measurement[ForeignText]]:
    """Return what the drivers measured; a job that left no measurement is left out."""
    return [result.measured for result in results if result.measured is not None]


def job_key(spec: ResultSpec) -> str:
    """Return the name of a stored job: the first 16 hex digits of the hash of all that decides the measurement."""
    return digest(spec)[:16]


def glob_of(cell: Cell) -> str:
    """Return the glob that matches this cell alone."""
    return "/".join(map(literal, cell.names))


def matches(cell: Cell, globs: str) -> bool:
    """Return whether a cell matches a glob over ``system/dataset/scenario/profile``, or over one of them.

    ``globs``: one, or a list of them (:func:`harness.untrusted.split_list`); any of its globs may match.
    """
    return any(_matches(cell, glob) for glob in {globs, *split_list(globs)})


def unmatched(cells: Collection[Cell], globs: str) -> str | None:
    """Return the first glob of a list that matches no cell; ``None`` if each does."""
    whole = any(_matches(cell, globs) for cell in cells)
    listed = () if whole else split_list(globs) or (globs,)
    return next((glob for glob in listed if not any(_matches(cell, glob) for cell in cells)), None)


def _matches(cell: Cell, glob: str) -> bool:
    names = ("/".join(cell.names),) if "/" in glob else cell.names
    return any(fnmatch.fnmatchcase(name, glob) for name in names)
