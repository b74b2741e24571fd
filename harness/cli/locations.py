"""Results that are in S3, as the commands want them: folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from harness.aws.clients import is_s3
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.aws.results.mirror import Watch
    from harness.results.store import Shelf

# As harness.aws.results.mirror.Wants, which is imported when something is in S3.
Wanted = Literal["RECORDS", "FIGURES", "ALL"]
# Fewer are there before a bar is.
_MANY = 50


@dataclass(frozen=True)
class Opened:
    """A results folder to write into, and what publishes it; ``shelf`` is ``None`` where it is on this disk."""

    folder: Path
    cache: Path
    shelf: Shelf | None = None

    def publish(self, *paths: Path) -> None:
        """Publish files that were made beside the jobs."""
        if self.shelf is not None:
            for path in paths:
                self.shelf.write(path.absolute(), path.read_bytes())

    def shown(self, path: Path) -> str:
        """A path as people named it."""
        return as_given(str(path), self.cache)


def mirrored(
    *names: str, wants: Wanted = "FIGURES", thorough: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The parameters of these names become folders where they are in S3; the command has ``--cache``.

    Args:
        names: of parameters that :func:`harness.cli.options.results_path` reads.
        wants: which files of each job the command reads.
        thorough: compare the content of the mirror's files too.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def wrapped(**given: Any) -> None:
            with named_as_given(given["cache"]):
                for name in names:
                    given[name] = readable(given[name], given["cache"], wants, thorough=thorough)
                command(**given)

        return wrapped

    return decorate


def readable(
    results: Path | str | None, cache: Path, wants: Wanted = "FIGURES", *, thorough: bool = False
) -> Path | None:
    """The folder of results to read."""
    if not isinstance(results, str):
        return results
    from harness.aws.results import open_to_read
    from harness.aws.results.mirror import Wants

    with watching(results) as watch:
        return open_to_read(results, _absolute(cache), Wants[wants], watch, thorough=thorough)


def of_suite(results: Path | str, suite: str, cache: Path, wants: Wanted = "FIGURES") -> Path:
    """The folder of results, of which a suite alone is looked at."""
    if not isinstance(results, str):
        return results
    found = readable(f"{results.rstrip('/')}/{suite}", cache, wants)
    assert found is not None
    return found.parent


@contextmanager
def writable(results: Path | str, cache: Path) -> Iterator[Opened]:
    """The folder of results to write into; errors name it as it was given."""
    if not isinstance(results, str):
        yield Opened(results, _absolute(cache))
        return
    from harness.aws.results import open_to_write
    from harness.aws.results.mirror import Watch

    with named_as_given(cache):
        folder, shelf = open_to_write(results, _absolute(cache), Watch(_say))
        yield Opened(folder, _absolute(cache), shelf)


def source(text: str, cache: Path) -> str:
    """``[NAME=]RESULTS`` with the folder of what is in S3."""
    name, mark, rest = text.partition("=")
    if is_s3(text):
        return str(readable(text, cache, "ALL"))
    return f"{name}={readable(rest, cache, 'ALL')}" if mark and is_s3(rest) else text


@contextmanager
def named_as_given(cache: Path) -> Iterator[None]:
    """Errors that name a place in the mirror name the one in S3."""
    try:
        yield
    except HarnessError as error:
        error.args = (as_given(str(error), cache),)
        raise


def as_given(text: str, cache: Path) -> str:
    """A text in which places in the mirror are those in S3: the one has the names of the other."""
    return text.replace(f"{_absolute(cache)}/s3/", "s3://")


@contextmanager
def watching(title: str) -> Iterator[Watch]:
    """A bar on a terminal where many jobs are fetched."""
    from rich.console import Console

    from harness.aws.results.mirror import Watch
    from harness.progress import Progress, Screen, Watcher

    console = Console(stderr=True)
    bars: list[Watcher] = []
    with ExitStack() as stack:

        def show(done: int, total: int) -> None:
            if total < _MANY or not console.is_terminal:
                return
            if not bars:
                bars.append(stack.enter_context(Screen(console).task(title)))
            bars[0](Progress("fetching", done, total))

        yield Watch(_say, show)


def _say(text: str) -> None:
    from harness.untrusted import one_line

    click.echo(one_line(text), err=True)


def _absolute(cache: Path) -> Path:
    return cache.expanduser().absolute()
