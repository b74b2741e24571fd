"""The Docker launcher's parts that need no engine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import requests

from harness.errors import EngineError, ImageError
from harness.launch import container as container_launch
from harness.launch import docker as module
from harness.launch.container import LOG_BYTES, ContainerWait, create_arguments
from harness.launch.docker import DockerLauncher, _log, group_of
from harness.progress import silent
from harness.records import Outcome
from harness.results.schema import Placement
from tests.driver.test_cgroup import ID, V1_PROCESS
from tests.launch.test_watch_follow import Stage

NAMES = ("cpu", "cpuacct", "cpuset", "memory", "pids")


class Scripted:
    """A container as the SDK shows it."""

    id = ID
    name = "scripted"

    def __init__(self, *chunks: bytes, wait: Exception | None = None, remove: Exception | None = None) -> None:
        self.chunks, self._wait, self._remove, self.calls = chunks, wait, remove, []
        self.attrs = {"State": {"Pid": 0, "ExitCode": 137, "OOMKilled": False, "Running": False}}

    def logs(self, **how: bool) -> Iterator[bytes]:
        assert how["stream"] and not how["follow"], "never held whole"
        return iter(self.chunks)

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

    def get(self, _: str) -> Engine:
        return self

    def create(self, **_: Any) -> Scripted:
        self.created += 1
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
    ("chunks", "kept"),
    [
        ((), b""),
        ((b"one\n", b"two\n"), b"one\ntwo\n"),
        ((b"first\n", *[b"x" * (1 << 20)] * 25, b"last\n"), (b"x" * (10 << 20))[: (10 << 20) - 5] + b"last\n"),
        ((b"y" * (11 << 20) + b"z",), b"y" * ((10 << 20) - 1) + b"z"),
    ],
)
def test_log_is_kept_from_its_end_up_to_a_limit(chunks: tuple[bytes, ...], kept: bytes) -> None:
    found = _log(Scripted(*chunks))  # type: ignore[arg-type]
    assert len(found) <= LOG_BYTES
    assert found == kept


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


def test_unremovable_container_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container = Scripted(remove=requests.ConnectionError("refused"))
    with pytest.raises(EngineError, match="container scripted could not be removed"):
        launched(container, tmp_path, monkeypatch)


def test_engine_that_does_not_end_a_container_in_time_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()
    container = Scripted()
    monkeypatch.setattr(container, "wait", lambda timeout: hung.wait(30))
    monkeypatch.setattr(container_launch, "_KILL_S", 0.1)
    with pytest.raises(EngineError, match="did not end a container"):
        ContainerWait(container).result()  # type: ignore[arg-type]
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
    launcher._canary = stage  # type: ignore[assignment]
    monkeypatch.setattr(stage, "read", lambda when, placement, folder: None)
    launcher._client = engine or Engine(container)  # type: ignore[assignment]
    return launcher.launch(stage.job, silent)


def test_job_is_limited_to_its_cpus_and_their_memory_nodes(tmp_path: Path) -> None:
    job = Stage(tmp_path).job
    asked = create_arguments(job, Placement((4, 5, 12), (1,), True, (0,), apart=True))
    assert (asked["cpuset_cpus"], asked["cpuset_mems"]) == ("4,5,12", "1")
    assert create_arguments(job, Placement((0,), (), None, (0,), apart=False))["cpuset_mems"] is None
    assert asked["log_config"]["Config"] == {"max-size": str(LOG_BYTES // 2), "max-file": "2"}
