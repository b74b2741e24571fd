"""`harness plan`: the cells of a suite, the time that they take and what it costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from harness import datasets
from harness.aws.cloud_run import machines
from harness.aws.cloud_run.estimates import PROBES, DurationEstimate, DurationModel
from harness.aws.cloud_run.machines import MachineOptions
from harness.cli.launchers import LauncherChoice, launcher_choice, launcher_option, run_options
from harness.cli.locations import named_as_given, of_suite
from harness.cli.options import cache_option, models_option, only_option, results_option
from harness.cli.output import FORMATS, Destination, destination_options, show_errors
from harness.commands import command
from harness.datasets import Dataset
from harness.errors import EngineError
from harness.jobs import indexes, inputs
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.plan import NO_IMAGE, Planned, component_keys, plan_here, plan_without_engine, states
from harness.jobs.suite import Suite, dataset_name, load
from harness.launch.base import Launcher
from harness.launch.images.systems import System
from harness.pricing import prices
from harness.records import digest
from harness.report.plan import CellPlan, plan_document
from harness.results.reader import stored_jobs
from harness.results.schema import NULL_SYSTEM, Cell

_NO_DATA = "to do: its data is not here"


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="Plan as if no job were done.")
@click.option("--fresh-index", is_flag=True, help="Plan as if no job were done and no index built.")
@click.option("--price", is_flag=True, help="Show what the time left costs on the cheapest EC2 instances.")
@launcher_option
@cache_option
@models_option
@destination_options(*FORMATS, wide=True)
@launcher_choice
def plan(
    suite: Path,
    results: Path | str,
    only: str | None,
    fresh: bool,
    fresh_index: bool,
    price: bool,
    destination: Destination,
    choice: LauncherChoice,
) -> None:
    """List the cells of SUITE, done and to do, and the time that is left.  Runs nothing, fetches no data, needs no
    engine.

    Times are those of stored results of the same system and dataset.  Without any they are assumed, and marked ~: 30 s
    for a job and 0.1 s for a query; for an index build 60 s and 0.01 s for a document.  Exit code 1 if the folder of a
    dataset does not exist.
    """
    loaded = load(suite)
    with named_as_given(choice.cache):
        folder = of_suite(results, loaded.name, choice.cache, "RECORDS")
        options = replace(run_options(suite, folder, only, fresh, choice.cache), fresh_index=fresh_index)
    absent: list[Cell] = []
    with choice.open() as launcher:
        gathered = inputs.gather(loaded, options, absent)
        try:
            jobs, engine = plan_here(gathered, options, launcher), True
        except EngineError:  # listing needs none
            jobs, engine = plan_without_engine(gathered, options, launcher), False
        component_digests = _component_digests(gathered, launcher) if engine else {}
    estimator = _Estimator(gathered, options, component_digests)
    plans = [*estimator.present(jobs), *estimator.absent(absent)]
    if price:
        plans = _priced(plans, loaded)
    given = {"results": None if str(results) == "results" else str(results)}
    run = command("run", suite, **given, fresh_index=fresh_index, fresh=fresh and not fresh_index)
    locations = {dataset_name(name): datasets.find(name, options.suite_dir) for name in loaded.datasets}
    missing = {name: error for name, location in locations.items() if (error := datasets.missing_folder(location))}
    notes = list(_notes(jobs, [cell.dataset for cell in absent if cell.dataset not in missing], gathered))
    if not engine:
        notes.append("no Docker engine answers: jobs count as done with the images of stored results; harness doctor")
    document = plan_document(plans, notes, run, absent=len(absent), priced=price)
    destination.show_report(document)
    show_errors(missing.values())
    sys.exit(1 if missing else 0)


@dataclass
class _Estimator:
    """The time of cells; each index build counts once.

    ``component_digests``: those of the images that a system's image joins, by its name.
    """

    inputs: Inputs
    options: RunOptions
    component_digests: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        limits = self.inputs.limits
        stored = [job.result for job in stored_jobs(self.options.results / self.inputs.suite.name)]
        self._model = DurationModel(stored, job_timeout_s=limits.job_s, build_timeout_s=limits.build_s)
        self._built: set[tuple[str, str, str]] = set()

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
            yield _cell_plan(cell, state, len(by_cell[cell]), len(left), timing, build)

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
            plan = _cell_plan(cell, _NO_DATA, jobs, jobs, timing, build)
            yield plan if build.measured else replace(plan, build_s=None, measured=False)

    def _build(self, cell: Cell, builder: System) -> DurationEstimate:
        """Estimate the builds of a missing index and of its missing components, as far as no other cell needs them."""
        dataset = self.inputs.datasets.get(cell.dataset)  # None: absent
        documents, there = (dataset.corpus.size, self._components_here(builder, dataset)) if dataset else (0, set())
        build = _NOTHING
        for system in (*builder.components, builder):
            name = (system.variant_of or system.name, cell.dataset, digest(system.build_params))
            if system.name not in {*there, NULL_SYSTEM} and name not in self._built:
                self._built.add(name)
                build += self._model.build(system.name, cell.dataset, 0 if system.components else documents)
        return build

    def _components_here(self, builder: System, dataset: Dataset) -> set[str]:
        """Return the components whose indexes need no build."""
        if self.options.fresh_index:
            return set()
        keys = component_keys(builder, self.component_digests.get(builder.image, ()), dataset.corpus.sha256)
        return {name for name, key in keys.items() if indexes.find(self.options.cache, key)}


def _cell_plan(
    cell: Cell, state: str, jobs: int, left: int, timing: DurationEstimate, build: DurationEstimate
) -> CellPlan:
    measured = timing.measured and build.measured
    return CellPlan(cell, state, jobs, jobs - left, timing.seconds, build.seconds, measured)


_NOTHING = DurationEstimate(0.0, 0.0, True)


def _component_digests(gathered: Inputs, launcher: Launcher) -> dict[str, tuple[str, ...]]:
    """Return the digests of the images that each image joins, or would join, by its name."""
    digests = {}
    for name, system in gathered.images(gathered.cells).items():
        image = launcher.find(system)
        parts = (launcher.find(part) for part in system.components)
        digests[name] = image.components if image else tuple(part.digest if part else NO_IMAGE for part in parts)
    return digests


def _priced(plans: Sequence[CellPlan], suite: Suite) -> list[CellPlan]:
    """Return the plans with costs: builds on the machine of the build profile, if the suite has one."""
    chosen = machines.of_suite(suite, prices.snapshot(), MachineOptions())
    hourly: Mapping[str, float] = {name: machine.usd_per_hour for name, machine in chosen.items()}

    def usd(seconds: float | None, profile: str) -> float | None:
        return None if seconds is None else seconds * hourly[profile] / 3600

    return [
        replace(
            plan,
            timing_usd=usd(plan.timing_s, plan.cell.profile),
            build_usd=usd(plan.build_s, suite.build_profile or plan.cell.profile),
        )
        for plan in plans
    ]


def _notes(jobs: Sequence[Planned], unfetched: Sequence[str], gathered: Inputs) -> Iterator[str]:
    """Yield what keeps cells from being measured here, a line for each kind."""
    if unfetched:
        yield f"data is not here: {', '.join(dict.fromkeys(unfetched))}; run where ir_datasets can fetch it"
    cannot = {job.cell: job.cannot for job in jobs if job.cannot and not job.done}
    if cannot:
        yield f"not on this machine: {len(cannot)} cells, e.g. {next(iter(cannot.values()))}"
    if unpinned := [name for system in gathered.systems.values() for name in system.unpinned]:
        yield f"pinned at first use, by harness run: {', '.join(dict.fromkeys(unpinned))}"
