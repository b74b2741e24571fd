"""Checks of a run before it makes or fetches anything: one line for each thing that is missing, with its remedy.

Only missing data stops a run.  All else leaves other cells to measure, or is an estimate.
"""

from __future__ import annotations

import logging
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse
from pathlib import Path

from harness import datasets
from harness.datasets import dataset_name
from harness.errors import EngineError, FileError, ImageError, MissingWeights, counted, listed
from harness.jobs import estimates, indexes, inputs
from harness.jobs.cell_plans import Planner, SuitePlan
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.plan import component_keys, jobs_done
from harness.jobs.shipped_runs import shipped_runs
from harness.jobs.suite import Suite
from harness.launch.base import Launcher
from harness.launch.images import assets
from harness.launch.images.systems import System
from harness.progress import duration, duration_range
from harness.report.plan import SLOWER, CellPlan
from harness.results.schema import NULL_SYSTEMS, Cell, split_size, system_words

log = logging.getLogger(__name__)

_GIB = 1 << 30
# A shorter run needs no line about its time.
_NOTABLE_S = 60.0
# An image, and the downloaded packages that it is made of.
_OF_AN_IMAGE = 2
_MOST_NAMES = 3


@dataclass(frozen=True)
class Shortage:
    """One thing that a run lacks, with its remedy, and the cells that are not measured without it."""

    text: str
    cells: Collection[Cell] = ()


def gather(suite: Suite, options: RunOptions, launcher: Launcher) -> Inputs:
    """Gather a run's inputs; before data is fetched, log what the run lacks and how long it takes.

    Raises:
        EngineError: a job is left to do, and this host can launch nothing.
        FileError: a dataset's folder or files do not exist; the log has everything else that is missing.
        UsageError: as :func:`harness.jobs.inputs.gather`.
    """
    inputs.check_launcher(suite, launcher)
    missing = missing_data(suite, options)
    gathered = inputs.gather(suite, options, fetch=False, without=missing)
    if not gathered.absent and jobs_done(gathered, options, launcher) is not None:
        return gathered
    if not missing:
        launcher.check()
    plan = Planner(launcher).plan_gathered(gathered, options)
    cannot = _cannot(plan, launcher)
    images = _missing_images(gathered, cannot, launcher)
    if images and not missing:
        launcher.check_images(images.keys())
    # A run that goes on names its weights itself.
    shortages = list(_examine(plan, launcher, cannot, images, weights=bool(missing)))
    for shortage in shortages:
        log.info(f"  {shortage.text}")
    _refuse(missing)
    if text := _time(plan, {cell for shortage in shortages for cell in shortage.cells}, images):
        log.info(f"  {text}")
    return inputs.gather(suite, options) if gathered.absent else gathered


def gather_elsewhere(suite: Suite, options: RunOptions) -> Inputs:
    """Gather the inputs of a run on other machines, whose hardware, disk and time its quote has.

    Raises:
        FileError: a dataset's folder or files do not exist; the log names the others.
        UsageError: as :func:`harness.jobs.inputs.gather`.
    """
    inputs.check_launcher(suite, None)
    _refuse(missing_data(suite, options))
    return inputs.gather(suite, options)


def lacking_images(images: Mapping[str, System], options: RunOptions, launcher: Launcher) -> dict[str, ImageError]:
    """Log which of these images cannot be made here for lack of weights, and whether the disk has room for the others.

    Returns:
        The errors, by the names of the images.

    Raises:
        EngineError: images are missing, and this host cannot make them.
    """
    wanted = {name: system for name, system in images.items() if launcher.find(system) is None}
    launcher.check_images(wanted.keys())
    errors = missing_weights(wanted, launcher)
    for error in errors.values():
        log.info(f"  {error}")
    makeable = [system for name, system in wanted.items() if name not in errors]
    if text := _lack_of_room(_Room(_image_bytes(makeable, launcher)), options):
        log.info(f"  {text}")
    return errors


def missing_data(suite: Suite, options: RunOptions) -> dict[str, FileError]:
    """Return the errors of datasets whose folders or files do not exist, by name."""
    locations = {dataset_name(name): datasets.find(name, options.suite_dir) for name in suite.datasets}
    return {name: error for name, location in locations.items() if (error := datasets.missing_files(location))}


def _refuse(missing: Mapping[str, FileError]) -> None:
    """Raise the last error, if there is one; log the others."""
    *others, last = missing.values() or (None,)
    for error in others:
        log.info(f"  {error}")
    if last is not None:
        raise last


def _cannot(plan: SuitePlan, launcher: Launcher) -> dict[Cell, str | None]:
    """Return why each cell to do cannot run on this host, or None."""
    cannot = {job.cell: job.cannot for job in plan.jobs if not job.done}
    for cell in plan.inputs.absent:
        system, profile = plan.inputs.systems[cell.system], plan.inputs.profiles[cell.profile]
        cannot[cell] = launcher.cannot_run(system) or launcher.cannot(profile)
    return cannot


def _examine(
    plan: SuitePlan,
    launcher: Launcher,
    cannot: Mapping[Cell, str | None],
    images: Mapping[str, System],
    *,
    weights: bool,
) -> Iterator[Shortage]:
    """Yield the hardware and disk that the cells to do lack on this host, and the weights if asked for."""
    reasons: dict[str, list[Cell]] = defaultdict(list)
    for cell, reason in cannot.items():
        if reason is not None:
            reasons[reason].append(cell)
    for reason, cells in reasons.items():
        yield Shortage(f"hardware: {reason}, so {_unmeasured(cells)}; use other hardware, or --only", cells)
    has_index = plan.options.has_index
    indexed = {job.cell for job in plan.jobs if not launcher.needs_indexes or has_index(job.spec.index_key)}
    able = [cell for cell, reason in cannot.items() if reason is None]
    to_build = [cell for cell in able if cell not in indexed]
    build = plan.inputs.suite.build_profile
    if build and to_build and (lacking := launcher.cannot(plan.inputs.profiles[build])):
        text = f"index builds: {lacking}, so {_unmeasured(to_build)}; choose another build_profile"
        yield Shortage(text, to_build)
    for name, error in missing_weights(images, launcher).items() if weights else ():
        yield Shortage(str(error), [cell for cell in able if name in plan.inputs.images([cell])])
    needed = _Room(_image_bytes(images.values(), launcher))
    room = _lack_of_room(needed | _room(plan, launcher), plan.options)
    yield from map(Shortage, filter(None, (lack_of_memory(plan.cells), room)))


def disk_needed(plans: Sequence[SuitePlan], launcher: Launcher) -> str | None:
    """Return a line on the disk that suites take; ``None``: no more than is taken."""
    needed = _Room()
    images: dict[str, System] = {}
    for plan in plans:
        images |= _missing_images(plan.inputs, _cannot(plan, launcher), launcher)
        needed |= _room(plan, launcher)
    needed |= _Room(_image_bytes(images.values(), launcher))
    unknown = "" if all(plan.engine for plan in plans) else ", without images"
    return f"disk: up to {needed}{unknown}; {_size(_free(plans[0].options.cache))} free" if needed.bytes else None


def _missing_images(inputs: Inputs, cannot: Mapping[Cell, str | None], launcher: Launcher) -> dict[str, System]:
    """Return the systems whose images are still to be made for cells that can run, by the names of the images."""
    images = inputs.images(cell for cell, reason in cannot.items() if reason is None)
    try:
        return {name: system for name, system in images.items() if launcher.find(system) is None}
    except EngineError:  # nothing is known of images; the run itself ends with this error
        return {}


def missing_weights(images: Mapping[str, System], launcher: Launcher) -> dict[str, ImageError]:
    """Return the errors of images that lack weights here, by name; a component whose image is here needs none."""
    if not images or not launcher.fetches_files:
        return {}
    needed = {
        name: system.model_copy(update={"components": tuple(filterfalse(launcher.find, system.components))})
        for name, system in images.items()
    }
    return {name: MissingWeights(why) for name, why in assets.lacking(needed, launcher.cache, launcher.models).items()}


def _image_bytes(missing: Iterable[System], launcher: Launcher) -> int:
    """Return the room that images and their packages may take; systems of an engine share most of it."""
    sizes: dict[str, int] = {}
    for system in missing if launcher.fetches_files else ():
        shipped = shipped_runs().image_bytes(system.base_name)
        size = _OF_AN_IMAGE * shipped if shipped else estimates.ENGINE_BYTES
        sizes[system.engine] = max(size, sizes.get(system.engine, 0))
    return sum(sizes.values())


@dataclass(frozen=True)
class _Room:
    """Room on the disk that runs may take, in bytes: of images, of indexes by name, and of corpora by dataset."""

    images: int = 0
    indexes: Mapping[str, int] = field(default_factory=dict)
    corpora: Mapping[str, int] = field(default_factory=dict)

    def __or__(self, other: _Room) -> _Room:
        """Return the room for both; what they share counts once."""
        return _Room(self.images + other.images, {**self.indexes, **other.indexes}, {**self.corpora, **other.corpora})

    @property
    def bytes(self) -> int:
        return sum(self._parts().values())

    def _parts(self) -> dict[str, int]:
        return {"images": self.images, "indexes": sum(self.indexes.values()), "corpora": sum(self.corpora.values())}

    def __str__(self) -> str:
        parts = [f"{_size(size)} for {what}" for what, size in self._parts().items() if size]
        return f"{_size(self.bytes)} ({', '.join(parts)})" if len(parts) > 1 else "".join(parts)


def _room(plan: SuitePlan, launcher: Launcher) -> _Room:
    """Return the room that corpora and indexes to make may take: indexes by shipped ones, else by the corpus."""
    sizes: dict[str, int] = {}

    def index_bytes(system: str, dataset: str, documents: int, corpus_bytes: int) -> int:
        shipped = shipped_runs().figure(system, dataset, documents, "index_bytes")
        return round(shipped or 0) or indexes.expected_bytes(corpus_bytes)

    for job in plan.jobs if launcher.needs_indexes else ():
        if job.done or job.cannot or job.cell.system in NULL_SYSTEMS:
            continue
        corpus, builder = plan.inputs.datasets[job.cell.dataset].corpus, plan.inputs.builder(job.cell)
        # An index that joins its components' indexes links to them.
        components = component_keys(builder, launcher, corpus.sha256)
        for name, key in (components or {builder.name: job.spec.index_key}).items():
            if not plan.options.has_index(key):
                sizes[key] = index_bytes(name, job.cell.dataset, corpus.size, corpus.file_bytes)
    corpora = {name: corpus.corpus_bytes for name, corpus in plan.inputs.to_make.items()}
    for cell in plan.inputs.absent if launcher.needs_indexes else ():
        if cell.system in NULL_SYSTEMS:
            continue
        system, documents = plan.inputs.building(cell.system), split_size(cell.dataset)[1] or 0
        for part in system.components or (system,):
            key = f"{part.build_inputs} {cell.dataset}"
            sizes[key] = index_bytes(part.name, cell.dataset, documents, corpora.get(cell.dataset, 0))
    return _Room(0, sizes, corpora)


def _lack_of_room(needed: _Room, options: RunOptions) -> str | None:
    """Return a line on the room that a run may take, where the cache's disk has less."""
    if needed.bytes <= (free := _free(options.cache)):
        return None
    remedy = "make room, or name a folder on a larger disk with --cache"
    return f"disk: this run may need {needed}, and {options.cache} has {_size(free)} free; {remedy}"


def _free(cache: Path) -> int:
    return shutil.disk_usage(next(each for each in (cache, *cache.parents) if each.exists())).free


def lack_of_memory(cells: Iterable[CellPlan]) -> str | None:
    """Return a line on the cell whose foreseen peak of memory is the most above its limit, and the number of others."""
    lacking = [
        (cell, cell.peak_bytes, cell.limit_bytes)
        for cell in cells
        if cell.peak_bytes and cell.limit_bytes and cell.peak_bytes > cell.limit_bytes
    ]
    if not lacking:
        return None
    cell, peak_bytes, limit_bytes = max(lacking, key=lambda each: each[1] / each[2])
    many = len(lacking) - 1
    others = f"; {counted(many, 'other cell')} {'lacks' if many == 1 else 'lack'} memory, too" if many else ""
    return (
        f"memory: {system_words(cell.cell.system)} may need {_size(round(peak_bytes))} on {cell.cell.dataset}, but"
        f" {cell.cell.profile} has {_size(limit_bytes)}{others}; take a larger profile or fewer documents"
    )


def _time(plan: SuitePlan, without: Collection[Cell], images: Mapping[str, System]) -> str | None:
    """Return a line on the time of the jobs and their index builds, by earlier jobs, else by shipped results.

    There is none for a minute or less, nor where nothing is known: an assumed time may be several times too long, and
    `harness plan` marks it.
    """
    left = [cell for cell in plan.cells if cell.done < cell.jobs and cell.cell not in without]
    known = [cell for cell in left if cell.measured or cell.shipped]
    shipped_s = sum(cell.timing_s + (cell.build_s or 0.0) for cell in known if cell.shipped)
    least_s = shipped_s + sum(cell.timing_s + (cell.build_s or 0.0) for cell in known if cell.measured)
    most_s = least_s + (SLOWER - 1) * shipped_s
    if most_s <= _NOTABLE_S:
        return None
    about = duration_range(least_s, most_s) if shipped_s else f"about {duration(least_s)}"
    basis = f"estimated from the shipped machine, {shipped_runs().machine}" if shipped_s else "by earlier jobs"
    jobs = counted(sum(cell.jobs - cell.done for cell in known), "job")
    unknown = list(dict.fromkeys(cell.cell.system for cell in left if not (cell.measured or cell.shipped)))
    others = f"; not known for {listed(unknown, _MOST_NAMES, 'system')}" if unknown else ""
    systems = {cell.cell.system for cell in left if not images.keys().isdisjoint(plan.inputs.images([cell.cell]))}
    further = f"; the images of {counted(len(systems), 'system')} are made first, which comes on top" if systems else ""
    return f"time: {about} for {jobs} and their indexes ({basis}){others}{further}"


def _unmeasured(cells: Collection[Cell]) -> str:
    """Say how many cells of which systems are not measured; harness adds the null system by itself."""
    chosen = [cell for cell in cells if cell.system not in NULL_SYSTEMS] or list(cells)
    names = listed(dict.fromkeys(cell.system for cell in chosen), _MOST_NAMES, "system")
    return f"{counted(len(chosen), 'cell')} of {names} {'is' if len(chosen) == 1 else 'are'} not measured"


def _size(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{-(-size // 2**20)} MiB"
