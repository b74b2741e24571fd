"""Podman's service for one command: it starts, takes all connections, and is gone afterwards."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from harness.errors import EngineError
from harness.launch import connection, podman


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


def test_a_service_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, "echo first; echo 'Error: no space for images' >&2; exit 125\n")
    said = "service does not start: Error: no space for images; see that `podman info`"
    with pytest.raises(EngineError, match=said), podman.service():
        pytest.fail("it does not run")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(EngineError, match="podman is not on this machine; install it"), podman.service():
        pytest.fail("it does not run")


def test_a_silent_service_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podman, "_START_S", 0.3)
    programs(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid; exec sleep 600\n")
    with pytest.raises(EngineError, match=r"service does not start: no answer in 0 s"), podman.service():
        pytest.fail("it does not run")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()
