"""What may be said against a number: one reason, what it does to the result, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from harness.result import Cell
from harness.table import Validity


@dataclass(frozen=True)
class Finding:
    """One reason: the fact, its figure and the next command (measuring rule 22).

    ``validity`` is what it does to the result; ``clean`` makes it a remark.  ``transient`` says that it may pass when
    the cell is measured again as it is.
    """

    validity: Validity
    text: str
    transient: bool = False


def noisy(text: str, *, transient: bool = False) -> Finding:
    """A reason to doubt the number."""
    return Finding(Validity.NOISY, text, transient)


def remark(text: str) -> Finding:
    """What a reader should know, and no reason to doubt."""
    return Finding(Validity.CLEAN, text)


def again(cell: Cell, option: str = "--fresh") -> str:
    """What measures a cell again, in words: a result knows its suite's name, not where the file lies.

    Args:
        cell: what to measure.
        option: of ``harness run``; empty to go on where a run stopped.
    """
    options = f"{option} --only" if option else "--only"
    return f"run its suite again with {options} '{cell.system}/{cell.dataset}/{cell.scenario}/{cell.profile}'"
