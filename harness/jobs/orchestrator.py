"""The only module that joins the costly half's stages: suite -> plan -> launch -> collect -> store."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from harness import filesystem
from harness.analysis import rows
from harness.datasets import Dataset
from harness.errors import ImageError, JobError
from harness.jobs import environment, indexes
from harness.jobs.assignment import RunCallbacks
from harness.jobs.collect import Collected, collect
from harness.jobs.indexes import Index
from harness.jobs.inputs import Inputs, RunOptions, gather, plan_with, planned
from harness.jobs.job_records import assemble, job_spec, nothing
from harness.jobs.plan import Planned, index_key, order
from harness.jobs.suite import Suite
from harness.launch import host
from harness.launch.base import Ended, Launcher, LaunchRequest, Prepared
from harness.launch.images.catalog import System
from harness.progress import duration, task
from harness.records import Outcome, to_json
from harness.results.reader import StoredJob, read_jobs
from harness.results.schema import Cell, Result, job_key
from harness.results.store import Store, check_room

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunSummary:
    """The end of a run: how many cells were done before, and each job of this run against what was foreseen.

    ``keys`` name the stored jobs that answer the suite as it stands now, whatever else lies beside them.
    """

    done_before: int
    jobs: tuple[tuple[Result, Outcome], ...]
    keys: frozenset[str]

    @property
    def unforeseen(self) -> list[Result]:
        """Jobs that did not end as foreseen."""
        return [result for result, expected in self.jobs if result.outcome is not expected]

    @property
    def complaints(self) -> list[str]:
        """One line for each of those: what, and why."""
        return [
            f"{_place(result)} ended {result.outcome.value}: {_why(result, expected)}"
            for result, expected in self.jobs
            if result.outcome is not expected
        ]


def run(suite: Suite, options: RunOptions, launcher: Launcher) -> RunSummary:
    """Run what is to do; each job is stored as it ends, and a failure of one stops no other."""
    return run_inputs(gather(suite, options), options, launcher)


def run_inputs(inputs: Inputs, options: RunOptions, launcher: Launcher) -> RunSummary:
    """As :func:`run`, on inputs that are gathered already (calibration plants its own)."""
    launcher.check()
    store = Store(options.results, inputs.suite.name, options.shelf)
    # Before the folder is held, which clears what a dead run had staged there: its container may still write into that.
    swept = launcher.sweep()
    if swept:
        log.info(f"removed {swept} containers that a dead run had left")
    filesystem.remove_all_leftovers(options.cache)
    with store.held():
        keep_inputs(inputs, store)
        return _Run(inputs, options, launcher, store).run()


def keep_inputs(inputs: Inputs, store: Store) -> None:
    """Store what a table needs besides the jobs."""
    for name, dataset in inputs.datasets.items():
        sample = inputs.samples[name]
        ending, judgements = dataset.judgements
        samples = {sample.sample_sha256: to_json([asdict(query) for query in sample.sample])}
        store.keep_inputs(judgements, dataset.qrels_sha256, samples, ending)


class _Run:
    """One run of a suite."""

    def __init__(self, inputs: Inputs, options: RunOptions, launcher: Launcher, store: Store) -> None:
        self.inputs = inputs
        self.options = options
        self.launcher = launcher
        self.store = store
        self.follower = options.share.follower if options.share else RunCallbacks()
        self.instance = environment.instance()
        self.environment = environment.read(launcher.engine_version(), self.instance)
        self.prepared: dict[str, Prepared | ImageError] = {}
        self.indexes: dict[str, Index | JobError] = {}
        self.built: set[str] = set()  # keys of indexes that this run has built
        self.finished: list[tuple[Result, Outcome]] = []

    def run(self) -> RunSummary:
        first = self._ours(planned(self.inputs, self.options, self.launcher))
        self._prepare(self.inputs.images(job.cell for job in first if not job.done and not job.cannot))
        stored = [job.result for job in read_jobs(self.store.folder)]
        digests = {name: found.digest for name, found in self.prepared.items() if isinstance(found, Prepared)}
        # Planned again: with its image at hand a cell may turn out to be done.
        for name, system in self.inputs.images(self.inputs.cells).items():
            found = None if name in self.prepared else self.launcher.find(system)
            if found:
                digests[name] = found.digest
        jobs = self._ours(self._plan(digests, stored, self.options.fresh))
        self._asked_for()
        todo = order(jobs, self.inputs.suite.protocol.seed)
        self._jobs(todo)
        keys = {job.latest.key for job in jobs if job.done and job.latest}
        keys |= {result.key for result, expected in self.finished if result.outcome is expected}
        for number in range(1, self.options.retry_noisy + 1):
            again = self._noisy(jobs, digests, keys)
            if not again:
                break
            cells = len({job.cell for job in again})
            most = self.options.retry_noisy
            log.info(f"noisy: measuring {cells} cells again ({number} of at most {most} times)")
            before = len(self.finished)
            self._jobs(order(again, self.inputs.suite.protocol.seed))
            # A cell whose second try went wrong in any part keeps its first whole: tries are not mixed.
            tried = self.finished[before:]
            failed = {result.spec.cell for result, expected in tried if result.outcome is not expected}
            better = {result.key: result.spec.cell for result, _ in tried if result.spec.cell not in failed}
            replaced = {job.result.key for job in self._stored() if job.result.spec.cell in better.values()}
            keys = (keys - replaced) | better.keys()
        return RunSummary(len(jobs) - len(todo), tuple(self.finished), frozenset(keys))

    def _plan(self, digests: Mapping[str, str], stored: list[Result], fresh: bool) -> list[Planned]:
        return plan_with(self.inputs, self.launcher, digests, stored, fresh, self.options.instance_types)

    def _ours(self, jobs: list[Planned]) -> list[Planned]:
        """All of them; or those of our share, where another machine made the plan."""
        share = self.options.share
        return share.of(jobs, {job.result.key for job in self._stored()}) if share else jobs

    def _asked_for(self) -> None:
        """The indexes that our share has."""
        for build in self.options.share.builds if self.options.share else ():
            cell = self.inputs.cell_of(build.system, build.dataset)
            builder = self.inputs.builder(cell)
            if builder.image not in self.prepared:
                self._prepare({builder.image: builder})
            prepared = self.prepared[builder.image]
            if isinstance(prepared, Prepared):
                self._index(cell, prepared)

    def _stored(self) -> tuple[StoredJob, ...]:
        return read_jobs(self.store.folder)

    def _noisy(self, jobs: list[Planned], digests: Mapping[str, str], keys: Collection[str]) -> list[Planned]:
        """The jobs of those cells whose numbers are in doubt for a reason that may pass, planned once more."""
        stored = self._stored()
        verdicts, isolation = rows.verdicts(stored, keys), self.launcher.isolation
        # A cell may lie there measured in another isolation; that is not this run's to mend.
        judged = {job.cell: verdicts.get((job.cell, isolation)) for job in jobs}
        doubted = {cell for cell, verdict in judged.items() if verdict and verdict.transient}
        results = [job.result for job in stored]
        again = self._plan(digests, results, fresh=True)
        return [job for job in again if job.cell in doubted]

    def _jobs(self, todo: list[Planned]) -> None:
        """Run these, each to a stored result."""
        for job in todo:
            prepared = self.prepared.get(self.inputs.builder(job.cell).image)
            if isinstance(prepared, Prepared) and not job.cannot:
                self._index(
                    job.cell, prepared
                )  # before the first timed job, so that what is left can be told from those
        started = time.monotonic()
        for number, job in enumerate(todo, 1):
            left = (time.monotonic() - started) / (number - 1) * (len(todo) - number + 1) if number > 1 else None
            part = f"[{number}/{len(todo)}" + (f", about {duration(left)} left]" if left is not None else "]")
            self.follower.starts(job_key(job.spec))
            result = self._job(job, part)
            self.finished.append((result, job.expected))
            log.info(line(number, len(todo), result, job.expected))

    def _prepare(self, systems: Mapping[str, System]) -> None:
        """Make the systems ready; one that cannot be is remembered, and the others go on."""
        for name, system in systems.items():
            try:
                with task(f"{name}: image"):
                    self.prepared[name] = self.launcher.prepare(system)
            except ImageError as error:
                log.info(f"{name}: {error}")
                self.prepared[name] = error

    def _job(self, job: Planned, part: str) -> Result:
        """Run one cell to a stored result, whatever becomes of it."""
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if job.cannot:
            return self._keep(job, started_at, nothing(Outcome.NOT_APPLICABLE, job.cannot), None, None)
        prepared, builder = (
            self.prepared.get(each.image) for each in (self.inputs.system(job.cell), self.inputs.builder(job.cell))
        )
        if not isinstance(prepared, Prepared) or not isinstance(builder, Prepared):
            why = builder if isinstance(prepared, Prepared) else prepared
            return self._keep(job, started_at, nothing(Outcome.CRASH, f"no image: {why}"), None, None)
        index = self._index(job.cell, builder)
        if isinstance(index, JobError):
            return self._keep(job, started_at, nothing(index.outcome, index.detail), None, None)
        collected, ended, page_cache = self._measure(job, part, prepared, index)
        unforeseen = collected.failed_to_load and not ended.stopped and job.expected is not Outcome.CRASH
        if unforeseen and self._rebuild(job.cell, builder, index):
            return self._job(job, part)
        kept = self._keep(job, started_at, collected, ended, index, page_cache)
        if collected.outcome is Outcome.OK:
            index.has_loaded()
        return kept

    def _measure(
        self, job: Planned, part: str, prepared: Prepared, index: Index
    ) -> tuple[Collected, Ended, str | None]:
        """Launch one job on its index; return what came of it, and how the page cache was."""
        dataset, sample = self.inputs.datasets[job.cell.dataset], self.inputs.samples[job.cell.dataset]
        spec = job_spec(job, prepared, dataset, sample)
        with self.store.scratch(job_key(job.spec)) as folder:
            (folder / "out").mkdir()
            page_cache = host.forget_pages(index.folder)
            launched = LaunchRequest(spec, prepared, folder, dataset.corpus.folder, index.folder, self.inputs.limits)
            label = f"{job.cell.system} {job.cell.dataset} {job.cell.profile}"
            with index.in_use(), task(label, part) as watcher:
                ended = self.launcher.launch(launched, watcher)
                collected = collect(launched, ended, dataset.corpus.unknown)
            if collected.outcome is not Outcome.OK:
                check_room(self.store.folder, collected.detail or "")
        return collected, ended, page_cache

    def _rebuild(self, cell: Cell, builder: Prepared, index: Index) -> bool:
        """Build the index of an earlier run again, once, because it did not load; return whether there is a new one."""
        key = index.folder.parent.name
        until = time.monotonic() + self.inputs.limits.build_s
        if key in self.built or index.rebuilt or index.used_elsewhere() or index.unchanged_since_loaded(until):
            return False
        log.info(f"  {builder.system.name}: the cached index of {cell.dataset} does not load; building it again")
        self._index(cell, builder, instead=index)
        return True

    def _index(self, cell: Cell, prepared: Prepared, instead: Index | None = None) -> Index | JobError:
        """The cell's index, built at its first use or ``instead`` of one; a failed build is not tried again here."""
        system, dataset = prepared.system, self.inputs.datasets[cell.dataset]
        key = index_key(system, prepared.digest, dataset.corpus.sha256)
        if instead is not None or key not in self.indexes:
            found = None if instead else indexes.find(self.options.cache, key)
            try:
                self.indexes[key] = found or self._build_index(prepared, dataset, key, instead)
                self.follower.built(key, None)
            except JobError as error:
                self.indexes[key] = error
                self.follower.built(key, error)
        return self.indexes[key]

    def _build_index(self, prepared: Prepared, dataset: Dataset, key: str, instead: Index | None) -> Index:
        self.follower.builds()
        self.built.add(key)
        name = self.inputs.suite.build_profile
        envelope = self.inputs.profiles[name] if name else indexes.build_envelope(host.cpus(), host.memory_bytes())
        cannot = self.launcher.cannot(envelope)
        if cannot:
            raise JobError(Outcome.NOT_APPLICABLE, f"index build: {cannot}")
        with task(f"{prepared.system.name}: index of {dataset.name}") as watcher:
            index = indexes.build(
                self.launcher,
                prepared,
                dataset.corpus,
                key,
                envelope=envelope,
                limits=self.inputs.limits,
                cache=self.options.cache,
                progress=watcher,
                instead=instead,
            )
        facts = index.facts
        earlier = f" ({duration(facts.resumed_s)} of it by an earlier attempt)" if facts.resumed_s else ""
        log.info(
            f"  {prepared.system.name}: index of {dataset.name} built in {duration(facts.build_s)}{earlier},"
            f" {facts.index_bytes / 2**20:.1f} MiB"
        )
        return index

    def _keep(
        self,
        job: Planned,
        started_at: str,
        collected: Collected,
        ended: Ended | None,
        index: Index | None,
        page_cache: str | None = None,
    ) -> Result:
        dataset = self.inputs.datasets[job.cell.dataset]
        result = assemble(job, started_at, collected, ended, index, self.environment, dataset.corpus.size)
        system = self.inputs.system(job.cell)
        result = replace(result, page_cache=page_cache, stand_in=system.stand_in)
        result = replace(result, instance=self.instance, shared_host=environment.shared_host())
        prepared = self.prepared.get(system.image)
        if isinstance(prepared, Prepared):
            result = replace(result, image_bytes=prepared.size_bytes)
        run = collected.run(job.cell.system, self.inputs.samples[job.cell.dataset].held_out)
        judged = dataset.judge(run) if run is not None else None
        log = ended.log if ended else b""
        stored = self.store.put(result, collected.table(), run, log, judged)
        self.follower.stored(stored)
        return stored.result


def _place(result: Result) -> str:
    cell = result.spec.cell
    place = f"{cell.system} {cell.dataset} {cell.profile}"
    if cell.scenario != "single_stream":
        place += f" {cell.scenario}"
    return f"{place} trial {result.spec.job + 1}/{result.spec.jobs}" if result.spec.jobs > 1 else place


def _why(result: Result, expected: Outcome) -> str:
    """Why a job ended as it did, or that it ended well against what the suite foresees."""
    return result.detail or f"the suite foresees {expected.value}; change its [[expect]]"


def line(number: int, total: int, result: Result, expected: Outcome) -> str:
    """Return how a job ended, for the person who waits."""
    text = f"  [{number}/{total}] {_place(result)}: {result.outcome.value}"
    if result.outcome is expected and expected is not Outcome.OK:
        text += " (foreseen)"
    if result.outcome is not expected or result.detail:
        text += f": {_why(result, expected)}"
    return f"{text}  [{duration(result.wall_s)}]"
