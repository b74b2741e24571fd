"""Records what cgroup v2 shows of real containers, from the host and from inside; see ``cgroup-v2/README.md``.

    python -m tests.support.record_cgroup_v2 IMAGE FOLDER NAME...

As root on a host with cgroup v2, swap on, and a Docker engine that has an image with Python and coreutils.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from harness.driver import cgroup
from harness.driver.records import Envelope
from harness.launch.base import LaunchRequest, Limits
from harness.launch.container import create_arguments, group_of
from harness.results.schema import Placement
from tests.support.job_fixtures import FULL_SPEC, PREPARED

MIB = 1 << 20
PLACEMENT = Placement((1,), (0,), True, (0,), apart=True)
FILES = [
    "cgroup.controllers",
    "cgroup.threads",
    "cpu.max",
    "cpu.stat",
    "cpuset.cpus.effective",
    "memory.current",
    "memory.events",
    "memory.max",
    "memory.peak",
    "memory.stat",
    "memory.swap.current",
    "memory.swap.max",
    "pids.current",
    "pids.max",
]

# Each signal is the next step.  Known sizes, so that what the kernel shows can be held against them.
WORKLOAD = """
import mmap, os, signal, subprocess, sys, time

def take(mib):
    return [bytearray(b"x" * (1 << 20)) for _ in range(mib)]

def spin():
    while time.process_time() < 2:
        pass

def child(code, wait):
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    return started.wait() if wait else started.stdout.readline()

TAKE = "held = [bytearray(b'x' * (1 << 20)) for _ in range(%d)]; print(1, flush=True); import time; time.sleep(900)"
steps = iter(("before", "busy", "killed", "end"))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
for step in steps:
    if step == "busy":
        held = take(48)
        child(TAKE % 16, wait=False)
        with open("/dev/shm/shared", "wb") as shared:
            shared.write(b"x" * (4 << 20))
        with open("/index/mapped", "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        sum(mapped[place] for place in range(0, len(mapped), 4096))
        spin()
    if step == "killed":
        print("child ended:", child(TAKE % 1024, wait=True), flush=True)
    if step == "end":
        held += take(1024)
    print("at", step, flush=True)
    signal.sigwait({signal.SIGUSR1})
"""

# What differs from the harness's own arguments, and the moments that are recorded.
CONTAINERS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "limited": ({}, ("before", "busy", "killed")),
    "quota": ({"nano_cpus": 500_000_000}, ("busy",)),
    "swap": ({"mem_limit": 64 * MIB, "memswap_limit": 192 * MIB}, ("busy",)),
    # As an engine gives its containers where the host's administrator chose so.
    "host-namespace": ({"cgroupns": "host"}, ("busy",)),
    "unlimited": ({"mem_limit": None, "memswap_limit": None, "pids_limit": None}, ("busy",)),
}


def main(image: str, target: str, *names: str) -> None:
    """Record the containers of these names, all by default."""
    client = docker.from_env()
    for name in names or CONTAINERS:
        changes, moments = CONTAINERS[name]
        folder = Path(target) / name
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as work:
            job = _job(Path(work))
            arguments = {**create_arguments(job, PLACEMENT), "image": image, **changes}
            container = client.containers.create(entrypoint=["python3", "/job/workload.py"], **arguments)
            try:
                container.start()
                _record(container, moments, folder)
            finally:
                container.remove(force=True)


def _job(work: Path) -> LaunchRequest:
    for name in ("job/out", "index"):
        (work / name).mkdir(parents=True)
    work.chmod(0o755)
    (work / "job" / "workload.py").write_text(WORKLOAD)
    mapped = work / "index" / "mapped"
    mapped.write_bytes(os.urandom(16 * MIB))
    # Pages belong to the cgroup that touches them first; these are still ours.
    with mapped.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    spec = replace(FULL_SPEC, envelope=Envelope("recorded", 1, 256 * MIB))
    return LaunchRequest(spec, PREPARED, work / "job", work / "index", work / "index", Limits(60, 60, 60, 60))


def _record(container: Container, moments: tuple[str, ...], folder: Path) -> None:
    for moment in ("before", "busy", "killed"):
        if moment != "before":
            container.kill("USR1")
        while f"at {moment}\n" not in container.logs().decode():
            time.sleep(0.5)
        if moment not in moments:
            continue
        time.sleep(1)
        (folder / f"{moment}.host").write_bytes(_host(container))
        (folder / f"{moment}.docker.json").write_text(_dump(container.stats(stream=False, one_shot=True)))
        (folder / f"{moment}.inside").write_bytes(_inside(container))
        if moment == moments[-1]:
            break
    if "killed" in moments:  # then it is the first process's turn
        container.kill("USR1")
        container.wait()
    container.reload()
    kept = ("Memory", "MemorySwap", "NanoCpus", "PidsLimit", "CpusetCpus", "CpusetMems", "CgroupnsMode")
    config = {key: container.attrs["HostConfig"][key] for key in kept}
    logs = container.logs().decode().splitlines()
    recorded = {"Id": container.id, "State": container.attrs["State"], "HostConfig": config, "Logs": logs}
    (folder / "container.docker.json").write_text(_dump(recorded))


def _host(container: Container) -> bytes:
    container.reload()
    pid = container.attrs["State"]["Pid"]
    group = group_of(container.id or "?", Path(f"/proc/{pid}/cgroup").read_text())
    assert group is not None
    threads = group.threads() or []
    files = [
        *_once(group.memory),
        f"/proc/{pid}/cgroup",
        *(f"/proc/{thread}/{name}" for thread in threads for name in ("schedstat", "status")),
    ]
    return subprocess.run(["tail", "-n", "+1", *files], capture_output=True, check=True).stdout


def _inside(container: Container) -> bytes:
    membership = _said(container, "cat", "/proc/self/cgroup").decode()
    own = cgroup.ROOT / membership.strip().removeprefix("0::/")
    return _said(container, "tail", "-n", "+1", "/proc/self/cgroup", *_once(own))


def _once(group: Path) -> list[str]:
    files = [cgroup.ROOT / "cgroup.controllers", *(group / name for name in FILES)]
    return [str(path) for path in dict.fromkeys(files)]


def _said(container: Container, *command: str) -> bytes:
    code, text = container.exec_run(list(command))
    assert code == 0, text
    return bytes(text)


def _dump(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
