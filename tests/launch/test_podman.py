"""Podman's service for one command: it starts, takes all connections, and is gone afterwards."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import docker
import psutil
import pytest

from harness.driver.records import Outcome
from harness.errors import EngineError
from harness.launch import connection, podman
from harness.launch.docker import DockerLauncher
from harness.launch.images import catalog, image_archive
from harness.launch.images.builder import ImageBuilder
from tests.conftest import Bench
from tests.launch.test_docker import WRONG


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a script in podman's place."""
    (folder / "podman").write_text(f"#!/bin/sh\n{script}", encoding="ascii")
    (folder / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.tools
def test_the_service_answers_on_a_socket_of_its_own_and_ends_with_the_block() -> None:
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    before = connection.endpoint()
    with podman.service():
        place = connection.endpoint()
        with closing(connection.connect(10)) as client:
            assert podman.is_engine(client) and podman.name(client.info()) == "Podman"
        socket = Path(place.host.removeprefix("unix://"))
        assert socket.is_socket() and socket.parent.stat().st_mode & 0o777 == 0o700
    assert not socket.parent.exists() and connection.endpoint() == before
    assert not [process for process in psutil.process_iter(["cmdline"]) if str(socket) in str(process.info["cmdline"])]


@pytest.mark.tools
@pytest.mark.docker
def test_misdeeds_have_the_outcomes_in_podman_that_they_have_in_docker(
    bench: Bench, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the image that Docker made, which also shows that Podman takes an exported one."""
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    for misdeed in WRONG:
        bench.plant(misdeed, misdeed=misdeed, at=3)
    suite = bench.suite(systems=["planted", *WRONG])
    image = ImageBuilder(engine, bench.cache).ensure(catalog.system("planted"))
    archive = bench.folder / "image.tar"
    image_archive.write(engine, image, archive)
    with podman.service(), closing(connection.connect(120)) as client:
        with archive.open("rb") as content:
            client.images.load(content)
        tag = image.reference.partition(":")[2]
        names = [f"harness-{name}" for name in ("planted", *WRONG)]
        for name in names:  # systems without weights are alike
            assert client.images.get(image.reference).tag(name, tag)
        monkeypatch.setattr(ImageBuilder, "_build", lambda *_: pytest.fail("the image is there"))
        launcher = DockerLauncher(bench.cache)
        with closing(launcher):
            results = {result.spec.cell.system: result for result, _ in bench.run(launcher, suite).jobs}
        assert not client.containers.list(all=True, filters={"name": "harness-"})
        for name in names:
            client.images.remove(f"{name}:{tag}", force=True)
    assert results["planted"].outcome is Outcome.OK, results["planted"].detail
    assert str(results["planted"].environment.docker_version).startswith("Podman ")
    for misdeed, (outcome, detail) in WRONG.items():
        result = results[misdeed]
        assert (result.outcome, detail in (result.detail or "")) == (outcome, True), result.detail


@pytest.mark.slow
def test_a_service_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, "echo first; echo 'Error: no space for images' >&2; exit 125\n")
    said = "service does not start: Error: no space for images; see that `podman info`"
    with pytest.raises(EngineError, match=said), podman.service():
        pytest.fail("it does not run")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(EngineError, match="podman is not on this machine; install it"), podman.service():
        pytest.fail("it does not run")


@pytest.mark.slow
def test_a_silent_service_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman, "_START_S", 0.3)
    programs(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid; exec sleep 600\n")
    with pytest.raises(EngineError, match=r"service does not start: no answer in 0 s"), podman.service():
        pytest.fail("it does not run")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
