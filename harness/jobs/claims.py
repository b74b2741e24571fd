"""Hold the times that a job claims for its trials against the host's clock and the kernel's counters.

The driver's clock may lie, because the adapter lives in the driver's process.  The host's does not: it saw when the
queries of a trial could first be read, and when the trial ended.  What passed in between is answers, the driver's own
work between them (bounded here), or delays that the kernel counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.jobs import job_samples
from harness.jobs.job_samples import Sample
from harness.launch.base import Handed
from harness.launch.monitor.traces import Reading
from harness.records import JobSpec

# What a busy host, a late wake-up and the look for files every few milliseconds may add up to.
TOLERANCE_S, TOLERANCE_SHARE = 0.05, 0.1
# The driver's own work: checking an answer, making its line, collecting garbage.  Measured: 25 microseconds for 10
# hits, 1,100 to 2,200 for 1,000; bounded so that no slow machine and no engine's garbage comes near.
OWN_QUERY_S, OWN_HIT_S = 250e-6, 10e-6
# A page that memory had no room for is read from a disk again.
_FAULT_S = 0.01
# Where the kernel shows no counters, a busy machine may have kept a job waiting most of the time.
_UNKNOWN_SHARE = 0.7


@dataclass(frozen=True)
class Counted:
    """Kernel counters over ``wall_s`` around a trial, in seconds; ``cpu_s``: of each CPU, ``None`` where not shown."""

    wall_s: float
    cpu_s: float | None
    delays_s: float


def contradiction(
    spec: JobSpec, handed: Sequence[Handed], found: Sequence[Sample], readings: Sequence[Reading]
) -> str | None:
    """Return the first claim about a trial that cannot be true, with both numbers; ``None`` if all can.

    Args:
        handed: what the host saw of each trial.
        found: the job's samples.
        readings: the kernel's counters while the job ran.
    """
    if not spec.pause:  # the driver had its queries from the start, and no trial has marks
        return None
    trials: dict[int, list[Sample]] = {}
    for sample in found:
        if sample.trial >= 0:
            trials.setdefault(sample.trial, []).append(sample)
    seen = {each.phase: each for each in handed}
    for trial, mine in sorted(trials.items()):
        marks = seen.get(f"trial-{trial}")
        wrong = _wrong(spec, marks, mine, readings) if marks else "the host did not see it begin and end"
        if wrong:
            return f"trial {trial}: {wrong}"
    return None


def _wrong(spec: JobSpec, marks: Handed, mine: Sequence[Sample], readings: Sequence[Reading]) -> str | None:
    claimed_s, counted_s = job_samples.claimed_ns(mine) / 1e9, marks.claimed_ns / 1e9
    if job_samples.claimed_ns(mine) != marks.claimed_ns:
        return f"its samples add up to {claimed_s:.6f} s, the driver counted {counted_s:.6f} s as they came"
    span_s, least_s, most_s = marks.span_ns / 1e9, marks.least_ns / 1e9, (marks.end_ns - marks.go_ns) / 1e9
    counted = _counted(readings, marks, spec.envelope.cpus)
    tolerance_s = max(TOLERANCE_S, TOLERANCE_SHARE * least_s)
    if not least_s - tolerance_s - counted.delays_s <= span_s <= most_s + tolerance_s:
        return f"the image's clock says that it lasted {span_s:.3f} s, the host's {least_s:.3f} to {most_s:.3f} s"
    answered_s = _last_answer_s(mine) if spec.scenario == "server" else claimed_s
    if answered_s > span_s + tolerance_s:
        return f"the image claims {answered_s:.3f} s of work in the {span_s:.3f} s that it lasted"
    own_s = len(mine) * (OWN_QUERY_S + spec.k * OWN_HIT_S)
    if span_s - marks.written_ns / 1e9 - answered_s > own_s + tolerance_s + counted.delays_s:
        return f"the image claims {answered_s:.3f} of {span_s:.3f} s; checking answers explains {own_s:.3f} s at most"
    # Waiting and writing take no processor time.  An open loop leaves time in which threads behind it may work.
    cpu_s = None if spec.scenario == "server" else counted.cpu_s
    around_s = max(0.0, counted.wall_s - least_s)
    if cpu_s is not None and cpu_s - 2 * max(TOLERANCE_S, TOLERANCE_SHARE * cpu_s) > claimed_s + own_s + around_s:
        return f"the image claims {claimed_s:.3f} s and used {cpu_s:.3f} s of each of its CPUs"
    return None


def _last_answer_s(mine: Sequence[Sample]) -> float:
    """When the last answer of an open loop came, in seconds since the probe's start."""
    return max((sample.scheduled_ns or 0) + sample.latency_ns for sample in mine) / 1e9


def _counted(readings: Sequence[Reading], marks: Handed, cpus: int) -> Counted:
    """Sum the counters from the last reading before a trial to the first after it."""
    before = [reading for reading in readings if reading.t_ns <= marks.go_ns] or readings[:1]
    after = [reading for reading in readings if reading.t_ns >= marks.end_ns] or readings[-1:]
    if not before or not after:
        wall_s = (marks.end_ns - marks.go_ns) / 1e9
        return Counted(wall_s, None, _UNKNOWN_SHARE * wall_s)
    first, last = before[-1], after[0]
    wall_s, cpu_s = (last.t_ns - first.t_ns) / 1e9, _grown_s(first.cpu_ns, last.cpu_ns)
    cpu_s = None if cpu_s is None else cpu_s / cpus
    waited_s = _grown_s(first.wait_ns, last.wait_ns)
    if waited_s is None:
        waited_s = _UNKNOWN_SHARE * wall_s if cpu_s is None else max(0.0, wall_s - cpu_s)
    held_s = sum(
        _grown_s(*each) or 0.0 for each in ((first.steal_ns, last.steal_ns), (first.throttled_ns, last.throttled_ns))
    )
    faults = (last.major_faults or 0) - (first.major_faults or 0)
    # Nobody knows about delays before the first reading or after the last.
    unseen_s = (max(0, first.t_ns - marks.go_ns) + max(0, marks.end_ns - last.t_ns)) / 1e9
    return Counted(wall_s, cpu_s, waited_s + held_s + unseen_s + _FAULT_S * max(0, faults))


def _grown_s(earlier: int | None, later: int | None) -> float | None:
    return None if earlier is None or later is None else max(0, later - earlier) / 1e9
