"""Watches a run's boxes in EC2 and S3, and does what is decided, until all is home and nothing is alive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from harness.aws.passing import until_answered
from harness.ec2 import fleet
from harness.ec2.asking import Outfit
from harness.ec2.aws_time import AwsTime
from harness.ec2.book import Book
from harness.ec2.cloud import Cloud
from harness.ec2.deciding import decide
from harness.ec2.doing import Doing
from harness.ec2.fleet import Seen
from harness.ec2.homecoming import Home
from harness.ec2.showing import Board
from harness.ec2.standing import Run, Terms
from harness.remote.records import PartJob
from harness.result import Result

# How long what was told to end may take, at the very end.
LAST_WAIT_S = 900.0


@dataclass(frozen=True)
class Pace:
    """How often to look, and how to wait (for tests)."""

    interval_s: float = 10.0
    last_wait_s: float = LAST_WAIT_S
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Ended:
    """How it ended.  ``given_up`` says of each group of jobs that nothing became of why; ``alive`` should be empty."""

    given_up: tuple[str, ...]
    stopped: str | None
    alive: tuple[Seen, ...]
    usd: float


class Conductor:
    """One run, from wherever it stands to its end."""

    def __init__(
        self,
        book: Book,
        home: Home,
        cloud: Cloud,
        clock: AwsTime,
        board: Board,
        outfit: Outfit,
        bring: Callable[[PartJob], Result],
        index_keys: Callable[[], set[str]],
        has_index: Callable[[str], bool],
        terms: Terms,
        pace: Pace,
    ) -> None:
        self._book = book
        self._cloud = cloud
        self._clock = clock
        self._board = board
        self._index_keys = index_keys
        self._has_index = has_index
        self._pace = pace
        self._run = Run(book, home, terms)
        self._doing = Doing(self._run, cloud, board, outfit, bring)

    def run(self) -> Ended:
        """Go on until nothing is left to do.

        Raises:
            AwsError: AWS fails for long; all that is there stays as it is, for the same command to go on with.
            KeyboardInterrupt: the user has had enough; likewise.
        """
        self._book.recall()
        self._book.look()
        self._run.begin()
        with self._board:
            while not until_answered(self._tick, self._board.say, self._wait):
                self._wait()
        return until_answered(self._last_look, self._board.say, self._wait)

    def _wait(self) -> None:
        self._pace.sleep(self._pace.interval_s)

    def _tick(self) -> bool:
        """Look and act once; whether all is over."""
        # EC2 first: what S3 shows after an instance was seen to be gone is all that it ever handed over.
        boxes = self._cloud.boxes()
        self._book.look()
        strays = self._run.see(boxes, self._clock.now)
        if strays:
            self._cloud.terminate([box.instance_id for box in strays])
        awaited = self._run.awaited()
        if awaited:
            self._run.indexes |= {key for key in awaited & self._index_keys() if self._has_index(key)}
        self._doing.do(decide(self._run.world()))
        self._board.update(self._run)
        return not self._run.open

    def _last_look(self) -> Ended:
        """Verify that nothing of the run is alive, whatever was seen before."""
        alive = [box for box in self._cloud.boxes() if box.alive]
        if alive:
            self._cloud.terminate([box.instance_id for box in alive])
            interval = max(self._pace.interval_s, 0.01)
            alive = fleet.wait_gone(
                self._cloud.boxes, most_s=self._pace.last_wait_s, interval_s=interval, sleep=self._pace.sleep
            )
        if not alive and self._run.stopping is None:
            self._book.close()
        return Ended(
            given_up=tuple(self._doing.given_up),
            stopped=self._run.stopping,
            alive=tuple(alive),
            usd=self._run.usd_so_far,
        )
