"""Tests of emulation: finding, installing and reporting an emulator."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.errors import APIError

from harness.errors import ImageError
from harness.launch.images import emulation
from tests.support.messages import messages

ARM64 = "linux/arm64"


class Engine:
    """A stand-in on x86-64 that runs other programs once its kernel list (a folder) names an emulator."""

    def __init__(self, listed: Path) -> None:
        self.listed = listed
        self.api = self.images = self.containers = self
        self.removed: list[str] = []

    def version(self) -> dict[str, str]:
        return {"Arch": "amd64"}

    def build(self, **_: Any) -> Iterator[dict[str, str]]:
        return iter(())

    def run(self, _: str, **options: Any) -> None:
        if options["platform"] != "linux/amd64" and not (self.listed / "register").exists():
            raise APIError("exec format error")

    def remove(self, tag: str, force: bool) -> None:
        self.removed.append(tag)


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's list, and what Debian would add to it."""
    kernel, debian = tmp_path / "binfmt_misc", tmp_path / "binfmt.d"
    kernel.mkdir()
    debian.mkdir()
    monkeypatch.setattr(emulation, "_BINFMT", kernel)
    monkeypatch.setattr(emulation, "_BINFMT_CONFIG", debian)
    return kernel


def ensure(engine: Engine, cache: Path, platform: str = ARM64) -> list[str]:
    with messages() as lines:
        emulation.ensure(cast(docker.DockerClient, engine), platform, cache)
    return lines


def test_own_platform_needs_no_emulator(listed: Path, tmp_path: Path) -> None:
    engine = Engine(listed)
    assert ensure(engine, tmp_path, "linux/amd64") == [] and engine.removed == []


def test_missing_emulator_names_the_packages_without_root(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation.os, "geteuid", lambda: 1000)
    engine = Engine(listed)
    with pytest.raises(ImageError) as raised:
        ensure(engine, tmp_path)
    line = str(raised.value)
    for part in ("linux/arm64", "apt-get install qemu-user-static binfmt-support", "tonistiigi/binfmt --install arm64"):
        assert part in line
    assert "an arm64 machine" in line and "\n" not in line
    assert engine.removed, "nothing of the trial stays"


def test_emulator_is_installed_once_as_root_on_debian(
    listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b":qemu-aarch64:M::\\x7fELF:\\xff:/usr/bin/qemu:OPF\n"
    installed: list[str] = []

    def install(package: str) -> None:
        installed.append(package)
        (tmp_path / "binfmt.d" / "qemu-aarch64.conf").write_bytes(line)

    def mount(command: list[str], **_: Any) -> None:
        assert command[0] == "mount"
        (listed / "register").touch()

    monkeypatch.setattr(emulation, "install_package", install)
    monkeypatch.setattr(subprocess, "run", mount)
    lines = ensure(Engine(listed), tmp_path)
    assert installed == ["qemu-user-static"] and (listed / "register").read_bytes() == line.strip()
    assert lines[-1].startswith("this host now runs programs of linux/arm64 with qemu, until 'echo -1 > ")
    assert ensure(Engine(listed), tmp_path) == [] and installed == ["qemu-user-static"]


def test_failed_step_is_named(listed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "install_package", lambda _: "'apt-get update' failed: no network")
    with pytest.raises(ImageError, match=r"linux/arm64 \('apt-get update' failed: no network\): "):
        ensure(Engine(listed), tmp_path)
    monkeypatch.setattr(emulation, "install_package", lambda _: None)
    (tmp_path / "binfmt.d" / "qemu-aarch64.conf").touch()
    mounting = subprocess.CalledProcessError(32, ["mount"])

    def refuse(*_: object, **__: object) -> None:
        raise mounting

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(ImageError, match="qemu cannot be listed with the kernel"):
        ensure(Engine(listed), tmp_path)


def test_this_host_runs_its_own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert emulation.host_runs(emulation.platforms.host())
    monkeypatch.setattr(emulation, "_program", lambda _: b"\x7fELF of no machine at all")
    assert not emulation.host_runs(ARM64)


@pytest.mark.docker
def test_engine_runs_is_tried_with_a_container(engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    own = emulation.native(engine)
    assert emulation.engine_runs(engine, own)
    monkeypatch.setattr(emulation, "_program", lambda _: b"\x7fELF of no machine at all")
    assert not emulation.engine_runs(engine, own)
    assert not engine.images.list("harness-probe")
