"""What a column of a table for programs is: its name, what it holds, in which unit, and what that means.

Each table's columns are listed once, where it is made; every writer, and the page that documents them, read that list.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(str, Enum):
    """What a column holds; any cell of it may be missing."""

    TEXT = "text"
    NUMBER = "number"
    COUNT = "whole number"
    FLAG = "true or false"
    TIME = "time"
    DATE = "date"


@dataclass(frozen=True)
class Described:
    """A column.  ``unit`` is empty where there is none; ``meaning`` is one line."""

    name: str
    kind: Kind
    unit: str
    meaning: str
