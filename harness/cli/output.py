"""Printing and writing: formats and their options, tables, pages, pictures, columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from harness import filesystem
from harness.cli.options import Decorator, record_options
from harness.errors import UsageError
from harness.report import writers
from harness.report.document import ReportDocument

FORMATS = ("md", "csv", "json")
PAGE = "html"
PICTURES = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Destination:
    """Format of a command's result, and the file or folder that it is written to; ``None``: the terminal."""

    form: str
    output: Path | None

    @property
    def folder(self) -> Path:
        """The folder of pictures.

        Raises:
            UsageError: it is not named.
        """
        if self.output is None:
            raise UsageError(f"--format {self.form} writes several files; name a folder for them with -o")
        return self.output

    def show(self, text: str) -> None:
        """Print a text, or write it to the file; a page is not for a terminal."""
        if self.output is not None:
            write(self.output, text)
        elif self.form == PAGE and sys.stdout.isatty():
            raise UsageError("--format html: a page is no text for a terminal; name a file for it with -o page.html")
        else:
            click.echo(text, nl=False)

    def show_report(self, document: ReportDocument) -> None:
        """Print a report, or write it to the file."""
        self.show(writers.write(document, self.form))


def output_option(text: str = "Write to this file instead of the terminal.", *, required: bool = False) -> Decorator:
    """``-o``."""
    return click.option("-o", "--output", type=click.Path(path_type=Path), required=required, help=text)


def destination_options(*formats: str, text: str | None = None) -> Decorator:
    """``--format``, by default the first one, and ``-o``; the command gets them as a destination."""
    pictures = "; pictures: to this folder" if PICTURES[0] in formats else ""
    return record_options(
        "destination",
        Destination,
        click.option("--format", "form", type=click.Choice(formats), default=formats[0], help=text),
        output_option(f"Write to this file instead of the terminal{pictures}."),
    )


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
