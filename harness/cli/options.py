"""What the commands share: options, errors as one line, columns, files that are written whole."""

from __future__ import annotations

import datetime
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click

from harness import config, filesystem
from harness.aws.clients import is_s3
from harness.errors import HarnessError, UnknownName, UsageError
from harness.launch.images import platforms
from harness.untrusted import one_line

if TYPE_CHECKING:
    from harness.datasets import Dataset
    from harness.jobs.inputs import RunOptions
    from harness.launch.base import Launcher
    from harness.pricing.prices import Snapshot


# MERGED harness.cli.options: What the command line asks for, as the other modules want it.


@dataclass(frozen=True)
class Market:
    """Which prices are asked for; ``None``: the usual ones."""

    as_of: datetime.date | None = None
    region: str | None = None
    term: str | None = None

    def snapshot(self) -> Snapshot:
        """Read them.

        Raises:
            UsageError: there are none such.
            FileError: a file is missing or wrong.
        """
        from harness.pricing import prices

        return prices.snapshot(self.as_of, region=self.region, term=self.term)


def asked_measures(text: str) -> tuple[str, ...]:
    """The names that ``--measures`` holds.

    Raises:
        UsageError: none.
    """
    names = tuple(text.split())
    if not names:
        raise UsageError("--measures names none; name some, e.g. 'RR@10 nDCG@10', or leave it out")
    return names


def market_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--as-of``, ``--region`` and ``--term``, handed over as one :class:`Market`."""

    @click.option(
        "--as-of",
        type=click.DateTime(formats=["%Y-%m-%d"]),
        help="Prices of this date, or the last before it.  [default: the newest]",
    )
    @click.option("--region", help="Prices of this region.  [default: the one in instance_profiles/defaults.toml]")
    @click.option("--term", metavar="on-demand|reserved-1y|reserved-3y|spot", help="[default: on-demand]")
    @wraps(command)
    def wrapped(
        *args: Any, as_of: datetime.datetime | None, region: str | None, term: str | None, **others: Any
    ) -> None:
        command(*args, market=Market(as_of.date() if as_of else None, region, term), **others)

    return wrapped


def platform_option(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--platform``, by any of its names, handed over by Docker's."""

    def parsed(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
        try:
            return platforms.parse(given) if given is not None else None
        except UnknownName as error:  # click reads options before the command's own errors are caught
            raise click.BadParameter(str(error)) from error

    return click.option("--platform", metavar="linux/amd64|linux/arm64", callback=parsed, help=what)


def run_options(suite: Path, results: Path, only: str | None, fresh: bool, cache: Path) -> RunOptions:
    """What a run is told, with folders that do not hang on where we are."""
    from harness.jobs.inputs import RunOptions

    return RunOptions(results.absolute(), cache.expanduser().absolute(), suite.absolute().parent, only, fresh)


def chosen_launcher(name: str, cache: Path, models: Path | None, emulated: str | None = None) -> Launcher:
    """The launcher of that name; the caller closes it.

    Args:
        emulated: a platform that it is to make images for, and to run jobs of even where that is emulated.

    Raises:
        UsageError: this launcher has no other platform than the host's.
    """
    if name == "docker":
        from harness.launch.docker import DockerLauncher

        return DockerLauncher(cache, models, platform=emulated, emulated=emulated is not None)
    if emulated is not None:
        raise UsageError(f"--platform is for containers, not for --launcher {name}; leave one of the two away")
    if name == "process":
        from harness.launch.process import ProcessLauncher

        return ProcessLauncher(cache, models)
    from harness.launch.fake import FakeLauncher

    return FakeLauncher()


# MERGED harness.cli.options: A dataset that an option names.


def load(named: str, cache: Path) -> Dataset:
    """Load a dataset by its name or folder, with a bar while a large corpus is made ready.

    Raises:
        UnknownName: there is none.
        FileError: a file of it is missing or wrong.
    """
    from rich.console import Console

    from harness import datasets
    from harness.progress import Progress, Screen, Watcher

    watchers: list[Watcher] = []
    with ExitStack() as stack:

        def show_progress(done: int, total: int) -> None:
            if not watchers:
                watchers.append(stack.enter_context(Screen(Console(stderr=True)).task(f"{named}: corpus")))
            watchers[0](Progress("documents", done, total))

        return datasets.load(datasets.find(named, Path.cwd()), cache.expanduser().absolute(), show_progress)


P = ParamSpec("P")

# A disk that does not take what we write: the user's to mend, and no defect.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)

# Linux allows a path of 4,095 bytes and a name of 255; a job's own files take some hundred below either folder.
_MOST_PATH_BYTES, _MOST_NAME_BYTES = 3000, 255


def results_path(text: str | Path) -> str | Path:
    """A folder of results: a path, or the text ``s3://bucket/prefix``, which a path would not keep.

    :mod:`harness.cli.locations` makes a folder of either.
    """
    if isinstance(text, Path) or is_s3(text):
        return text
    _check_path(text)
    return Path(text)


def _cache_path(text: str | Path) -> Path:
    _check_path(str(text))
    return Path(text)


def _check_path(text: str) -> None:
    """Refuse a folder below which no job's files could be named: that would fail as if the system had."""
    try:
        length = len(str(Path(text).absolute()).encode("utf-8"))
    except UnicodeEncodeError:
        raise click.BadParameter(f"{one_line(text)}: is not UTF-8; choose another folder") from None
    if length > _MOST_PATH_BYTES or any(len(os.fsencode(part)) > _MOST_NAME_BYTES for part in Path(text).parts):
        raise click.BadParameter(
            f"has {length:,} bytes; at most {_MOST_PATH_BYTES:,}, {_MOST_NAME_BYTES} a name, leave room for a job"
        )


results_option = click.option(
    "--results",
    type=results_path,
    metavar="PATH",
    default=Path("results"),
    show_default=True,
    help="Where results lie: a folder, or s3://BUCKET/PREFIX.",
)
results_argument = click.argument("results", type=results_path, default=Path("results"))
only_option = click.option(
    "--only", metavar="GLOB", help="Only cells whose system/dataset/scenario/profile (or any one of them) matches."
)
launcher_option = click.option(
    "--launcher",
    type=click.Choice(["docker", "process", "fake"]),
    default="docker",
    show_default=True,
    help="docker: containers with enforced limits. process: plain child processes, CPU affinity alone is held."
    " fake: runs nothing, invents numbers; for tests.",
)
# Of what runs a suite: elsewhere too.
run_launcher_option = click.option(
    "--launcher",
    type=click.Choice(["docker", "process", "fake", "ec2", "batch"]),
    default="docker",
    show_default=True,
    help="docker: containers with enforced limits. process: plain child processes, CPU affinity alone is held."
    " fake: runs nothing, invents numbers; for tests. ec2: containers on instances of EC2, launched and ended for it."
    " batch: the same as jobs of AWS Batch, in the queues that `harness batch up` has made.",
)
cache_option = click.option(
    "--cache",
    type=_cache_path,
    metavar="PATH",
    envvar=config.CACHE_VARIABLE,
    default=config.default_cache_folder(),
    help="Where downloads, corpora and indexes are kept.  [default: ~/.cache/ir-harness; env: HARNESS_CACHE]",
)
models_option = click.option(
    "--models",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    envvar="HARNESS_MODELS",
    help="A folder of model weights, where the hub is not reached.  [env: HARNESS_MODELS]",
)


def retry_option(default: int, what: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """``--retry-noisy N``: what is measured again, and how often unless told otherwise."""
    return click.option(
        "--retry-noisy", type=click.IntRange(0, 100), default=default, show_default=True, metavar="N", help=what
    )


def one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Show what harness raises on purpose as one line; everything else is a defect and keeps its traceback."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except HarnessError as error:
            click.echo(f"harness: {one_line(str(error))}", err=True)  # it may quote an image
            sys.exit(error.exit_code)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has had enough
            sys.exit(0)
        except OSError as error:
            if error.errno not in _DISK:
                raise
            place = error.filename or "the disk of --results or --cache"
            remedy = "make room or name another place, what was finished is kept"
            click.echo(f"harness: {place}: {error.strerror}; {remedy}", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process is ending already
            click.echo("harness: stopped; what was finished is kept, and the same command goes on from there", err=True)
            sys.exit(130)

    return wrapped


def write(path: Path, text: str) -> None:
    """Write a file that is whole or absent; what is there and no file (``/dev/stdout``, a pipe) is written into."""
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8") as stream:  # a rename would put a file in a device's place
            stream.write(text)
        return
    with filesystem.atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Left-aligned columns, the last one ragged."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    for row in (head, *rows):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        click.echo("  ".join((*padded, row[-1])))
