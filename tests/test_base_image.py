"""The base of all images: pulled where that works, else bootstrapped, else one line that says what to do."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.errors import APIError, ImageNotFound

from harness import base_image, catalog
from harness.errors import ImageError


class Client:
    """A stand-in without any image, whose registry answers or not."""

    def __init__(self, reachable: bool, architecture: str = "amd64") -> None:
        self.reachable, self.architecture = reachable, architecture
        self.pulled: list[tuple[str, str]] = []
        self.built: list[dict[str, Any]] = []
        self.images = self

    def get(self, _: str) -> None:
        raise ImageNotFound("none")

    def version(self) -> dict[str, str]:
        return {"Arch": self.architecture}

    def pull(self, reference: str, platform: str) -> None:
        self.pulled.append((reference, platform))
        if not self.reachable:
            raise APIError("no such host")

    def build(self, **options: Any) -> None:
        self.built.append(options)


def ensure(client: Client, cache: Path) -> str:
    return base_image.ensure(cast(docker.DockerClient, client), cache, lambda _: None)


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_a_base_is_pulled_by_digest_where_a_registry_answers(tmp_path: Path, architecture: str) -> None:
    client = Client(reachable=True, architecture=architecture)
    tag = ensure(client, tmp_path)
    assert tag == base_image.reference(platform=f"linux/{architecture}")
    ((reference, platform),) = client.pulled
    assert platform == client.built[0]["platform"] == f"linux/{architecture}"
    assert reference.startswith("python@sha256:")
    assert client.built[0]["buildargs"] == {"IMAGE": reference}
    assert client.built[0]["network_mode"] == "none"
    assert client.built[0]["tag"] == tag


def test_without_root_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ImageError, match=r"cannot be pulled \(no such host\), and only root.*connect to a registry"):
        ensure(Client(reachable=False), tmp_path)


def test_without_mmdebstrap_and_apt_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ImageError, match="install mmdebstrap"):
        ensure(Client(reachable=False), tmp_path)


@pytest.mark.slow
def test_a_failed_bootstrap_shows_the_last_words_and_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mmdebstrap").write_text("#!/bin/sh\necho planted: no such suite\nexit 1\n")
    (programs / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ImageError, match=r"planted: no such suite; the whole log is .*\.log$"):
        ensure(Client(reachable=False), tmp_path / "cache")


def test_a_host_that_cannot_run_the_other_platforms_programs_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(base_image.emulation, "host_runs", lambda _: False)
    with pytest.raises(ImageError, match="this host does not run programs of linux/arm64 to bootstrap one"):
        ensure(Client(reachable=False, architecture="arm64"), tmp_path)


def test_each_platform_has_a_base_of_its_own() -> None:
    x86, arm = (base_image.reference("base", platform=each) for each in ("linux/amd64", "linux/arm64"))
    assert arm == f"{x86}-arm64"


def test_the_base_is_decided_by_its_folder(tmp_path: Path) -> None:
    shutil.copytree(catalog.images_dir() / "base", tmp_path / "base")
    shutil.copytree(catalog.images_dir() / "toolchain", tmp_path / "toolchain")
    for name in ("base", "toolchain"):
        assert base_image.recipe(name, tmp_path) == base_image.recipe(name)
    with (tmp_path / "base" / "base.toml").open("a") as file:
        file.write("# more\n")
    assert base_image.reference("base", tmp_path) != base_image.reference()
    toolchain = base_image.reference("toolchain", tmp_path)
    assert toolchain == base_image.reference("toolchain"), "how a base is described is not the toolchain's"
    with (tmp_path / "base" / "rootfs.sh").open("a") as file:
        file.write("# more\n")
    assert base_image.reference("toolchain", tmp_path) != toolchain


@pytest.mark.docker
def test_the_base_names_what_is_in_it_and_nothing_of_the_host(engine: docker.DockerClient, tmp_path: Path) -> None:
    tag = base_image.ensure(engine, tmp_path, lambda _: None)
    script = "python3 --version && grep ^libc6 /opt/harness/base-packages.txt && cat /etc/apt/sources.list"
    output = engine.containers.run(tag, ["sh", "-c", f"{script} || true"], remove=True, network_mode="none")
    lines = output.decode().splitlines()
    assert lines[0].startswith("Python 3.11.")
    assert lines[1].startswith("libc6")
    assert engine.images.get(tag).labels[base_image.ORIGIN_LABEL]


def compiles(engine: docker.DockerClient, image: str) -> list[str]:
    """List the modules that a process in an image compiles because their bytecode is missing or stale."""
    command = ["python3", "-v", "-c", "import asyncio, json, multiprocessing, ssl"]
    said = engine.containers.run(image, command, remove=True, network_mode="none", stderr=True).decode()
    assert "json/__init__.py" in said, "Python tells what it loads"
    return [line for line in said.splitlines() if line.startswith("# code object from") and line.endswith(".py")]


@pytest.mark.docker
def test_no_process_in_a_base_compiles_python(engine: docker.DockerClient, tmp_path: Path) -> None:
    assert compiles(engine, base_image.ensure(engine, tmp_path, lambda _: None)) == []


@pytest.mark.docker
def test_the_dockerfile_of_a_pulled_base_works(engine: docker.DockerClient, tmp_path: Path) -> None:
    # The bootstrapped base stands in for the pulled one: both are Debian with Python.
    local = base_image.ensure(engine, tmp_path, lambda _: None)
    folder = catalog.images_dir() / "base"
    tag, stripped = "harness-base:test-pulled", "harness-base:test-stripped"
    # As the official image is: without bytecode.
    without = f"FROM {local}\nRUN rm /opt/harness/base-packages.txt && find / -xdev -name '*.pyc' -delete\n"
    engine.images.build(fileobj=io.BytesIO(without.encode()), tag=stripped, rm=True, forcerm=True)
    try:
        assert compiles(engine, stripped)
        engine.images.build(
            path=str(folder), tag=tag, buildargs={"IMAGE": stripped}, network_mode="none", rm=True, forcerm=True
        )
        output = engine.containers.run(tag, ["cat", "/opt/harness/base-packages.txt"], remove=True, network_mode="none")
        assert b"libc6" in output
        assert compiles(engine, tag) == []
    finally:
        for each in (tag, stripped):
            with contextlib.suppress(ImageNotFound):
                engine.images.remove(each, force=True)
