"""Printing and writing: formats and their options, tables, pages, pictures, columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from harness import filesystem
from harness.cli.options import Decorator
from harness.errors import UsageError

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
