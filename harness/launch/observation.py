"""The host's observation of one job, the same for every launcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from harness.driver.procfs import OpenFiles, ReadFile
from harness.launch import host
from harness.launch.base import LaunchEnd, LaunchRequest, StopReason
from harness.launch.monitor import gpu, instructions, rapl
from harness.launch.monitor.canary import Canary
from harness.launch.monitor.sampler import Sampler
from harness.launch.monitor.sources import JobSource
from harness.launch.watch import JobWatch
from harness.progress import Progress
from harness.results.schema import CanaryReading, Placement

_POLL_S = 0.25  # between two polls of a job's watch, some dozens of system calls each


class ObservedJob:
    """One job, seen from outside; made by :func:`observed`, or without counters of the machine."""

    def __init__(
        self,
        job: LaunchRequest,
        placement: Placement,
        canary: Canary | None = None,
        gpus: gpu.JobGpus | None = None,
        packages: rapl.PackageCounters | None = None,
        counter: instructions.EventCounter | None = None,
    ) -> None:
        self._job, self._placement, self._canary = job, placement, canary
        self._gpus, self._packages, self._counter = gpus, packages, counter
        self.readings: list[CanaryReading] = []
        self._wall_s = 0.0

    def read_canary(self, when: str) -> None:
        """Read the machine's speed ``before``, ``between`` or ``after`` the trials, or around the build."""
        if self._canary is None:
            return
        self._canary.prepare(self._placement)  # at the first look alone, and outside its time
        # The job's folder is on the disk of the results, and goes with the job.
        reading = self._canary.read(when, self._placement, self._job.folder)
        self.readings.append(replace(reading, gpu=self._gpus.read()) if self._gpus else reading)

    def begin(self) -> None:
        """Start the job's clock; to be called just before the job."""
        self._started, self._watch = time.monotonic(), JobWatch(self._job)

    def reach_load(self, ended: threading.Event) -> StopReason | None:
        """Wait until the job begins to load or to build, or ends (None), or must be stopped."""
        phase = "build" if self._job.spec.kind == "build" else "load"
        while self._watch.progress.phase != phase and not ended.wait(self._watch.ask_s):
            if stopped := self._watch.poll():
                return stopped
        return None

    @contextmanager
    def sampling(self, source: Callable[[ReadFile], JobSource]) -> Iterator[None]:
        """Sample memory and counters while the block runs, which ends with the job.

        Args:
            source: makes their source, given a reader that keeps files open.
        """
        with closing(OpenFiles()) as files:
            self._sampler = Sampler(source(files), self._gpus, self._packages, self._counter)
            with self._sampler:
                yield
        self._wall_s = time.monotonic() - self._started

    def follow(
        self, ended: threading.Event, progress: Progress, check: Callable[[], StopReason | None] = lambda: None
    ) -> StopReason | None:
        """Follow the job until it ends (None) or must be stopped.

        Args:
            ended: the job's end.
            progress: takes the steps of its phases.
            check: returns another reason to stop it, at each poll.
        """
        watch, sampler = self._watch, self._sampler
        next_poll, seen = 0.0, (watch.progress.phase, 0)
        while not ended.wait(watch.ask_s):
            if not watch.stirred() and time.monotonic() < next_poll:
                continue
            stopped = watch.poll() or check()
            next_poll = time.monotonic() + _POLL_S
            reached = (watch.progress.phase, len(watch.handed))
            if reached != seen:
                sampler.mark()
            seen = reached
            progress(watch.progress.done, watch.progress.total, watch.progress.phase)
            if stopped:
                return stopped
            if watch.paused is not None:
                # The look works on the job's CPUs: what is counted between these two marks is ours.
                if watch.between:
                    sampler.mark()
                    self.read_canary("between")
                sampler.mark()
                watch.answer()
        return watch.follow()

    def end(
        self, exit_code: int | None, log: bytes, stopped: StopReason | None, *, oom_killed: bool = False
    ) -> LaunchEnd:
        """Return the end of the job with all that was seen of it, after a last reading of the canary."""
        self.read_canary("after")
        sampler, watch = self._sampler, self._watch
        return LaunchEnd(
            exit_code=exit_code,
            oom_killed=oom_killed,
            oom_kills=sampler.oom_kills,
            throttled_periods=sampler.throttled_periods,
            stopped=stopped,
            memory=sampler.memory(),
            wall_s=self._wall_s,
            log=log,
            counters=sampler.counters(),
            gpus=sampler.gpus(),
            canary=tuple(self.readings),
            placement=self._placement,
            handed=tuple(watch.handed),
            ready_s=watch.ready_s,
        )


@contextmanager
def observed(job: LaunchRequest, placement: Placement, canary: Canary) -> Iterator[ObservedJob]:
    """Observe a job from before its start: harness leaves its CPUs, and the machine's speed is read.

    What GPUs hold now is their baseline, so the job must not run yet.
    """
    with (
        host.aside(placement),
        gpu.following(job.spec.envelope.gpus) as gpus,
        rapl.following(placement.cpus) as packages,
        instructions.following() as counter,
    ):
        seen = ObservedJob(job, placement, canary, gpus, packages, counter)
        seen.read_canary("before")
        yield seen
