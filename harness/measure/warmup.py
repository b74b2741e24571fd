"""When is a system warm?  Passes over the same queries, until a stretch of work is level and nothing compiles.

A just-in-time compiler works beside the queries for seconds, and pauses in between: agreement of a few short passes
says nothing (docs/measurement.md, Warm-up).  So a stretch has to hold seconds of work, and the compilers' own CPU time
counts as evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from statistics import fmean, median

# Work that has to be level.
WORK_NS = 1_500_000_000
# Where queries take microseconds, so many stand in for that work: a just-in-time compiler counts calls.
ENOUGH_QUERIES = 10_000
# The stretch is compared in so many parts; it has at least one pass for each.
PARTS = 3
# The slowest part takes at most this much more than the fastest.
STEADY = 0.10
# Parts that fall one after the other by more than this in all are on a slope, however gentle.
SLOPE = 0.02
# Compiler threads may take this share of the stretch.
COMPILING = 0.02
# A system that is not steady after so much work is measured all the same, and called unsteady.
MOST_NS = 60_000_000_000
# Looking again after each short pass would accept a chance agreement sooner or later.
_BETWEEN_LOOKS_NS = WORK_NS // 10


def warm_up(
    ask: Callable[[], int], queries: int, most: int, compiled_ns: Callable[[], int] = lambda: 0
) -> tuple[int, bool | None]:
    """Pass over the warm-up queries until they are steady.

    Args:
        ask: passes over all warm-up queries once; returns the nanoseconds that they took.  The same queries each
            time: others would be slower or faster by themselves.
        queries: how many a pass asks.
        most: queries that may be asked; one pass is made in any case.  Two passes alone are compared with each other.
        compiled_ns: CPU time of compiler threads so far, in nanoseconds.

    Returns:
        The last pass's nanoseconds, and whether the level became steady (``None``: one pass only).
    """
    passes = max(1, most // max(1, queries))
    levels: list[int] = []
    compiled = [compiled_ns()]
    total = looked = 0
    while True:
        levels.append(ask())
        compiled.append(compiled_ns())
        total += levels[-1]
        last = len(levels) >= passes or (len(levels) >= PARTS and total >= MOST_NS)
        if not last and (len(levels) < PARTS or total - looked < _BETWEEN_LOOKS_NS):
            continue
        looked = total
        level: Callable[[Sequence[int]], float] = fmean
        count = _stretch(levels)
        if count is None and last:
            # Less work than a stretch: judge what there is, without the coldest third.  One interruption is long beside
            # so short passes.
            count, level = max(min(PARTS, len(levels)), len(levels) * 2 // 3), median
        if count is None:
            continue
        stretch = levels[-count:]
        quiet = compiled[-1] - compiled[-1 - count] <= COMPILING * sum(stretch)
        enough = total >= WORK_NS or len(levels) * queries >= ENOUGH_QUERIES
        settled = enough and quiet and steady(stretch, level)
        if settled or last:
            return levels[-1], settled if len(levels) > 1 else None


def steady(stretch: Sequence[int], level: Callable[[Sequence[int]], float] = fmean) -> bool:
    """Return whether the parts of a stretch (nanoseconds of each pass, in order) agree and do not fall."""
    parts = min(PARTS, len(stretch))
    edges = [len(stretch) * part // parts for part in range(parts + 1)]
    levels = [level(stretch[low:high]) for low, high in itertools.pairwise(edges)]
    if max(levels) > (1 + STEADY) * min(levels):
        return False
    # Two passes show no slope.
    return parts < PARTS or not (levels[0] > levels[1] > levels[2] and levels[0] > (1 + SLOPE) * levels[2])


def _stretch(levels: Sequence[int]) -> int | None:
    """Return how many of the last passes hold ``WORK_NS`` of work; ``None`` where all together do not."""
    work = 0
    for count, level in enumerate(reversed(levels), 1):
        work += level
        if work >= WORK_NS and count >= PARTS:
            return count
    return None
