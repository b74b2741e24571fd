"""The host measures a real container from outside: placement, canary, counters, peaks.

The containers run a script of the test's instead of the driver.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from harness.driver.records import Envelope, Outcome, Phase
from harness.jobs import collect
from harness.launch import container as module
from harness.launch import cpu_placement
from harness.launch.base import LaunchEnd, LaunchRequest, Limits, Prepared, StopReason
from harness.launch.docker import DockerLauncher
from harness.launch.monitor import instructions, traces
from harness.progress import Progress, silent
from harness.results.reader import read_jobs
from harness.results.schema import Counters
from tests.conftest import Bench
from tests.launch.test_docker import ours
from tests.support.job_fixtures import FULL_SPEC

pytestmark = pytest.mark.docker

PHASE = """
import json, time
out = open("/job/out/events.jsonl", "ab", buffering=0)
def say(**event):
    out.write(json.dumps(event).encode() + b"\\n")
"""
SPIN = PHASE + "say(phase='trial-0')\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\n"
# Until a quota that comes while it runs has held it up for some seconds, as its own cgroup says: the host reads its
# counters twice in that time, even on a busy machine.
UNTIL_THROTTLED = (
    PHASE
    + """
from pathlib import Path
def throttled():
    files = [Path("/sys/fs/cgroup/cpu/cpu.stat"), Path("/sys/fs/cgroup/cpu.stat")]  # of cgroup v1, of v2
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    return next(int(line.split()[1]) for line in lines if line.startswith("nr_throttled "))
say(phase="trial-0")
end = time.monotonic() + 50
while time.monotonic() < end and throttled() < 40: pass
"""
)

LIMITS = Limits(60, 60, 60, 60)


class Rig:
    """Launches scripts in containers of the sample image."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.script = bench, ""
        self.launcher = DockerLauncher(bench.cache)
        create_arguments = module.create_arguments
        monkeypatch.setattr(
            module,
            "create_arguments",
            lambda *given, **more: {**create_arguments(*given, **more), "entrypoint": ["python3", "-c", self.script]},
        )
        from harness.launch.images import catalog

        self.system = catalog.systems(bench.folder / "engines")["planted"]

    def launch(
        self,
        script: str,
        memory_mib: int = 256,
        seen: Progress = silent,
        limits: Limits = LIMITS,
        corpus: Path | None = None,
    ) -> LaunchEnd:
        self.script = script
        folder = self.bench.folder / f"job-{time.monotonic_ns()}"
        for name in ("out", "corpus", "index"):
            (folder / name).mkdir(parents=True)
        (folder / "spec.json").write_text("{}")
        spec = replace(FULL_SPEC, envelope=Envelope("cpu1", 1, memory_mib << 20), pause=True)
        prepared: Prepared = self.launcher.prepare(self.system)
        job = LaunchRequest(spec, prepared, folder, corpus or folder / "corpus", folder / "index", limits)
        return self.launcher.launch(job, seen)


@pytest.fixture
def rig(bench: Bench, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("HARNESS_CPU_LEASES", raising=False)  # tests beside this one may hold all CPUs
    made = Rig(bench, monkeypatch)
    yield made
    made.launcher.close()


def counted(ended: LaunchEnd) -> Counters:
    """Return all counts as those of one trial."""
    readings = ended.counters.readings
    return ended.counters.summary((Phase("trial-0", readings[0].t_ns, readings[-1].t_ns),))


def test_job_is_placed_checked_between_trials_and_counted(
    bench: Bench, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real driver waits between trials until the host's canary has run."""
    monkeypatch.delenv("HARNESS_CPU_LEASES", raising=False)  # tests beside this one may hold all CPUs
    # In place of instructions the kernel counts nanoseconds, which it does on every machine.
    monkeypatch.setattr(instructions, "_INSTRUCTIONS", (1, 1))
    monkeypatch.setattr(traces, "_LEAST_SLACK_NS", 10**10)  # tests beside this one delay the readings
    bench.plant("slow", service_s=0.1)
    launcher = DockerLauncher(bench.cache)
    bench.run(launcher, bench.suite(systems=["slow"]))
    launcher.close()
    (job,) = read_jobs(bench.results)
    result = job.result
    assert result.outcome is Outcome.OK, result.detail
    trials = {phase.name: phase for phase in result.measured.phases if phase.name.startswith("trial")}
    before, between, after = result.observed.canary
    assert [reading.when for reading in result.observed.canary] == ["before", "between", "after"]
    assert before.t_ns < trials["trial-0"].start_ns < trials["trial-0"].end_ns < between.t_ns
    assert between.t_ns + between.took_s * 1e9 < trials["trial-1"].start_ns < trials["trial-1"].end_ns < after.t_ns
    assert result.observed.placement.cpus == result.measured.effective.cpus
    if len(os.sched_getaffinity(0)) > 1:
        assert result.observed.placement.apart and not set(result.observed.placement.harness_cpus) & set(
            result.observed.placement.cpus
        )
    found = result.observed.counters
    # 8 queries of 0.1 s, from and to the nearest readings; a job that sleeps uses next to none of it.
    assert found.wall_s is not None and found.wall_s > 0.6
    assert found.cpu_s is not None and found.cpu_s < found.wall_s / 2
    assert (found.throttled_s, found.swap_bytes) == (0.0, 0)
    assert result.observed.memory.peak_mapped_bytes is not None
    if instructions.reason_not_counted() is None:
        assert [one.trial for one in result.observed.trial_cpu] == [0, 1]
        for one in result.observed.trial_cpu:
            assert one.instructions is not None, "all of the job's CPU time was counted"
            # The kernel adds to a cgroup's CPU time once a tick while a thread runs.
            assert one.instructions == pytest.approx(one.cpu_s * 1e9, rel=0.02, abs=10e6)


def test_spinning_job_uses_its_cpu_and_a_rival_is_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cpu_placement.VARIABLE, raising=False)  # so that it is known which CPU the job gets
    alone = counted(rig.launch(SPIN))
    # Whatever else runs on this machine took the rest, and says so.
    assert alone.cpu_s + alone.foreign_cpu_s + alone.steal_s > 0.8 * min(2, alone.wall_s)
    cpu = max(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    rival = subprocess.Popen([sys.executable, "-c", code])
    try:
        contested = rig.launch(SPIN)
    finally:
        rival.kill()
        rival.wait()
    found = counted(contested)
    assert contested.placement is not None and contested.placement.cpus == (cpu,)
    assert found.foreign_cpu_s > 0.2 * found.wall_s
    assert found.wait_s > 0.2 * found.wall_s
    assert found.cpu_s < 0.85 * found.wall_s


def test_throttling_by_a_quota_set_during_a_job_is_counted(rig: Rig, engine: docker.DockerClient) -> None:
    throttled: list[str] = []

    def throttle(_done: int, _total: int = 0, phase: str = "", /) -> None:
        if phase == "trial-0" and not throttled:  # told again after the end of the job, which is too late
            for container in ours(engine):
                container.update(cpu_period=100_000, cpu_quota=5_000)
                throttled.append(container.id)

    ended = rig.launch(UNTIL_THROTTLED, seen=throttle)
    found = counted(ended)
    assert found.throttled_s is not None and found.throttled_s > 0
    assert ended.throttled_periods is not None and ended.throttled_periods > 0


def test_job_moved_to_other_cpus_is_stopped(rig: Rig, engine: docker.DockerClient) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU has no other")

    def move(_done: int, _total: int = 0, phase: str = "", /) -> None:
        if phase == "trial-0":
            for container in ours(engine):
                container.update(cpuset_cpus="0")

    ended = rig.launch(PHASE + "say(phase='trial-0')\ntime.sleep(60)", seen=move)
    assert ended.placement is not None and ended.wall_s < 30
    asked = ended.placement.cpus[0]
    message = f"seen from outside: held to CPUs 0, asked for CPUs {asked}"
    assert ended.stopped == StopReason(Outcome.ENVELOPE_MISMATCH, message)


@pytest.mark.parametrize("child", [False, True])
def test_short_memory_peak_is_recorded(rig: Rig, child: bool) -> None:
    hold = "import time; held = bytearray(200 << 20); time.sleep(0.5)"
    if child:
        hold = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    ended = rig.launch(PHASE + "time.sleep(0.5)\n" + hold + "\ntime.sleep(0.3)", memory_mib=512)
    empty = rig.launch(PHASE + "time.sleep(0.5)")
    peak, base = (end.memory.summary().peak_anon_bytes for end in (ended, empty))
    assert abs(peak - base - (200 << 20)) < 8 << 20


def test_memory_peak_before_an_oom_kill_is_recorded(rig: Rig) -> None:
    ended = rig.launch("held = bytearray(4 << 30)")
    peak = ended.memory.summary().peak_anon_bytes
    # Old engines on cgroup v2 may miss it: then the cgroup's own counter tells.
    assert (ended.oom_killed or ended.oom_kills) and ended.exit_code == 137
    assert peak is not None and 64 << 20 < peak <= 256 << 20


def test_thrashing_job_is_distinguished_from_a_hang(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel kills no process while it can drop file pages."""
    monkeypatch.setattr(collect, "_STRETCH_S", 1)
    corpus = rig.bench.folder / "mapped"
    corpus.mkdir()
    with (corpus / "file").open("wb") as file:
        file.write(b"x" * (128 << 20))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # so that reading it is charged to the job
    hold = "held = bytearray(b'x') * (215 << 20)\nsay(phase='load')\n"
    thrash = """
import mmap, random
with open("/corpus/file", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
mapped.madvise(mmap.MADV_RANDOM)
while True:
    mapped[random.randrange(len(mapped))]
"""
    limits = Limits(4, 60, 60, 60)
    thrashed = rig.launch(PHASE + hold + thrash, limits=limits, corpus=corpus)
    assert thrashed.stopped == StopReason(Outcome.TIMEOUT, "load took more than 4 s")
    message = collect.at_limit(thrashed, 256 << 20)
    assert message is not None and re.match(r"2\d\d of 256 MiB were anonymous, .* major faults a second", message), (
        message
    )
    hung = rig.launch(PHASE + hold + "time.sleep(60)", limits=limits, corpus=corpus)
    assert hung.stopped == thrashed.stopped and collect.at_limit(hung, 256 << 20) is None
