"""What the commands share: options, errors as one line, columns, files that are written whole."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import click

from harness import cache_folder, interrupts, whole_file
from harness.aws.client import is_s3
from harness.errors import HarnessError
from harness.report.text import printable

P = ParamSpec("P")

# A disk that does not take what we write: the user's to mend, and no defect.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)

# Linux allows a path of 4,095 bytes and a name of 255; a job's own files take some hundred below either folder.
_MOST_PATH_BYTES, _MOST_NAME_BYTES = 3000, 255


def results_path(text: str | Path) -> str | Path:
    """A folder of results: a path, or the text ``s3://bucket/prefix``, which a path would not keep.

    :mod:`harness.cli.places` makes a folder of either.
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
        raise click.BadParameter(f"{printable(text)}: is not UTF-8; choose another folder") from None
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
    envvar=cache_folder.VARIABLE,
    default=cache_folder.usual(),
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
            click.echo(f"harness: {printable(str(error))}", err=True)  # it may quote an image
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
            interrupts.ignore_ctrl_c()
            click.echo("harness: stopped; what was finished is kept, and the same command goes on from there", err=True)
            sys.exit(130)

    return wrapped


def write(path: Path, text: str) -> None:
    """Write a file that is whole or absent; what is there and no file (``/dev/stdout``, a pipe) is written into."""
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8") as stream:  # a rename would put a file in a device's place
            stream.write(text)
        return
    with whole_file.writing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Left-aligned columns, the last one ragged."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    for row in (head, *rows):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        click.echo("  ".join((*padded, row[-1])))
