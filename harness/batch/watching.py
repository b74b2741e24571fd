"""Watches a run's jobs in Batch and S3: submits what is ready, brings home what is finished, until nothing is open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from harness.aws.passing import until_answered
from harness.batch import jobs, names
from harness.batch.engine import ComputeEnvironment
from harness.batch.grouping import Submission
from harness.batch.jobs import Child, Request
from harness.batch.kinds import Place
from harness.batch.spending import Limits, Money
from harness.batch.standing import Standing
from harness.ec2.book import Book
from harness.ec2.homecoming import Home
from harness.ec2.records import Group
from harness.errors import AwsError, StoreError, UsageError
from harness.instances import Instance
from harness.remote import layout
from harness.remote.records import MOST_BYTES, End, Input, Part, PartJob, dump, read
from harness.result import Result


@dataclass(frozen=True)
class Parts:
    """What a job of Batch is to do: the parts, by their numbers in its array, and what each may take."""

    parts: tuple[str, ...]
    timeout_s: int
    attempts: int


@dataclass(frozen=True)
class Doer:
    """What is done for the watcher by others."""

    outfit: Callable[[Group, str, tuple[PartJob, ...]], Part]
    bring: Callable[[PartJob], Result]
    has_index: Callable[[str], bool]
    money: Money
    say: Callable[[str], None]
    came: Callable[[Result], None]


@dataclass(frozen=True)
class Pace:
    """How often to look, how long instances may take to end, and how to wait (for tests)."""

    interval_s: float = 15.0
    sleep: Callable[[float], None] = time.sleep
    gone_s: float = 900.0


class Watcher:
    """One run, from wherever it stands to its end; all that it knows is in S3 and Batch."""

    def __init__(
        self,
        place: Place,
        book: Book,
        home: Home,
        submissions: Iterable[Submission],
        bundle: Input,
        machines: dict[str, Instance],
        doer: Doer,
        pace: Pace,
    ) -> None:
        self._place = place
        self._book = book
        self._home = home
        self._bundle = bundle
        self._machines = machines
        self._doer = doer
        self._pace = pace
        self._standings = [Standing(each) for each in submissions]
        self._told: dict[str, str] = {}
        self._damaged: dict[str, str] = {}
        self.given_up: list[str] = []

    def run(self) -> None:
        """Go on until nothing is open.

        Raises:
            AwsError: AWS refuses, or fails for long; what was submitted goes on.
            KeyboardInterrupt: the user has had enough; likewise.
        """
        while not until_answered(self._tick, self._doer.say, self._wait):
            self._wait()
        until_answered(self._book.close, self._doer.say, self._wait)

    def _wait(self) -> None:
        self._pace.sleep(self._pace.interval_s)

    @property
    def submitted(self) -> list[str]:
        """Jobs that Batch has and that have not ended."""
        return [self._name(each) for each in self._standings if each.job_id and not each.over]

    def _tick(self) -> bool:
        """Look and act once; whether all is over."""
        # Batch first: what S3 shows after a job was seen to have ended is all that it ever handed over.
        for standing in self._standings:
            if not standing.over:
                self._look(standing)
        self._book.look()
        self._arrivals()
        for standing in self._standings:
            if standing.job_id is not None and not standing.over:
                self._finish(standing)
        for standing in self._standings:
            if standing.job_id is None and not standing.over:
                # Batch forgets what has ended for a week: it is not begun again for that.
                standing.over = self._all_there(standing.submission)
                if not standing.over and self._ready(standing):
                    self._submit(standing)
        self._show()
        return all(each.over for each in self._standings)

    def _look(self, standing: Standing) -> None:
        submission = standing.submission
        if standing.job_id is None:
            found = jobs.find(self._place, submission.queue, self._name(standing))
            standing.job_id = found[0] if found else None
            for twin in found[1:]:
                jobs.end(self._place, twin, "harness: submitted twice")
        if standing.job_id is not None:
            standing.see(jobs.look(self._place, standing.job_id, len(submission.groups)), self._place.clock())
            if standing.limits is None:
                standing.limits = self._written(submission)
                self._doer.money.promise(submission, standing.limits)

    def _arrivals(self) -> None:
        wanted = {job.key: job for standing in self._standings for job in _jobs(standing.submission.groups)}
        for key in sorted(self._book.signs.jobs - self._home.keys - self._damaged.keys()):
            if key not in wanted:
                self._damaged[key] = "no job of this run"
                continue
            try:
                result = self._doer.bring(wanted[key])
            except StoreError:
                raise
            except (AwsError, UsageError) as error:
                if isinstance(error, AwsError) and error.code not in ("BadJob", "BadTar"):
                    raise
                self._damaged[key] = str(error)
                self._doer.say(f"{key}: {error}")
                continue
            self._home.came(result)
            self._doer.came(result)

    def _finish(self, standing: Standing) -> None:
        """See to the children that have ended, each once."""
        for number, (child, group) in enumerate(zip(standing.children, standing.submission.groups, strict=True)):
            if child.ended and number not in standing.finished:
                standing.finished.add(number)
                self._ended(standing.submission.parts[number], group, child)
        standing.over = len(standing.finished) == len(standing.submission.groups)
        if standing.over:
            assert standing.limits is not None
            self._doer.money.settle(standing.submission, standing.seconds, standing.limits)

    def _ended(self, part: str, group: Group, child: Child) -> None:
        missing = [job for job in group.jobs if job.key not in self._home.outcomes]
        end, beat = self._end(part, child.attempts), self._book.signs.beats.get(part)
        words = [end.detail if end else "", child.reason]
        why = "; ".join(dict.fromkeys(filter(None, words))) or "its job ended without a word"
        if not missing:
            if not group.jobs and child.status != "SUCCEEDED":
                self._doer.say(f"{part}: its index is not there ({why}); whoever needs it builds it")
            return
        begun = f"begun {child.attempts} times; " if child.attempts > 1 else ""
        current = beat.current if beat is not None else None
        for job in missing:
            reason = self._damaged.get(job.key) or (why if job.key == current else None)
            if reason is not None:
                when = self._book.signs.beat_at.get(part, 0.0)
                machine = self._machines.get(group.instance_type)
                self._home.interrupt(job, f"interrupted: {reason}", when, None, machine)
        line = f"{part} ({group.instance_type}): {len(missing)} jobs given up: {begun}{why}"
        self.given_up.append(line)
        self._doer.say(line)

    def _end(self, part: str, attempts: int) -> End | None:
        """What the last attempt that could say anything said."""
        names = [part, *(f"{part}.{number}" for number in range(2, attempts + 1))]
        return next(filter(None, map(self._book.signs.ends.get, reversed(names))), None)

    def _all_there(self, submission: Submission) -> bool:
        """Whether all that it is for is home, or in S3."""
        left = any(self._home.left(group) for group in submission.groups)
        return not left and all(self._doer.has_index(key) for key in submission.builds)

    def _ready(self, standing: Standing) -> bool:
        """Whether all indexes are there that others build, or nobody builds them any more."""
        needs = standing.submission.needs
        making = {key for each in self._standings if not each.over for key in each.submission.builds}
        return all(key not in making or self._doer.has_index(key) for key in needs)

    def _submit(self, standing: Standing) -> None:
        """Write down what it is, then submit it: whoever comes after a crash finds the job by its name."""
        submission, objects = standing.submission, self._book.objects
        if standing.doubtful_since is not None and standing.doubtful(self._place.clock()):
            return
        waiting = [each.submission for each in self._standings if each.job_id is None and not each.over]
        limits = self._doer.money.limits(submission, [each for each in waiting if each is not submission])
        if isinstance(limits, str):
            jobs_left = sum(len(group.jobs) for group in submission.groups)
            line = f"{submission.name}: {jobs_left} jobs given up: {limits}"
            self.given_up.append(line)
            self._doer.say(line)
            standing.over = True
            return
        for group, name in zip(submission.groups, submission.parts, strict=True):
            self._book.put_part(self._doer.outfit(group, name, self._home.left(group)))
        wanted = Parts(submission.parts, limits.timeout_s, limits.attempts)
        if not objects.put_new(layout.submission(submission.name), dump(wanted)):
            # By one of us that died, maybe after it had submitted it: Batch does not show a job at once.
            limits = self._written(submission)
            if standing.doubtful(self._place.clock()):
                return
        standing.limits = limits
        self._doer.money.promise(submission, limits)
        request = Request(
            name=self._name(standing),
            queue=submission.queue,
            definition=submission.definition,
            run_id=self._book.run.run_id,
            group=submission.name,
            bundle=self._bundle,
            parts=len(submission.groups),
            timeout_s=limits.timeout_s,
            attempts=limits.attempts,
        )
        standing.job_id = jobs.submit(self._place, request)

    def _written(self, submission: Submission) -> Limits:
        """What was written down of a submission before it was submitted."""
        where = layout.submission(submission.name)
        content = self._book.objects.get(where, MOST_BYTES)
        found = read(Parts, where, content) if content is not None else None
        if found is None or found.parts != submission.parts:
            place = self._book.objects.place.below(where)
            raise AwsError(f"{place}: is of another plan; remove the run's folder and begin anew", "BadRecord")
        return Limits(found.timeout_s, found.attempts)

    def _name(self, standing: Standing) -> str:
        return names.job(self._book.run.run_id, standing.submission.name)

    def _show(self) -> None:
        """Say what has changed."""
        for standing in self._standings:
            said = standing.words
            if standing.stuck(self._place.clock()):
                said = f"{said}: no instance yet{self._why_waits(standing)}"
            if self._told.get(standing.submission.name) != said:
                self._told[standing.submission.name] = said
                self._doer.say(f"{standing.submission.name} ({standing.submission.queue}): {said}")

    def _why_waits(self, standing: Standing) -> str:
        """What Batch says of a job that it finds no host for; else how its environment is."""
        reasons = [child.reason for child in standing.children if child.status == "RUNNABLE" and child.reason]
        if not reasons:
            environment = ComputeEnvironment(self._place).find(standing.submission.queue)
            reasons = ["its compute environment is gone"] if environment is None else [environment.ill or ""]
        return f": {reasons[0]}" if reasons[0] else "; EC2 may have none, or your quota be used up"


def _jobs(groups: Iterable[Group]) -> list[PartJob]:
    return [job for group in groups for job in group.jobs]
