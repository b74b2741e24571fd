"""`harness worker`, and runs whose workers share a folder: people start the workers, or Slurm does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from harness import config
from harness.cli.launchers import LauncherChoice
from harness.cli.lines import say
from harness.cli.options import PATH, FiniteRange, cache_option, record_options
from harness.commands import option
from harness.errors import UsageError
from harness.jobs.inputs import RunOptions
from harness.jobs.suite import Suite
from harness.launch import launchers
from harness.remote.options import RemoteOptions, SlurmOptions
from harness.remote.shared_folder import open_folder

if TYPE_CHECKING:
    from harness.remote.run import RunReport
    from harness.remote.slurm import SlurmBackend

# How often the command looks into a shared folder.
_POLL_S = 2.0
SLURM = "slurm"

slurm_options = record_options(
    "slurm",
    SlurmOptions,
    click.option("--partition", metavar="NAME", help="slurm: this partition.  [default: Slurm's]"),
    click.option("--account", metavar="NAME", help="slurm: the account that pays."),
    click.option("--qos", metavar="NAME", help="slurm: this quality of service."),
    click.option("--constraint", metavar="FEATURES", help="slurm: nodes with these features."),
    click.option("--exclusive", is_flag=True, help="slurm: no other job on a node while a part is measured."),
    click.option("--time", metavar="TIME", help="slurm: the time limit of a part, as sbatch takes it."),
    click.option("--sbatch", multiple=True, metavar="OPTION", help="slurm: a further option: --sbatch=--nice=100."),
)


def slurm_choice(choice: LauncherChoice, work: str | None) -> LauncherChoice:
    """Return the launcher and the cache of a run on Slurm: all tasks share one cache, and the command fills it.

    Raises:
        UsageError: no shared folder is given, or the launcher's jobs would run outside of Slurm's limits.
    """
    given = click.get_current_context().get_parameter_source
    if work is None:
        raise UsageError("--on slurm needs a folder on the file system that all nodes share: give --work FOLDER")
    launcher = choice.launcher
    if launcher == launchers.DEFAULT:
        own = given("launcher") is not ParameterSource.DEFAULT
        if own or "apptainer" not in launchers.names():
            remedy = " or ".join(
                option("launcher", name) for name in ("apptainer", "process") if name in launchers.names()
            )
            why = "a Docker engine runs jobs outside of Slurm's limits"
            raise UsageError(f"--on slurm is not for {option('launcher', launcher)}: {why}; give {remedy}")
        launcher = "apptainer"
    own_cache = given("cache") is not ParameterSource.DEFAULT
    return LauncherChoice(launcher, choice.cache if own_cache else Path(work).absolute() / "cache", choice.models)


def run_in_folder(
    suite: Suite,
    options: RunOptions,
    choice: LauncherChoice,
    folder: str,
    how: RemoteOptions,
    slurm: SlurmOptions | None = None,
) -> RunReport | None:
    """Run a suite on the workers of a shared folder; with ``slurm`` its tasks are the workers."""
    from harness.remote import run as remote_run
    from harness.remote.folder_backend import FolderBackend
    from harness.remote.run import ClientContext, RemoteRequest
    from harness.remote.watch import Timeouts

    work = open_folder(Path(folder))
    with choice.open() as launcher:
        client = ClientContext(launcher, agree=lambda _question: None, timeouts=Timeouts(poll_s=_POLL_S))
        remote = RemoteRequest(suite, options, work, how)
        if slurm is None:
            return remote_run.run(remote, client, FolderBackend(work, choice.launcher))
        from harness.remote.slurm import SlurmBackend

        backend = SlurmBackend(work, choice.launcher, suite, options.cache, slurm, how.dry_run)
        with _asks_to_cancel(backend):
            report = remote_run.run(remote, client, backend)
        if how.dry_run:
            click.echo("\n".join(backend.scripts), nl=False)
        return report


@contextmanager
def _asks_to_cancel(backend: SlurmBackend) -> Iterator[None]:
    """Ask a user who stops watching whether to cancel the jobs; without a terminal they go on."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stdin.isatty() and backend.live_jobs():
            try:
                cancel = click.confirm("cancel the jobs in Slurm?", default=False, err=True)
            except click.Abort:
                cancel = False
            if cancel:
                backend.cancel()
                say("the jobs are cancelled; the same command submits them again", err=True)
        raise


@click.command()
@click.argument("folder", type=PATH, metavar="FOLDER")
@click.option(
    "--idle",
    "idle_s",
    metavar="SECONDS",
    type=FiniteRange(min=1),
    default=600.0,
    help="End after this many seconds without work.",
)
@click.option("--part", metavar="RUN:PART", help="Do this part alone, of the run or of the suite with this name.")
@cache_option
def worker(folder: Path, idle_s: float, part: str | None, cache: Path) -> None:
    """Measure on this machine what `harness run --work FOLDER` submits.

    Takes one part of a suite after the other. If a worker is stopped or dies, another worker goes on with its part;
    only the job that was running begins again. Exit code 1 if a part could not be done.
    """
    from harness.remote import folder_worker

    work, cache = open_folder(folder), config.absolute_folder(cache)
    if part is None:
        done = folder_worker.serve(work, cache, idle_s)
    else:
        run, _, name = part.rpartition(":")
        if not run or not name:
            raise UsageError(f"--part {part!r} names no part; write RUN:PART, as the scripts of --dry-run do")
        done = folder_worker.serve_part(work, cache, run, name, idle_s)
    sys.exit(0 if done else 1)
