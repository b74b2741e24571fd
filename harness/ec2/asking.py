"""Asks EC2 for instances, and tells what passes from what ends the run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from harness.aws.passing import PASSING
from harness.ec2.cloud import Cloud
from harness.ec2.deciding import Start
from harness.ec2.launching import ENDED, MISMATCH, NO_PROFILE, QUOTA, NoCapacity
from harness.ec2.records import Group, Launch
from harness.ec2.showing import Board
from harness.ec2.standing import Run, Standing
from harness.errors import AwsError, UsageError
from harness.progress import duration
from harness.remote.records import Part, PartJob

# Makes the part of a group's box: its name and its jobs; all that it needs is shipped by then.
Outfit = Callable[[Group, str, tuple[PartJob, ...]], Part]

# What says nothing against the request: the same is tried again, or the user logs in and gives the command again.
OURS_TO_MEND = frozenset({"ExpiredToken", "NoCredentials", "ClockSkew", "NoRegion"})
_AT_ONCE = 8


class Asking:
    """Launches, for one run."""

    def __init__(self, run: Run, cloud: Cloud, board: Board, outfit: Outfit) -> None:
        self._run = run
        self._cloud = cloud
        self._board = board
        self._outfit = outfit

    def launch(self, wanted: list[tuple[Standing, Start]]) -> None:
        """Launch all of these that EC2 gives.

        Raises:
            AwsError: AWS is not reached, or the credentials are no longer good.
        """

        def one(each: tuple[Standing, Start]) -> Exception | None:
            try:
                self._launch(*each)
            except (AwsError, UsageError, NoCapacity) as error:
                return error
            return None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(one, wanted))
        passing: AwsError | None = None
        for (standing, _), answer in zip(wanted, answers, strict=True):
            if answer is None:
                standing.refused_at = None
                self._run.short.pop(standing.group.instance_type, None)
            elif isinstance(answer, AwsError) and answer.code in PASSING | OURS_TO_MEND:
                passing = answer  # whether an instance was made is not known: the launch stays written down
            elif isinstance(answer, NoCapacity):
                self._no_capacity(standing, answer)
            elif isinstance(answer, AwsError) and answer.code == ENDED:
                standing.ended = True
            elif not (isinstance(answer, AwsError) and self._waits(standing, answer)):
                self._refused(standing, answer)
        if passing is not None:
            raise passing

    def _waits(self, standing: Standing, answer: AwsError) -> bool:
        """Whether a refusal may be over soon, and the part is asked for again."""
        now, patience = self._run.now, self._run.terms.patience
        if answer.code == QUOTA:
            # Those that live take what it allows; those that end do until a while after.
            if now - self._run.lived_at > patience.shown_s and not self._run.outstanding(standing):
                return False
            self._hold(standing, f"{answer}")
            return True
        if answer.code not in (MISMATCH, NO_PROFILE):
            return False
        if standing.refused_at is None:
            standing.refused_at = now
        waited = now - standing.refused_at
        if answer.code == NO_PROFILE:
            # What IAM has made, EC2 knows some minutes later.
            if waited > patience.shown_s:
                return False
            self._hold(standing, f"{answer}")
        elif waited > patience.shown_s:
            # No instance is shown after all: the token is that of a request that was refused.
            self._run.book.drop_launch(standing.part)
            standing.refused_at = None
        return True

    def _hold(self, standing: Standing, why: str) -> None:
        """No instance was made: ask again later, for another time limit or by another token."""
        self._run.book.drop_launch(standing.part)
        kind, hold_s = standing.group.instance_type, self._run.terms.patience.hold_s
        if self._run.held.get(kind, 0.0) <= self._run.now:
            self._board.say(f"{why}; trying again in {duration(hold_s)}")
        self._run.held[kind] = self._run.now + hold_s

    def _no_capacity(self, standing: Standing, answer: NoCapacity) -> None:
        self._run.short.setdefault(standing.group.instance_type, self._run.now)
        self._hold(standing, f"no zone has a {standing.group.instance_type} now ({answer.said})")

    def _refused(self, standing: Standing, answer: Exception) -> None:
        self._run.book.drop_launch(standing.part)
        if self._run.stopping is None:
            self._board.say(f"{answer}; ending all that was launched")
            self._run.stopping = str(answer)

    def _launch(self, standing: Standing, action: Start) -> None:
        book, group = self._run.book, standing.group
        launch = book.launches.get(standing.part)
        if launch is None:
            launch = Launch(
                standing.part, group.instance_type, group.usd_per_hour, action.limit_s, round(self._run.now)
            )
            book.put_part(self._outfit(group, standing.part, standing.jobs))
            # Before it is asked for: money that may be spent is promised first.
            book.put_launch(launch)

        def trying(zone: str) -> None:
            book.put_launch(replace(launch, zone=zone))

        standing.answered = max(standing.answered or 0.0, self._run.now)
        made = self._cloud.launch(group, launch, trying, standing.avoid)
        # It may have taken long, and EC2 may show it later still.
        standing.answered = max(standing.answered, made.at or 0.0)
        standing.asked = True
