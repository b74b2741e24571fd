"""The arguments, the limits and the end of a job's container, without an engine."""

from __future__ import annotations

import resource
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests

from harness.driver import cgroup
from harness.driver.cgroup import Cgroup
from harness.driver.records import Cpuset, Envelope, Outcome
from harness.errors import EngineError, ImageError
from harness.launch import container as container_launch
from harness.launch import container as module
from harness.launch import limits, podman
from harness.launch.container import LOG_BYTES, JobContainer, create_arguments, created, group_of
from harness.launch.docker import DockerLauncher
from harness.launch.limits import limit_change, limit_mismatch
from harness.progress import silent
from harness.results.schema import Placement
from tests.driver.test_cgroup import ID, V1_NO_LIMIT, V1_PROCESS
from tests.launch.test_watch_follow import Stage
from tests.support.recorded_cgroups import DRIVERS, FOLDER, unfold

NAMES = ("cpu", "cpuacct", "cpuset", "memory", "pids")


class Scripted:
    """A container as the SDK shows it."""

    id = ID
    name = "scripted"

    def __init__(self, *, wait: Exception | None = None, remove: Exception | None = None) -> None:
        self._wait, self._remove, self.calls = wait, remove, []
        self.attrs = {"State": {"Pid": 0, "ExitCode": 137, "OOMKilled": False, "Running": False}}

    def logs(self) -> bytes:
        return b""

    def start(self) -> None:
        self.calls.append("start")

    def reload(self) -> None:
        self.calls.append("reload")

    def wait(self, timeout: float | None) -> None:
        if self._wait:
            raise self._wait

    def remove(self, **_: bool) -> None:
        self.calls.append("remove")
        if self._remove:
            raise self._remove


class Engine:
    """An engine on x86-64 with one container and one image of a given platform."""

    def __init__(self, container: Scripted, architecture: str = "amd64") -> None:
        self.images = self.containers = self
        self.container, self.attrs, self.created = container, {"Architecture": architecture}, 0

    def version(self) -> dict[str, str]:
        return {"Arch": "amd64"}

    def info(self) -> dict[str, str]:
        return {}

    def get(self, _: str) -> Engine:
        return self

    def create(self, **asked: Any) -> Scripted:
        self.created, self.asked = self.created + 1, asked
        return self.container


@pytest.mark.parametrize("allowed", [False, True])
def test_emulated_image_is_never_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    """The platform is read from the image itself, not from its name."""
    engine = Engine(Scripted(remove=requests.ConnectionError("refused")), "arm64")
    launcher = DockerLauncher(tmp_path, platform="linux/arm64", emulated=allowed)
    line = (
        "could not be removed" if allowed else r"is for linux/arm64, which this engine \(linux/amd64\) could only emul"
    )
    with pytest.raises(EngineError if allowed else ImageError, match=line):
        launched(engine.container, tmp_path, monkeypatch, launcher, engine)
    assert engine.created == allowed


def test_cgroup_of_the_container_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        (tmp_path / name / "docker" / ID).mkdir(parents=True)
    monkeypatch.setattr(module.cgroup.of_process, "__defaults__", (tmp_path,))
    group = group_of(ID, V1_PROCESS)
    assert group is not None and group.memory == tmp_path / "memory" / "docker" / ID
    assert group_of("another", V1_PROCESS) is None, "a remote engine's pid is not ours"
    assert group_of(ID, "") is None
    for name in NAMES:
        # A process that is exiting shows as one of the root cgroup, for one controller after the other.
        torn = V1_PROCESS.replace(f"{name}:/docker/{ID}", f"{name}:/")
        assert group_of(ID, torn) is None, name


@pytest.mark.parametrize(
    "error", [requests.ConnectionError("Connection aborted.\ntwo lines"), docker.errors.APIError("gone")]
)
def test_engine_lost_during_a_job_is_an_engine_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A lost engine kills its containers, so exit code 137 is not the system's fault."""
    container = Scripted(wait=error, remove=requests.ConnectionError("refused"))
    with pytest.raises(EngineError, match="went away while a job ran") as raised:
        launched(container, tmp_path, monkeypatch)
    assert "\n" not in str(raised.value)
    assert container.calls[-1] == "remove", "it was tried"


@pytest.mark.slow
def test_engine_that_does_not_end_a_container_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()
    container = Scripted()
    monkeypatch.setattr(container, "wait", lambda timeout: hung.wait(30))
    monkeypatch.setattr(container_launch, "_KILL_S", 0.1)
    made = JobContainer(container)
    made.start()
    with pytest.raises(EngineError, match="did not end a container"):
        made.result()
    hung.set()


def test_container_that_does_not_start_is_a_crash_and_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = Scripted()

    def refuse() -> None:
        raise docker.errors.APIError("", explanation="OCI runtime create failed: no such file")

    monkeypatch.setattr(container, "start", refuse)
    ended = launched(container, tmp_path, monkeypatch)
    assert ended.stopped is not None and ended.stopped.outcome is Outcome.CRASH
    assert container.calls == ["remove"]


def launched(
    container: Scripted,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    launcher: DockerLauncher | None = None,
    engine: Engine | None = None,
) -> Any:
    stage = Stage(folder)
    (folder / "spec.json").write_text("{}")
    launcher = launcher or DockerLauncher(folder)
    launcher._canary = stage
    monkeypatch.setattr(stage, "read", lambda when, placement, folder: None)
    launcher._client = engine or Engine(container)
    return launcher.launch(stage.job, silent)


def test_job_is_limited_to_its_cpus_and_their_memory_nodes(tmp_path: Path) -> None:
    job = Stage(tmp_path).job
    asked = create_arguments(job, Placement((4, 5, 12), (1,), True, (0,), apart=True))
    assert (asked["cpuset_cpus"], asked["cpuset_mems"]) == ("4,5,12", "1")
    assert create_arguments(job, Placement((0,), (), None, (0,), apart=False))["cpuset_mems"] is None
    assert asked["use_config_proxy"] is False, "a proxy of the user may name a password"
    assert asked["log_config"]["Config"] == {"max-size": str(LOG_BYTES // 2), "max-file": "2"}


def test_podman_is_asked_for_no_more_open_files_than_a_user_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {resource.RLIMIT_NOFILE: 20_000, resource.RLIMIT_NPROC: resource.RLIM_INFINITY}
    monkeypatch.setattr(podman.resource, "getrlimit", lambda number: (10, own[number]))
    for engine, asked in (("Podman", {"nofile": (20_000,) * 2, "nproc": (1 << 15,) * 2}), ("Docker", {})):
        client = Engine(Scripted())
        monkeypatch.setattr(client, "info", lambda name=engine: {"BuildahVersion": "1"} if name == "Podman" else {})
        arguments = create_arguments(Stage(tmp_path / engine).job, Placement((0,), (), None, (0,), apart=False))
        with created(client, arguments):
            limits = {each["Name"]: (each["Soft"], each["Hard"]) for each in client.asked["ulimits"]}
        assert {name: limits[name] for name in limits.keys() & {"nofile", "nproc"}} == asked


ASKED = Envelope("cpu2-mem64m", cpus=2, memory_bytes=64 << 20)
ASKED_V2 = Envelope("cpu2-mem256m", cpus=2, memory_bytes=256 << 20)
CPUSET = Cpuset((2, 3), (1,))


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
        stopped = limit_mismatch(self.group, self.asked, cpuset)
        assert stopped is None or stopped.outcome is Outcome.ENVELOPE_MISMATCH
        return stopped.detail.removeprefix("seen from outside: ") if stopped else None

    def moved(self) -> str | None:
        """Return the mismatch during the job."""
        stopped = limit_change(self.group, CPUSET)
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
    assert limit_mismatch(None, ASKED, CPUSET) is None and limit_change(None, CPUSET) is None
    gone = Cgroup(host.version, tmp_path / "a", tmp_path / "a", tmp_path / "a")
    assert limit_mismatch(gone, ASKED, CPUSET) is None and limit_change(gone, CPUSET) is None


def test_wrong_cpus_and_nodes_are_named_at_the_start_and_later(host: Host) -> None:
    host.holds("0-1", "1")
    assert host.refused() == "held to CPUs 0-1, asked for CPUs 2-3"
    host.holds("2-3", "0-1")
    assert host.refused() == "memory from NUMA nodes 0-1, asked for nodes 1"
    assert host.refused(Cpuset((2, 3))) is None, "a host without nodes holds memory to none"
    host.holds("3", "0")
    assert host.moved() == "held to CPUs 3, asked for CPUs 2-3; memory from NUMA nodes 0, asked for nodes 1"


def test_idle_threads_of_a_jobs_cores_may_be_in_its_cpuset(host: Host) -> None:
    host.holds("2-3,10-11", "1")
    wrong = "held to CPUs 2-3,10-11, asked for CPUs 2-3"
    assert host.refused() == wrong
    refused = limit_mismatch(host.group, host.asked, Cpuset((2, 3), (1,)), spare={2, 3, 10, 11})
    assert refused is None and limit_change(host.group, Cpuset((2, 3), (1,)), spare={2, 3, 10, 11}) is None
    assert limit_change(host.group, Cpuset((2, 3), (1,)), spare={2, 3, 10}) is not None
    assert limit_change(host.group, Cpuset((2, 3, 4), (1,)), spare={2, 3, 10, 11}) is not None, "one is missing"


def test_engine_with_fewer_cpus_than_harness_is_named_with_a_remedy(host: Host) -> None:
    host.holds("0-1,3", "0-1", up=1)
    host.holds("3", "1")
    message = (
        f"held to CPUs 3, asked for CPUs 2-3 ({_up(host.cpuset, 1)} has CPUs 0-1,3: run the harness on the same,"
        " `taskset -c 0-1,3 harness run ...`)"
    )
    assert host.refused() == host.moved() == message
    for path in host.cpuset.parent.glob("cpuset.*"):
        path.unlink()
    assert host.refused() == "held to CPUs 3, asked for CPUs 2-3", "nobody knows what the engine has"


def test_wrong_limit_is_named(host: Host) -> None:
    host.limit_memory(1 << 20)
    asked, folder = host.asked.memory_bytes, host.group.memory
    assert host.refused() == f"{folder} has a memory limit of 1048576 bytes, asked for {asked}"
    host.limit_memory(V1_NO_LIMIT)
    assert host.refused() == f"{folder} and the cgroups above it have no memory limit, asked for {asked} bytes"
    host.limit_memory(asked, 1)
    assert host.refused() is None, "the smallest limit of it and its ancestors holds"


@pytest.mark.parametrize(("more", "size"), [(4096, "4096 bytes of swap"), (None, "any swap")])
def test_swap_is_named_where_the_host_has_some(
    host: Host, monkeypatch: pytest.MonkeyPatch, more: int | None, size: str
) -> None:
    with_swap = V1_NO_LIMIT if more is None else host.asked.memory_bytes + more
    name, value = (
        ("memory.memsw.limit_in_bytes", with_swap) if host.version == 1 else ("memory.swap.max", more or "max")
    )
    (host.group.memory / name).write_text(f"{value}\n")
    monkeypatch.setattr(limits.psutil, "swap_memory", lambda: SimpleNamespace(total=0))
    assert host.refused() is None
    monkeypatch.setattr(limits.psutil, "swap_memory", lambda: SimpleNamespace(total=1 << 30))
    assert host.refused() == f"{host.group.memory} may use {size}, asked for none"


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
    folder, message = _up(host.group.cpu, up), host.refused()
    assert message is not None and message == host.moved()
    begin = f"{folder} has a CPU quota of 3.5 CPUs and may use 4, asked for no quota that binds: take it off (`"
    assert message.startswith(begin) and message.endswith("`), or measure outside that cgroup")
    if folder.name == "system.slice":
        command = "systemctl set-property system.slice CPUQuota="
    else:
        command = f"echo max > {folder}/cpu.max" if host.version == 2 else f"echo -1 > {folder}/cpu.cfs_quota_us"
    assert f"(`{command}`)" in message


@pytest.mark.parametrize("up", [1, 2])
def test_parent_quota_for_all_cpus_is_accepted(host: Host, up: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpus in (4, 5):
        host.set_quota(cpus, up)
        assert host.refused() is host.moved() is None
    # Where it is not shown which CPUs a parent may use, these are the host's.
    for path in _up(host.cpuset, up).glob("cpuset.*"):
        path.unlink()
    monkeypatch.setattr(limits.os, "cpu_count", lambda: 5)
    assert host.refused() is host.moved() is None
    monkeypatch.setattr(limits.os, "cpu_count", lambda: 6)
    assert "has a CPU quota of 5 CPUs and may use 6, asked for" in (host.refused() or "")
    assert host.refused() == host.moved()
