"""Hostile builds in a real engine: they fetch nothing, and end at their limits."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import socket
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from harness.errors import ImageError
from harness.launch.images import base_image, engine_build
from harness.launch.images.builder import ImageBuilder
from harness.launch.images.engine_build import BuildLimits
from harness.launch.images.systems import System
from tests.launch.images.test_builder import Scripted


def with_lines(toy: System, *lines: str) -> System:
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return toy


def refused(engine: docker.DockerClient, toy: System, cache: Path, limits: BuildLimits | None = None) -> str:
    with pytest.raises(ImageError) as caught:
        ImageBuilder(engine, cache, limits=limits).ensure(toy)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.docker
@pytest.mark.parametrize(
    "line", ["ADD http://{}/x /x", "FROM {}/x", "COPY --from={}/x /x /x", "ONBUILD ADD http://{}/x /x"]
)
def test_build_sends_no_request_for_an_address_in_a_dockerfile(
    engine: docker.DockerClient, toy: System, tmp_path: Path, line: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        message = refused(engine, with_lines(toy, line.format(address)), tmp_path, BuildLimits(seconds=60.0))
        assert message.startswith(f"{toy.engine_dir / 'Dockerfile'}:5: ") and "is not built: " in message
        server.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody connected
            server.accept()


@pytest.mark.docker
def test_dockerfile_that_the_engine_cannot_read_is_its_images_fault(
    engine: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    """An EngineError would end the builds of all other images."""
    message = refused(engine, with_lines(toy, "HEALTHCHECK ON"), tmp_path)
    assert message.startswith(f"{toy.engine_dir / 'Dockerfile'}: the image of engine ") and "HEALTHCHECK" in message


def containers(engine: docker.DockerClient, mark: str) -> list[Any]:
    return [
        container
        for container in engine.containers.list(all=True, ignore_removed=True)
        if mark in str(container.attrs["Config"]["Cmd"])
    ]


def gone(engine: docker.DockerClient, mark: str) -> None:
    """Wait until the engine has removed the containers of a build."""
    deadline = time.monotonic() + 120
    while containers(engine, mark):
        assert time.monotonic() < deadline, f"the container of {mark} is still there"
        time.sleep(0.2)


@pytest.mark.docker
def test_build_that_never_ends_is_ended_and_removed(engine: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    base = base_image.ensure(engine, tmp_path)
    other = engine.containers.run(base, ["sleep", "1000001"], detach=True, network="none")
    try:
        toy = with_lines(toy, "RUN echo before; sleep 1000000", "RUN touch /after")
        message = refused(engine, toy, tmp_path, BuildLimits(seconds=5.0))
        assert message.startswith(f"{toy.engine_dir / 'Dockerfile'}:5: ") and "failed at 'RUN echo before;" in message
        assert "before | FAILED: harness ended the build after 0.00139 h, the longest that it may take" in message
        gone(engine, "sleep 1000000")
        other.reload()
        assert other.status == "running", "only the build's own container is removed"
        assert ImageBuilder(engine, tmp_path).find(toy) is None
    finally:
        other.remove(force=True)


@pytest.mark.docker
def test_build_that_fills_the_disk_is_ended_and_its_files_are_removed(
    engine: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    # Four GB at most, should nothing end it.
    writes = "for n in $(seq 1 200); do head -c 20000000 /dev/zero >/full$n; sleep .1; done; sleep 1000002"
    limits = BuildLimits(seconds=600.0, disk_bytes=200 << 20)
    message = refused(engine, with_lines(toy, f"RUN {writes}"), tmp_path, limits)
    assert "harness ended the build: the engine's disk lost 0.195 GiB, the most that a build may write" in message
    gone(engine, "sleep 1000002")


@pytest.mark.docker
def test_build_of_a_user_who_gives_up_is_ended(engine: docker.DockerClient, tmp_path: Path) -> None:
    """The events are not read to their end, as after Ctrl-C."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        text = f"FROM {base_image.ensure(engine, tmp_path)}\nRUN sleep 1000004\n".encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    packed.seek(0)
    events = engine_build.events(engine, packed, {"networkmode": "none", "rm": "1", "forcerm": "1"}, BuildLimits())
    with contextlib.closing(events):
        assert any("Running in" in event.get("stream", "") for event in events)
    gone(engine, "sleep 1000004")


def test_build_adds_no_proxies_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An address of a proxy may hold a password, which a build could write into its image."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"proxies": {"default": {"httpProxy": "http://me:secret@proxy"}}}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    client = docker.DockerClient("unix:///nowhere", version="1.41")
    scripted, sent = Scripted({"stream": "x"}), dict[str, Any]()
    monkeypatch.setattr(client.api, "post", lambda url, **more: sent.update(url=url, **more) or scripted.post())
    monkeypatch.setattr(client, "info", scripted.info)
    parameters = {"buildargs": json.dumps({"BASE": "b:1"})}
    assert list(engine_build.events(client, io.BytesIO(), parameters, BuildLimits())) == [{"stream": "x"}]
    assert sent["url"] == "http+docker://localhost/v1.41/build"
    assert sent["params"] == parameters and "secret" not in str(sent)


def test_disk_of_an_engine_elsewhere_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    seen = [engine_build._Watch(BuildLimits(), Path(root)).exceeded() for root in ("/no/such/folder", "/")]
    assert seen == ["", "harness ended the build: the engine's disk has only 0 MiB left; make room"]
