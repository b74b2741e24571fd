"""When is a system warm?  Passes over the same queries, until their level is stable (measuring rule 8)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

# The last passes that must agree, and within what: the slowest of them takes at most so much more than the fastest.
PASSES = 3
STEADY = 0.10
# Passes that fall one after the other by more than this in all are still on a slope, however gentle: a compiler that
# takes 4 % off each pass would else look steady long before it is done.  Noise alone falls so one time in six, and
# then costs one pass more.
SLOPE = 0.02


def warm_up(ask: Callable[[], int], passes: int) -> tuple[int, bool | None]:
    """Pass over the warm-up queries until the level is steady, at most ``passes`` times (at least once).

    Args:
        ask: passes over all warm-up queries once and says the nanoseconds that they took.  The same queries each
            time: others would be slower or faster by themselves.
        passes: most passes.  Where only two are allowed, those two are compared.

    Returns:
        The last pass's nanoseconds, and whether the level became steady (``None``: one pass only).
    """
    levels = [ask()]
    needed = min(PASSES, passes)
    while len(levels) < passes and not (len(levels) >= needed and steady(levels[-needed:])):
        levels.append(ask())
    return levels[-1], steady(levels[-needed:]) if len(levels) > 1 else None


def steady(levels: Sequence[int]) -> bool:
    """Do these passes (nanoseconds each, in order) agree, and are they not on their way down?"""
    if max(levels) > (1 + STEADY) * min(levels):
        return False
    if len(levels) < PASSES:
        return True  # two passes show no slope
    falling = all(later < earlier for earlier, later in itertools.pairwise(levels))
    return not (falling and levels[0] > (1 + SLOPE) * levels[-1])
