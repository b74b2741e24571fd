"""A system with a scripted need for memory, on a launcher that runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from io import StringIO

import pytest
from rich.console import Console

from harness.driver.records import Outcome
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.probe import MIB, SubjectJobs, subject
from harness.experiments.viability.session import Question
from harness.launch import fake
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog
from harness.launch.monitor.traces import MemoryTrace
from harness.progress import Progress, show_progress
from harness.results.schema import CanaryReading
from tests.conftest import Bench
from tests.support import sample_records

CALM = (sample_records.canary(), sample_records.canary())
# The machine took three times as long for the same work within one job.
STIRRED = (sample_records.canary(cpu_s=0.010), sample_records.canary(cpu_s=0.030))


@dataclass
class Life:
    """Life of a fake container: outcome, milliseconds per query, first hit, canary readings."""

    outcome: Outcome = Outcome.OK
    ms: float = 10.0
    first: str = "d0"
    canary: tuple[CanaryReading, ...] = CALM
    wall_s: float = 60.0


# Limit in MiB (None: unconstrained), how often it was launched before -> what becomes of it.
Script = Callable[[int | None, int], Life]


@dataclass
class Scripted(FakeLauncher):
    """Launches as the script says, and counts."""

    script: Script
    anonymous: int = 100
    cgroup_peak: int = 150
    limits: list[int | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        if job.spec.kind == "build":
            return super().launch(job, progress)
        mib = job.spec.envelope.memory_bytes // MIB
        limit = None if mib > 8000 else mib
        life = self.script(limit, self.limits.count(limit))
        self.limits.append(limit)
        self._script = lambda _: life.outcome
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fake._Samples, "_service_ns", lambda *_: round(life.ms * 1e6))
            ids = [life.first, *(f"d{number}" for number in range(10) if f"d{number}" != life.first)]
            patch.setattr(fake, "_first_ids", lambda _, count: ids[:count])
            ended = super().launch(job, progress)
        trace = MemoryTrace(
            anon=((0, min(self.anonymous, mib) * MIB),),
            peak_mapped_bytes=30 * MIB,
            peak_cgroup_bytes=min(self.cgroup_peak, mib) * MIB,
            source="fake",
            interval_s=1.0,
        )
        return replace(ended, memory=trace, canary=life.canary, wall_s=life.wall_s)


@dataclass
class Questions:
    """Opens questions about one subject, all on the same results."""

    bench: Bench
    messages: StringIO = field(default_factory=StringIO)
    stack: ExitStack = field(default_factory=ExitStack)

    def __call__(
        self,
        script: Script,
        criteria: Criteria | None = None,
        *,
        step: int = Question.step,
        fresh: bool = False,
        **facts: int,
    ) -> tuple[Question, Scripted]:
        launcher = Scripted(script, **facts)
        self.messages = StringIO()
        about = subject(catalog.system("planted"), self.bench.folder / "tiny", self.bench.cache, 4)
        self.stack.close()
        self.stack.enter_context(show_progress(Console(file=self.messages, width=300)))
        jobs = SubjectJobs(about, self.bench.results, self.bench.cache, launcher, fresh=fresh)
        return Question(jobs, criteria or Criteria(), step=step), launcher


@pytest.fixture
def questions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Questions]:
    # A host of 16 GiB and two CPUs, whatever this one is.
    monkeypatch.setattr("harness.launch.host.memory_bytes", lambda: 16 << 30)
    monkeypatch.setattr("harness.launch.host.cpus", lambda: 2)
    questions = Questions(bench)
    with questions.stack:
        yield questions


def needs(mib: int, **otherwise: object) -> Script:
    """Killed below so many MiB, and else as the keys say."""
    return lambda limit, _: Life(Outcome.OOM) if limit is not None and limit < mib else Life(**otherwise)
