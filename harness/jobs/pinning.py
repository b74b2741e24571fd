"""Pins at first use of a run: a run reads the lock of its results before it plans, and writes it before it measures."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from harness.errors import ImageError
from harness.jobs.inputs import Inputs, with_pins
from harness.launch.base import Launcher
from harness.launch.images import first_use
from harness.launch.images.first_use import FirstUse
from harness.launch.images.systems import System
from harness.results import pin_lock
from harness.results.pin_lock import PinLock
from harness.results.store import Store

log = logging.getLogger(__name__)


def pin_inputs(
    inputs: Inputs, store: Store, launcher: Launcher, names: Iterable[str]
) -> tuple[Inputs, dict[str, ImageError]]:
    """Pin the unpinned files of these systems, and keep the pins with the results, whose folder the run holds.

    Returns:
        The inputs with pinned systems, and the errors of systems that cannot be pinned.

    Raises:
        UsageError: the lock and a system's file name different bytes.
        FileError, StoreError: the lock is damaged, or cannot be written.
    """
    lock = pin_lock.read(store.folder)
    inputs = with_pins(inputs, lock, store.folder)
    unpinned = [inputs.systems[name] for name in dict.fromkeys(names) if inputs.systems[name].unpinned]
    if not unpinned or not launcher.fetches_files:
        store.keep_pins(lock)
        return inputs, {}
    use = FirstUse(lock, store.folder / pin_lock.FILE, launcher.models)
    pinned: dict[str, System] = {}
    errors: dict[str, ImageError] = {}
    for system in unpinned:
        try:
            pinned[system.name] = use.pin(system)
        except ImageError as error:
            errors[system.name] = type(error)(f"{system.name}: {error}")
    store.keep_pins(use.lock)
    return replace(inputs, systems={**inputs.systems, **pinned}), errors


def pin_system(system: System, store: Store, launcher: Launcher) -> System:
    """Pin one system for a launcher that fetches files, and keep its pins with the results.

    Raises:
        UsageError: the lock and the system's file name different bytes.
        ImageError: neither the hub nor the local folder has its files.
        FileError, StoreError: the lock is damaged, or cannot be written.
    """
    if not system.unpinned or not launcher.fetches_files:
        return system
    with store.held():
        use = FirstUse(pin_lock.read(store.folder), store.folder / pin_lock.FILE, launcher.models)
        pinned = use.pin(system)
        store.keep_pins(use.lock)
    return pinned


def pin_alone(system: System, launcher: Launcher, results: Path | None = None) -> System:
    """Pin a system for one command that stores no results, and so keeps no lock of its own.

    Args:
        results: take the pins of the suites in this folder, where one has the system.

    Raises:
        UsageError: a lock there and the system's file name different bytes.
        FileError: a lock there is damaged.
        ImageError: neither the hub nor the local folder has its files.
    """
    if not system.unpinned or not launcher.fetches_files:
        return system
    # The locks of a folder's suites, or of the suite that the folder is.
    for place in sorted({*results.glob(pin_lock.FILE), *results.glob(f"*/{pin_lock.FILE}")}) if results else ():
        known = first_use.locked(system, pin_lock.read(place.parent), place)
        if not known.unpinned:
            return known
    pinned = FirstUse(PinLock(), Path(pin_lock.FILE), launcher.models).pin(system)
    log.info(f"  {system.name}: this command stores no results, so its pins are not kept; `harness run` keeps them")
    return pinned
