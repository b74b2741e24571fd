"""Run jobs of a system under limits, one at a time, and find stored jobs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from harness import datasets, filesystem
from harness.datasets import Dataset, QuerySample
from harness.driver.records import Envelope, Outcome
from harness.errors import JobError, StoreError, UsageError
from harness.jobs import environment, orchestrator
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.pinning import pin_system
from harness.jobs.plan import identity, plan
from harness.jobs.suite import Suite
from harness.jobs.suite_protocol import SuiteProtocol
from harness.launch.base import Launcher, Prepared
from harness.launch.images.systems import System
from harness.progress import filtering, task
from harness.results.attempts import started
from harness.results.reader import StoredJob, cell_path, stored_jobs
from harness.results.schema import Result, ResultSpec
from harness.results.store import ResultPublisher, Store
from harness.untrusted import read_start, reason_of

SUITE = "viable"
MIB = 1 << 20
# A JVM on one CPU compiles during hundreds of queries: warm up until steady, then run three passes.
WARMUP, WARMUP_CAP, TRIALS = 100, 20_000, 3
# An image cannot start with less.
LEAST_BYTES = 16 * MIB
# A job under a limit is stopped after this time plus this multiple of the unconstrained job's, beyond any target.
_GRACE_S, _SLOWEST = 60.0, 10.0
_SINCE = "fresh-since"


@dataclass(frozen=True)
class Subject:
    """A system and the queries that it answers; ``language`` is the dataset's in the suite, or None."""

    system: System
    dataset: Dataset
    queries: QuerySample
    language: str | None = None
    trials: int = TRIALS
    warmup_cap: int = WARMUP_CAP
    seed: int = 2023


def subject(
    system: System,
    location: datasets.DatasetLocation,
    cache: Path,
    queries: int,
    language: str | None = None,
    *,
    unjudged: bool = False,
) -> Subject:
    """Load a dataset and draw its sample.

    Raises:
        FileError: the dataset is invalid, or too small for warm-up.
    """
    dataset = datasets.load(location, cache)
    warmup = min(WARMUP, max(dataset.corpus.size // 2, 1))
    drawn = datasets.draw_sample(dataset, queries, warmup, Subject.seed, unjudged=unjudged)
    return Subject(system, dataset, drawn, language)


def envelope(cpus: int, memory_bytes: int, gpus: int = 0) -> Envelope:
    """Return a hardware profile of this size (whole MiB), named after the size."""
    with_gpus = f"-gpu{gpus}" if gpus else ""
    return Envelope(f"cpu{cpus}{with_gpus}-mem{memory_bytes // MIB}m", cpus, memory_bytes // MIB * MIB, gpus)


class SubjectJobs:
    """All jobs of one subject, stored in ``folder``.

    Args:
        subject: the measured system and its queries.
        results: the results folder; jobs are below ``<results>/viable/``.
        cache: the cache of corpora and indexes.
        launcher: runs the jobs; must enforce envelopes.
        fresh: ignore jobs that are stored already.
        publisher: where results are published besides.

    Raises:
        UsageError: the launcher does not enforce envelopes.
        EngineError, ImageError: jobs cannot run.
        FileError: a stored job is damaged.
    """

    def __init__(
        self,
        subject: Subject,
        results: Path,
        cache: Path,
        launcher: Launcher,
        *,
        fresh: bool = False,
        publisher: ResultPublisher | None = None,
    ) -> None:
        if "memory_bytes" not in launcher.isolation.enforced:
            raise UsageError(
                f"isolation {launcher.isolation.name} enforces no memory limit, so a search for one makes no sense; use"
                " --launcher docker"
            )
        self.measured = 0
        self._options = RunOptions(results, cache, results, fresh=True, publisher=publisher)
        self._launcher = launcher
        self._images: dict[str, Prepared] = {}
        # Pins of first use are stored with the jobs of all subjects.
        system = pin_system(subject.system, Store(results, SUITE, publisher), launcher)
        self.subject = subject = replace(subject, system=system)
        self._ready(subject.system)
        self.folder = results / SUITE / subject.system.name / subject.dataset.name
        # The mark is written with the first job, so that a search without a job does not outdate stored ones.
        self._unmarked = datetime.now(UTC) if fresh else None
        since = self._unmarked or read_mark(self.folder / _SINCE)
        here = environment.read(launcher.engine_version()).machine
        # Another machine's jobs are not evidence for this one.
        self._stored: dict[str, list[StoredJob]] = defaultdict(list)
        for job in stored_jobs(self.folder):
            if _counts(job.result) and started(job) >= since and job.result.environment.machine == here:
                self._stored[identity(job.result.spec)].append(job)

    def publish(self, path: Path) -> None:
        """Publish a file next to the published jobs."""
        if self._options.publisher:
            self._options.publisher.write(path.absolute(), path.read_bytes())

    def check(self, envelope: Envelope) -> None:
        """Raise UsageError if this host cannot provide an envelope."""
        if reason := self._launcher.cannot(envelope):
            raise UsageError(f"{reason}; ask for less, or run this on a larger machine")

    def attempts(self, envelope: Envelope) -> list[StoredJob]:
        """Return the stored jobs under an envelope, oldest first."""
        jobs = self._stored.get(identity(self._spec(envelope)), [])
        return sorted(jobs, key=lambda job: job.result.spec.repetition)

    def limited(self, whole: Envelope) -> list[StoredJob]:
        """Return the stored jobs with the envelope's CPUs and GPUs and less memory, by limit, then oldest first."""
        smaller = {
            stored
            for stored in (jobs[0].result.spec.envelope for jobs in self._stored.values())
            if (stored.cpus, stored.gpus) == (whole.cpus, whole.gpus) and stored.memory_bytes < whole.memory_bytes
        }
        ordered = sorted(smaller, key=lambda envelope: envelope.memory_bytes)
        return [job for envelope in ordered for job in self.attempts(envelope)]

    def next_after(self, job: StoredJob) -> StoredJob | None:
        """Return the stored job that began next, under any envelope."""
        later = [other for jobs in self._stored.values() for other in jobs if started(other) > started(job)]
        return min(later, key=started, default=None)

    def attempt(self, envelope: Envelope, number: int, unconstrained_s: float | None = None) -> tuple[StoredJob, bool]:
        """Return the ``number``-th attempt (from 0) at an envelope, and whether it ran now.

        Args:
            envelope: the envelope of the job.
            number: at most the number of stored attempts.
            unconstrained_s: time of an unconstrained job; a job that takes many times longer is stopped.

        Raises:
            JobError: the job ended for a reason other than the limit.
            EngineError, StoreError: the job could not run, or could not be stored.
        """
        attempts = self.attempts(envelope)
        if number < len(attempts):
            return attempts[number], False
        job = self._measure(envelope, unconstrained_s)
        if self._unmarked:
            self._mark(self._unmarked)
            self._unmarked = None
        self._stored[identity(job.result.spec)].append(job)
        self.measured += 1
        return job, True

    def _measure(self, envelope: Envelope, unconstrained_s: float | None) -> StoredJob:
        inputs = self._inputs(envelope, unconstrained_s)
        with filtering(lambda text: None if "[1/1" in text or text.endswith(": image ...") else text):
            ((result, _),) = orchestrator.run_suite(inputs, self._options, self._launcher).jobs
        job = StoredJob(self._options.results / cell_path(result.spec.cell) / result.key, result)
        if not _counts(result):
            raise JobError(
                result.outcome,
                f"a job with {envelope.memory_bytes // MIB:,} MiB ended {result.outcome.value} ({result.detail}), which"
                f" says nothing of its limit; see {job.folder} and `harness doctor`, then run the same command again",
            )
        return job

    def _ready(self, system: System) -> Prepared:
        prepared = self._images.get(system.image) or self._launcher.find(system)
        if prepared is None:
            self._launcher.check()
            with task(f"{system.image}: image"):
                prepared = self._launcher.prepare(system)
        self._images[system.image] = prepared
        return prepared

    def _inputs(self, envelope: Envelope, unconstrained_s: float | None = None) -> Inputs:
        subject = self.subject
        protocol = {
            "name": "santhanam2023",  # all passes run in one container; a fresh container is another attempt
            "warmup_queries": max(len(subject.queries.warmup), 1),
            "warmup_cap": subject.warmup_cap,
            "trials": subject.trials,
            "repeats": 0,
            "sample_size": max(len(subject.queries.sample), 1),
            "seed": subject.seed,
        }
        if unconstrained_s is not None:
            protocol["job_timeout_s"] = protocol["load_timeout_s"] = _GRACE_S + _SLOWEST * unconstrained_s
        name = subject.dataset.name
        suite = Suite(
            name=SUITE,
            systems=(subject.system.name,),
            datasets=(name,),
            languages={name: subject.language} if subject.language else {},
            profiles=(envelope.name,),
            overhead=False,
            protocol=SuiteProtocol.model_validate(protocol),
        )
        return Inputs(
            suite=suite,
            cells=suite.cells(),
            systems={subject.system.name: subject.system},
            profiles={envelope.name: envelope},
            datasets={name: subject.dataset},
            samples={name: subject.queries},
        )

    def _spec(self, envelope: Envelope) -> ResultSpec:
        inputs = self._inputs(envelope)
        recipes = {name: self._ready(system).recipe for name, system in inputs.images(inputs.cells).items()}
        (planned,) = plan(inputs, self._launcher.isolation.name, recipes, [])
        return planned.spec

    def _mark(self, since: datetime) -> None:
        """Record that older jobs do not count, also after this search is interrupted and resumed."""
        path = self.folder / _SINCE
        with filesystem.atomic_write(path) as partial:
            partial.write_text(since.isoformat(timespec="milliseconds") + "\n", encoding="ascii")
        self.publish(path)


def read_mark(path: Path) -> datetime:
    """Return the time since which jobs count; without the file, the earliest time.

    Raises:
        StoreError: the file does not hold a time with its zone.
    """
    try:
        since = datetime.fromisoformat(read_start(path, 100).decode("ascii").strip())
        if since.tzinfo is None:
            raise ValueError("the time has no zone")
    except FileNotFoundError:
        return datetime.min.replace(tzinfo=UTC)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be read: {reason_of(error)}; remove it to use all that is stored") from error
    return since


def _counts(result: Result) -> bool:
    """Return whether a job is evidence about its limit: it ran, and neither the host nor the engine ended it."""
    no_evidence = (Outcome.NOT_APPLICABLE, Outcome.ENVELOPE_MISMATCH, Outcome.INTERRUPTED)
    full = result.outcome is Outcome.CRASH and (result.detail or "").startswith("the disk has less than")
    return (
        result.wall_s > 0
        and result.outcome not in no_evidence
        and result.provenance.image_digest is not None
        and not full
    )
