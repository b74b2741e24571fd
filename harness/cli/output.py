"""Printing and writing: formats and their options, tables, pages, pictures, columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.text import Text

from harness import extras, filesystem
from harness.cli.lines import say
from harness.cli.options import Decorator, output_path, record_options
from harness.errors import HarnessError, UsageError
from harness.progress import Screen
from harness.report import writers
from harness.report.document import Escape, Grid, ReportDocument, Section
from harness.untrusted import one_line

FORMATS = ("md", "csv", "json")
PAGE = "html"
PICTURES = ("png", "svg", "pdf")
# Builds an answer with a format's escape, for a terminal's width in columns (``None``: any).
Answer = Callable[[Escape, int | None], Iterable[Section]]


@dataclass(frozen=True)
class Destination:
    """The format of a command's result, and its file or folder; ``None``: the terminal."""

    form: str
    output: Path | None
    wide: bool = False

    def __post_init__(self) -> None:
        if self.pictures:  # before anything costs time
            extras.require("matplotlib")

    @property
    def folder(self) -> Path:
        """The folder of several files.

        Raises:
            UsageError: it is not named.
        """
        if self.output is None:
            raise UsageError(f"--format {self.form} writes several files; name a folder for them with -o")
        return self.output

    @property
    def pictures(self) -> Path | None:
        """The folder of pictures; ``None`` for another format."""
        return self.folder if self.form in PICTURES else None

    @property
    def on_terminal(self) -> bool:
        """Return whether the output goes to a terminal."""
        return self.output is None and Screen().is_terminal

    def show(self, text: str) -> None:
        """Print a text, or write it to the file; refuse to print a page on a terminal."""
        if self.output is not None:
            write(self.output, text)
        elif self.form == PAGE and sys.stdout.isatty():
            raise UsageError("--format html writes a page, not text for a terminal; name a file with -o page.html")
        else:
            click.echo(text, nl=False)

    def show_answer(self, answer: Answer) -> None:
        """Print an answer in colour within the terminal's width, or write it as Markdown into a pipe or file."""
        screen = Screen()
        if self.on_terminal:
            for number, section in enumerate(answer(writers.plain_escape, screen.width)):
                if number:
                    screen.print()
                writers.print_answer(section, screen)
        else:
            self.show("\n\n".join(map(writers.markdown_section, answer(writers.markdown_escape, None))) + "\n")

    def show_report(self, document: ReportDocument, answer: Answer | None = None) -> None:
        """Print a report, or write it to the file; a terminal shows the answer, and everything with ``--wide``.

        Args:
            document: the report.
            answer: its answer, where that depends on the terminal's width.
        """
        shown = document.sections if self.wide else document.answer
        if answer is not None and self.form == "md" and not self.wide:
            self.show_answer(answer)
        elif shown is None or self.form != "md" or (self.wide and not document.plain):
            self.show(writers.write(document, self.form))
        else:
            self.show_answer(lambda escape, _: shown(escape))


def output_option(text: str = "Write to this file instead of the terminal.", *, required: bool = False) -> Decorator:
    """Make ``-o``."""
    return click.option("-o", "--output", type=output_path, metavar="PATH", required=required, help=text)


def destination_options(*formats: str, text: str | None = None, wide: bool = False) -> Decorator:
    """Make ``--format`` (default: the first), ``-o`` and ``--wide``; the command gets them as a destination."""
    pictures = "; pictures: to this folder" if PICTURES[0] in formats else ""
    options: list[Decorator] = [
        click.option("--format", "form", type=click.Choice(formats), default=formats[0], show_default=True, help=text),
        output_option(f"Write to this file instead of the terminal{pictures}."),
    ]
    if wide:
        options.append(click.option("--wide", is_flag=True, help="Show every column and note; csv and json always do."))
    return record_options("destination", Destination, *options)


def show_paragraphs(paragraphs: Iterable[tuple[str, str]]) -> None:
    """Print titled paragraphs with facts from other people, each on its own line."""
    console = Screen()
    for title, text in paragraphs:
        writers.print_paragraph(Text.assemble((one_line(title), "bold"), "  ", one_line(text)), console)


def write(path: Path, text: str) -> None:
    """Write a file completely or not at all; write into a device or pipe directly."""
    if filesystem.is_stream(path):
        with path.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    with filesystem.atomic_write(path) as partial:
        partial.write_text(text, encoding="utf-8")


def show_errors(errors: Iterable[HarnessError]) -> None:
    """Print each error once on stderr, one line each."""
    for text in dict.fromkeys(map(str, errors)):
        say(f"harness: {one_line(text)}", err=True)


def columns(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print left-aligned columns."""
    grid = Grid("", head, (False,) * len(head), tuple(rows))
    writers.print_answer(Section(grids=(grid,)), Screen())
