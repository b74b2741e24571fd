"""One subject under limits: the unconstrained system, and single jobs held against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from harness import measure_names, offers
from harness.attempts import started
from harness.errors import UsageError
from harness.launch import host
from harness.records import Envelope
from harness.stored_jobs import StoredJob
from harness.viable.asked import MEAN, Criteria, check_proves
from harness.viable.judge import Judgement, judge
from harness.viable.probing import MIB, Probing, envelope
from harness.viable.reference import Reference, enough, reference
from harness.viable.search import Finding
from harness.viable.seen import Seen, look

# The longest time from the end of a job to the start of the one that shows what the machine was like then.
RIGHT_AFTER_S = 60.0


@dataclass(frozen=True)
class Question:
    """What must hold under a limit, and on how many GPUs; ``step`` (bytes) is the grid of limits."""

    criteria: Criteria = field(default_factory=Criteria)
    gpus: int = 0
    step: int = 16 * MIB


class Viability:
    """Asks a subject under limits.

    Args:
        probing: runs it.
        question: what must hold.

    Raises:
        UsageError: a measure is unknown, or the sample too small for a percentile.
    """

    def __init__(self, probing: Probing, question: Question) -> None:
        self.probing = probing
        self.question = question
        check_proves(question.criteria, len(probing.subject.queries.sample))
        self._measures = measure_names.parse([each.measure for each in question.criteria.least])
        self._known: dict[int, Reference] = {}
        self._looked: dict[tuple[Path, bool], Seen] = {}

    def unconstrained(self, cpus: int) -> Reference:
        """The system with what this host has left beside its own need.

        Raises:
            UsageError: this host has not so many CPUs or GPUs.
            JobError: it does not run.
        """
        if cpus in self._known:
            return self._known[cpus]
        whole = self.everything(cpus)
        attempts: list[Seen] = []
        while not enough(attempts):
            job, now = self.probing.attempt(whole, len(attempts))
            seen = self._look(job)
            attempts.append(seen)
            found = reference(attempts)  # raises where one did not end well
            more = "" if seen.disturbed is None else f"; {seen.disturbed}"
            peak = (seen.result.memory.peak_anon_bytes or 0) / MIB
            self.say(
                cpus,
                f"unconstrained, container {len(attempts)}, {whole.memory_bytes // MIB:,} MiB:"
                f" {milliseconds(seen)}, anonymous peak {peak:,.1f} MiB{more}",
                now,
            )
        self._known[cpus] = found
        return found

    def control(self, cpus: int, beside: Seen, *, measured_now: bool) -> tuple[Seen | None, bool]:
        """The unconstrained job right after another one, however it ended; and whether it was measured now.

        ``None``: something else was run after it, or nothing (the command was cut off just there).  What counts is read
        off the stored jobs also where it was measured now, so that whoever comes later reads the same.
        """
        whole = self.everything(cpus)
        job = self._right_after(beside, whole)
        now = job is None and measured_now
        if now:
            self.probing.attempt(whole, len(self.probing.attempts(whole)))
            job = self._right_after(beside, whole)
        return None if job is None else self._look(job), now

    def _right_after(self, beside: Seen, whole: Envelope) -> StoredJob | None:
        job = self.probing.next_after(beside.job)
        if job is None or job.result.spec.envelope != whole:
            return None
        last = started(beside.job) + timedelta(seconds=beside.result.wall_s + RIGHT_AFTER_S)
        return job if started(job) <= last else None

    def everything(self, cpus: int) -> Envelope:
        """The envelope that constrains nothing but the CPUs.

        Raises:
            UsageError: this host does not have it.
        """
        left = offers.reserve().left(host.memory_bytes())
        whole = envelope(cpus, left, self.question.gpus)
        self.check(whole)
        return whole

    def check(self, wanted: Envelope) -> None:
        """Refuse what this host cannot provide.

        Raises:
            UsageError: it cannot.
        """
        reason = self.probing.cannot(wanted)
        if reason:
            raise UsageError(f"{reason}; ask for less, or run this on a larger machine")

    def under(self, cpus: int, limit: int, number: int, base: Reference) -> tuple[Judgement, bool]:
        """The ``number``-th attempt (from 0) under a limit in bytes, judged; and whether it was measured now."""
        job, now = self.probing.attempt(envelope(cpus, limit, self.question.gpus), number, base.wall_s)
        return judge(self._look(job, base), base, self.question.criteria), now

    def limited(self, cpus: int, base: Reference) -> list[Judgement]:
        """All that is stored under limits, whatever it was run for."""
        jobs = self.probing.limited(cpus, self.question.gpus)
        looked = [self._look(job, base) for job in jobs if job.result.spec.envelope.memory_bytes < base.limit]
        return [judge(seen, base, self.question.criteria) for seen in looked]

    def _look(self, job: StoredJob, base: Reference | None = None) -> Seen:
        """What a job says, beside the reference of its CPUs if told: read once, since what is stored stays as it is."""
        key = job.folder, base is not None
        if key not in self._looked:
            self._looked[key] = look(job, self._measures, None if base is None else base.levels)
        return self._looked[key]

    def where(self, cpus: int) -> str:
        """System and CPUs, for messages."""
        return f"{self.probing.subject.system.name} on {cpus} CPU{'s' if cpus > 1 else ''}"

    def say(self, cpus: int, text: str, now: bool) -> None:
        """One line for each job; what was stored before is not told again."""
        if now:
            self.probing.screen.say(f"{self.where(cpus)}: {text}")


def milliseconds(seen: Seen) -> str:
    """The mean of a job, for people."""
    mean = seen.latency_s.get(MEAN)
    return f"mean {(mean.value or 0) * 1e3:.4g} ms" if mean else f"ended {seen.result.outcome.value}"


def outcome(judged: Judgement) -> str:
    """What came of a job, for people."""
    said = milliseconds(judged.seen)
    if judged.finding is not Finding.PASS:
        said = f"{', '.join(judged.causes)}: {judged.why}"
    return f"{judged.finding.value} ({said})"
