"""Launchers of the commands that run jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from harness import config
from harness.cli.options import cache_option, models_option, parsed_by, record_options
from harness.errors import UnknownName, UsageError
from harness.jobs.inputs import RunOptions
from harness.launch import launchers
from harness.launch.base import Launcher
from harness.launch.checks import Check, Level
from harness.launch.launchers import LAUNCHERS, LauncherEntry
from harness.remote import slurm_queue

# Services that run whole suites on their own machines; only `harness run` takes them.
BACKENDS = {
    "ec2": LauncherEntry("harness.aws.ec2.backend:Ec2Backend", "containers on EC2 instances, launched for the run"),
    "batch": LauncherEntry(
        "harness.aws.batch.backend:BatchBackend", "jobs of AWS Batch, in queues of `harness batch up`"
    ),
}


def _option(backends: Mapping[str, LauncherEntry]) -> Callable[[Any], Any]:
    """Make ``--launcher``, which takes every launcher and these backends."""
    shipped = {**LAUNCHERS, **backends}

    def check(name: str) -> str:
        # Other distributions are asked last: that reads the metadata of all that are installed.
        if name not in shipped and name not in launchers.names():
            raise UnknownName("launcher", name, (*launchers.names(), *backends))
        return name

    return click.option(
        "--launcher",
        metavar=f"[{'|'.join(shipped)}|...]",
        default=launchers.DEFAULT,
        callback=parsed_by(check),
        shell_complete=lambda _context, _parameter, begin: [
            name for name in (*launchers.names(), *backends) if name.startswith(begin)
        ],
        help=f"{' '.join(f'{name}: {entry.help}.' for name, entry in shipped.items())} Packages may add more.",
    )


launcher_option = _option({})
run_launcher_option = _option(BACKENDS)


@dataclass(frozen=True)
class LauncherChoice:
    """The launcher of a command, the cache and the models."""

    launcher: str
    cache: Path
    models: Path | None = None

    def open(self, **options: str | None) -> closing[Launcher]:
        """Return the launcher in a context that closes it.

        Args:
            options: options of the command line that not every launcher takes (``platform``); None: not given.

        Raises:
            UsageError: this launcher does not take one of them.
        """
        return closing(
            launchers.open_launcher(self.launcher, config.absolute_folder(self.cache), self.models, **options)
        )


# The command gets --launcher, --cache and --models as one record; the second adds the options too.
launcher_choice = record_options("choice", LauncherChoice)
launcher_options = record_options("choice", LauncherChoice, launcher_option, cache_option, models_option)


builder_option = click.option(
    "--builder",
    type=click.Choice(["docker", "podman"]),
    default="docker",
    help="docker: the engine that the `docker` command would use. podman: Podman, whose service runs for this command"
    " alone.",
)


def start_builder(name: str) -> None:
    """Start the service of the builder, if it needs one, until the command ends."""
    if name == "podman":
        from harness.launch import podman  # late: it imports the engine's client

        click.get_current_context().with_resource(podman.service())


def run_options(suite: Path, results: Path, only: str | None, fresh: bool, cache: Path) -> RunOptions:
    """Return a run's options, with absolute paths."""
    return RunOptions(results.absolute(), config.absolute_folder(cache), suite.absolute().parent, only, fresh)


def usable() -> Iterator[Check]:
    """Check of each launcher, and of ``--work FOLDER``, whether it works on this machine; ask no service.

    A check that fails says what the launcher lacks.
    """
    entries = {**{name: LAUNCHERS.get(name) for name in launchers.names()}, **BACKENDS}
    for name, entry in entries.items():
        try:
            launcher = entry.load() if entry else launchers.load(name)
        except UsageError as error:
            yield Check(Level.FAIL, name, str(error))
            continue
        if name not in BACKENDS and launcher.isolation.scripted:  # it measures nothing
            continue
        checks = list(launcher.examine())
        for level in (Level.FAIL, Level.WARN):
            lacking = next((check for check in checks if check.level is level), None)
            if lacking:
                yield Check(level, name, lacking.fact.partition(": ")[0], lacking.remedy)
                break
        else:
            yield Check(Level.OK, name, entry.help if entry else launcher.isolation.sentence)
    yield from slurm_queue.examine()
    yield Check(Level.OK, "--work FOLDER", "a folder that all machines see: `harness worker FOLDER`")
