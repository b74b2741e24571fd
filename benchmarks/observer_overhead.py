"""Measure the share of a CPU that harness uses while a job runs."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
import timeit
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.spec import K, spec
from benchmarks.table import Line
from harness.launch.base import LaunchRequest, Limits, Prepared
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog
from harness.launch.monitor.sources import ProcessTree

# As many processes as a busy server has.
_PROCESSES = 500
LIMITS = Limits(load_s=60, query_s=10, build_s=60, job_s=120)


def lines(launcher: DockerLauncher) -> list[Line]:
    """Measure it, for the sampling thread and for all of harness."""
    sampler, everything = _shares(launcher)
    own_ms, psutil_ms = _process_tree_ms()
    return [
        Line("the sampling thread, during a job", f"{sampler:.2%}", "0", "of a CPU", "1 %", sampler < 0.01),
        Line("all of harness, during a job", f"{everything:.2%}", "0", "of a CPU", "2 %", everything < 0.02),
        Line(
            f"find a job's processes among {_PROCESSES}, against psutil's children",
            f"{own_ms:.2f} ms",
            f"{psutil_ms:.2f} ms",
            f"{own_ms / psutil_ms:.2f} x",
            "1 x",
            own_ms < psutil_ms,
        ),
    ]


def _process_tree_ms() -> tuple[float, float]:
    """Return the CPU time of one reading of a process's tree, by the sampler and by psutil's ``children``."""
    idle = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(_PROCESSES)]
    try:
        job = idle[0].pid
        tree = ProcessTree(job)
        tree.pids()  # reads every process once
        readings = (tree.pids, lambda: psutil.Process(job).children(recursive=True))
        own_s, psutil_s = (min(timeit.repeat(read, time.thread_time, number=10, repeat=5)) / 10 for read in readings)
    finally:
        for process in idle:
            process.kill()
            process.wait()
    return own_s * 1e3, psutil_s * 1e3


def _shares(launcher: DockerLauncher) -> tuple[float, float]:
    """Return the shares of a CPU during a sleeping job: of the sampling thread, and of the process.

    The process's share is a long job less a short one: both include start, end and canary.
    """
    prepared = launcher.prepare(catalog.system("calibration"))
    taken, sampler = [], _ThreadTime("sampler")
    for queries in (20, 20, 520):  # the first pays for what later ones find ready
        with tempfile.TemporaryDirectory() as folder:
            job = _sleeping_job(Path(folder), prepared, queries)
            sampler.clear()
            start, start_cpu = time.perf_counter(), time.process_time()
            ended = launcher.launch(job, lambda *_: sampler.read())
            taken.append((time.perf_counter() - start, time.process_time() - start_cpu))
        if ended.exit_code:
            raise SystemExit(f"the sleeping job failed: {ended.log[-300:]!r}")
    _, (short_s, short_cpu_s), (long_s, long_cpu_s) = taken
    return sampler.share(), (long_cpu_s - short_cpu_s) / (long_s - short_s)


class _ThreadTime:
    """CPU time of the thread of a name, as the kernel counts it; to be read now and again while the thread lives."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._readings: list[tuple[float, int]] = []

    def clear(self) -> None:
        """Begin anew."""
        self._readings = []

    def read(self) -> None:
        """Take a reading, if the thread is there."""
        for thread in threading.enumerate():
            if thread.name == self._name:
                ran_ns = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii").split()[0]
                self._readings.append((time.perf_counter(), int(ran_ns)))

    def share(self) -> float:
        """Of one CPU, from the first reading to the last."""
        (first_s, first_ns), (last_s, last_ns) = self._readings[0], self._readings[-1]
        return (last_ns - first_ns) / 1e9 / (last_s - first_s)


def _sleeping_job(folder: Path, prepared: Prepared, queries: int) -> LaunchRequest:
    (folder / "out").mkdir()
    (folder / "index").mkdir()
    (folder / "index" / "ids.json").write_text(json.dumps([f"d{n}" for n in range(K)]), encoding="utf-8")
    folder.chmod(0o755)
    job_spec = replace(spec(queries), system="calibration", params={"service_ms": 20, "how": "sleep"})
    return LaunchRequest(job_spec, prepared, folder, folder / "index", folder / "index", LIMITS)
