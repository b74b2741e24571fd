"""Run a suite: plan, prepare images, build indexes, and take each job from launch to its stored result."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from harness import filesystem, untrusted
from harness.datasets import Dataset
from harness.driver.records import MAX_PROBES, JobSpec, Outcome, Updates, to_json
from harness.driver.update_plan import moved_documents
from harness.errors import EngineError, ImageError, JobError, MissingWeights, StoreError, counted, listed
from harness.jobs import environment, indexes, preflight
from harness.jobs.collect import CollectedJob, build_result, collect
from harness.jobs.indexes import Index
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.pinning import pin_inputs
from harness.jobs.plan import Planned, component_keys, index_key, jobs_done, keys_of_done, order, plan_here
from harness.jobs.run_progress import RunProgress, cell_name, reason_of, trials_of
from harness.launch import host
from harness.launch.base import Launcher, LaunchRequest, Prepared
from harness.launch.images.systems import System
from harness.progress import duration, task
from harness.results import updates
from harness.results.reader import FIRST_STAGE, UPDATED_RUN, UPDATES, read_jobs
from harness.results.schema import (
    NULL_SYSTEMS,
    STORED_RUN,
    Cell,
    Environment,
    JobProvenance,
    RentedMachine,
    Result,
    job_key,
)
from harness.results.store import Store, check_room
from harness.results.suite_record import SuiteRecord
from harness.untrusted import foreign

log = logging.getLogger(__name__)

# A complaint names the first cells and counts the others.
_MOST_CELLS = 3


@dataclass(frozen=True)
class RunSummary:
    """Summary of a run: the number of jobs done before, and each job of this run with its expected outcome.

    ``keys`` names the stored jobs that answer the suite now; the suite's folder may hold others too.
    """

    done_before: int
    jobs: tuple[tuple[Result, Outcome], ...]
    keys: frozenset[str]

    @property
    def unforeseen(self) -> list[Result]:
        """Return the jobs whose outcome was not expected."""
        return [result for result, expected in self.jobs if result.outcome is not expected]

    @property
    def complaints(self) -> list[str]:
        """Return a line for each outcome that was not expected and its reason, with its cells."""
        found: dict[str, dict[Cell, list[Result]]] = defaultdict(lambda: defaultdict(list))
        for result, expected in self.jobs:
            if result.outcome is not expected:
                ended = f"ended {result.outcome.value}: {reason_of(result, expected)}"
                found[ended][result.spec.cell].append(result)
        return [
            f"{listed(list(map(trials_of, cells.values())), _MOST_CELLS, 'cell')} {ended}"
            for ended, cells in found.items()
        ]


@dataclass
class _RunState:
    """The state of a run: its parts, and the images and indexes that it has so far."""

    inputs: Inputs
    options: RunOptions
    launcher: Launcher
    store: Store
    environment: Environment
    instance: RentedMachine | None
    prepared: dict[str, Prepared | ImageError] = field(default_factory=dict)
    indexes: dict[str, Index | JobError] = field(default_factory=dict)
    built: set[str] = field(default_factory=set)  # keys of indexes that this run has built, or removed for that

    @property
    def recipes(self) -> dict[str, str]:
        """Return the recipes of the images that this run has prepared, by name."""
        return {name: image.recipe for name, image in self.prepared.items() if isinstance(image, Prepared)}


def run_suite(inputs: Inputs, options: RunOptions, launcher: Launcher) -> RunSummary:
    """Run the jobs to do; each is stored as it ends, and a failure of one stops no other.

    Where all are stored already, no engine is needed.
    """
    done = jobs_done(inputs, options, launcher)
    store = Store(options.results, inputs.suite.name, options.publisher)
    if done is None:
        launcher.check()
        # Before the folder is held, which clears a dead run's staging: its container may still write into that.
        swept = launcher.sweep()
        if swept:
            log.info(f"removed {counted(swept, 'container')} that a dead run had left")
        filesystem.remove_all_leftovers(options.cache)
    with store.held():
        keep_inputs(inputs, store)
        if done is not None:
            return RunSummary(len(done), (), done)
        host_facts = environment.read(launcher.engine_version())
        run = _RunState(inputs, options, launcher, store, host_facts, environment.machine())
        # Another run may have pinned what this one has read as unpinned.
        run.inputs, _ = pin_inputs(run.inputs, store, launcher, ())
        jobs = plan_here(run.inputs, options, launcher)
        todo = [job for job in jobs if not job.done]
        if 0 < len(todo) < len(jobs):
            log.info(f"  {len(jobs) - len(todo)} of {counted(len(jobs), 'job')} are stored from before")
        _foresee(run, todo)
        anew = options.fresh or options.fresh_index
        progress = RunProgress(todo, before=len(jobs) - len(todo), resumes=not anew)
        with progress.bar(run.inputs.suite.name):
            finished = _first_trials(run, todo, progress)
            early = {(result.spec.cell, result.spec.job) for result, _ in finished}
            jobs = _ready(run, todo)
            _build_assigned(run)
            left = [job for job in jobs if (job.cell, job.spec.job) not in early]
            finished += _measure(run, order(left, run.inputs.suite.protocol.seed), progress)
        done_before = sum(job.done and job.latest is not None for job in left)
        keys = _answering(run, finished)
        for retry in range(1, options.retry_noisy + 1):
            noisy = _noisy(run, jobs, keys)
            if not noisy:
                break
            doubted = {job.cell for job in noisy}
            before = sum(job.cell in doubted for job in jobs) - len(noisy)
            earlier = f", {counted(before, 'job')} of them before" if before else ""
            times = f"{retry} of at most {options.retry_noisy} times"
            log.info(f"noisy: measuring {counted(len(doubted), 'cell')} again{earlier} ({times})")
            again = order(noisy, run.inputs.suite.protocol.seed)
            progress = RunProgress(again, before, "noisy jobs were measured again")
            with progress.bar(run.inputs.suite.name):
                _prepare(run, run.inputs.images(job.cell for job in noisy))  # images of cells that were done before
                ended = _measure(run, again, progress)
            finished += ended
            keys = _answering(run, finished)
        with suppress(EngineError):  # all results are stored by now
            launcher.sweep()  # the engine may have made a dead run's container after the first look
        return RunSummary(done_before, tuple(finished), keys)


def _foresee(run: _RunState, todo: Iterable[Planned]) -> None:
    """Say which images cannot be made here for lack of weights, before anything is made; the other cells go on."""
    images = run.inputs.images(job.cell for job in todo if not job.built and not job.cannot)
    for name, error in preflight.missing_weights(images, run.launcher).items():
        log.info(f"  {error}")
        run.prepared[name] = error


def _first_trials(run: _RunState, todo: Sequence[Planned], progress: RunProgress) -> list[tuple[Result, Outcome]]:
    """Run the first job of a system's cells as soon as its index exists, while a later system lacks image or index.

    A person then sees a row before all are made, and nothing is made while a job runs.  The trials that remain are
    mixed with the others' as always (measuring rule 9), as if the run had been stopped here and continued.
    """
    able = [job for job in todo if not job.cannot and job.cell.system not in NULL_SYSTEMS and job.spec.jobs > 1]
    lacking = {
        job.cell.system
        for job in able
        if not job.built or (run.launcher.needs_indexes and indexes.find(run.options.cache, job.spec.index_key) is None)
    }
    finished: list[tuple[Result, Outcome]] = []
    begun = {job.cell.system for job in able if job.cell.system in lacking and _is_interrupted(run, job)}
    # A system whose image and index are here comes first; the others' rows do not wait for an interrupted build again.
    declared = dict.fromkeys(job.cell.system for job in able)
    systems = sorted(declared, key=lambda system: (system in begun, system in lacking))
    for number, system in enumerate(systems):
        if run.options.assigned is not None or lacking.isdisjoint(systems[number + 1 :]):
            break
        mine = [job for job in todo if job.cell.system == system]
        # The images of all others are made side by side, so the first system alone does not wait for them.
        jobs = _ready(run, todo if number else mine)
        first = [job for job in jobs if job.cell.system == system and job.spec.job == 0 and not job.done]
        finished += _measure(run, first, progress)
    return finished


def _is_interrupted(run: _RunState, job: Planned) -> bool:
    """Return whether the build of a job's index, or of a component's index, was interrupted."""
    corpus, builder = run.inputs.datasets[job.cell.dataset].corpus, run.inputs.builder(job.cell)
    keys = (job.spec.index_key, *component_keys(builder, run.launcher, corpus.sha256).values())
    return any(indexes.is_interrupted(run.options.cache, key) for key in keys)


def _ready(run: _RunState, todo: Sequence[Planned]) -> list[Planned]:
    """Pin the files of these jobs and prepare their images; return the plan of the whole run as it is then."""
    cells = [job.cell for job in todo if not job.cannot]
    _pin(run, cells)
    _prepare(run, run.inputs.images(cells))
    # Pins change recipes, and somebody may have edited an engine's files since.
    return plan_here(run.inputs, run.options, run.launcher, prepared=run.recipes)


def _measure(run: _RunState, todo: Sequence[Planned], progress: RunProgress) -> list[tuple[Result, Outcome]]:
    """Build the indexes of these jobs, then run the jobs; return each result with the expected outcome."""
    ended: list[tuple[Result, Outcome]] = []
    for job in todo:  # before the first job, so that builds are no part of the jobs' times
        with suppress(JobError):
            _image_and_index(run, job)
    with progress.measuring():
        for job in todo:
            run.options.callbacks.starts(job_key(job.spec))
            with progress.timed(job):
                result = run_job(run, job)
            progress.report(job, result)
            ended.append((result, job.expected))
    return ended


def run_job(run: _RunState, job: Planned) -> Result:
    """Launch one job, collect its files and store its result; a failure is a result too."""
    inputs, cell = run.inputs, job.cell
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    dataset, sample = inputs.datasets[cell.dataset], inputs.samples[cell.dataset]
    output = b""
    index: Index | None = None
    page_cache: str | None = None
    try:
        prepared, index = _image_and_index(run, job)
    except JobError as error:
        collected = CollectedJob(error.outcome, error.detail)
    else:
        with run.store.scratch(job_key(job.spec)) as folder:
            (folder / "out").mkdir()
            page_cache = host.forget_pages(index.folder) if index else None
            spec = _job_spec(inputs, job, prepared, run.launcher)
            place = index.folder if index else folder / "index"
            request = LaunchRequest(spec, prepared, folder, dataset.corpus.folder, place, inputs.limits)
            if spec.updates is not None:
                request = _with_copied_index(request)
            with index.in_use() if index else nullcontext(), task(cell_name(cell), line=False) as watcher:
                ended = run.launcher.launch(request, watcher)
                collected, output = collect(request, ended, dataset.corpus.unknown, dataset.corpus.misfits), ended.log
            if collected.outcome is not Outcome.OK:
                check_room(run.store.folder, collected.detail or "")
        unexpected = collected.failed_to_load and not ended.stopped and job.expected is not Outcome.CRASH
        if unexpected and index and _remove_changed(run, cell, index):
            return run_job(run, job)
    provenance = _provenance(inputs, cell, run.prepared.get(inputs.system(cell).image))
    result = replace(
        build_result(job.spec, started_at, collected, run.environment, provenance),
        foreign_isolation=run.launcher.isolation.to_store,
        instance=run.instance,
        index=index.facts if index else None,
        page_cache=foreign(page_cache),
    )
    trec_run = collected.run(cell.system, sample.held_out)
    further = dict(dataset.judge(trec_run) or {}) if trec_run is not None else {}
    if (first_stage := collected.first_stage(_first_stage_tag(inputs.system(cell)), sample.held_out)) is not None:
        further[FIRST_STAGE] = first_stage
    if collected.updates:
        further[UPDATES] = updates.render(collected.updates)
        if (updated := collected.updated_run(cell.system)) is not None:
            further[UPDATED_RUN] = updated
    stored = run.store.put(result, collected.table(), trec_run, output, further)
    run.options.callbacks.stored(stored)
    return stored.result


def _image_and_index(run: _RunState, job: Planned) -> tuple[Prepared, Index | None]:
    """Return the image and the index of a job; a service that runs already has an index of its own.

    Raises:
        JobError: the job cannot run here, or lacks one of them; the error is its outcome.
    """
    if job.cannot:
        raise JobError(Outcome.NOT_APPLICABLE, job.cannot)
    systems = (run.inputs.system(job.cell), run.inputs.builder(job.cell))
    prepared, builder = (_prepared(run, system) for system in systems)
    return prepared, _index(run, job.cell, builder) if run.launcher.needs_indexes else None


def _with_copied_index(request: LaunchRequest) -> LaunchRequest:
    """Return the request with a copy of the index, which the job changes.

    Raises:
        StoreError: the copy finds no room.
    """
    try:
        return request.with_copied_index()
    except OSError as error:
        raise StoreError(
            f"{request.folder}: the index cannot be copied there, and its job changes it: {untrusted.reason_of(error)};"
            " make room, what was finished is kept"
        ) from error


def _provenance(inputs: Inputs, cell: Cell, prepared: Prepared | ImageError | None) -> JobProvenance:
    """Return the origin of a cell's system and dataset."""
    system, dataset = inputs.system(cell), inputs.datasets[cell.dataset]
    return JobProvenance(
        image_digest=prepared.digest if isinstance(prepared, Prepared) else None,
        image_bytes=prepared.size_bytes if isinstance(prepared, Prepared) else None,
        stand_in=system.stand_in,
        pinned_at_first_use=system.pinned_at_first_use,
        sweep=inputs.sweep_point(cell.system),
        corpus_documents=dataset.corpus.size,
        data_faults=dataset.faults,
        nominal_memory_bytes=inputs.nominal_bytes.get(cell.profile),
        # What others measure of a model is not what a system that joins it with another answers.
        models=None if system.components else system.models or None,
    )


def _first_stage_tag(system: System) -> str:
    """Return the name of the system's first stage; a stored ranking has a mark before the name."""
    first = next(iter(system.components), system)
    return f"{STORED_RUN}/{first.name}" if first.engine == STORED_RUN else first.name


def keep_inputs(inputs: Inputs, store: Store) -> None:
    """Store the suite's record, judgements and samples, which tables need in addition to the jobs."""
    positions = {name: dataset.positions for name, dataset in inputs.datasets.items() if dataset.positions}
    suite = inputs.suite
    record = SuiteRecord(
        measures=suite.measures,
        firstp=suite.firstp,
        exact=suite.exact,
        seeds={system: model for model, systems in suite.seeds.items() for system in systems},
        service=suite.named_machine,
    )
    store.keep_suite(record, positions)
    for name, dataset in inputs.datasets.items():
        sample = inputs.samples[name]
        ending, judgements = dataset.judgements
        samples = {sample.sample_sha256: to_json(list(sample.sample))}
        store.keep_inputs(judgements, dataset.qrels_sha256, samples, ending)


def _build_assigned(run: _RunState) -> None:
    """Build the indexes that another machine's plan assigns to this one."""
    inputs = run.inputs
    for build in run.options.assigned.builds if run.options.assigned else ():
        cell = inputs.cell_of(build.system, build.dataset)
        builder = inputs.builder(cell)
        with suppress(JobError):
            if build.component:
                _component(run, cell, next(part for part in builder.components if part.name == build.component))
            else:
                _prepare(run, {builder.image: builder})
                _index(run, cell, _prepared(run, builder))


def _pin(run: _RunState, cells: Iterable[Cell]) -> None:
    """Pin the systems of these cells; one that cannot be pinned has no image."""
    lacking = {name for name, image in run.prepared.items() if isinstance(image, MissingWeights)}
    names = run.inputs.needed(cell for cell in cells if lacking.isdisjoint(run.inputs.images([cell])))
    run.inputs, errors = pin_inputs(run.inputs, run.store, run.launcher, names)
    for system, error in errors.items():
        log.info(f"  {error}")
        cells = [cell for cell in run.inputs.cells if cell.system == system]
        run.prepared |= dict.fromkeys(run.inputs.images(cells), error)


def _prepare(run: _RunState, systems: Mapping[str, System]) -> None:
    """Prepare missing images; record a failure and continue."""
    missing = {name: system for name, system in systems.items() if name not in run.prepared}
    for name, made in run.launcher.prepare_all(missing) if missing else ():
        if isinstance(made, ImageError):
            log.info(f"{name}: {made}")
        run.prepared[name] = made


def _prepared(run: _RunState, system: System) -> Prepared:
    """Return the system's image, with its own parameters: variants and languages share one.

    Raises:
        JobError: it has none.
    """
    image = run.prepared.get(system.image)
    if not isinstance(image, Prepared):
        raise _no_image(image)
    return replace(image, system=system.for_platform(image.system.platform))


def _no_image(error: ImageError | None) -> JobError:
    """Return the outcome of a job without an image: missing weights are this host's fault, not the system's."""
    if isinstance(error, MissingWeights):
        return JobError(Outcome.NOT_APPLICABLE, f"no weights: {error}")
    return JobError(Outcome.CRASH, f"no image: {error}")


def _noisy(run: _RunState, jobs: list[Planned], keys: Collection[str]) -> list[Planned]:
    """Plan again the jobs of cells with a transient doubt about their numbers, and of cells measured again in part."""
    from harness.analysis import rows  # late: few runs judge their jobs

    verdicts, isolation = rows.verdicts(read_jobs(run.store.folder), keys), run.launcher.isolation.name
    # The store may hold a cell measured in another isolation, which this run cannot improve.
    judged = {job.cell: verdicts.get((job.cell, isolation)) for job in jobs}
    again = plan_here(run.inputs, replace(run.options, fresh=True), run.launcher, prepared=run.recipes)
    doubted = {cell for cell, verdict in judged.items() if verdict and verdict.transient}
    doubted |= {job.cell for job in again if job.measured_again}
    return [job for job in again if job.cell in doubted and not job.measured_again]


def _answering(run: _RunState, finished: Iterable[tuple[Result, Outcome]]) -> frozenset[str]:
    """Return the keys of the jobs that answer the suite; of a cell measured again in part, the earlier, whole ones."""
    if run.options.assigned is not None:  # another machine's plan decides
        return frozenset(result.key for result, expected in finished if result.outcome is expected)
    options = replace(run.options, fresh=False, fresh_index=False)
    return keys_of_done(plan_here(run.inputs, options, run.launcher, prepared=run.recipes, look=False))


def _job_spec(inputs: Inputs, job: Planned, prepared: Prepared, launcher: Launcher) -> JobSpec:
    """Return the spec that the driver inside the container reads."""
    spec, sample = job.spec, inputs.samples[job.cell.dataset]
    warmup, timed = sample.warmup, sample.timed
    if job.cell.system in NULL_SYSTEMS:  # it answers without searching, so it has nothing to filter
        warmup, timed = (tuple(replace(each, filter=(), matching=None) for each in part) for part in (warmup, timed))
    made = JobSpec(
        kind="search",
        system=job.cell.system,
        params=prepared.system.params,
        envelope=spec.envelope,
        enforced=launcher.isolation.enforced,
        scenario=job.cell.scenario,
        k=spec.k,
        trials=spec.trials,
        repeats=min(spec.repeats, spec.timed_queries),
        pause=True,
        scenario_params=spec.scenario_params,
        seed=spec.seed,
        corpus_size=inputs.datasets[job.cell.dataset].corpus.size,
        updates=_updates(inputs, job),
        fewer_hits_ok=prepared.system.fewer_hits_ok,
        warmup_cap=spec.warmup_cap or 0,
        warmup=warmup,
        sample=timed,
        service_url=launcher.service_url or prepared.system.service_url("search"),
        max_qps=inputs.suite.protocol.max_qps,
    )
    return replace(made, first_trial=spec.job * (MAX_PROBES if made.probes else spec.trials))


def _updates(inputs: Inputs, job: Planned) -> Updates | None:
    """Return the documents that the ``mixed`` scenario deletes and inserts, and its rates."""
    params, corpus = job.spec.scenario_params, inputs.datasets[job.cell.dataset].corpus
    if job.cell.scenario != "mixed" or params.query_qps is None or params.update_qps is None:
        return None
    moved = moved_documents(params, job.spec.timed_queries, corpus.size)
    return Updates(params.query_qps, params.update_qps, corpus.draw(moved, job.spec.seed))


def _remove_changed(run: _RunState, cell: Cell, index: Index) -> bool:
    """Remove an earlier run's index if it has changed since its build, with its components' that have.

    Returns:
        Whether it was removed, so that its next use builds it again.
    """
    until = time.monotonic() + run.inputs.limits.build_s
    if index.folder.parent.name in run.built or index.used_elsewhere() or index.unchanged(until):
        return False
    builder, corpus = _prepared(run, run.inputs.builder(cell)).system, run.inputs.datasets[cell.dataset].corpus
    log.info(f"  {builder.name}: the cached index of {cell.dataset} has changed; building it again")
    keys = component_keys(builder, run.launcher, corpus.sha256).values()
    parts = [part for key in keys if (part := indexes.find(run.options.cache, key))]
    for each in (index, *(part for part in parts if not part.used_elsewhere() and not part.unchanged(until))):
        each.remove()
        run.indexes.pop(each.folder.parent.name, None)
        run.built.add(each.folder.parent.name)  # once: this user may be unable to remove what another one built
    return True


def _index(run: _RunState, cell: Cell, prepared: Prepared) -> Index:
    """Return the cell's index, built at its first use.

    Raises:
        JobError: its build failed, now or earlier in this run; it is not repeated.
    """
    system, dataset = prepared.system, run.inputs.datasets[cell.dataset]
    key = index_key(system, prepared.recipe, dataset.corpus.sha256)
    if key not in run.indexes:
        cached = None if run.options.fresh_index else indexes.find(run.options.cache, key)
        try:
            run.indexes[key] = cached or _build_index(run, cell, prepared, dataset, key)
            run.options.callbacks.built(key, None)
        except JobError as error:
            run.indexes[key] = error
            run.options.callbacks.built(key, error)
    if isinstance(found := run.indexes[key], JobError):
        raise found
    return found


def _components(run: _RunState, cell: Cell, prepared: Prepared) -> dict[str, Index]:
    """Return the indexes of an index's components, from the cache or built now.

    Raises:
        JobError: a component has no index; the error names the component.
    """
    found = {}
    for part in prepared.system.components:
        try:
            found[part.name] = _component(run, cell, part)
        except JobError as error:
            raise JobError(error.outcome, f"{part.name}: {error.detail}") from error
    return found


def _component(run: _RunState, cell: Cell, part: System) -> Index:
    try:
        prepared = run.launcher.prepare(part)
    except ImageError as error:
        raise _no_image(error) from error
    return _index(run, cell, replace(prepared, system=part))


def _build_index(run: _RunState, cell: Cell, prepared: Prepared, dataset: Dataset, key: str) -> Index:
    components = _components(run, cell, prepared)
    run.options.callbacks.builds()
    run.built.add(key)
    inputs, profile = run.inputs, run.inputs.suite.build_profile
    index = indexes.build(
        run.launcher,
        prepared,
        dataset.corpus,
        key,
        f"index of {dataset.name}",
        run.options.cache,
        envelope=inputs.profiles[profile] if profile else None,
        limits=inputs.limits,
        environment=run.environment,
        again=run.options.fresh_index,
        components=components,
    )
    facts = index.facts
    earlier = f" ({duration(facts.resumed_s)} of it by an earlier attempt)" if facts.resumed_s else ""
    if facts.components:
        earlier = f" ({duration(facts.build_s)} with its components)"
    log.info(
        f"  {prepared.system.name}: index of {dataset.name} built in {duration(facts.own_build_s)}{earlier},"
        f" {facts.index_bytes / 2**20:.1f} MiB"
    )
    return index
