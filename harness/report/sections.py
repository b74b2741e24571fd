"""A part of a report in a paper's shape: heading, sentences, one table; as Markdown or as LaTeX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.report import latex, writers
from harness.report.document import Escape, Grid
from harness.report.latex import escape as tex
from harness.report.latex import finished


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and a grid of finished cells under plain headers; ``numeric`` ones stand to the right.

    ``keys`` leading columns name a row; ``items`` are a list below it all.  Every text but the headers is finished:
    escaped for the dialect that it will be written in.
    """

    title: str
    notes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    numeric: tuple[bool, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    after: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    keys: int = 1


@dataclass(frozen=True)
class Dialect:
    """How a section's texts are escaped, and how it is written under a heading of some level."""

    escape: Escape
    write: Callable[[Section, int], str]


def as_markdown(section: Section, level: int) -> str:
    """A section as Markdown whose columns also line up in a terminal."""
    parts = [*([f"{'#' * level} {section.title}"] if section.title else []), *section.notes]
    if section.headers:
        parts.append("\n".join(writers.markdown_grid(section.headers, section.numeric, section.cells, padded=True)))
    parts += section.after
    if section.items:
        parts.append("\n".join(f"- {item}" for item in section.items))
    return "\n\n".join(parts)


def as_latex(section: Section, level: int) -> str:
    """A section as LaTeX; its table stands where it is, between its sentences, and has no number of its own."""
    heading = ("section", "section", "subsection", "subsubsection")[min(level, 3)]
    parts = [*([f"\\{heading}*{{{finished(section.title)}}}"] if section.title else []), *map(finished, section.notes)]
    if section.headers:
        parts.append(latex.in_place(Grid("", section.headers, section.numeric, section.cells, section.keys)))
    parts += map(finished, section.after)
    if section.items:
        parts.append(latex.listed(section.items))
    return "\n\n".join(parts)


MARKDOWN = Dialect(writers.markdown_escape, as_markdown)
LATEX = Dialect(tex, as_latex)
