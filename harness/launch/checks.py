"""Checks of a machine, a launcher or a system: one line each, with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(str, Enum):
    """Severity of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One check of a host or of a system; ``remedy`` is empty where it is ``ok``."""

    level: Level
    what: str
    fact: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """The check, its finding and its remedy in one line."""
        return self.what + (f": {self.fact}" if self.fact else "") + (f"; {self.remedy}" if self.remedy else "")


def warn_if(wrong: bool, what: str, fact: str, remedy: str) -> Check:
    """Return a check that is a warning where something is wrong, else ok without the remedy."""
    return Check(Level.WARN, what, fact, remedy) if wrong else Check(Level.OK, what, fact)
