"""A box's signs of life: written to S3 by a thread of their own, whatever the agent is busy with."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import replace

from harness.aws import metadata
from harness.aws.objects import Objects
from harness.errors import AwsError
from harness.remote import layout
from harness.remote.records import Beat, dump

INTERVAL_VARIABLE = "HARNESS_BEAT_S"
# How often EC2 is asked whether it takes this machine away: it says so two minutes before.
_NOTICE_S = 5.0
# The log goes along with every so manieth beat.
_LOG_EVERY = 10
_NICE = 10


class Pulse:
    """Beats until it is stopped.  A beat that S3 does not take is left out."""

    def __init__(self, run: Objects, first: Beat, look: Callable[[Beat], Beat], log: Callable[[], None]) -> None:
        """``look`` brings a beat up to date; ``log`` brings the log to S3."""
        self._run = run
        self._look = look
        self._log = log
        self._beat = first
        self._stop = threading.Event()
        self._interval_s = float(os.environ.get(INTERVAL_VARIABLE) or 30.0)
        self._thread = threading.Thread(target=self._beats, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._write()  # how it stood at the end

    @property
    def notice(self) -> str | None:
        """What EC2 has announced, if it has."""
        return self._beat.notice

    def _beats(self) -> None:
        with contextlib.suppress(OSError):  # what is measured comes first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        count, until_beat = 0, 0.0
        while True:
            noticed = self._notice()
            if noticed or until_beat <= 0:
                self._write()
                if count % _LOG_EVERY == 0 or noticed:
                    self._log()
                count, until_beat = count + 1, self._interval_s
            pause = min(until_beat, _NOTICE_S)
            if self._stop.wait(pause):
                return
            until_beat -= pause

    def _notice(self) -> bool:
        """Ask EC2; whether it has announced something new."""
        said = metadata.spot_notice()
        if said is None or said == self._beat.notice:
            return False
        self._beat = replace(self._beat, notice=said)
        return True

    def _write(self) -> None:
        self._beat = self._look(self._beat)
        with contextlib.suppress(AwsError):
            self._run.put(layout.beat(self._beat.part), dump(self._beat))
