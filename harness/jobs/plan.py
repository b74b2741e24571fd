"""The jobs of a suite: which are done, which are to do, and in which order.

:func:`plan` is pure; only :func:`plan_here` looks at the store and at the images of this host.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from harness.driver.records import Outcome, digest
from harness.driver.update_plan import TRIALS
from harness.errors import UsageError
from harness.jobs.inputs import AssignedWork, Inputs, RunOptions
from harness.launch.base import Launcher
from harness.launch.images.systems import System
from harness.results import attempts
from harness.results.reader import MOST_REPETITION, stored_jobs
from harness.results.schema import Cell, Result, ResultSpec, job_key

# The recipe of a job that cannot be run at all.
NO_RECIPE = "none"


@dataclass(frozen=True)
class Planned:
    """One job of a cell, done or to do.  The ``repetition`` of a job to do is the next free one.

    ``built``: the image exists here, or nothing has looked for it.  ``measured_again``: a newer measurement of the
    cell, which is not whole, has this job.
    """

    cell: Cell
    spec: ResultSpec
    expected: Outcome
    cannot: str | None
    latest: Result | None
    done: bool
    built: bool = True
    measured_again: bool = False

    @property
    def why(self) -> str:
        """Return the job's state in a few words for people."""
        if self.done and self.latest is not None:
            return f"done ({self.latest.outcome.value})"
        if self.cannot:
            return f"not applicable: {self.cannot}"
        if not self.built:
            return "to do: its image is not built yet"
        return f"to do again: ended {self.latest.outcome.value}" if self.latest else "to do"


def plan_here(
    inputs: Inputs,
    options: RunOptions,
    launcher: Launcher,
    *,
    prepared: Mapping[str, str] = MappingProxyType({}),
    look: bool = True,
) -> list[Planned]:
    """Plan a run on this host, or the part assigned to it.

    Args:
        prepared: image name -> recipe, of images that this run has prepared.
        look: ask the engine which images are here.

    Raises:
        UsageError: an assigned job is not planned here.
        EngineError: no engine answers ``look``.
    """
    images = inputs.images(inputs.cells)
    others = {name: system for name, system in images.items() if name not in prepared}
    recipes = {**{name: launcher.recipe(system) for name, system in others.items()}, **prepared}
    folder = options.results / inputs.suite.name
    jobs = stored_jobs(folder)
    stored = [job.result for job in jobs]
    planned = plan(
        inputs,
        launcher.isolation.name,
        recipes,
        stored,
        unbuilt={name for name, system in others.items() if look and launcher.find(system) is None},
        taken=jobs.taken,
        cannot={name: reason for name, envelope in inputs.profiles.items() if (reason := launcher.cannot(envelope))},
        unable={name: reason for name, system in inputs.systems.items() if (reason := launcher.cannot_run(system))},
        # New results alone carry the figures of a new build into a table.
        fresh=options.fresh or options.fresh_index,
        instance_types=options.instance_types,
    )
    if options.assigned is None:
        return planned
    return assigned(planned, options.assigned, {result.key for result in stored})


def jobs_done(inputs: Inputs, options: RunOptions, launcher: Launcher) -> frozenset[str] | None:
    """Return the keys of the stored jobs that answer a run, without an engine; None: a job is left to do, or may be."""
    if options.fresh or options.fresh_index or options.retry_noisy or options.assigned is not None:
        return None
    jobs = plan_here(inputs, options, launcher, look=False)
    return keys_of_done(jobs) if all(job.done for job in jobs) else None


def keys_of_done(jobs: Iterable[Planned]) -> frozenset[str]:
    """Return the keys of the stored jobs that answer planned ones."""
    return frozenset(job.latest.key for job in jobs if job.done and job.latest)


def plan(
    inputs: Inputs,
    isolation: str,
    recipes: Mapping[str, str],
    stored: Iterable[Result],
    *,
    unbuilt: Collection[str] = (),
    taken: Collection[str] = (),
    cannot: Mapping[str, str] | None = None,
    unable: Mapping[str, str] | None = None,
    fresh: bool = False,
    instance_types: Mapping[str, str | None] | None = None,
) -> list[Planned]:
    """Decide for each job of each cell whether it is done.

    A job is done if a result is stored under exactly this spec with the outcome that the suite expects (``ok``, unless
    declared).  A cell that the host cannot run at all is done once a result says so.

    Args:
        isolation: name of the launcher's isolation.
        recipes: image name -> recipe.
        stored: the results that can be read.
        unbuilt: names of the images that are not here yet.
        taken: keys of stored jobs that cannot be read; they are not done, and nothing new may have them.
        cannot: profile name -> why the host cannot provide it.
        unable: system name -> why the launcher does not have it.
        fresh: measure finished jobs again too.
        instance_types: profile name -> the machine that its jobs are planned for.
    """
    by_spec: dict[str, list[Result]] = defaultdict(list)
    for result in stored:
        by_spec[identity(result.spec)].append(result)
    planned = []
    for cell in inputs.cells:
        missing = (unable or {}).get(cell.system)
        envelope, reason = inputs.profiles[cell.profile], missing or (cannot or {}).get(cell.profile)
        spec = _spec(inputs, cell, isolation, {} if reason else recipes)
        spec = replace(spec, instance_type=(instance_types or {}).get(cell.profile))
        expected = inputs.suite.expected(cell.system, cell.profile)
        # A suite may name GPUs or systems that this host lacks; its author must mend a profile that is too large.
        if missing or (reason and envelope.gpus):
            expected = Outcome.NOT_APPLICABLE
        specs = [replace(spec, job=job) for job in range(spec.jobs)]
        stored_as = {each.job: by_spec.get(identity(each), []) if by_spec else [] for each in specs}
        reached = [result for each in stored_as.values() for result in each if result.outcome is expected]
        whole, again = attempts.whole_measurement(reached, spec.jobs)
        for each in specs:
            made = _planned(each, stored_as[each.job], whole.get(each.job), expected, reason, fresh, taken)
            built = inputs.system(cell).image not in unbuilt
            planned.append(replace(made, built=built, measured_again=each.job in again))
    return planned


def assigned(planned: Iterable[Planned], work: AssignedWork, stored: Collection[str]) -> list[Planned]:
    """Return the planned jobs that belong to the assigned work, as the attempts that it names.

    Args:
        stored: keys of the jobs in this host's store; they are done, however they ended.

    Raises:
        UsageError: a job is not planned here, or differs from the assigned one.
    """
    jobs: list[Planned] = []
    for job in planned:
        expected = work.jobs.get((job.cell, job.spec.job))
        if expected is not None:
            attempt = replace(job, spec=replace(job.spec, repetition=expected.repetition))
            _check_key(replace(attempt, built=attempt.built or work.make_images), expected.key)
            jobs.append(replace(attempt, done=expected.key in stored, latest=None))
    missing = work.jobs.keys() - {(job.cell, job.spec.job) for job in jobs}
    if missing:
        cell, number = min(missing, key=str)
        name = f"{' '.join(cell.names)} job {number}"
        raise UsageError(f"{name}: the suite here does not declare it; ship the same suite")
    return jobs


def _check_key(job: Planned, key: str) -> None:
    """Refuse a job that differs from the one that another machine planned under this key, or has no image here."""
    if job_key(job.spec) == key and (job.built or job.cannot):
        return
    name = f"{' '.join(job.cell.names)} job {job.spec.job}"
    if job.cannot:
        raise UsageError(f"{name}: this machine cannot run it: {job.cannot}; choose another instance type")
    if not job.built:
        raise UsageError(f"{name}: its image is not here, or of another recipe; ship image and harness again")
    if job_key(replace(job.spec, instance_type=None)) == key:
        raise UsageError(f"{name}: it was planned for no instance type, here it is {job.spec.instance_type}")
    raise UsageError(
        f"{name}: would be another job here ({job_key(job.spec)}) than was planned ({key}): its image, dataset,"
        " parameters, profile, protocol or instance type differ; ship all inputs again"
    )


def _planned(
    spec: ResultSpec,
    stored: list[Result],
    whole: Result | None,
    expected: Outcome,
    cannot: str | None,
    fresh: bool,
    taken: Collection[str],
) -> Planned:
    """Plan a job; ``whole``: its attempt of the newest whole measurement, if there is one.

    A job to do is the first attempt after the last whose key no unreadable job has.
    """
    tries = sorted(stored, key=lambda result: result.spec.repetition)
    reached = [result for result in tries if result.outcome is expected]
    done = bool(reached) and (not fresh or cannot is not None)
    latest = (whole or reached[-1]) if done else tries[-1] if tries else None
    if done and latest:
        return Planned(spec.cell, replace(spec, repetition=latest.spec.repetition), expected, cannot, latest, done)
    # One past the last, not their number: an attempt may have been moved away.  No reader takes more than the most.
    used = {attempt.spec.repetition for attempt in tries}
    last = max(used, default=-1)
    numbers = itertools.chain(range(last + 1, MOST_REPETITION + 1), range(last))
    free = (replace(spec, repetition=number) for number in numbers if number not in used)
    attempt = next(each for each in free if not taken or job_key(each) not in taken)
    return Planned(spec.cell, attempt, expected, cannot, latest, done)


def states(planned: Iterable[Planned]) -> list[tuple[Cell, str]]:
    """Return each cell with the state that its jobs share, else with counts of states."""
    by_cell: dict[Cell, Counter[str]] = defaultdict(Counter)
    for job in planned:
        by_cell[job.cell][job.why] += 1
    return [(cell, _shared_state(counts)) for cell, counts in by_cell.items()]


def _shared_state(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{count} of {counts.total()} {why}" for why, count in counts.items())


def order(planned: Iterable[Planned], seed: int) -> list[Planned]:
    """Order the jobs to do in rounds, one job of every cell each, shuffled by the seed (measuring rule 9).

    A machine that drifts then favours no system, and a stop half-way leaves no cell far behind.
    """
    chance = random.Random(f"order:{seed}")
    rounds: dict[int, list[Planned]] = defaultdict(list)
    for job in planned:
        if not job.done:
            rounds[job.spec.job].append(job)
    return [job for number in sorted(rounds) for job in chance.sample(rounds[number], len(rounds[number]))]


def index_key(system: System, recipe: str, corpus_sha256: str) -> str:
    """Return the key of an index: the hash of all that decides its content, including the building image's recipe.

    A recipe depends on the recipes of the components' images, and a system's parameters include its components'.  So
    the key of a joined index depends on its components' keys.
    """
    return digest([recipe, corpus_sha256, system.build_params])[:24]


def component_keys(system: System, launcher: Launcher, corpus_sha256: str) -> dict[str, str]:
    """Return the keys of the components' indexes by name."""
    return {part.name: index_key(part, launcher.recipe(part), corpus_sha256) for part in system.components}


def _spec(inputs: Inputs, cell: Cell, isolation: str, recipes: Mapping[str, str]) -> ResultSpec:
    suite, protocol = inputs.suite, inputs.suite.protocol
    system, builder = inputs.system(cell), inputs.builder(cell)
    dataset, sample = inputs.datasets[cell.dataset], inputs.samples[cell.dataset]
    return ResultSpec(
        cell=cell,
        protocol=protocol.name,
        envelope=inputs.profiles[cell.profile],
        isolation=isolation,
        params=system.params,
        recipe=recipes.get(system.image, NO_RECIPE),
        index_key=index_key(builder, recipes.get(builder.image, NO_RECIPE), dataset.corpus.sha256),
        corpus_sha256=dataset.corpus.sha256,
        qrels_sha256=dataset.qrels_sha256,
        sample_sha256=sample.sample_sha256,
        warmup_sha256=sample.warmup_sha256,
        sample_size=len(sample.sample),
        held_out=len(sample.held_out),
        warmup_queries=len(sample.warmup),
        warmup_cap=protocol.warmup_cap,
        trials=TRIALS if cell.scenario == "mixed" else protocol.trials_a_job,
        jobs=suite.jobs_of(cell.system),
        repeats=protocol.repeats_in(cell.scenario),
        scenario_params=suite.scenario_params(cell.scenario),
        result_cache=system.result_cache,
        k=protocol.k,
        seed=protocol.seed,
    )


def identity(spec: ResultSpec) -> str:
    """Return the digest that all attempts at the same job share."""
    return digest(replace(spec, repetition=0))
