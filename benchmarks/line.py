"""One line of the table that the benchmarks fill."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """What was measured, against what, and whether the difference is allowed."""

    what: str
    measured: str
    against: str
    figure: str
    allowed: str
    ok: bool
