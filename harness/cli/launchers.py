"""Launchers of the commands that run jobs."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.locations import absolute
from harness.errors import UsageError
from harness.jobs.inputs import RunOptions
from harness.launch import docker, fake, process
from harness.launch.base import Launcher

_LOCAL = (
    "docker: containers with enforced limits. process: plain child processes, pinned to CPUs, no other limits."
    " fake: runs nothing, invents values; for tests."
)
launcher_option = click.option(
    "--launcher", type=click.Choice(["docker", "process", "fake"]), default="docker", show_default=True, help=_LOCAL
)
run_launcher_option = click.option(
    "--launcher",
    type=click.Choice(["docker", "process", "fake", "ec2", "batch"]),
    default="docker",
    show_default=True,
    help=f"{_LOCAL} ec2: containers on EC2 instances, launched and terminated for the run."
    " batch: jobs of AWS Batch, in the queues that `harness batch up` makes.",
)


def chosen_launcher(name: str, cache: Path, models: Path | None, emulated: str | None = None) -> Launcher:
    """Return the launcher of this name, which the caller closes.

    Args:
        emulated: a platform to make images for, and to run jobs of even if it must be emulated.

    Raises:
        UsageError: this launcher has only the host's platform.
    """
    if name == "docker":
        return docker.DockerLauncher(cache, models, platform=emulated, emulated=emulated is not None)
    if emulated is not None:
        raise UsageError(f"--platform is for containers, not for --launcher {name}; leave one of the two away")
    if name == "process":
        return process.ProcessLauncher(cache, models)
    return fake.FakeLauncher()


def run_options(suite: Path, results: Path, only: str | None, fresh: bool, cache: Path) -> RunOptions:
    """Return a run's options, with absolute paths."""
    return RunOptions(results.absolute(), absolute(cache), suite.absolute().parent, only, fresh)
