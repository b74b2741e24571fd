"""Options that commands share, options as records, and errors as one line."""

from __future__ import annotations

import errno
import importlib
import inspect
import math
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from harness import config, filesystem
from harness.aws import is_s3
from harness.cli.lines import say
from harness.errors import HarnessError, UsageError
from harness.pricing.instances import ARCHITECTURE_CHOICES, GENERATION_CHOICES
from harness.pricing.prices import PriceSelection
from harness.untrusted import one_line, split_list

Command = Callable[..., None]
Decorator = Callable[[Command], Command]
PATH = click.Path(path_type=Path)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


class _SuiteFile(click.Path):
    """A suite's file, or the name of a suite that ships with harness."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path of the file."""
        return config.suite_by_name(Path(os.fsdecode(super().convert(value, param, ctx))))


SUITE_FILE = _SuiteFile(path_type=Path)

# Disk errors, which a user can mend; other errors are defects.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DISK = (*_FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
# Linux allows paths of 4,095 bytes and names of 255; a job's own files need some hundred bytes below either folder.
_MOST_PATH_BYTES, _MOST_NAME_BYTES = 3000, 255


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Show errors that harness raises as one line; other errors are defects and keep their traceback."""
    try:
        yield
    except HarnessError as error:
        say(f"harness: {one_line(str(error))}", err=True)  # it may quote an image
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
        sys.exit(0)
    except OSError as error:
        if error.errno not in _DISK:
            raise
        place = error.filename or "the disk of the output, --results or --cache"
        remedy = f"{'make room' if error.errno in _FULL else 'name another place'}, what was finished is kept"
        say(f"harness: {place}: {error.strerror}; {remedy}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # this process is ending already
        say("harness: stopped; what was finished is kept, and the same command goes on from there", err=True)
        sys.exit(130)


def record_options(name: str, record: Callable[..., Any], *options: Decorator) -> Decorator:
    """Add options, and pass them to the command as one record (or as a function's return value)."""
    fields = set(inspect.signature(record).parameters)

    def decorate(command: Command) -> Command:
        @wraps(command)
        def wrapped(**given: Any) -> None:
            values = {key: given.pop(key) for key in list(given) if key in fields}
            command(**given, **{name: record(**values)})

        decorated: Command = wrapped
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def given_parameters() -> dict[str, click.Parameter]:
    """Return the parameters given on the running command's line, by name."""
    context = click.get_current_context()
    known = {str(parameter.name): parameter for parameter in context.command.params}
    return {
        name: each for name, each in known.items() if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def check_needs(**needs: str) -> None:
    """Refuse an option that is given without the option that it needs; both by the names of their parameters."""
    names = {parameter.name: parameter.opts[0] for parameter in click.get_current_context().command.params}
    given = given_parameters()
    for name, other in needs.items():
        if name in given and other not in given:
            raise UsageError(f"{names[name]} needs {names[other]}; give both, or leave {names[name]} out")


def given_options(*names: str) -> dict[str, Any]:
    """Return the options of these parameters that are given, by their names, for a command that repeats them."""
    values, given = click.get_current_context().params, given_parameters()
    return {given[name].opts[0].lstrip("-"): values[name] for name in names if name in given}


def parsed_by(parse: Callable[[Any], Any], unset: Any = None) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback of an option that parses its value; an option that is missing is ``unset``."""
    return lambda _context, _parameter, value: unset if value is None else parse(value)


def parsed_late(module: str, function: str) -> Callable[[Any], Any]:
    """Return a parser that is imported when it is called."""

    def parse(text: str) -> Any:
        return getattr(importlib.import_module(module), function)(text)

    return parse


# A URL, also in NAME=URL, and a host with a port; s3:// is a place that harness reads.
_URL = re.compile(r"(?:.*=)?(?:(?!s3:)[a-z][a-z0-9+.-]*://|[\w.-]+:[0-9]+(?:/|$))", re.IGNORECASE)


def _refuse_services(values: Any) -> None:
    """Refuse a service's address in place of a path, because pathlib would drop a slash and find no file."""
    for value in values if isinstance(values, list | tuple) else (values,):
        if isinstance(value, str) and _URL.match(value) and not os.path.lexists(value):
            raise UsageError(
                f"{one_line(value)} is the address of a service, and harness reads files: name a path, or"
                " s3://BUCKET/PREFIX for results; `harness attach` measures a service that runs already"
                f" ({config.page('docs/guides/services.md')})"
            )


def check_words(command: click.Command, args: Sequence[str], parent: click.Context) -> None:
    """Refuse repeated options, of which click takes only the last, and URLs in place of paths.

    Args:
        command: the command that is called.
        args: its words.
        parent: the call of `harness`, whose settings, such as ``-h``, hold for the command too.

    Raises:
        UsageError: an option that takes one value comes twice, or a path is the address of a service.
    """
    # click refuses other words afterwards.
    parser = command.make_parser(click.Context(command, parent=parent, resilient_parsing=True))
    given, _, order = parser.parse_args(args=list(args))
    for parameter in order:
        if parameter.name == "url":  # the address that `harness attach` is for
            continue
        if isinstance(parameter, click.Argument) or parameter.type is not click.STRING:  # text may name a page
            _refuse_services(given.get(str(parameter.name)))
    for parameter, times in Counter(order).items():
        single = isinstance(parameter, click.Option) and not (parameter.multiple or parameter.is_flag)
        if single and times > 1:
            listed = "; its values are a list with commas" if (parameter.metavar or "").endswith(",...") else ""
            raise UsageError(f"{parameter.opts[-1]} is given {times} times; give it once{listed}")


class FiniteRange(click.FloatRange):
    """Numbers in a range without nan, which click accepts in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a number.

        Raises:
            UsageError: it is nan or infinite.
        """
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            raise UsageError(f"{param.opts[0] if param else 'an option'} {value}: is not a finite number; write one")
        return number


def date_option(name: str, text: str) -> Decorator:
    """Make an option for a date, written YYYY-MM-DD."""

    kind = click.DateTime(["%Y-%m-%d"])
    return click.option(name, type=kind, metavar="YYYY-MM-DD", callback=parsed_by(lambda day: day.date()), help=text)


def _price_options(
    architectures: Sequence[str], architecture_help: str, generation_help: str, *more: Decorator
) -> Decorator:
    """Add the options of a price selection; the first architecture is the default."""
    return record_options(
        "selection",
        PriceSelection,
        date_option("--as-of", "Prices of this date, or the last before it.  [default: the newest]"),
        click.option("--region", help="Prices of this region.  [default: the one in instance_profiles/defaults.toml]"),
        click.option("--term", metavar="on-demand|reserved-1y|reserved-3y|spot", help="[default: on-demand]"),
        click.option(
            "--architecture", type=click.Choice(architectures), default=architectures[0], help=architecture_help
        ),
        click.option(
            "--generation", type=click.Choice(GENERATION_CHOICES), default=GENERATION_CHOICES[0], help=generation_help
        ),
        *more,
    )


_RENTED_OPTIONS = (
    ARCHITECTURE_CHOICES,
    "Price rows on types of this architecture, if one provides the profile.",
    "Price rows on types of this generation, if one provides the profile.",
    date_option(
        "--token-prices",
        "Prices of language models' tokens of this date, or the last before it.  [default: the newest]",
    ),
)
rental_options = _price_options(*_RENTED_OPTIONS)
_PRICED_OPTIONS = (
    *_RENTED_OPTIONS,
    click.option(
        "--cheapest-machine",
        is_flag=True,
        help="Price measured rows on the cheapest type that provides the profile, not on the type that measured them.",
    ),
)
price_options = _price_options(*_PRICED_OPTIONS)
carbon_options = _price_options(
    *_PRICED_OPTIONS,
    click.option(
        "--grid",
        metavar="REGION|GRAMS",
        help="CO2e of a kWh: of a region such as eu-west-1, or grams.  [default: of the region of the prices]",
    ),
    date_option("--carbon-factors", "Watts, PUE and grids of this date, or the last before it.  [default: the newest]"),
)
listing_options = _price_options(
    [name for name in ARCHITECTURE_CHOICES if name != "measured"],
    "List types of this architecture only.",
    "List types of this generation only.",
)


def platform_option(text: str) -> Decorator:
    """Make ``--platform``, which accepts every name of a platform; the command gets Docker's name."""
    parse = parsed_by(parsed_late("harness.launch.images.platforms", "parse"))
    return click.option("--platform", metavar="linux/amd64|linux/arm64", callback=parse, help=text)


def retry_option(default: int, text: str) -> Decorator:
    """Make ``--retry-noisy N``, the largest number of repeats."""
    return click.option("--retry-noisy", type=click.IntRange(0, 100), default=default, metavar="N", help=text)


def parse_measures(text: str) -> tuple[str, ...]:
    """Split the names of ``--measures``.

    Raises:
        UsageError: it is empty.
    """
    names = split_list(text)
    if not names:
        raise UsageError("--measures is empty; name measures, e.g. 'RR@10 nDCG@10', or leave it out")
    return names


def results_path(text: str | Path) -> str | Path:
    """Return a results folder as a path; keep ``s3://bucket/prefix`` as text, because a path drops a slash.

    :mod:`harness.cli.locations` turns both into a folder.
    """
    if isinstance(text, Path) or is_s3(text):
        return text
    _check_path(text)
    return Path(text)


def output_path(text: str | Path) -> Path:
    """Return the path to write to: a symbolic link's target, so that the link stays.

    Raises:
        BadParameter: it is empty, or a link that leads to itself.
    """
    path = Path(text)
    if not str(text):
        raise click.BadParameter("is empty; name a file or folder")
    if not path.is_symlink() or filesystem.is_stream(path):
        return path
    try:
        return path.resolve()
    except RuntimeError:
        raise click.BadParameter(f"{one_line(str(text))}: is a link that leads to itself; name a file") from None


def _cache_path(text: str | Path) -> Path:
    if isinstance(text, Path):  # this is the default; a command that only reads needs no home
        return text
    _check_path(text)
    if config.absolute_folder(text).is_file():
        raise click.BadParameter(f"{one_line(text)}: is a file; name a folder")
    return Path(text)


def _check_path(text: str) -> None:
    """Refuse a folder whose path is too long for the names of a job's files."""
    try:
        length = len(str(Path(text).absolute()).encode("utf-8"))
        Path(text).resolve()
    except UnicodeEncodeError:
        raise click.BadParameter(f"{one_line(text)}: is not UTF-8; choose another folder") from None
    except RuntimeError:
        raise click.BadParameter(f"{one_line(text)}: is a link that leads to itself; choose another folder") from None
    if length > _MOST_PATH_BYTES or any(len(os.fsencode(part)) > _MOST_NAME_BYTES for part in Path(text).parts):
        raise click.BadParameter(
            f"has {length:,} bytes; at most {_MOST_PATH_BYTES:,}, {_MOST_NAME_BYTES} a name, leave room for a job"
        )


results_option = click.option(
    "--results",
    type=results_path,
    metavar="PATH",
    default=Path("results"),
    help="Results: a folder, or s3://BUCKET/PREFIX.",
)
only_option = click.option(
    "--only", metavar="GLOB,...", help="Cells whose system/dataset/scenario/profile (or a part) matches."
)
cache_option = click.option(
    "--cache",
    type=_cache_path,
    metavar="PATH",
    envvar=config.CACHE_VARIABLE,
    default=config.default_cache_folder(),
    show_default=False,
    help="Folder for downloads, corpora and indexes.  [default: ~/.cache/ir-harness; env: HARNESS_CACHE]",
)
models_option = click.option(
    "--models",
    type=FOLDER,
    envvar="HARNESS_MODELS",
    help="Folder of model weights, instead of the model hub.  [env: HARNESS_MODELS]",
)


def agree(yes: bool, question: str) -> None:
    """Ask whether to go on.

    Raises:
        UsageError: the answer is no, or the input is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("the input is not a terminal, so harness cannot ask; look at --dry-run first, then pass --yes")
    if not click.confirm(question, err=True):
        raise UsageError("nothing was launched")
