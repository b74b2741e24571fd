"""Run and judge jobs of one subject under limits; a control job decides about a doubtful latency."""

from __future__ import annotations

import logging
from collections import Counter
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.driver.records import Envelope, Outcome
from harness.errors import HarnessError, UsageError, counted
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
from harness.results.attempts import started
from harness.results.reader import StoredJob

log = logging.getLogger(__name__)

# The longest time between the end of a job and the start of its control.
RIGHT_AFTER_S = 60.0
# The number of consecutive jobs to discard before the machine counts as too slow.
MAXIMUM_DISCARDED = 3
# The largest number of jobs for one question over all repeats of the command, with controls and discarded jobs.
MAXIMUM_JOBS = 64


@dataclass(frozen=True)
class Question:
    """A subject's jobs, the criteria, and the number of GPUs; ``step`` (bytes) is the grid of limits."""

    jobs: SubjectJobs
    criteria: Criteria = field(default_factory=Criteria)
    gpus: int = 0
    step: int = 16 * MIB

    def check(self, cpus: int) -> Envelope:
        """Return the envelope that limits only the CPUs.

        Raises:
            UsageError: this host lacks the CPUs, GPUs or memory, or the sample is too small for a percentile.
        """
        dataset, queries = self.jobs.subject.dataset, self.jobs.subject.queries
        judged = sum(query.query_id in dataset.judged for query in dataset.queries)
        check_sample_size(self.criteria, len(queries.timed), judged)
        whole = envelope(cpus, offers.host_reserve().left_on_host(host.memory_bytes()), self.gpus)
        self.jobs.check(whole)
        if self.step > whole.memory_bytes:
            raise UsageError(
                f"--step {self.step // MIB:,} MiB: this host leaves {whole.memory_bytes // MIB:,} MiB to a job, less"
                " than one step; name a smaller one"
            )
        return whole


def milliseconds(observation: Observation) -> str:
    """Format the mean of a job, or how it ended."""
    mean_s = observation.mean.value
    return f"ended {observation.result.outcome.value}" if mean_s is None else f"mean {mean_s * 1e3:.4g} ms"


def outcome(judgement: Judgement) -> str:
    """Format a judgement."""
    text = milliseconds(judgement.observation)
    if judgement.finding is not ProbeFinding.PASS:
        text = f"{', '.join(judgement.causes)}: {judgement.why}"
    return f"{judgement.finding.value} ({text})"


class Session:
    """A series of attempts at one question and CPU count; stored jobs come first, in order of measurement.

    ``tried`` are the judged jobs, including controls.

    Raises:
        UsageError: this host has too few CPUs or GPUs, or even the unconstrained system misses the criteria.
        JobError: the unconstrained system does not run.
        EngineError, StoreError, FileError: as in a run.
    """

    def __init__(self, question: Question, cpus: int, most: int = MAXIMUM_JOBS) -> None:
        self.question, self.cpus = question, cpus
        self.tried: list[Judgement] = []
        self._where = f"{question.jobs.subject.system.name} on {counted(cpus, 'CPU')}"
        self._measures = measure_names.parse([*question.criteria.least])
        self._observations: dict[tuple[Path, bool], Observation] = {}
        self._used: Counter[int] = Counter()
        self._most = most
        self._whole = question.check(cpus)
        self.base = self._unconstrained()
        check_reachable(self.base, question.criteria, self._where)

    def _unconstrained(self) -> Reference:
        """Measure the system with all available memory of this host."""
        attempts: list[Observation] = []
        while not enough(attempts):
            job, now = self.question.jobs.attempt(self._whole, len(attempts))
            observation = self._observe(job)
            attempts.append(observation)
            combined = reference(attempts)  # raises if one did not end well
            more = "" if observation.disturbed is None else f"; {observation.disturbed}"
            peak = (observation.result.observed.memory.peak_anon_bytes or 0) / MIB
            self.log(
                f"unconstrained, container {len(attempts)}, {self._whole.memory_bytes // MIB:,} MiB:"
                f" {milliseconds(observation)}, anonymous peak {peak:,.1f} MiB{more}",
                now,
            )
        return combined

    def try_once(self, limit: int, purpose: Purpose, label: str) -> Judgement:
        """Measure once under a limit (bytes).

        If only latency is in doubt, an unconstrained job right after it shows whether the machine was slow.  If so, the
        job is discarded, and the limit is measured again.

        Args:
            limit: memory, in bytes.
            purpose: stored with the job's judgement.
            label: beginning of its line on the screen.

        Raises:
            HarnessError: the machine stays slow, or the question has used all its jobs; or as in a run.
        """
        discarded = 0
        while True:
            if len(self.tried) >= self._most:
                raise HarnessError(
                    f"{self._where}: {len(self.tried)} jobs gave no verdict, and the limit of jobs is reached;"
                    " quieten the machine (harness doctor shows its load) and start again with --fresh"
                )
            under = envelope(self.cpus, limit, self.question.gpus)
            job, now = self.question.jobs.attempt(under, self._used[limit], self.base.wall_s)
            judgement = replace(self._judge(self._observe(job, self.base)), purpose=purpose)
            self._used[limit] += 1
            line = f"{label}, {limit // MIB:,} MiB: "
            if judgement.finding is not ProbeFinding.DOUBT:
                self.tried.append(judgement)
                self.log(line + outcome(judgement), now)
                return judgement
            control, control_now = self._control(judgement.observation, measured_now=now)
            decided, reason = self._decide(judgement, control)
            if decided is not None:
                self.log(f"{line}{outcome(decided)}; {reason}", now or control_now)
                return decided
            line += f"discarded, the machine is slow ({outcome(judgement)}; {reason})"
            self.log(line, now or control_now)
            discarded += now
            if discarded >= MAXIMUM_DISCARDED:
                before = self.base.summary.latency_s[MEAN] * 1e3
                raise HarnessError(
                    f"the machine is too busy to judge a latency ({reason}, {before:.4g} ms before); quieten it"
                    " (harness doctor shows its load), then the same command goes on from here"
                )

    def _control(self, beside: Observation, *, measured_now: bool) -> tuple[Observation | None, bool]:
        """Return the unconstrained job right after another job, and whether it ran now.

        ``None``: another job ran after it, or the command was interrupted there.  The control is read from the stored
        jobs even if it ran now, so that a repeated command reads the same job.
        """
        job = self._right_after(beside)
        now = job is None and measured_now
        if now:
            self.question.jobs.attempt(self._whole, len(self.question.jobs.attempts(self._whole)))
            job = self._right_after(beside)
        return None if job is None else self._observe(job), now

    def _right_after(self, beside: Observation) -> StoredJob | None:
        job = self.question.jobs.next_after(beside.job)
        if job is None or job.result.spec.envelope != self._whole:
            return None
        # A difference of two times, because adding a forged wall_s could leave the calendar's range.
        waited = started(job) - started(beside.job)
        return job if waited.total_seconds() <= beside.result.wall_s + RIGHT_AFTER_S else None

    def _decide(self, judgement: Judgement, control: Observation | None) -> tuple[Judgement | None, str]:
        """Decide a doubtful job by its control, and record both; ``None``: the control excuses it."""
        if control is None:
            self.tried.append(replace(judgement, purpose=Purpose.DISCARDED))
            return None, "nothing was measured right after it"
        judged_control = replace(self._judge(control), purpose=Purpose.CONTROL)
        # An unconstrained job that does not end well shows that this machine has a problem.
        ended_well = control.result.outcome is Outcome.OK
        decided = against_control(judgement, judged_control) if ended_well else None
        self.tried += [decided or replace(judgement, purpose=Purpose.DISCARDED), judged_control]
        return decided, f"unconstrained right after it: {milliseconds(control)}"

    def _observe(self, job: StoredJob, base: Reference | None = None) -> Observation:
        """Read a job, with or without the reference; read each stored job once."""
        key = job.folder, base is not None
        if key not in self._observations:
            self._observations[key] = inspect(job, self._measures, None if base is None else base.levels)
        return self._observations[key]

    def _judge(self, observation: Observation) -> Judgement:
        return judge(observation, self.base, self.question.criteria)

    def _limited(self) -> list[Judgement]:
        """Judge all jobs stored under limits, for any purpose."""
        jobs = self.question.jobs.limited(self._whole)
        return [self._judge(self._observe(job, self.base)) for job in jobs]

    def most_killed(self, limit: int) -> int | None:
        """Return the largest limit (bytes), at least this one, at which a stored job ran out of memory."""
        killed = [job.limit for job in self._limited() if job.causes == (OOM,)]
        return max((size for size in killed if size >= limit), default=None)

    def again(self, failed: int) -> Session:
        """Copy this session to continue above a limit (bytes) that failed in another search.

        Jobs of other searches up to that limit count as used, so that the sequence of limits ends.
        """
        other = copy(self)
        other.tried, other._used = list(self.tried), self._used.copy()
        least = min((job.limit for job in self.tried), default=failed)
        other._most = self._most - sum(least <= job.limit <= failed for job in self._other_jobs())
        return other

    def contradictions(self, first: int | None, settled: SearchResult) -> list[Judgement]:
        """Return jobs of other purposes that contradict the limit or moved it, by limit.

        Args:
            first: the limit (bytes) that the search found without those jobs.
            settled: the search's result.
        """
        if first is None:
            return []
        return [
            job
            for job in self._other_jobs()
            if (job.causes == (OOM,) and job.limit >= first)
            or wrong_side(job.limit, job.finding, settled.limit, settled.below)
        ]

    def _other_jobs(self) -> list[Judgement]:
        """Return stored jobs under limits that this session did not request, without controls for doubtful ones."""
        tried = {job.observation.result.key for job in self.tried}
        return [
            job
            for job in self._limited()
            if job.observation.result.key not in tried and job.finding is not ProbeFinding.DOUBT
        ]

    def log(self, text: str, now: bool) -> None:
        """Log a line about a job that ran now."""
        if now:
            log.info(f"{self._where}: {text}")
