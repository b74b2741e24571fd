"""Launchers of the commands that run jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from harness import config
from harness.cli.options import record_options
from harness.errors import UnknownName
from harness.jobs.inputs import RunOptions
from harness.launch import launchers
from harness.launch.base import Launcher
from harness.launch.launchers import LAUNCHERS, LauncherEntry

# Services that run whole suites on machines of theirs: for `harness run` alone.
BACKENDS = {
    "ec2": LauncherEntry("harness.aws.ec2.backend:Ec2Backend", "containers on EC2 instances, launched for the run"),
    "batch": LauncherEntry(
        "harness.aws.batch.backend:BatchBackend", "jobs of AWS Batch, in queues of `harness batch up`"
    ),
}
_OTHERS = "Packages may add more (docs/guides/add-a-launcher.md)."


class LauncherName(click.ParamType[str]):
    """The name of a launcher, or of a backend that runs whole suites elsewhere."""

    name = "launcher"

    def __init__(self, backends: Collection[str] = ()) -> None:
        self._backends = backends

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Check a name.

        Raises:
            UsageError: no launcher has it.
        """
        # Other distributions are asked last: that reads the metadata of all that are installed.
        if value not in LAUNCHERS and value not in self._backends and value not in launchers.names():
            raise UnknownName("launcher", str(value), self._names())
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the names that begin so."""
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        """Return the names that harness ships."""
        return f"[{'|'.join((*LAUNCHERS, *self._backends))}|...]"

    def _names(self) -> list[str]:
        return [*launchers.names(), *self._backends]


def _option(backends: Mapping[str, LauncherEntry]) -> Callable[[Any], Any]:
    listed = " ".join(f"{name}: {entry.help}." for name, entry in {**LAUNCHERS, **backends}.items())
    return click.option(
        "--launcher", type=LauncherName(backends), default=launchers.DEFAULT, help=f"{listed} {_OTHERS}"
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


# The command gets --launcher, --cache and --models as one record.
launcher_choice = record_options("choice", LauncherChoice)


def run_options(suite: Path, results: Path, only: str | None, fresh: bool, cache: Path) -> RunOptions:
    """Return a run's options, with absolute paths."""
    return RunOptions(results.absolute(), config.absolute_folder(cache), suite.absolute().parent, only, fresh)
