"""A job out of memory that the kernel does not kill: file pages can always be dropped, and are read back at once.

An OOM kill needs an allocation that nothing can be dropped for.  A job whose anonymous memory fills its limit may
instead run on, page by page from disk, thousands of times slower; which of the two it is hangs on what another
container left in the page cache.
"""

from __future__ import annotations

from harness.launch.base import Ended

# Of the limit: the kernel's own (page tables, slabs) and the last file pages take the rest.
_ANON_SHARE = 0.8
# Seen of a job that had stopped getting anywhere: 50 to 200.  One that reads an index from disk has more, but its
# memory is no anonymous memory.
_FAULTS_PER_S = 10
_STRETCH_S = 20


def at_limit(ended: Ended, memory_bytes: int) -> str | None:
    """What a job that had to be stopped did at its memory limit; ``None``: it was not there, or not for lack of it.

    Args:
        ended: how it was seen to end.
        memory_bytes: its limit.
    """
    if ended.memory.peak_cgroup_bytes is None or not ended.memory.anon:
        return None  # no limit was in force
    # The very last one may be of what is left after the kill.
    until_ns = ended.memory.anon[-1][0]
    anon_bytes = max(value for t_ns, value in ended.memory.anon if until_ns - t_ns <= _STRETCH_S * 1e9)
    known = [reading for reading in ended.counters.readings if reading.major_faults is not None]
    if anon_bytes < _ANON_SHARE * memory_bytes or not known:
        return None
    last = known[-1]
    before = [reading for reading in known if last.t_ns - reading.t_ns >= _STRETCH_S * 1e9]
    if not before:
        return None
    seconds = (last.t_ns - before[-1].t_ns) / 1e9
    faults_per_s = ((last.major_faults or 0) - (before[-1].major_faults or 0)) / seconds
    if faults_per_s < _FAULTS_PER_S:
        return None
    return (
        f"{anon_bytes >> 20} of {memory_bytes >> 20} MiB were anonymous, and the rest was read from disk over and over "
        f"({faults_per_s:,.0f} major faults a second)"
    )
