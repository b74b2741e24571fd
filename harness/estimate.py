"""A number with its interval, the fewest values that an interval needs, and the best of some numbers.

What computes intervals is in :mod:`harness.stats`, which needs numpy.  A command that only shows stored numbers starts
without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

Item = TypeVar("Item")

CONFIDENCE = 0.95
# A normal variable is within this many standard deviations of its mean with that confidence.
Z = 1.959963984540054

# Fewest queries for an interval of a mean: fewer values cannot show the spread of a skewed tail.  Latencies have the
# longest tails; measures end at 0 and 1.
INTERVAL_MIN_QUERIES = 11
LATENCY_MIN_QUERIES = 30
# Fewest processes for an interval over them: of two, Student's t is 12.7 times the standard error.
MIN_PROCESSES = 3

# Fewest queries for each percentile (measuring rule 16).  LoadGen's rule: the least n at which seeing at most one
# slower query proves "at most 1 - p are slower" at confidence 0.99: P(Binomial(n, 1 - p) <= 1) <= 0.01.
MIN_QUERIES = {"p50": 11, "p90": 64, "p95": 130, "p99": 662, "p99.9": 6636}


class Varies(Enum):
    """Cause of another value of a figure when the same system is measured again."""

    CLOCK = "a process, and other work on the machine"
    CPU = "a process, and another CPU"
    PROCESS = "a process"
    QUERY = "other queries"
    BUILD = "a build of the index, and other work on the machine"
    NOTHING = "nothing"

    @property
    def of_machine(self) -> bool:
        """Return whether only what one kind of processor measured can be compared."""
        return self in (Varies.CLOCK, Varies.CPU, Varies.BUILD)

    @property
    def of_process(self) -> bool:
        """Return whether each process has a value of its own."""
        return self in (Varies.CLOCK, Varies.CPU, Varies.PROCESS)


@dataclass(frozen=True)
class Estimate:
    """A number and what bounds it.  ``value`` is ``None`` when it is missing, and ``reason`` then says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def map(self, function: Callable[[float], float]) -> Estimate:
        """Return the estimate with a function of its numbers."""
        numbers = (self.value, self.low, self.high)
        value, low, high = (None if number is None else function(number) for number in numbers)
        return Estimate(value, low, high, self.reason)

    def map_decreasing(self, function: Callable[[float], float]) -> Estimate:
        """Return the estimate with a decreasing function of its numbers, which swaps the ends."""
        turned = self.map(function)
        return Estimate(turned.value, turned.high, turned.low, self.reason)


def too_few_processes(count: int) -> str:
    """Return why this few processes give no interval."""
    return f"an interval needs {MIN_PROCESSES} whole processes, there {'is' if count == 1 else 'are'} {count}"


def interval_of_too_few(least: int, queries: int) -> str:
    """Return why this few queries give no interval."""
    return f"an interval needs {least} queries, there are {queries}"


def percentile_of_too_few(name: str, queries: int) -> str:
    """Return why this few queries give no percentile; ``name``: a key of ``MIN_QUERIES``."""
    return f"{name} needs {MIN_QUERIES[name]:,} queries, timed {queries:,}"


def best_of(items: Iterable[Item], value: Callable[[Item], float | None], *, least: bool = False) -> list[Item]:
    """Return all items with the largest value, or the ``least``: several where they tie, none where no value is known.

    Sums of the same numbers in another order differ in their last digits: values that differ by less are equal.
    """
    known = [(number, item) for item in items if (number := value(item)) is not None]
    best = (min if least else max)((number for number, _ in known), default=0.0)
    return [item for number, item in known if math.isclose(number, best, rel_tol=1e-9, abs_tol=1e-12)]
