"""What the host sees of a container's limits: each that is off is named, what is not shown is not held against it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness import cgroup
from harness.cgroup import Cgroup
from harness.launch import enforced
from harness.records import Cpuset, Envelope, Outcome
from tests.test_cgroup import ID, RECORDED, V1_PROCESS

ASKED = Envelope("cpu2-mem64m", cpus=2, memory_bytes=64 << 20)
ASKED_V2 = Envelope("cpu2-mem256m", cpus=2, memory_bytes=256 << 20)
CPUSET = Cpuset((2, 3), (1,))


class Host:
    """A cgroup tree with one container in it."""

    def __init__(self, root: Path, version: int) -> None:
        self.version, self.asked = version, ASKED if version == 1 else ASKED_V2
        self.folders = {}
        for name in ("memory", "cpu", "pids", "cpuset") if version == 1 else ("",):
            self.folders[name] = root / name / "docker" / ID
            source = RECORDED / f"cgroup-v{version}" / name
            shutil.copytree(source, self.folders[name]) if source.is_dir() else self.folders[name].mkdir(parents=True)
        for folder in (self.folders.get("memory") or self.folders[""]).parents[:2]:
            (folder / "cgroup.procs").touch()
        found = cgroup.of_process(V1_PROCESS if version == 1 else f"0::/docker/{ID}\n", root)
        assert found is not None
        self.group: Cgroup = found
        self.holds("2-3", "1")

    def holds(self, cpus: str, nodes: str) -> None:
        """Hold the container to these."""
        names = ("effective_cpus", "effective_mems") if self.version == 1 else ("cpus.effective", "mems.effective")
        for name, text in zip(names, (cpus, nodes), strict=True):
            (self.folders.get("cpuset", self.folders.get("", Path())) / f"cpuset.{name}").write_text(text + "\n")

    def limit_memory(self, size: int, up: int = 0) -> None:
        """Limit the container, or the cgroup so many levels up."""
        folder = self.folders.get("memory", self.folders.get("", Path()))
        folder = folder.parents[up - 1] if up else folder
        (folder / ("memory.limit_in_bytes" if self.version == 1 else "memory.max")).write_text(f"{size}\n")

    def set_quota(self, up: int = 0) -> None:
        """Half a CPU."""
        folder = self.folders.get("cpu", self.folders.get("", Path()))
        folder = folder.parents[up - 1] if up else folder
        if self.version == 2:
            (folder / "cpu.max").write_text("50000 100000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text("50000\n")
            (folder / "cpu.cfs_period_us").write_text("100000\n")

    def refused(self, cpuset: Cpuset = CPUSET) -> str | None:
        """What is said of it."""
        stopped = enforced.refusal(self.group, self.asked, cpuset)
        assert stopped is None or stopped.outcome is Outcome.ENVELOPE_MISMATCH
        return stopped.detail.removeprefix("seen from outside: ") if stopped else None


@pytest.fixture(params=[1, 2])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, request.param)


def test_nothing_is_said_when_all_holds(host: Host) -> None:
    assert host.refused() is None
    assert enforced.moved(host.group, CPUSET) is None
    host.limit_memory(1 << 40, up=1)
    assert host.refused() is None, "a parent may allow more"


def test_what_the_host_does_not_show_is_left_to_what_is_read_inside(host: Host, tmp_path: Path) -> None:
    assert enforced.refusal(None, ASKED, CPUSET) is None and enforced.moved(None, CPUSET) is None
    gone = Cgroup(host.version, tmp_path / "a", tmp_path / "a", tmp_path / "a")
    assert enforced.refusal(gone, ASKED, CPUSET) is None and enforced.moved(gone, CPUSET) is None


def test_other_cpus_and_nodes_are_named_at_the_start_and_later(host: Host) -> None:
    host.holds("0-1", "1")
    assert host.refused() == "held to CPUs 0-1, asked for CPUs 2-3"
    host.holds("2-3", "0-1")
    assert host.refused() == "memory from NUMA nodes 0-1, asked for nodes 1"
    assert host.refused(Cpuset((2, 3))) is None, "a host without nodes holds memory to none"
    host.holds("3", "0")
    moved = enforced.moved(host.group, CPUSET)
    assert moved is not None and moved.outcome is Outcome.ENVELOPE_MISMATCH
    said = "held to CPUs 3, asked for CPUs 2-3; memory from NUMA nodes 0, asked for nodes 1"
    assert moved.detail == f"seen from outside: {said}"


def test_a_limit_that_is_not_the_one_asked_for_is_named(host: Host) -> None:
    host.limit_memory(1 << 20)
    assert host.refused() == f"memory limit 1048576 bytes, asked for {host.asked.memory_bytes}"
    host.limit_memory((1 << 63) - 4096)
    assert host.refused() == f"memory limit -1 bytes, asked for {host.asked.memory_bytes}"


def test_a_quota_is_named(host: Host) -> None:
    host.set_quota()
    assert host.refused() == "CPU quota of 0.5 CPUs, asked for none"


@pytest.mark.parametrize("up", [1, 2])
def test_limits_of_a_parent_cgroup_hold_too_and_are_named(host: Host, up: int) -> None:
    host.set_quota(up)
    folder = host.group.cpu.parents[up - 1]
    assert host.refused() == f"{folder} has a CPU quota of 0.5 CPUs, asked for none"
    host.limit_memory(1 << 20, up)
    folder = host.group.memory.parents[up - 1]
    asked = host.asked.memory_bytes
    assert f"{folder} has a memory limit of 1048576 bytes, asked for {asked}" in (host.refused() or "")
