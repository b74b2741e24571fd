"""The launchers by name: harness's own, and what other distributions add by an entry point.

A distribution adds a launcher by one line of its metadata, in the group ``harness.launchers``: the launcher's name and
the import path of its class.  A launcher's module is imported when the launcher is used.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from harness.commands import option
from harness.errors import UnknownName, UsageError
from harness.launch.base import Launcher
from harness.results.isolation import SHIPPED, declared
from harness.untrusted import one_line

GROUP = "harness.launchers"
DEFAULT, ATTACHED = "docker", "attached"


class LauncherEntry(NamedTuple):
    """A launcher of harness: the import path of its class, and what it does in a few words."""

    path: str
    help: str

    def load(self) -> Any:
        """Import the class."""
        return EntryPoint("", self.path, GROUP).load()


LAUNCHERS = {
    "docker": LauncherEntry("harness.launch.docker:DockerLauncher", "containers with enforced limits"),
    "apptainer": LauncherEntry(
        "harness.launch.apptainer:ApptainerLauncher", "Apptainer without root, in a Slurm allocation or a systemd scope"
    ),
    "process": LauncherEntry(
        "harness.launch.process:ProcessLauncher", "plain child processes, pinned to CPUs, no other limits"
    ),
    "attached": LauncherEntry(
        "harness.launch.attached:AttachedLauncher", "a client of a suite's `url`, a service that runs already"
    ),
    "fake": LauncherEntry("harness.launch.fake:FakeLauncher", "runs nothing, invents values; for tests"),
}


def names() -> list[str]:
    """Return the names of all launchers, harness's own first."""
    return [*LAUNCHERS, *sorted({point.name for point in entry_points(group=GROUP)} - LAUNCHERS.keys())]


def load(name: str) -> type[Launcher]:
    """Import the class of a launcher.

    Raises:
        UsageError: no launcher has that name, two distributions have one, or another's cannot be used.
    """
    if name in LAUNCHERS:
        shipped: type[Launcher] = LAUNCHERS[name].load()
        return shipped
    found = [point for point in entry_points(group=GROUP) if point.name == name]
    if not found:
        raise UnknownName("launcher", name, names())
    if len({point.value for point in found}) > 1:
        several = ", ".join(sorted(_origin(point) for point in found))
        raise UsageError(f"{several} both add a launcher {name!r}; uninstall one of them")
    return _foreign(found[0])


def open_launcher(name: str, cache: Path, models: Path | None = None, **options: str | None) -> Launcher:
    """Open a launcher.

    Args:
        cache: corpora, indexes and what launchers prepare.
        models: a local folder of models, besides the hub.
        options: options of the command line that only some launchers take; None: not given.

    Raises:
        UsageError: the launcher is not known, cannot be used, or does not take an option.
    """
    launcher = load(name)
    given = {key: value for key, value in options.items() if value is not None}
    for key in given.keys() - launcher.options:
        raise UsageError(f"{option(key)} does not work with {option('launcher', name)}; remove one of the two")
    return launcher.open(cache, models, given)


def _foreign(point: EntryPoint) -> type[Launcher]:
    """Import the launcher of another distribution; its isolation is never one that harness ships."""
    try:
        launcher = point.load()
    except Exception as error:  # importing foreign code raises anything
        raise UsageError(
            f"{_origin(point)} cannot be imported: {type(error).__name__}: {error}; reinstall it"
        ) from error
    if not (isinstance(launcher, type) and issubclass(launcher, Launcher)):
        raise UsageError(f"{_origin(point)} is not a subclass of harness.launch.base.Launcher; correct its entry point")
    try:
        isolation = declared(launcher.isolation)
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{_origin(point)} declares no valid isolation: {error}") from error
    if isolation.name in SHIPPED:
        raise UsageError(f"{_origin(point)} takes harness's isolation {isolation.name!r}; give it one of its own")
    launcher.isolation = isolation
    return launcher


def _origin(point: EntryPoint) -> str:
    """Return which distribution adds a launcher, and from which module."""
    distribution = point.dist.name if point.dist else "an unknown distribution"
    return f"launcher {one_line(point.name, 80)!r} of {one_line(distribution, 80)} ({one_line(point.value, 200)})"
