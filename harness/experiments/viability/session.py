"""Run and judge jobs of one subject under limits; a control job decides where a latency is in doubt."""

from __future__ import annotations

import logging
from collections import defaultdict
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.evaluation import measure_names
from harness.experiments.viability.acceptance import MEAN, Criteria, check_sample_size
from harness.experiments.viability.judge import (
    OOM,
    Judgement,
    Observation,
    Reference,
    against_control,
    check_reachable,
    enough,
    inspect,
    judge,
    reference,
)
from harness.experiments.viability.probe import MIB, SubjectJobs, envelope
from harness.experiments.viability.search import ProbeFinding, Purpose, SearchResult, wrong_side
from harness.launch import host
from harness.pricing import offers
from harness.records import Envelope, Outcome
from harness.results.attempts import started
from harness.results.reader import StoredJob

log = logging.getLogger(__name__)

# The longest time from the end of a job to the start of its control.
RIGHT_AFTER_S = 60.0
# Jobs in a row that may be discarded before the machine counts as too slow.
MAXIMUM_DISCARDED = 3
# Jobs of one question, controls and discarded ones included, however often the command is repeated.
MAXIMUM_JOBS = 64


@dataclass(frozen=True)
class Question:
    """Criteria under a limit, and the number of GPUs; ``step`` (bytes) is the grid of limits."""

    criteria: Criteria = field(default_factory=Criteria)
    gpus: int = 0
    step: int = 16 * MIB


class Viability:
    """A subject's jobs and their judgements, at any CPU count and limit.

    Args:
        jobs: of the subject.
        question: criteria, GPUs and grid.

    Raises:
        UsageError: a measure is unknown, or the sample too small for a percentile.
    """

    def __init__(self, jobs: SubjectJobs, question: Question) -> None:
        self.jobs = jobs
        self.question = question
        check_sample_size(question.criteria, len(jobs.subject.queries.sample))
        self._measures = measure_names.parse([bound.measure for bound in question.criteria.least])
        self._references: dict[int, Reference] = {}
        self._observations: dict[tuple[Path, bool], Observation] = {}

    def unconstrained(self, cpus: int) -> Reference:
        """Measure the system with all the memory that this host can give it.

        Raises:
            UsageError: this host has too few CPUs or GPUs.
            JobError: the system does not run.
        """
        if cpus in self._references:
            return self._references[cpus]
        whole = self.everything(cpus)
        attempts: list[Observation] = []
        while not enough(attempts):
            job, now = self.jobs.attempt(whole, len(attempts))
            observation = self._observe(job)
            attempts.append(observation)
            combined = reference(attempts)  # raises where one did not end well
            more = "" if observation.disturbed is None else f"; {observation.disturbed}"
            peak = (observation.result.memory.peak_anon_bytes or 0) / MIB
            self.say(
                cpus,
                f"unconstrained, container {len(attempts)}, {whole.memory_bytes // MIB:,} MiB:"
                f" {milliseconds(observation)}, anonymous peak {peak:,.1f} MiB{more}",
                now,
            )
        self._references[cpus] = combined
        return combined

    def control(self, cpus: int, beside: Observation, *, measured_now: bool) -> tuple[Observation | None, bool]:
        """Return the unconstrained job right after another one, and whether it was measured now.

        ``None``: another job ran after it, or none (the command was interrupted there).  The control is read from the
        stored jobs even if it was measured now, so that a repeated command reads the same one.
        """
        whole = self.everything(cpus)
        job = self._right_after(beside, whole)
        now = job is None and measured_now
        if now:
            self.jobs.attempt(whole, len(self.jobs.attempts(whole)))
            job = self._right_after(beside, whole)
        return None if job is None else self._observe(job), now

    def _right_after(self, beside: Observation, whole: Envelope) -> StoredJob | None:
        job = self.jobs.next_after(beside.job)
        if job is None or job.result.spec.envelope != whole:
            return None
        last = started(beside.job) + timedelta(seconds=beside.result.wall_s + RIGHT_AFTER_S)
        return job if started(job) <= last else None

    def everything(self, cpus: int) -> Envelope:
        """Return the envelope that constrains only the CPUs; raise UsageError if this host lacks them."""
        left = offers.host_reserve().left(host.memory_bytes())
        whole = envelope(cpus, left, self.question.gpus)
        self.check(whole)
        return whole

    def check(self, envelope: Envelope) -> None:
        """Raise UsageError if this host cannot provide an envelope."""
        reason = self.jobs.cannot(envelope)
        if reason:
            raise UsageError(f"{reason}; ask for less, or run this on a larger machine")

    def under(self, cpus: int, limit: int, number: int, base: Reference) -> tuple[Judgement, bool]:
        """Judge the ``number``-th attempt (from 0) under a limit in bytes; return also whether it was measured now."""
        job, now = self.jobs.attempt(envelope(cpus, limit, self.question.gpus), number, base.wall_s)
        return judge(self._observe(job, base), base, self.question.criteria), now

    def limited(self, cpus: int, base: Reference) -> list[Judgement]:
        """Judge all jobs stored under limits, whatever their purpose."""
        jobs = self.jobs.limited(cpus, self.question.gpus)
        observations = [self._observe(job, base) for job in jobs if job.result.spec.envelope.memory_bytes < base.limit]
        return [judge(observation, base, self.question.criteria) for observation in observations]

    def _observe(self, job: StoredJob, base: Reference | None = None) -> Observation:
        """Read a job, with or without the reference of its CPUs; each stored job is read once."""
        key = job.folder, base is not None
        if key not in self._observations:
            self._observations[key] = inspect(job, self._measures, None if base is None else base.levels)
        return self._observations[key]

    def where(self, cpus: int) -> str:
        """Name system and CPUs, for messages."""
        return f"{self.jobs.subject.system.name} on {cpus} CPU{'s' if cpus > 1 else ''}"

    def say(self, cpus: int, text: str, now: bool) -> None:
        """Log a line about a job that was measured now."""
        if now:
            log.info(f"{self.where(cpus)}: {text}")


def milliseconds(observation: Observation) -> str:
    """Format the mean of a job, or how it ended."""
    mean = observation.latency_s.get(MEAN)
    return f"mean {(mean.value or 0) * 1e3:.4g} ms" if mean else f"ended {observation.result.outcome.value}"


def outcome(judgement: Judgement) -> str:
    """Format a judgement."""
    text = milliseconds(judgement.observation)
    if judgement.finding is not ProbeFinding.PASS:
        text = f"{', '.join(judgement.causes)}: {judgement.why}"
    return f"{judgement.finding.value} ({text})"


@dataclass(frozen=True)
class SessionJob:
    """A job and its purpose."""

    purpose: Purpose
    judgement: Judgement

    @property
    def limit(self) -> int:
        """Return the memory limit in bytes."""
        return self.judgement.observation.limit


class Session:
    """A series of attempts at one question and CPU count; stored jobs come first, in their order of measurement.

    Raises:
        UsageError: this host has too few CPUs or GPUs, or even the unconstrained system misses the criteria.
        JobError: the unconstrained system does not run.
        EngineError, StoreError, FileError: as from a run.
    """

    def __init__(self, viability: Viability, cpus: int, most: int = MAXIMUM_JOBS) -> None:
        self.cpus = cpus
        self.criteria = viability.question.criteria
        self.base = viability.unconstrained(cpus)
        check_reachable(self.base, self.criteria, viability.where(cpus))
        self.tried: list[SessionJob] = []
        self._viability = viability
        self._used: dict[int, int] = defaultdict(int)
        self._most = most

    def try_once(self, limit: int, purpose: Purpose, label: str) -> Judgement:
        """Measure once under a limit (bytes).

        Where latency alone is in doubt, the unconstrained system is measured right after it and shows whether the
        machine was slow.  If so, the job is discarded, and the limit is measured again.

        Args:
            limit: memory, in bytes.
            purpose: stored with the job.
            label: begins its line on the screen.

        Raises:
            HarnessError: the machine stays slow, or all jobs of this question are used up; or as from a run.
        """
        discarded = 0
        while True:
            if len(self.tried) >= self._most:
                raise HarnessError(
                    f"{self._viability.where(self.cpus)}: {len(self.tried)} jobs settled nothing, and no more are run;"
                    " quieten the machine (harness doctor shows its load) and start anew with --fresh"
                )
            judged, now = self._viability.under(self.cpus, limit, self._used[limit], self.base)
            self._used[limit] += 1
            line = f"{label}, {limit // MIB:,} MiB: "
            if judged.finding is not ProbeFinding.DOUBT:
                self.tried.append(SessionJob(purpose, judged))
                self._viability.say(self.cpus, line + outcome(judged), now)
                return judged
            control, control_now = self._viability.control(self.cpus, judged.observation, measured_now=now)
            held, said = self._held(judged, control, purpose)
            if held is not None:
                self._viability.say(self.cpus, f"{line}{outcome(held)}; {said}", now or control_now)
                return held
            line += f"discarded, the machine is slow ({outcome(judged)}; {said})"
            self._viability.say(self.cpus, line, now or control_now)
            discarded += now
            if discarded >= MAXIMUM_DISCARDED:
                before = self.base.latency_s[MEAN] * 1e3
                raise HarnessError(
                    f"the machine is too busy to judge a latency ({said}, {before:.4g} ms before); quieten it (harness"
                    " doctor shows its load), then the same command goes on from here"
                )

    def _held(
        self, judged: Judgement, observation: Observation | None, purpose: Purpose
    ) -> tuple[Judgement | None, str]:
        """Decide a doubtful job by its control, and record both; ``None``: the control excuses it."""
        if observation is None:
            self.tried.append(SessionJob(Purpose.DISCARDED, judged))
            return None, "nothing was measured right after it"
        control = judge(observation, self.base, self.criteria)
        # An unconstrained system that does not end well shows that something is wrong with this machine.
        ended = observation.result.outcome is Outcome.OK
        held = against_control(judged, control) if ended else None
        self.tried.append(SessionJob(Purpose.DISCARDED if held is None else purpose, held or judged))
        self.tried.append(SessionJob(Purpose.CONTROL, control))
        return held, f"unconstrained right after it: {milliseconds(observation)}"

    def most_killed(self, limit: int) -> int | None:
        """Return the largest limit (bytes), from this one on, under which any stored job ran out of memory."""
        stored = self._viability.limited(self.cpus, self.base)
        killed = [judgement.observation.limit for judgement in stored if judgement.causes == (OOM,)]
        return max((size for size in killed if size >= limit), default=None)

    def again(self, failed: int) -> Session:
        """Copy this session, to continue above a limit (bytes) that failed in another search.

        Jobs of other searches up to that limit count as used, so that no sequence of such limits is endless.
        """
        other = copy(self)
        other.tried, other._used = list(self.tried), self._used.copy()
        least = min((each.limit for each in self.tried), default=failed)
        other._most = self._most - sum(least <= each.limit <= failed for each in self._other_jobs())
        return other

    def contradictions(self, first: int | None, settled: SearchResult) -> list[SessionJob]:
        """Return jobs of other purposes that contradict an edge, or have moved it, by limit.

        Args:
            first: the limit (bytes) that the search found before it knew of those jobs.
            settled: its end.
        """
        if first is None:
            return []
        return [
            each
            for each in self._other_jobs()
            if (each.judgement.causes == (OOM,) and each.limit >= first)
            or wrong_side(each.limit, each.judgement.finding, settled.limit, settled.below)
        ]

    def _other_jobs(self) -> list[SessionJob]:
        """Return stored jobs under limits that this session did not request; a doubtful one has no control."""
        known = {each.judgement.observation.result.key for each in self.tried}
        return [
            SessionJob(Purpose.OTHER, each)
            for each in self._viability.limited(self.cpus, self.base)
            if each.observation.result.key not in known and each.finding is not ProbeFinding.DOUBT
        ]
