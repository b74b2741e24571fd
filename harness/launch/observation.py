"""The host's observation of one job, the same for every launcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from harness.driver.procfs import OpenFiles, ReadFile
from harness.launch import host
from harness.launch.base import LaunchEnd, LaunchRequest, StopReason
from harness.launch.monitor import gpu, instructions, rapl
from harness.launch.monitor.canary import Canary
from harness.launch.monitor.sampler import Sampler
from harness.launch.monitor.sources import JobSource
from harness.launch.watch import CanaryLog, JobWatch, follow
from harness.progress import Progress
from harness.results.schema import Placement


class ObservedJob:
    """One job, seen from outside; made by :func:`observed`."""

    def __init__(
        self,
        job: LaunchRequest,
        placement: Placement,
        canary_log: CanaryLog,
        gpus: gpu.JobGpus | None,
        packages: rapl.PackageCounters | None,
        counter: instructions.EventCounter | None,
    ) -> None:
        self._job, self._placement, self._canary_log = job, placement, canary_log
        self._gpus, self._packages, self._counter = gpus, packages, counter
        self._wall_s = 0.0

    def begin(self) -> None:
        """Start the job's clock; to be called just before the job."""
        self._started, self._watch = time.monotonic(), JobWatch(self._job)

    def reach(self, phase: str, ended: threading.Event) -> StopReason | None:
        """Wait until the job begins this phase or ends (None), or must be stopped."""
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
        """Follow the job until it ends (None) or must be stopped, as :func:`harness.launch.watch.follow`."""
        return follow(self._watch, ended, progress, self._canary_log, self._sampler, check)

    def end(
        self, exit_code: int | None, log: bytes, stopped: StopReason | None, *, oom_killed: bool = False
    ) -> LaunchEnd:
        """Return the end of the job with all that was seen of it, after a last reading of the canary."""
        self._canary_log.take("after")
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
            canary=tuple(self._canary_log.taken),
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
        canary_log = CanaryLog(canary, placement, job, gpus)
        canary_log.take("before")
        yield ObservedJob(job, placement, canary_log, gpus, packages, counter)
