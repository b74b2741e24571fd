"""Does what was counted belong to the trials?  Readings may lie too far from short ones to say anything of them."""

from __future__ import annotations

from harness.result import Result

# What was counted / the trials' own length.
COVERED = (0.5, 2.0)


def trials_s(result: Result) -> float:
    """How long the trials took, all together."""
    return sum(phase.end_ns - phase.start_ns for phase in result.phases if phase.name.startswith("trial-")) / 1e9


def covers(counted_s: float | None, result: Result) -> bool:
    """Is what was counted over some seconds about this job's trials?  Yes where either length is not known."""
    length_s = trials_s(result)
    return counted_s is None or not length_s or COVERED[0] * length_s <= counted_s <= COVERED[1] * length_s
