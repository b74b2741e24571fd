"""Launchers of the commands that run jobs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click

from harness import config
from harness.cli.options import record_options
from harness.commands import option
from harness.errors import UsageError
from harness.jobs.inputs import RunOptions
from harness.launch import docker, fake, process
from harness.launch.base import Launcher

_LOCAL = (
    "docker: containers with enforced limits. process: plain child processes, pinned to CPUs, no other limits."
    " fake: runs nothing, invents values; for tests."
)
launcher_option = click.option(
    "--launcher", type=click.Choice(["docker", "process", "fake"]), default="docker", help=_LOCAL
)
run_launcher_option = click.option(
    "--launcher",
    type=click.Choice(["docker", "process", "fake", "ec2", "batch"]),
    default="docker",
    help=f"{_LOCAL} ec2: containers on EC2 instances, launched and terminated for the run."
    " batch: jobs of AWS Batch, in the queues that `harness batch up` makes.",
)


@dataclass(frozen=True)
class LauncherChoice:
    """The launcher of a command, the cache and the models."""

    launcher: str
    cache: Path
    models: Path | None = None

    def open(self, emulated: str | None = None) -> closing[Launcher]:
        """Return the launcher in a context that closes it.

        Args:
            emulated: a platform to make images for, and to run jobs of even if it must be emulated.

        Raises:
            UsageError: this launcher has only the host's platform.
        """
        return closing(self._launcher(emulated))

    def _launcher(self, emulated: str | None) -> Launcher:
        cache = config.absolute_folder(self.cache)
        if self.launcher == "docker":
            return docker.DockerLauncher(cache, self.models, platform=emulated, emulated=emulated is not None)
        if emulated is not None:
            raise UsageError(
                f"--platform is for containers, not for {option('launcher', self.launcher)}; leave one of the two away"
            )
        return process.ProcessLauncher(cache, self.models) if self.launcher == "process" else fake.FakeLauncher()


# The command gets --launcher, --cache and --models as one record.
launcher_choice = record_options("choice", LauncherChoice)


def run_options(suite: Path, results: Path, only: str | None, fresh: bool, cache: Path) -> RunOptions:
    """Return a run's options, with absolute paths."""
    return RunOptions(results.absolute(), config.absolute_folder(cache), suite.absolute().parent, only, fresh)
