"""Printing and writing: formats and their options, tables, pages, pictures, columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import Console

from harness import filesystem
from harness.cli.options import Command, Decorator
from harness.errors import UsageError
from harness.report import writers
from harness.report.document import Escape, Section
from harness.untrusted import MAX_TEXT, one_line

FORMATS = ("md", "csv", "json")
PAGE = "html"
PICTURES = ("png", "svg", "pdf")

output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write to this file instead of the terminal."
)
picture_output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file instead of the terminal; pictures: to this folder.",
)


def format_option(*formats: str, text: str | None = None) -> Decorator:
    """``--format``; Markdown by default."""
    return click.option("--format", "form", type=click.Choice(formats), default="md", show_default=True, help=text)


def answer_options(command: Command) -> Command:
    """``--wide``, ``--columns`` and ``--sort``, which :func:`show_answer` and :class:`SummaryView` take."""
    names = "system hardware MEASURE latency p95 throughput memory gpu_memory index cost scenario suite"
    wide = click.option("--wide", is_flag=True, help="Show every column and note.")
    columns = click.option("--columns", default="", metavar="NAMES", help=f"Show these columns: {names}.")
    sort = click.option("--sort", default="", metavar="NAME", help="Sort by this column.")
    return wide(columns(sort(command)))


def show_answer(answer: Callable[[Escape, int | None], Section], output: Path | None) -> None:
    """Print an answer: in colour and no wider than the terminal there, as Markdown into a pipe or a file."""
    screen = Console()
    if output is None and screen.is_terminal:
        writers.print_answer(answer(lambda text: one_line(text, MAX_TEXT), screen.width), screen)
    else:
        show(writers.markdown_section(answer(writers.markdown_escape, None)) + "\n", output)


def pointers(results: Path, page: Path | None = None) -> tuple[str, ...]:
    """Return the line that says where everything else is."""
    more = f"all columns and notes: harness report {results} --wide"
    return (f"{f'page: {page}   ' if page else ''}{more}   how a number was made: harness explain",)


def show(text: str, output: Path | None) -> None:
    """Print a text, or write it to a file."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write(output, text)


def show_page(text: str, output: Path | None) -> None:
    """Write a page to a file, or to a stdout that is not a terminal."""
    if output is None and sys.stdout.isatty():
        raise UsageError("--format html: a page is no text for a terminal; name a file for it with -o page.html")
    show(text, output)


def write(path: Path, text: str) -> None:
    """Write a file that is complete or absent; write into a device or pipe."""
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8") as stream:  # a rename would replace the device by a file
            stream.write(text)
        return
    with filesystem.atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print left-aligned columns, the last one ragged."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    for row in (head, *rows):
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        click.echo("  ".join((*padded, row[-1])))
