"""Results in a folder, under the name of published results, or in S3 (read and written through a mirror)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from harness import config
from harness.aws import is_s3
from harness.cli.options import Command, Decorator, results_path
from harness.errors import HarnessError, UsageError
from harness.progress import bar, filtering

if TYPE_CHECKING:
    from harness.results.store import ResultPublisher

# Names of harness.aws.results.mirror.FileSelection, which is imported only for results in S3.
Files = Literal["RECORDS", "FIGURES", "ALL"]
# A bar is shown from this number of jobs on.
_MANY = 50


@dataclass(frozen=True)
class ResultsLocation:
    """A results folder to write to, and its publisher, which is ``None`` on a local disk."""

    folder: Path
    cache: Path
    publisher: ResultPublisher | None = None

    def publish(self, *paths: Path) -> None:
        """Publish files next to the jobs."""
        if self.publisher is not None:
            for path in paths:
                self.publisher.write(path.absolute(), path.read_bytes())


def mirrored(*names: str, files: Files = "FIGURES", thorough: bool = False) -> Decorator:
    """Replace the values of these parameters by folders if they are in S3; the command has ``--cache``.

    ``files``: the files of a job that the command reads.  ``thorough``: also compare the content of mirrored files.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(**given: Any) -> None:
            with named_as_given(given["cache"]):
                for name in names:
                    if given[name] is not None:
                        given[name] = readable(given[name], given["cache"], files, thorough=thorough)
                command(**given)

        return wrapped

    return decorate


def results_argument(*, files: Files = "FIGURES", thorough: bool = False) -> Decorator:
    """Make the argument ``RESULTS``, which the command gets as a folder; arguments as of :func:`mirrored`."""
    argument = click.argument("results", type=results_path, default=Path("results"))
    return lambda command: mirrored("results", files=files, thorough=thorough)(argument(command))


def readable(results: Path | str, cache: Path, files: Files = "FIGURES", *, thorough: bool = False) -> Path:
    """Return a folder of results to read: shipped results by name, and results in S3 after mirroring."""
    if not isinstance(results, str):
        return config.results_by_name(results)
    from harness.aws.results import open_to_read  # slow to import
    from harness.aws.results.mirror import FileSelection

    with bar(results, "fetching", _MANY) as step:
        return open_to_read(results, config.absolute_folder(cache), FileSelection[files], step, thorough=thorough)


def of_suite(results: Path | str, suite: str, cache: Path, files: Files = "FIGURES") -> Path:
    """Return a folder of results with only one suite mirrored."""
    if not isinstance(results, str):
        return results
    return readable(f"{results.rstrip('/')}/{suite}", cache, files).parent


@contextmanager
def writable(results: Path | str, cache: Path) -> Iterator[ResultsLocation]:
    """Open a folder of results to write to; errors show the user's name for it."""
    if not isinstance(results, str):
        yield ResultsLocation(results, config.absolute_folder(cache))
        return
    from harness.aws.results import open_to_write  # slow to import

    with named_as_given(cache):
        folder, publisher = open_to_write(results, config.absolute_folder(cache))
        yield ResultsLocation(folder, config.absolute_folder(cache), publisher)


def source(text: str, cache: Path) -> str:
    """Return ``[NAME=]RESULTS`` with the folder of results in S3."""
    name, mark, rest = text.partition("=")
    if is_s3(text):
        return str(readable(text, cache, "ALL"))
    return f"{name}={readable(rest, cache, 'ALL')}" if mark and is_s3(rest) else text


@contextmanager
def named_as_given(cache: Path) -> Iterator[None]:
    """Show the URI of results in S3 in errors and messages, not the mirror's path."""

    with filtering(lambda text: as_given(text, cache)):
        try:
            yield
        except HarnessError as error:
            error.args = (as_given(str(error), cache),)
            raise


def as_given(text: str, cache: Path) -> str:
    """Replace paths of the mirror by their URIs in S3, and paths of shipped results by their names."""
    mirror = if_any(cache)
    named = text if mirror is None else text.replace(f"{mirror}/s3/", "s3://")
    return named.replace(f"{config.published_folder()}/", "")


def if_any(cache: Path) -> Path | None:
    """Return the cache's absolute path; ``None`` for a user without a home, because reading needs no cache."""
    try:
        return config.absolute_folder(cache)
    except UsageError:
        return None
