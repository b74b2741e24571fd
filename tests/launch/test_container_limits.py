"""The host names each wrong limit of a container and ignores hidden ones."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.driver import cgroup
from harness.driver.cgroup import Cgroup
from harness.launch import container
from harness.records import Cpuset, Envelope, Outcome
from tests.driver.test_cgroup import ID, V1_PROCESS
from tests.support.recorded_cgroups import DRIVERS, FOLDER, unfold

ASKED = Envelope("cpu2-mem64m", cpus=2, memory_bytes=64 << 20)
ASKED_V2 = Envelope("cpu2-mem256m", cpus=2, memory_bytes=256 << 20)
CPUSET = Cpuset((2, 3), (1,))
V1_NO_LIMIT = (1 << 63) - 4096


class Host:
    """A cgroup tree with one recorded container and no limits on its parents."""

    def __init__(self, root: Path, recording: str) -> None:
        self.version = 1 if recording == "cgroup-v1" else 2
        self.asked = ASKED if self.version == 1 else ASKED_V2
        membership = V1_PROCESS
        if self.version == 1:
            for name in ("memory", "cpu", "cpuacct", "pids", "cpuset"):
                folder, source = root / name / "docker" / ID, FOLDER / recording / name
                shutil.copytree(source, folder) if source.is_dir() else folder.mkdir(parents=True)
        else:
            seen = unfold(root, f"{recording}/limited/busy.host")
            root, membership = seen.cgroups, seen.membership
        found = cgroup.of_process(membership, root)
        assert found is not None and found.cpuset is not None
        self.group: Cgroup = found
        self.cpuset: Path = found.cpuset
        # The recordings end at the container.  A top with limits is that of a container's own namespace.
        for up in (1, 2):
            for folder in found.folders:
                (folder.parents[up - 1] / "cgroup.procs").touch()
            self.limit_memory("max" if self.version == 2 else V1_NO_LIMIT, up)
            self.set_quota(None, up)
            self.holds("0-3", "0-1", up)
        self.holds("2-3", "1")

    def holds(self, cpus: str, nodes: str, up: int = 0) -> None:
        """Restrict the container, or its parent ``up`` levels above, to these CPUs and nodes."""
        names = ("effective_cpus", "effective_mems") if self.version == 1 else ("cpus.effective", "mems.effective")
        for name, text in zip(names, (cpus, nodes), strict=True):
            (_up(self.cpuset, up) / f"cpuset.{name}").write_text(text + "\n")

    def limit_memory(self, size: int | str, up: int = 0) -> None:
        """Limit the memory of the container, or of a parent."""
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        (_up(self.group.memory, up) / name).write_text(f"{size}\n")

    def set_quota(self, cpus: float | None, up: int = 0) -> None:
        """Set the CPU quota of the container, or of a parent; None removes it."""
        folder, quota = _up(self.group.cpu, up), None if cpus is None else round(cpus * 100_000)
        if self.version == 2:
            (folder / "cpu.max").write_text(f"{'max' if quota is None else quota} 100000\n")
        else:
            (folder / "cpu.cfs_quota_us").write_text(f"{-1 if quota is None else quota}\n")
            (folder / "cpu.cfs_period_us").write_text("100000\n")

    def refused(self, cpuset: Cpuset = CPUSET) -> str | None:
        """Return the mismatch at the start."""
        stopped = container.limit_mismatch(self.group, self.asked, cpuset)
        assert stopped is None or stopped.outcome is Outcome.ENVELOPE_MISMATCH
        return stopped.detail.removeprefix("seen from outside: ") if stopped else None

    def moved(self) -> str | None:
        """Return the mismatch during the job."""
        stopped = container.limit_change(self.group, CPUSET)
        assert stopped is None or stopped.outcome is Outcome.ENVELOPE_MISMATCH
        return stopped.detail.removeprefix("seen from outside: ") if stopped else None


def _up(folder: Path, levels: int) -> Path:
    return folder.parents[levels - 1] if levels else folder


@pytest.fixture(params=["cgroup-v1", *DRIVERS])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, request.param)


def test_matching_limits_are_accepted(host: Host) -> None:
    assert host.refused() is None
    assert host.moved() is None


def test_hidden_limits_are_left_to_the_check_inside(host: Host, tmp_path: Path) -> None:
    assert container.limit_mismatch(None, ASKED, CPUSET) is None and container.limit_change(None, CPUSET) is None
    gone = Cgroup(host.version, tmp_path / "a", tmp_path / "a", tmp_path / "a")
    assert container.limit_mismatch(gone, ASKED, CPUSET) is None and container.limit_change(gone, CPUSET) is None


def test_wrong_cpus_and_nodes_are_named_at_the_start_and_later(host: Host) -> None:
    host.holds("0-1", "1")
    assert host.refused() == "held to CPUs 0-1, asked for CPUs 2-3"
    host.holds("2-3", "0-1")
    assert host.refused() == "memory from NUMA nodes 0-1, asked for nodes 1"
    assert host.refused(Cpuset((2, 3))) is None, "a host without nodes holds memory to none"
    host.holds("3", "0")
    assert host.moved() == "held to CPUs 3, asked for CPUs 2-3; memory from NUMA nodes 0, asked for nodes 1"


def test_engine_with_fewer_cpus_than_harness_is_named_with_a_remedy(host: Host) -> None:
    host.holds("0-1,3", "0-1", up=1)
    host.holds("3", "1")
    said = (
        "held to CPUs 3, asked for CPUs 2-3 (the engine has CPUs 0-1,3: run the harness on the same,"
        " `taskset -c 0-1,3 harness run ...`)"
    )
    assert host.refused() == host.moved() == said
    for path in host.cpuset.parent.glob("cpuset.*"):
        path.unlink()
    assert host.refused() == "held to CPUs 3, asked for CPUs 2-3", "nobody knows what the engine has"


def test_wrong_limit_is_named(host: Host) -> None:
    host.limit_memory(1 << 20)
    assert host.refused() == f"memory limit 1048576 bytes, asked for {host.asked.memory_bytes}"
    host.limit_memory(V1_NO_LIMIT)
    assert host.refused() == f"memory limit -1 bytes, asked for {host.asked.memory_bytes}"


def test_quota_is_named(host: Host) -> None:
    host.set_quota(0.5)
    assert host.refused() == "CPU quota of 0.5 CPUs, asked for none"
    host.set_quota(64)
    assert host.refused() == "CPU quota of 64.0 CPUs, asked for none", "it is not the one that was asked for"
    assert host.moved() is None, "its throttling is counted"


@pytest.mark.parametrize("up", [1, 2])
def test_too_low_memory_limit_of_a_parent_cgroup_is_named(host: Host, up: int) -> None:
    asked, folder = host.asked.memory_bytes, _up(host.group.memory, up)
    for enough in (1 << 40, asked):
        host.limit_memory(enough, up)
        assert host.refused() is None
    # The kernel rounds both limits down to whole pages.
    host.asked = replace(host.asked, memory_bytes=asked + 4095)
    assert host.refused() is None
    host.asked = replace(host.asked, memory_bytes=asked)
    for size in (asked - 4096, 0):
        host.limit_memory(size, up)
        assert host.refused() == f"{folder} has a memory limit of {size} bytes, asked for {asked}"


@pytest.mark.parametrize("up", [1, 2])
def test_binding_quota_of_a_parent_cgroup_is_named_at_the_start_and_later(host: Host, up: int) -> None:
    host.set_quota(3.5, up)
    folder, said = _up(host.group.cpu, up), host.refused()
    assert said is not None and said == host.moved()
    begin = f"{folder} has a CPU quota of 3.5 CPUs and may use 4, asked for no quota that binds: take it off (`"
    assert said.startswith(begin) and said.endswith("`), or measure outside that cgroup")
    if folder.name == "system.slice":
        command = "systemctl set-property system.slice CPUQuota="
    else:
        command = f"echo max > {folder}/cpu.max" if host.version == 2 else f"echo -1 > {folder}/cpu.cfs_quota_us"
    assert f"(`{command}`)" in said


@pytest.mark.parametrize("up", [1, 2])
def test_parent_quota_for_all_cpus_is_accepted(host: Host, up: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpus in (4, 5):
        host.set_quota(cpus, up)
        assert host.refused() is host.moved() is None
    # Where it is not shown which CPUs a parent may use, these are the host's.
    for path in _up(host.cpuset, up).glob("cpuset.*"):
        path.unlink()
    monkeypatch.setattr(container.os, "cpu_count", lambda: 5)
    assert host.refused() is host.moved() is None
    monkeypatch.setattr(container.os, "cpu_count", lambda: 6)
    assert "has a CPU quota of 5 CPUs and may use 6, asked for" in (host.refused() or "")
    assert host.refused() == host.moved()
