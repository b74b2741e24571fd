"""The formats of the paper's tables: sections with headings, as Markdown or as LaTeX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.report import latex, writers
from harness.report.document import Escape, Grid, Section


@dataclass(frozen=True)
class Dialect:
    """A format: the escape of its texts, and how a section is written under a heading of some level."""

    escape: Escape
    write: Callable[[Section, int], str]


MARKDOWN = Dialect(
    writers.markdown_escape, lambda section, level: writers.markdown_section(section, heading=f"{'#' * level} {{}}")
)
LATEX = Dialect(latex.escape, latex.write_in_place)


def grid_section(
    title: str,
    lead: tuple[str, ...],
    headers: tuple[str, ...],
    numeric: tuple[bool, ...],
    cells: tuple[tuple[str, ...], ...],
    *,
    after: tuple[str, ...] = (),
    keys: int = 1,
) -> Section:
    """Return a section with one grid and no caption."""
    return Section(title, lead, (Grid("", headers, numeric, cells, keys),), after)
