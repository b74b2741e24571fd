"""The cells of suites with the time that they take: jobs that are left, and index builds, each counted once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from harness import datasets
from harness.datasets import Dataset
from harness.errors import EngineError
from harness.jobs import indexes, inputs
from harness.jobs.estimates import PROBES, DurationEstimate, DurationModel
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.plan import Planned, component_keys, plan_here, states
from harness.jobs.suite import Suite, dataset_name
from harness.launch.base import Launcher
from harness.launch.images.systems import System
from harness.report.plan import CellPlan
from harness.results.reader import stored_jobs
from harness.results.schema import NULL_SYSTEM, Cell

_NO_DATA = "to do: its data is not here"
_NOTHING = DurationEstimate(0.0, 0.0, True)


@dataclass(frozen=True)
class SuitePlan:
    """A suite's cells, and what was found for them; ``absent`` are cells whose data is not here.

    ``engine``: a container engine answered.
    """

    inputs: Inputs
    jobs: list[Planned]
    cells: tuple[CellPlan, ...]
    absent: tuple[Cell, ...]
    engine: bool


@dataclass
class Planner:
    """Plans suites one after the other; an index that several of them search counts with the first."""

    launcher: Launcher
    _built: set[tuple[str, str]] = field(default_factory=set)

    def plan(self, suite: Suite, options: RunOptions) -> SuitePlan:
        """Plan a suite; nothing is run, fetched or built.

        Raises:
            UsageError: as :func:`harness.jobs.inputs.gather`.
        """
        absent: list[Cell] = []
        gathered = inputs.gather(suite, options, absent)
        try:
            jobs, engine = plan_here(gathered, options, self.launcher), True
        except EngineError:  # listing needs none
            jobs, engine = plan_here(gathered, options, self.launcher, look=False), False
        estimator = _Estimator(gathered, options, self.launcher, self._built)
        cells = (*estimator.present(jobs), *estimator.absent(absent))
        return SuitePlan(gathered, jobs, cells, tuple(absent), engine)


@dataclass
class _Estimator:
    """The time of a suite's cells; each index build counts once.

    ``built``: the builds that were counted already, each by its inputs and its corpus.
    """

    inputs: Inputs
    options: RunOptions
    launcher: Launcher
    built: set[tuple[str, str]]

    def __post_init__(self) -> None:
        limits = self.inputs.limits
        stored = [job.result for job in stored_jobs(self.options.results / self.inputs.suite.name)]
        self._model = DurationModel(stored, job_timeout_s=limits.job_s, build_timeout_s=limits.build_s)
        declared = {dataset_name(name): name for name in self.inputs.suite.datasets}
        beside = self.options.suite_dir
        self._corpora = {name: str(datasets.find(each, beside)) for name, each in declared.items()}

    def present(self, jobs: Sequence[Planned]) -> Iterator[CellPlan]:
        """Yield the cells whose data is here."""
        by_cell: dict[Cell, list[Planned]] = {}
        for job in jobs:
            by_cell.setdefault(job.cell, []).append(job)
        for cell, state in states(jobs):
            left = [job for job in by_cell[cell] if not job.done]
            timing = sum((self._model.job(job.spec) for job in left), _NOTHING)
            built = not left or (not self.options.fresh_index and self._has_index(left[0]))
            build = _NOTHING if built else self._build(cell, self.inputs.builder(cell))
            yield self._cell_plan(cell, state, len(by_cell[cell]), len(left), timing, build)

    def _has_index(self, job: Planned) -> bool:
        return indexes.find(self.options.cache, job.spec.index_key) is not None

    def absent(self, cells: Sequence[Cell]) -> Iterator[CellPlan]:
        """Yield the cells whose data is not here: their samples are as large as they can be."""
        protocol = self.inputs.suite.protocol
        for cell in cells:
            passes = protocol.trials_a_job * (PROBES if cell.scenario == "server" else 1)
            queries = protocol.warmup_queries + protocol.sample_size * passes + 2 * protocol.repeats
            jobs = 1 if cell.system == NULL_SYSTEM else protocol.jobs
            timing = sum((self._model.search(cell, queries) for _ in range(jobs)), _NOTHING)
            build = self._build(cell, self.inputs.systems[cell.system].on(self.inputs.build_gpus))
            plan = self._cell_plan(cell, _NO_DATA, jobs, jobs, timing, build)
            yield plan if build.measured else replace(plan, build_s=None, measured=False)

    def _build(self, cell: Cell, builder: System) -> DurationEstimate:
        """Estimate the builds of a missing index and of its missing components, as far as no other cell needs them."""
        dataset = self.inputs.datasets.get(cell.dataset)  # None: absent
        documents, there = (dataset.corpus.size, self._components_here(builder, dataset)) if dataset else (0, set())
        corpus, build = self._corpora[cell.dataset], _NOTHING
        for system in (*builder.components, builder):
            index = (system.build_inputs, corpus)
            if system.name not in {*there, NULL_SYSTEM} and index not in self.built:
                self.built.add(index)
                build += self._model.build(system.name, cell.dataset, 0 if system.components else documents)
        return build

    def _components_here(self, builder: System, dataset: Dataset) -> set[str]:
        """Return the components whose indexes need no build."""
        if self.options.fresh_index:
            return set()
        keys = component_keys(builder, self.launcher, dataset.corpus.sha256)
        return {name for name, key in keys.items() if indexes.find(self.options.cache, key)}

    def _cell_plan(
        self, cell: Cell, state: str, jobs: int, left: int, timing: DurationEstimate, build: DurationEstimate
    ) -> CellPlan:
        envelope = self.inputs.profiles[cell.profile]
        return CellPlan(
            cell,
            state,
            jobs,
            jobs - left,
            timing.seconds,
            build.seconds,
            timing.measured and build.measured,
            published=timing.published,
            envelope=envelope,
            memory_bytes=self.inputs.nominal_bytes.get(cell.profile, envelope.memory_bytes),
        )
