"""Tests of ``harness doctor``: each line names a check, its finding and a remedy."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests

from harness.driver import cgroup
from harness.launch import connection, doctor, podman, process
from harness.launch.checks import Check, Level
from harness.launch.cpu_placement import Core, Topology
from harness.launch.docker import DockerLauncher
from harness.launch.monitor.gpu import Gpus
from harness.results.schema import CanaryReading, Placement

INFO = {"ServerVersion": "20.10.24", "Driver": "overlay2", "OperatingSystem": "Debian"}
FINE = {"MemoryLimit": True, "PidsLimit": True, "CPUSet": True, "SwapLimit": True}


class Host:
    """A host without findings until a test changes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.info: dict[str, Any] | Exception = {**INFO, **FINE}
        self.available_bytes, self.swap_bytes = 20 << 30, 0
        self.load, self.cpus, self.cgroup, self.gpus, self.closed = 0.1, 2, 2, Gpus(("H200",), "590.1"), 0
        client = type("Client", (), {"info": self._info, "close": self._close})
        monkeypatch.setattr(connection, "connect", lambda _timeout_s: client)
        monkeypatch.setattr(doctor.psutil, "virtual_memory", self._virtual_memory)
        monkeypatch.setattr(doctor.psutil, "swap_memory", lambda: SimpleNamespace(total=self.swap_bytes))
        monkeypatch.setattr(doctor.host, "cpus", lambda: self.cpus)
        monkeypatch.setattr(doctor.os, "getloadavg", lambda: (self.load, 0, 0))
        monkeypatch.setattr(cgroup, "host_version", lambda: self.cgroup)
        monkeypatch.setattr(doctor.gpu, "probe", lambda: self.gpus)
        self.topology = Topology(
            (Core(frozenset({0}), frozenset({0}), 0), Core(frozenset({1}), frozenset({1}), 0)), True
        )
        self.cpu_s, self.memory_s = [0.004, 0.0041, 0.0042], [0.008] * 3
        monkeypatch.setattr(doctor.cpu_placement, "read", lambda usable: self.topology)
        monkeypatch.setattr(doctor.cpu_placement, "place", self._place)
        monkeypatch.setattr(doctor.Canary, "prepare", lambda canary, placement: None)
        monkeypatch.setattr(doctor.Canary, "read", self._look)

    def _info(self) -> dict[str, Any]:
        if isinstance(self.info, Exception):
            raise self.info
        return self.info

    def _virtual_memory(self) -> SimpleNamespace:
        return SimpleNamespace(total=32 << 30, available=self.available_bytes)

    def _place(self, count: int) -> Placement:
        """The harness's CPU is its own while there is one left."""
        mine = tuple(os.sched_getaffinity(0))
        return Placement(tuple(range(count)), (0,), True, mine, apart=count < self.cpus)

    def _look(self, when: str, placement: Placement, folder: Path | None) -> CanaryReading:
        assert folder is None
        return CanaryReading(when, 0, 0.1, self.cpu_s.pop(0), self.memory_s.pop(0), None)

    def _close(self) -> None:
        self.closed += 1

    def bad(self) -> list[Check]:
        findings = list(doctor.examine(DockerLauncher))
        assert all(finding.fact for finding in findings)
        assert all(finding.remedy for finding in findings if finding.level is not Level.OK), "each has its remedy"
        assert not any(finding.remedy for finding in findings if finding.level is Level.OK)
        return [finding for finding in findings if finding.level is not Level.OK]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


def test_good_host_has_no_findings(host: Host) -> None:
    assert host.bad() == []
    assert host.closed == 1
    host.cpu_s, host.memory_s = [0.004] * 3, [0.008] * 3
    names = "engine cgroup CPUs topology memory swap load canary instructions CPU energy GPUs"
    assert " ".join(finding.what for finding in doctor.examine(DockerLauncher)) == names


@pytest.mark.parametrize(
    "error", [docker.errors.DockerException("Error while\nfetching"), requests.ConnectionError("refused")]
)
def test_other_checks_run_without_an_engine(host: Host, error: Exception) -> None:
    host.info = error
    (finding,) = host.bad()
    assert (finding.level, finding.what) == (Level.FAIL, "engine")
    assert "\n" not in finding.fact and "--launcher process" in finding.remedy
    assert host.closed == 1


@pytest.mark.parametrize(
    ("key", "message"), [("MemoryLimit", "memory limits"), ("PidsLimit", "pids limits"), ("CPUSet", "CPU sets")]
)
def test_unenforceable_limit_fails(host: Host, key: str, message: str) -> None:
    host.info = {**INFO, **FINE, key: False}
    (finding,) = host.bad()
    assert finding.level is Level.FAIL and message in finding.fact


# What the service of Podman 4.3.1 answers; it claims these limits for a user without controllers too.
PODMAN = {**INFO, **FINE, "ServerVersion": "4.3.1", "BuildahVersion": "1.28.2", "CgroupVersion": "2", "Rootless": True}


def delegated(root: Path, controllers: str) -> Path:
    """Write the files of a user's manager, as systemd 252 has them."""
    folder = root / "user.slice" / "user-1000.slice" / "user@1000.service"
    folder.mkdir(parents=True)
    (folder / "cgroup.controllers").write_text(f"{controllers}\n", encoding="ascii")
    return root


@pytest.mark.parametrize(
    ("controllers", "missing"),
    [
        ("cpuset cpu io memory pids", None),
        ("memory pids", "cpu, cpuset"),  # as systemd delegates by itself
        ("cpu memory pids", "cpuset"),
        ("", "cpu, cpuset, memory, pids"),
    ],
)
def test_podman_without_root_needs_controllers(tmp_path: Path, controllers: str, missing: str | None) -> None:
    found = podman.check_limits(PODMAN, delegated(tmp_path, controllers), 1000)
    if missing is None:
        assert found is None
        return
    assert found and found.level is Level.FAIL and f"cannot limit {missing}: {tmp_path}/user.slice" in found.fact
    assert "'Delegate=cpu cpuset memory pids' below [Service]" in str(found.remedy)


def test_podman_without_root_limits_nothing_with_cgroup_v1(tmp_path: Path) -> None:
    found = podman.check_limits({**PODMAN, "CgroupVersion": "1"}, tmp_path, 1000)
    assert found and found.fact == "Podman without root enforces no limit with cgroup v1"
    for other in ({**PODMAN, "Rootless": False}, {**INFO, **FINE}):
        assert podman.check_limits(other, tmp_path, 1000) is None


def test_the_engine_is_named_podman_with_its_version(host: Host) -> None:
    host.info = {**PODMAN, "Rootless": False}
    (engine,) = [found for found in doctor.examine(DockerLauncher) if found.what == "engine"]
    assert engine.level is Level.OK and engine.fact.startswith("Podman 4.3.1, overlay2, Debian, at ")
    host.info, host.cpu_s, host.memory_s = {**PODMAN, "CgroupVersion": "1"}, [0.004] * 3, [0.008] * 3
    assert [found.what for found in host.bad()] == ["limits"]


def test_unlimited_swap_fails_only_if_the_host_has_swap(host: Host) -> None:
    host.info = {**INFO, **FINE, "SwapLimit": False}
    assert host.bad() == []
    host.cpu_s, host.memory_s = [0.004] * 3, [0.008] * 3
    host.swap_bytes = 2 << 30
    assert [(finding.level, finding.what) for finding in host.bad()] == [(Level.FAIL, "limits"), (Level.WARN, "swap")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cgroup": None}, "cgroup: no memory controller in /sys/fs/cgroup"),
        ({"cpus": 1, "load": 0.0}, "CPUs: 1 usable of "),
        ({"available_bytes": 3 << 30}, "3.0 GiB available"),
        ({"swap_bytes": 1 << 30}, "swap: 1.0 GiB"),
        ({"topology": Topology((), False)}, "topology: the kernel does not show which CPUs share a core"),
        (
            {"topology": Topology((Core(frozenset({0, 1}), frozenset({0}), 0),), True)},
            "topology: 1 physical core, 1 NUMA node; harness may use only a half of 1 core",
        ),
        ({"cpu_s": [0.004, 0.005, 0.004]}, "canary: the same work three times: CPU within 25 %, memory within 0 %"),
        ({"memory_s": [0.008, 0.008, 0.009]}, "CPU within 5 %, memory within 12 %"),
        ({"load": 0.6}, "load: 0.60 over the last minute on 2 CPUs"),
    ],
)
def test_measurement_disturbance_is_a_warning(host: Host, change: dict[str, Any], message: str) -> None:
    vars(host).update(change)
    (finding,) = host.bad()
    assert finding.level is Level.WARN and message in f"{finding.what}: {finding.fact}"


@pytest.mark.parametrize(("processes", "message"), [(1, "used by 1 process"), (2, "used by 2 processes")])
def test_gpu_in_use_by_others_is_a_warning(host: Host, processes: int, message: str) -> None:
    host.gpus = Gpus(("H200",), "590.1", processes=processes)
    (finding,) = host.bad()
    assert (finding.level, finding.what) == (Level.WARN, "GPUs")
    assert finding.fact == f"H200 (driver 590.1); {message}" and "nvidia-smi" in finding.remedy


def test_host_without_gpus_has_no_findings(host: Host) -> None:
    host.gpus = Gpus(reason="no GPU on this host: NVML says none")
    assert host.bad() == []
    host.cpu_s, host.memory_s = [0.004] * 3, [0.008] * 3
    assert "not_applicable here (no GPU on this host" in list(doctor.examine(DockerLauncher))[-1].fact


@pytest.mark.parametrize(("cpus", "message"), [(2, "jobs of up to 1 do not"), (8, "jobs of up to 7 do not")])
def test_largest_job_beside_the_harness_is_reported(host: Host, cpus: int, message: str) -> None:
    host.cpus = cpus
    assert message in next(finding.fact for finding in doctor.examine(DockerLauncher) if finding.what == "CPUs")


@pytest.mark.parametrize(
    ("version", "chosen", "level", "fact"),
    [
        ((3, 11), None, Level.OK, "Python 3.11"),
        ((3, 12), None, Level.WARN, "Python 3.12"),
        ((3, 12), "/opt/python", Level.OK, "/opt/python (HARNESS_PYTHON)"),
    ],
)
def test_process_launcher_needs_the_interpreter_of_the_engines_packages(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], chosen: str | None, level: Level, fact: str
) -> None:
    monkeypatch.setattr(process.sys, "version_info", (*version, 4))
    monkeypatch.delenv(process.PYTHON_VARIABLE, raising=False)
    if chosen:
        monkeypatch.setenv(process.PYTHON_VARIABLE, chosen)
    (check,) = process.ProcessLauncher.examine()
    assert (check.level, check.what, check.fact) == (level, "interpreter", fact)
    assert ("set HARNESS_PYTHON" in check.remedy) == (level is Level.WARN)
