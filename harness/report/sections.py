"""A part of a report in a paper's shape: heading, sentences, one table."""

from __future__ import annotations

from dataclasses import dataclass

from harness.report.markdown import grid


@dataclass(frozen=True)
class Section:
    """A heading, sentences, and a grid of finished cells under plain headers; ``numeric`` ones stand to the right."""

    title: str
    notes: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    numeric: tuple[bool, ...] = ()
    cells: tuple[tuple[str, ...], ...] = ()
    after: tuple[str, ...] = ()


def markdown(section: Section, level: int) -> str:
    """A section as Markdown whose columns also line up in a terminal."""
    parts = [f"{'#' * level} {section.title}", *section.notes]
    if section.headers:
        parts.append("\n".join(grid(section.headers, section.numeric, section.cells, padded=True)))
    return "\n\n".join((*parts, *section.after))
