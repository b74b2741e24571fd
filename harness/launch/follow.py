"""Follow a running job: hand it its queries, look at the machine between its trials, stop it where it must be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from harness.launch.base import Job, Progress, Stopped
from harness.launch.canary import Canary
from harness.launch.gpu import JobGpus
from harness.launch.sampler import Sampler
from harness.launch.watch import Watch
from harness.result import CanaryReading, Placement

# How often a job is asked whether it has said anything (one system call), and looked at altogether (some dozens).
# A job that waits for its queries waits half of the first, and the end of a trial is known as exactly: ask it often.
_ASK_S = 0.1
_ASK_PAUSING_S = 0.01
_POLL_S = 0.25


class Looks:
    """The looks at the machine that belong to one job."""

    def __init__(self, canary: Canary, placement: Placement, job: Job, gpus: JobGpus | None = None) -> None:
        self._canary = canary
        self._placement = placement
        self._job = job
        self._gpus = gpus
        self.taken: list[CanaryReading] = []

    def look(self, when: str) -> None:
        """Take one: ``before``, ``between`` or ``after``.  Building an index has no trials and needs none."""
        if self._job.spec.kind == "search":
            self._canary.prepare(self._placement)  # at the first look alone, and outside its time
            # The job's folder lies beside the results, and goes with the job.
            reading = self._canary.look(when, self._placement, self._job.folder)
            self.taken.append(replace(reading, gpu=self._gpus.look()) if self._gpus else reading)


def follow(
    watch: Watch,
    ended: threading.Event,
    progress: Callable[[Progress], None],
    looks: Looks,
    sampler: Sampler | None,
    check: Callable[[], Stopped | None] = lambda: None,
) -> Stopped | None:
    """Stay with a job until it ends (None) or must be stopped (why).

    Args:
        check: asked at each poll for another reason to stop it.
    """
    next_poll, seen = 0.0, (watch.progress.phase, 0)
    while not ended.wait(_ASK_PAUSING_S if watch.pausing else _ASK_S):
        if not watch.stirred() and time.monotonic() < next_poll:
            continue
        stopped = watch.poll() or check()
        next_poll = time.monotonic() + _POLL_S
        if sampler and seen != (watch.progress.phase, len(watch.handed)):
            sampler.mark()
        seen = (watch.progress.phase, len(watch.handed))
        progress(watch.progress)
        if stopped:
            return stopped
        if watch.paused is not None:
            # The look works on the job's CPUs: what is counted between these two marks is ours.
            if watch.between:
                if sampler:
                    sampler.mark()
                looks.look("between")
            if sampler:
                sampler.mark()
            watch.answer()
    return watch.follow()
