"""Carries out what was decided: launches, ends, brings home, stores what was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from harness.aws.passing import PASSING
from harness.ec2.asking import OURS_TO_MEND, Asking, Outfit
from harness.ec2.cloud import Cloud
from harness.ec2.deciding import Action, Bring, Finish, GiveUp, Leave, Retry, Start, Terminate
from harness.ec2.showing import Board
from harness.ec2.standing import Run, Standing
from harness.errors import AwsError, HarnessError
from harness.remote.records import PartJob
from harness.result import Result

_AT_ONCE = 8


class Doing:
    """Acts for one run."""

    def __init__(
        self, run: Run, cloud: Cloud, board: Board, outfit: Outfit, bring: Callable[[PartJob], Result]
    ) -> None:
        self._run = run
        self._cloud = cloud
        self._board = board
        self._asking = Asking(run, cloud, board, outfit)
        self._bring = bring
        self.given_up: list[str] = []

    def do(self, actions: list[Action]) -> None:
        """Carry out all of them.

        Raises:
            AwsError: AWS is not reached, or the credentials are no longer good.
        """
        parts = self._run.by_part
        for action in actions:
            if isinstance(action, Bring):
                self._arrivals(action.keys)
            elif isinstance(action, Terminate):
                self._terminate(parts[action.part], action)
            elif isinstance(action, Finish | Leave):
                self._over(parts[action.part], "done" if isinstance(action, Finish) else "left")
            elif isinstance(action, Retry | GiveUp):
                self._lost(parts[action.part], action)
        starts = [action for action in actions if isinstance(action, Start)]
        if starts:
            self._asking.launch([(parts[action.part], action) for action in starts])

    def _arrivals(self, keys: tuple[str, ...]) -> None:
        jobs = {job.key: job for standing in self._run.groups.values() for job in standing.jobs}
        # Of an earlier attempt, whose orchestrator died before it took them.
        for part in self._run.book.parts.values():
            jobs |= {job.key: job for job in part.jobs if job.key not in jobs}
        known = [jobs[key] for key in keys if key in jobs]
        failed: HarnessError | None = None
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for job, came in zip(known, pool.map(self._one, known), strict=True):
                if isinstance(came, Result):
                    self._run.home.came(came)
                    self._board.came(came, self._run)
                elif isinstance(came, str):
                    self._run.damaged[job.key] = came
                    self._board.say(f"{job.key}: {came}")
                else:
                    failed = came
        for key in keys:
            if key not in jobs:
                self._run.damaged[key] = "no job of this run"
        if failed is not None:  # only now: what else came is home
            raise failed

    def _one(self, job: PartJob) -> Result | str | HarnessError:
        """Take one job; or why it cannot be taken, for good (a line) or just now."""
        try:
            return self._bring(job)
        except AwsError as error:
            return error if error.code in PASSING | OURS_TO_MEND else str(error)
        except HarnessError as error:
            return error

    def _terminate(self, standing: Standing, action: Terminate) -> None:
        if action.why and standing.told is None:
            self._board.say(f"{self._name(standing)}: ended, because {action.why}")
        self._cloud.terminate([action.instance_id])
        standing.told = self._run.now
        standing.told_first = standing.told_first or self._run.now

    def _over(self, standing: Standing, fate: str) -> None:
        end = self._run.book.signs.ends.get(standing.part)
        if fate == "done" and end is not None and not end.ok:
            self._board.say(f"{self._name(standing)}: {end.detail}")
        self._run.settle(standing)
        standing.fate = fate

    def _lost(self, standing: Standing, action: Retry | GiveUp) -> None:
        """Its instance is gone for certain, and all that it handed over is home."""
        signs = self._run.book.signs
        beat, end = signs.beats.get(standing.part), signs.ends.get(standing.part)
        # Of a box that ended by itself nothing was interrupted, unless it says so.
        current = beat.current if beat is not None and (end is None or end.cut_off) else None
        if end is None:
            self._last_words(standing)
        for job in standing.jobs:
            if job.key in self._run.home.outcomes:
                continue
            why = self._run.damaged.get(job.key) or (action.why if job.key == current else None)
            if why is not None:
                when = signs.beat_at.get(standing.part, self._run.now)
                machine = self._cloud.machine(standing.group.instance_type)
                self._run.home.interrupt(job, f"interrupted: {why}", when, standing.seen, machine)
        self._run.settle(standing)
        left = self._run.home.left(standing.group)
        name = self._name(standing)
        if isinstance(action, GiveUp):
            standing.fate = "given up"
            line = f"{name}: {len(left)} jobs given up: {action.why}"
            self.given_up.append(line)
            self._board.say(line)
            return
        self._board.say(f"{name}: {action.why}; what is left ({len(left)} jobs) goes to another instance")
        if standing.seen is not None:
            standing.avoid = standing.seen.zone
        standing.attempt += 1
        standing.jobs, standing.seen = left, None
        standing.asked, standing.ended, standing.answered = False, False, None
        standing.told = standing.told_first = None

    def _last_words(self, standing: Standing) -> None:
        """Keep what the console of one shows that could not say its end: it may never have reached S3."""
        text = self._cloud.console(standing.seen.instance_id) if standing.seen else ""
        if text.strip():
            name, last = self._run.book.put_console(standing.part, text), text.strip().splitlines()[-1][:200]
            self._board.say(f"{self._name(standing)}: its console's last line, of {name}: {last}")

    @staticmethod
    def _name(standing: Standing) -> str:
        instance = f" {standing.seen.instance_id}" if standing.seen else ""
        return f"{standing.part} ({standing.group.instance_type}{instance})"
