"""The cells of suites with their estimated times: the remaining jobs, and the index builds, each counted once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from harness import datasets
from harness.datasets import dataset_name
from harness.driver.records import Outcome
from harness.driver.update_plan import TRIALS
from harness.errors import EngineError, counted, listed
from harness.jobs import inputs
from harness.jobs.estimates import PROBES, DurationEstimate, RunModel
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.plan import Planned, component_keys, plan_here, states
from harness.jobs.shipped_runs import shipped_runs
from harness.jobs.suite import Suite
from harness.launch.base import Launcher
from harness.launch.images.systems import System
from harness.report.plan import CellPlan
from harness.results.reader import stored_jobs
from harness.results.schema import NULL_SYSTEMS, Cell, split_size, system_words

_NO_DATA, _NOT_MADE = "to do: its data is not here", "to do: its corpus is made first"
_MOST_NOTES, _MOST_NAMES = 3, 3
_NOTHING = DurationEstimate(0.0, 0.0, True)


@dataclass(frozen=True)
class SuitePlan:
    """A suite's cells with their jobs; ``engine``: an engine answered, or none was needed."""

    inputs: Inputs
    options: RunOptions
    jobs: list[Planned]
    cells: tuple[CellPlan, ...]
    engine: bool


@dataclass
class Planner:
    """Planner of several suites; an index that several of them search counts with the first."""

    launcher: Launcher
    _built: set[tuple[str, str]] = field(default_factory=set)

    def plan(self, suite: Suite, options: RunOptions) -> SuitePlan:
        """Plan a suite; nothing is run, fetched or built.

        Raises:
            UsageError: as :func:`harness.jobs.inputs.gather`.
        """
        inputs.check_launcher(suite, self.launcher)
        return self.plan_gathered(inputs.gather(suite, options, fetch=False), options)

    def plan_gathered(self, gathered: Inputs, options: RunOptions) -> SuitePlan:
        """Plan a suite whose inputs are gathered."""
        jobs, engine = plan_here(gathered, options, self.launcher, look=False), True
        if not all(job.done for job in jobs):
            try:
                jobs = plan_here(gathered, options, self.launcher)
            except EngineError:  # listing needs none
                engine = False
        estimator = _Estimator(gathered, options, self.launcher, self._built)
        return SuitePlan(gathered, options, jobs, (*estimator.present(jobs), *estimator.absent()), engine)


@dataclass
class _Estimator:
    """Estimator of the times of a suite's cells; ``built``: inputs and corpora of the builds counted so far."""

    inputs: Inputs
    options: RunOptions
    launcher: Launcher
    built: set[tuple[str, str]]

    def __post_init__(self) -> None:
        limits = self.inputs.limits
        stored = [job.result for job in stored_jobs(self.options.results / self.inputs.suite.name)]
        self._model = RunModel(
            stored, job_timeout_s=limits.job_s, build_timeout_s=limits.build_s, shipped=shipped_runs()
        )
        declared = {dataset_name(name): name for name in self.inputs.suite.datasets}
        self._corpora = {name: str(datasets.find(each, self.options.suite_dir)) for name, each in declared.items()}

    def present(self, jobs: Sequence[Planned]) -> Iterator[CellPlan]:
        """Yield the cells whose data is here."""
        by_cell: dict[Cell, list[Planned]] = {}
        for job in jobs:
            by_cell.setdefault(job.cell, []).append(job)
        for cell, state in states(jobs):
            left = [job for job in by_cell[cell] if not job.done]
            timing = sum((self._model.job(job.spec) for job in left), _NOTHING)
            built = not left or not self.launcher.needs_indexes or self.options.has_index(left[0].spec.index_key)
            build = _NOTHING if built else self._build(cell, self.inputs.builder(cell))
            yield self._cell_plan(cell, state, len(by_cell[cell]), len(left), timing, build)

    def absent(self) -> Iterator[CellPlan]:
        """Yield the cells whose data is not here, or not yet: their samples are as large as they can be."""
        protocol = self.inputs.suite.protocol
        for cell in self.inputs.absent:
            corpus, sample_size = self.inputs.to_make.get(cell.dataset), protocol.sample_size
            if corpus is not None:
                known = corpus.whole.queries if protocol.unjudged else corpus.whole.judged
                sample_size = min(sample_size, len(known))
            passes = protocol.trials_a_job * {"server": PROBES, "mixed": TRIALS}.get(cell.scenario, 1)
            queries = protocol.warmup_queries + sample_size * passes + 2 * protocol.repeats_in(cell.scenario)
            jobs = self.inputs.suite.jobs_of(cell.system)
            timing = sum((self._model.search(cell, queries) for _ in range(jobs)), _NOTHING)
            build = self._build(cell, self.inputs.building(cell.system)) if self.launcher.needs_indexes else _NOTHING
            plan = self._cell_plan(cell, _NOT_MADE if corpus else _NO_DATA, jobs, jobs, timing, build)
            estimated = build.measured or build.shipped or corpus
            yield plan if estimated else replace(plan, build_s=None, measured=False)

    def _build(self, cell: Cell, builder: System) -> DurationEstimate:
        """Estimate the builds of a missing index and of its missing components, as far as no other cell needs them."""
        dataset, documents = self.inputs.datasets.get(cell.dataset), self._documents(cell)
        keys = component_keys(builder, self.launcher, dataset.corpus.sha256) if dataset else {}
        there = {name for name, key in keys.items() if self.options.has_index(key)}
        corpus, build = self._corpora[cell.dataset], _NOTHING
        for system in (*builder.components, builder):
            index = (system.build_inputs, corpus)
            if system.name not in {*there, *NULL_SYSTEMS} and index not in self.built:
                self.built.add(index)
                build += self._model.build(system.name, cell.dataset, 0 if system.components else documents)
        return build

    def _documents(self, cell: Cell) -> int:
        """Return the size of the cell's corpus; 0: it is absent, and its name says no size."""
        dataset = self.inputs.datasets.get(cell.dataset)
        return dataset.corpus.size if dataset else split_size(cell.dataset)[1] or 0

    def _cell_plan(
        self, cell: Cell, state: str, jobs: int, left: int, timing: DurationEstimate, build: DurationEstimate
    ) -> CellPlan:
        envelope, both = self.inputs.profiles[cell.profile], timing + build
        # A suite may show what happens with too little memory.
        foreseen = left and self.inputs.suite.expected(cell.system, cell.profile) is Outcome.OK
        return CellPlan(
            cell,
            state,
            jobs,
            jobs - left,
            timing.seconds,
            build.seconds,
            both.measured,
            published=timing.published,
            shipped=both.shipped,
            envelope=envelope,
            peak_bytes=self._model.memory_bytes(cell.system, cell.dataset, self._documents(cell)) if foreseen else None,
            memory_bytes=self.inputs.nominal_bytes.get(cell.profile, envelope.memory_bytes),
        )


def plan_notes(plans: Sequence[SuitePlan], cells: Iterable[CellPlan], missing: Collection[str]) -> list[str]:
    """Return the first notes on cells that cannot be measured here, and a note if no engine answered.

    Args:
        plans: of all suites.
        cells: their cells, priced or not.
        missing: names of the datasets whose folders do not exist; these are errors of their own.
    """
    refused = [cell.refused for cell in cells if cell.refused]
    cannot = {job.cell: job.cannot for each in plans for job in each.jobs if job.cannot and not job.done}
    notes = [f"no price: {counted(len(refused), 'cell')}, e.g. {refused[0]}"] if refused else []
    notes += [text] if (text := unfinished(plans)) else []
    if lacking := dict.fromkeys(
        job.cell.system for each in plans for job in each.jobs if not (job.built or job.done or job.cannot)
    ):
        names = listed([system_words(name) for name in lacking], _MOST_NAMES, "system")
        notes.append(f"images and their downloads come on top of this time: {names}")
    notes += suite_notes(plans, missing)
    if cannot:
        notes.append(f"not on this machine: {counted(len(cannot), 'cell')}, e.g. {next(iter(cannot.values()))}")
    del notes[_MOST_NOTES:]
    if not all(each.engine for each in plans):
        notes.append("no Docker engine answers, so it is not known which images are built; see harness doctor")
    return notes


def unfinished(plans: Sequence[SuitePlan]) -> str | None:
    """Return how many jobs a newer measurement of their cells has, if it is not whole."""
    cells = {job.cell for each in plans for job in each.jobs if job.measured_again}
    jobs = [job for each in plans for job in each.jobs if job.cell in cells]
    if not jobs:
        return None
    again = sum(job.measured_again for job in jobs)
    return f"{again} of {counted(len(jobs), 'noisy job')} were measured again; --retry-noisy measures the others"


def suite_notes(plans: Sequence[SuitePlan], missing: Collection[str]) -> Iterator[str]:
    """Yield a line about missing data, and a line about files that are not pinned."""
    gathered = [each.inputs for each in plans]
    unfetched = [
        cell.dataset for each in gathered for cell in each.absent if cell.dataset not in {*missing, *each.to_make}
    ]
    if unfetched:
        yield f"data is not here: {', '.join(dict.fromkeys(unfetched))}; run where ir_datasets can fetch it"
    systems = [system for each in gathered for system in each.systems.values()]
    if unpinned := [name for system in systems for name in system.unpinned]:
        yield f"pinned at first use, by harness run: {', '.join(dict.fromkeys(unpinned))}"
