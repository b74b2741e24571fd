"""Table of the benchmarks, and the line that each benchmark ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """Measured value, the value it is compared with, and whether the difference is allowed."""

    what: str
    measured: str
    against: str
    figure: str
    allowed: str
    ok: bool


def verdict(name: str, over: Sequence[str]) -> int:
    """Print whether a benchmark's limits hold; return its exit code.

    Args:
        name: the benchmark's, as ``make`` calls it.
        over: the figures over their limits.
    """
    print(f"{name}: {'OVER THE LIMIT: ' + '; '.join(over) if over else 'all limits hold'}")
    return 1 if over else 0
