"""Checks of a run before it makes or fetches anything: one line for each thing that is missing, with its remedy.

Only missing data stops a run.  All else leaves other cells to measure, or is an estimate.
"""

from __future__ import annotations

import logging
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import filterfalse

from harness import datasets
from harness.datasets import dataset_name
from harness.errors import EngineError, counted
from harness.jobs import estimates, indexes, inputs
from harness.jobs.cell_plans import Planner, SuitePlan
from harness.jobs.inputs import Inputs, RunOptions
from harness.jobs.plan import component_keys
from harness.jobs.suite import Suite
from harness.launch.base import Launcher
from harness.launch.images import assets
from harness.launch.images.systems import System
from harness.progress import duration
from harness.results.schema import NULL_SYSTEM, Cell

log = logging.getLogger(__name__)

_GIB = 1 << 30
# A shorter run needs no line about its time.
_NOTABLE_S = 60.0
_MOST_NAMES = 3


@dataclass(frozen=True)
class Shortage:
    """One thing that a run lacks, with its remedy, and the cells that are not measured without it."""

    text: str
    cells: Collection[Cell] = ()


def gather(suite: Suite, options: RunOptions, launcher: Launcher) -> Inputs:
    """Gather a run's inputs; before data is fetched, log what the run lacks and how long it takes.

    Raises:
        EngineError: this host can launch nothing.
        FileError: a dataset's folder or files do not exist; the log has everything else that is missing.
        UsageError: as :func:`harness.jobs.inputs.gather`.
    """
    locations = {dataset_name(name): datasets.find(name, options.suite_dir) for name in suite.datasets}
    missing = {name: error for name, location in locations.items() if (error := datasets.missing_files(location))}
    if not missing:
        launcher.check()
    plan = Planner(launcher).plan(suite, options, missing)
    # A run that goes on names its weights itself.
    shortages = list(examine(plan, options, launcher, weights=bool(missing)))
    for shortage in shortages:
        log.info(f"  {shortage.text}")
    if missing:
        *others, last = missing.values()
        for error in others:
            log.info(f"  {error}")
        raise last
    if text := _time(plan, {cell for shortage in shortages for cell in shortage.cells}):
        log.info(f"  {text}")
    return inputs.gather(suite, options) if plan.absent else plan.inputs


def examine(plan: SuitePlan, options: RunOptions, launcher: Launcher, *, weights: bool) -> Iterator[Shortage]:
    """Yield the hardware and disk that the cells to do lack on this host, and the weights if asked for."""
    cannot = {job.cell: job.cannot for job in plan.jobs if not job.done}
    for cell in plan.absent:
        system, profile = plan.inputs.systems[cell.system], plan.inputs.profiles[cell.profile]
        cannot[cell] = launcher.cannot_run(system) or launcher.cannot(profile)
    yield from _hardware(cannot)
    able = [cell for cell, reason in cannot.items() if reason is None]
    indexed = {job.cell for job in plan.jobs if not options.fresh_index and _has_index(job.spec.index_key, options)}
    yield from _build_hardware(plan.inputs, [cell for cell in able if cell not in indexed], launcher)
    images = _missing_images(plan.inputs, able, launcher)
    if weights:
        systems = {name: system for name, (system, _) in images.items()}
        for name, reason in missing_weights(systems, launcher).items():
            yield Shortage(reason, images[name][1])
    yield from _disk(plan, [system for system, _ in images.values()], options, launcher)


def _has_index(key: str, options: RunOptions) -> bool:
    return indexes.find(options.cache, key) is not None


def _hardware(cannot: Mapping[Cell, str | None]) -> Iterator[Shortage]:
    reasons: dict[str, list[Cell]] = defaultdict(list)
    for cell, reason in cannot.items():
        if reason is not None:
            reasons[reason].append(cell)
    for reason, cells in reasons.items():
        yield Shortage(f"hardware: {reason}, so {_unmeasured(cells)}; use other hardware, or --only", cells)


def _build_hardware(inputs: Inputs, cells: Collection[Cell], launcher: Launcher) -> Iterator[Shortage]:
    """Yield the hardware that index builds lack.

    Args:
        cells: those whose indexes are still to be built.
    """
    build = inputs.suite.build_profile
    if build and cells and (reason := launcher.cannot(inputs.profiles[build])):
        yield Shortage(f"index builds: {reason}, so {_unmeasured(cells)}; choose another build_profile", cells)


def _missing_images(
    inputs: Inputs, cells: Iterable[Cell], launcher: Launcher
) -> dict[str, tuple[System, dict[Cell, None]]]:
    """Return the systems whose images are still to be made, each with its cells, by the names of the images."""
    needed: dict[str, tuple[System, dict[Cell, None]]] = {}
    for cell in cells:
        for name, system in inputs.images([cell]).items():
            needed.setdefault(name, (system, {}))[1][cell] = None
    try:
        return {name: each for name, each in needed.items() if launcher.find(each[0]) is None}
    except EngineError:  # nothing is known of images; the run itself ends with this error
        return {}


def missing_weights(images: Mapping[str, System], launcher: Launcher) -> dict[str, str]:
    """Return why images cannot be made for lack of weights, by name; a component whose image is here needs none."""
    if not images or not launcher.fetches_files:
        return {}
    needed = {
        name: system.model_copy(update={"components": tuple(filterfalse(launcher.find, system.components))})
        for name, system in images.items()
    }
    return assets.lacking(needed, launcher.cache, launcher.models)


def _disk(plan: SuitePlan, missing: Iterable[System], options: RunOptions, launcher: Launcher) -> Iterator[Shortage]:
    """Yield the room that images and indexes may take, where the cache's disk has less."""
    sizes: dict[str, int] = {}
    for job in plan.jobs:
        if job.done or job.cannot or job.cell.system == NULL_SYSTEM:
            continue
        corpus = plan.inputs.datasets[job.cell.dataset].corpus
        # An index that joins its components' indexes links to them.
        components = component_keys(plan.inputs.builder(job.cell), launcher, corpus.sha256).values()
        for key in components or (job.spec.index_key,):
            if options.fresh_index or not _has_index(key, options):
                sizes[key] = indexes.expected_bytes(corpus)
    engines = {system.engine for system in missing} if launcher.fetches_files else set()
    image_bytes, index_bytes = len(engines) * estimates.ENGINE_BYTES, sum(sizes.values())
    place = next(each for each in (options.cache, *options.cache.parents) if each.exists())
    free = shutil.disk_usage(place).free
    if image_bytes + index_bytes > free:
        parts = f"{_room(image_bytes)} for images, {_room(index_bytes)} for indexes"
        needed = f"this run may need {_room(image_bytes + index_bytes)} ({parts})"
        remedy = "make room, or name a folder on a larger disk with --cache"
        yield Shortage(f"disk: {needed}, and {options.cache} has {_room(free)} free; {remedy}")


def _time(plan: SuitePlan, without: Collection[Cell]) -> str | None:
    """Return a line on the time that the jobs and their index builds take, where earlier jobs show more than a minute.

    An assumed time is left to ``harness plan``, which marks it: it may be several times too long.
    """
    cells = [cell for cell in plan.cells if cell.done < cell.jobs and cell.cell not in without]
    seconds = sum(cell.timing_s + (cell.build_s or 0.0) for cell in cells)
    if seconds <= _NOTABLE_S or not all(cell.measured for cell in cells):
        return None
    jobs = counted(sum(cell.jobs - cell.done for cell in cells), "job")
    images = {job.cell.system for job in plan.jobs if not (job.done or job.built) and job.cell not in without}
    further = f"; the images of {counted(len(images), 'system')} are made first" if images else ""
    return f"time: about {duration(seconds)} for {jobs} and their indexes (by earlier jobs){further}"


def _unmeasured(cells: Collection[Cell]) -> str:
    """Say how many cells of which systems are not measured."""
    systems = list(dict.fromkeys(cell.system for cell in cells))
    further = len(systems) - _MOST_NAMES
    names = ", ".join(systems[:_MOST_NAMES]) + (f" and {counted(further, 'more system')}" if further > 0 else "")
    return f"{counted(len(cells), 'cell')} of {names} {'is' if len(cells) == 1 else 'are'} not measured"


def _room(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{-(-size // 2**20)} MiB"
