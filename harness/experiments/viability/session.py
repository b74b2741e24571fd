"""Jobs under limits, one after the other, with the machine itself under suspicion where a latency is in doubt."""

from __future__ import annotations

import logging
from collections import defaultdict
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.evaluation import measure_names
from harness.experiments.viability.acceptance import MEAN, Criteria, check_proves
from harness.experiments.viability.judge import OOM, Judgement, against, judge
from harness.experiments.viability.observation import Seen, look
from harness.experiments.viability.probe import MIB, Probing, envelope
from harness.experiments.viability.reference import Reference, check_keeps, enough, reference
from harness.experiments.viability.search import Finding, Purpose, Settled, wrong_side
from harness.launch import host
from harness.pricing import offers
from harness.records import Envelope, Outcome
from harness.results.attempts import started
from harness.results.reader import StoredJob

log = logging.getLogger(__name__)

# MERGED harness.experiments.viability.session: One subject under limits: the unconstrained system, and single jobs held against it.


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
            log.info(f"{self.where(cpus)}: {text}")


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


# Jobs in a row that are put aside before the machine is called too slow to go on.
MOST_ASIDE = 3
# Jobs of one question, controls and those put aside included, however often the command comes again.
MOST_JOBS = 64


@dataclass(frozen=True)
class Tried:
    """A job, and what it was for."""

    purpose: Purpose
    judgement: Judgement

    @property
    def limit(self) -> int:
        """Memory limit in bytes."""
        return self.judgement.seen.limit


class Session:
    """One question at one CPU count.  Stored jobs are taken in the order in which they were measured.

    Raises:
        UsageError: this host does not have the CPUs or GPUs, or even the unconstrained system misses what is asked.
        JobError: the unconstrained system does not run.
        EngineError, StoreError, FileError: as from a run.
    """

    def __init__(self, asked: Viability, cpus: int, most: int = MOST_JOBS) -> None:
        self.cpus = cpus
        self.criteria = asked.question.criteria
        self.base = asked.unconstrained(cpus)
        check_keeps(self.base, self.criteria, asked.where(cpus))
        self.tried: list[Tried] = []
        self._asked = asked
        self._used: dict[int, int] = defaultdict(int)
        self._most = most

    def try_once(self, limit: int, purpose: Purpose, label: str) -> Judgement:
        """Measure once under a limit (bytes).

        Where latency alone is in doubt, the unconstrained system is measured right after it and says whether it was
        the machine that was slow.  If so, the job is put aside, and the limit is measured again.

        Args:
            limit: memory, in bytes.
            purpose: kept with the job.
            label: begins its line on the screen.

        Raises:
            HarnessError: the machine stays slow, or all jobs of this question are used up; or as from a run.
        """
        aside = 0
        while True:
            if len(self.tried) >= self._most:
                raise HarnessError(
                    f"{self._asked.where(self.cpus)}: {len(self.tried)} jobs settled nothing, and no more are run;"
                    " quieten the machine (harness doctor shows its load) and start anew with --fresh"
                )
            judged, now = self._asked.under(self.cpus, limit, self._used[limit], self.base)
            self._used[limit] += 1
            line = f"{label}, {limit // MIB:,} MiB: "
            if judged.finding is not Finding.DOUBT:
                self.tried.append(Tried(purpose, judged))
                self._asked.say(self.cpus, line + outcome(judged), now)
                return judged
            control, control_now = self._asked.control(self.cpus, judged.seen, measured_now=now)
            held, said = self._held(judged, control, purpose)
            if held is not None:
                self._asked.say(self.cpus, f"{line}{outcome(held)}; {said}", now or control_now)
                return held
            line += f"put aside, the machine is slow ({outcome(judged)}; {said})"
            self._asked.say(self.cpus, line, now or control_now)
            aside += now
            if aside >= MOST_ASIDE:
                before = self.base.latency_s[MEAN] * 1e3
                raise HarnessError(
                    f"the machine is too busy to judge a latency ({said}, {before:.4g} ms before); quieten it (harness"
                    " doctor shows its load), then the same command goes on from here"
                )

    def _held(self, judged: Judgement, seen: Seen | None, purpose: Purpose) -> tuple[Judgement | None, str]:
        """A job in doubt held against its control, both kept; ``None``: it says nothing; and what the control said."""
        if seen is None:
            self.tried.append(Tried(Purpose.ASIDE, judged))
            return None, "nothing was measured right after it"
        control = judge(seen, self.base, self.criteria)
        # An unconstrained system that does not even end well says that something is wrong with this machine.
        ended = seen.result.outcome is Outcome.OK
        held = against(judged, control) if ended else None
        self.tried.append(Tried(Purpose.ASIDE if held is None else purpose, held or judged))
        self.tried.append(Tried(Purpose.CONTROL, control))
        return held, f"unconstrained right after it: {milliseconds(seen)}"

    def most_killed(self, limit: int) -> int | None:
        """The largest limit (bytes), from this one on, under which any stored job was killed for memory."""
        stored = self._asked.limited(self.cpus, self.base)
        killed = [each.seen.limit for each in stored if each.causes == (OOM,)]
        return max((each for each in killed if each >= limit), default=None)

    def again(self, failed: int) -> Session:
        """This session as it is now, to go on from with what is known of a limit (bytes) that failed elsewhere.

        What others ran up to there counts as used up, so that no sequence of such limits goes on for ever.
        """
        other = copy(self)
        other.tried, other._used = list(self.tried), self._used.copy()
        least = min((each.limit for each in self.tried), default=failed)
        other._most = self._most - sum(least <= each.limit <= failed for each in self._unasked())
        return other

    def against(self, first: int | None, settled: Settled) -> list[Tried]:
        """What was run for something else and speaks against an edge, or has moved it, by limit.

        Args:
            first: the limit (bytes) that the search came to before it knew of others' jobs.
            settled: its end.
        """
        if first is None:
            return []
        return [
            each
            for each in self._unasked()
            if (each.judgement.causes == (OOM,) and each.limit >= first)
            or wrong_side(each.limit, each.judgement.finding, settled.limit, settled.below)
        ]

    def _unasked(self) -> list[Tried]:
        """Stored jobs under limits that this session did not ask for; one in doubt has no control, and says nothing."""
        known = {each.judgement.seen.result.key for each in self.tried}
        return [
            Tried(Purpose.OTHER, each)
            for each in self._asked.limited(self.cpus, self.base)
            if each.seen.result.key not in known and each.finding is not Finding.DOUBT
        ]
