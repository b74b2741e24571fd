"""The base image is pulled, else bootstrapped, else one line names the remedy."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, cast

import docker
import pytest
from docker.errors import APIError, ImageNotFound

from harness.errors import ImageError
from harness.launch.images import base_image, catalog
from tests.support.container_output import output_of


class Client:
    """A stand-in without any image, whose registry answers or not."""

    def __init__(self, reachable: bool, architecture: str = "amd64") -> None:
        self.reachable, self.architecture = reachable, architecture
        self.pulled: list[tuple[str, str]] = []
        self.built: list[dict[str, Any]] = []
        self.images = self

    def list(self, _: str) -> list[object]:
        return []

    def version(self) -> dict[str, str]:
        return {"Arch": self.architecture}

    def pull(self, reference: str, platform: str) -> None:
        self.pulled.append((reference, platform))
        if not self.reachable:
            raise APIError("no such host")

    def build(self, **options: Any) -> None:
        self.built.append(options)


def ensure(client: Client, cache: Path) -> str:
    return base_image.ensure(cast(docker.DockerClient, client), cache)


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_base_is_pulled_by_digest_if_a_registry_answers(tmp_path: Path, architecture: str) -> None:
    client = Client(reachable=True, architecture=architecture)
    tag = ensure(client, tmp_path)
    assert tag == base_image.reference(platform=f"linux/{architecture}")
    ((reference, platform),) = client.pulled
    assert platform == client.built[0]["platform"] == f"linux/{architecture}"
    assert reference.startswith("python@sha256:")
    assert client.built[0]["buildargs"] == {"IMAGE": reference}
    assert client.built[0]["network_mode"] == "none"
    assert client.built[0]["tag"] == tag


@pytest.mark.parametrize(
    ("uid", "architecture", "line"),
    [
        (1000, "amd64", r"cannot be pulled \(no such host\), and only root.*connect to a registry"),
        (0, "amd64", "install mmdebstrap"),
        (0, "arm64", "this host does not run programs of linux/arm64 to bootstrap one"),
    ],
)
def test_bootstrap_that_cannot_start_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, architecture: str, line: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(base_image.emulation, "host_runs", lambda platform: platform == "linux/amd64")
    with pytest.raises(ImageError, match=line):
        ensure(Client(reachable=False, architecture=architecture), tmp_path)


@pytest.mark.slow
def test_failed_bootstrap_shows_its_last_lines_and_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mmdebstrap").write_text("#!/bin/sh\necho planted: no such suite\nexit 1\n")
    (programs / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "empty.lock").write_text("# none\n")
    monkeypatch.setattr(base_image, "lock", lambda *_: tmp_path / "empty.lock")
    with pytest.raises(ImageError, match=r"planted: no such suite; the whole log is .*\.log$"):
        ensure(Client(reachable=False), tmp_path / "cache")


needs_apt = pytest.mark.skipif(not Path("/usr/lib/apt/apt-helper").exists(), reason="no apt here")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror of one package, and a lock that pins it."""
    root = tmp_path / "package"
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN" / "control").write_text(
        "Package: tiny\nVersion: 1\nArchitecture: all\nMaintainer: A <a@example.org>\nDescription: none\n"
    )
    folder = tmp_path / "mirror" / "pool"
    folder.mkdir(parents=True)
    subprocess.run(["dpkg-deb", "--build", root, folder / "tiny_1_all.deb"], check=True, capture_output=True)
    sha256 = hashlib.sha256((folder / "tiny_1_all.deb").read_bytes()).hexdigest()
    (tmp_path / "tiny.lock").write_text(f"# Debian\n{sha256} tiny=1 pool/tiny_1_all.deb\n")
    monkeypatch.setattr(base_image, "lock", lambda *_: tmp_path / "tiny.lock")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HARNESS_DEBIAN_MIRROR", f"file://{tmp_path}/mirror")
    programs = tmp_path / "bin"
    programs.mkdir()
    # Makes a root with another version than the lock's.
    script = f'#!/bin/bash\necho "$@" >{tmp_path}/said\nmkdir -p "${{@: -2:1}}"\n'
    (programs / "mmdebstrap").write_text(script)
    (programs / "chroot").write_text("#!/bin/sh\necho tiny=2\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return folder


@needs_apt
@pytest.mark.parametrize("change", ["gone", "changed"])
def test_pinned_package_missing_on_every_mirror_is_named(tmp_path: Path, mirror: Path, change: str) -> None:
    package = mirror / "tiny_1_all.deb"
    package.unlink() if change == "gone" else package.write_bytes(package.read_bytes() + b"x")
    with pytest.raises(ImageError, match=r"no mirror has tiny=1 as tiny\.lock pins it; set HARNESS_DEBIAN_MIRROR"):
        ensure(Client(reachable=False), tmp_path / "cache")
    assert not (tmp_path / "said").exists(), "nothing was bootstrapped"


@needs_apt
def test_base_with_other_packages_than_pinned_is_refused(tmp_path: Path, mirror: Path) -> None:
    with pytest.raises(ImageError, match=r"> tiny=2 \| the root holds other packages than tiny\.lock"):
        ensure(Client(reachable=False), tmp_path / "cache")
    arguments = (tmp_path / "said").read_text()
    assert "--include=tiny=1 " in arguments and "deb [trusted=yes] copy:" in arguments


@pytest.mark.parametrize("name", ["base", "toolchain"])
@pytest.mark.parametrize("platform", ["linux/amd64", "linux/arm64"])
def test_a_lock_pins_each_package_by_version_and_hash(name: str, platform: str) -> None:
    head, *lines = base_image.lock(name, platform).read_text().splitlines()
    assert re.search(r" on \d{8}T\d{6}Z, by scripts/lock-base", head)
    pinned = [re.fullmatch(r"[0-9a-f]{64} (\S+)=\S+ pool/main/\S+\.deb", line) for line in lines]
    names = [match[1] for match in pinned if match]
    declared = tomllib.loads((catalog.images_dir() / name / "base.toml").read_text())["packages"]
    assert len(names) == len(lines) == len(set(names)) and {"libc6", "apt", *declared} <= set(names)


def test_each_platform_has_its_own_base() -> None:
    x86, arm = (base_image.reference("base", platform=platform) for platform in ("linux/amd64", "linux/arm64"))
    assert arm == f"{x86}-arm64"


def test_recipe_of_a_base_hashes_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("base", "toolchain")
    for name in names:
        shutil.copytree(catalog.images_dir() / name, tmp_path / name)
    base, toolchain = map(base_image.reference, names)
    monkeypatch.setattr(base_image, "images_dir", lambda: tmp_path)
    assert (base, toolchain) == (base_image.reference("base"), base_image.reference("toolchain"))
    with (tmp_path / "base" / "base.toml").open("a") as file:
        file.write("# more\n")
    assert base_image.reference("base") != base
    assert base_image.reference("toolchain") == toolchain, "how a base is described is not the toolchain's"
    with (tmp_path / "base" / "rootfs.sh").open("a") as file:
        file.write("# more\n")
    assert base_image.reference("toolchain") != toolchain


@pytest.mark.docker
def test_base_lists_its_packages_and_nothing_of_the_host(engine: docker.DockerClient, tmp_path: Path) -> None:
    tag = base_image.ensure(engine, tmp_path)
    script = "python3 --version && grep ^libc6 /opt/harness/base-packages.txt && cat /etc/apt/sources.list"
    output = output_of(engine, tag, ["sh", "-c", f"{script} || true"], network_mode="none")
    lines = output.decode().splitlines()
    assert lines[0].startswith("Python 3.11.")
    assert lines[1].startswith("libc6")
    origin = engine.images.get(tag).labels[base_image.ORIGIN_LABEL]
    pinned = base_image.lock("base", f"linux/{engine.version()['Arch']}").read_text()
    if origin.startswith("mmdebstrap"):
        assert origin.endswith(hashlib.sha256(pinned.encode()).hexdigest()[:12])
        held = output_of(engine, tag, ["cat", "/opt/harness/base-packages.txt"], network_mode="none")
        found = {f"{name.partition(':')[0]}={version}" for name, version in map(str.split, held.decode().splitlines())}
        assert found == {line.split()[1] for line in pinned.splitlines()[1:]}


def compiles(engine: docker.DockerClient, image: str) -> list[str]:
    """List the modules that a process in an image compiles because their bytecode is missing or stale."""
    command = ["python3", "-v", "-c", "import asyncio, json, multiprocessing, ssl"]
    output = output_of(engine, image, command, network_mode="none", stderr=True).decode()
    assert "json/__init__.py" in output, "Python tells what it loads"
    return [line for line in output.splitlines() if line.startswith("# code object from") and line.endswith(".py")]


@pytest.mark.docker
def test_no_process_in_a_base_compiles_python(engine: docker.DockerClient, tmp_path: Path) -> None:
    assert compiles(engine, base_image.ensure(engine, tmp_path)) == []


@pytest.mark.docker
def test_the_dockerfile_of_a_pulled_base_works(engine: docker.DockerClient, tmp_path: Path) -> None:
    # The bootstrapped base stands in for the pulled one: both are Debian with Python.
    local = base_image.ensure(engine, tmp_path)
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
        output = output_of(engine, tag, ["cat", "/opt/harness/base-packages.txt"], network_mode="none")
        assert b"libc6" in output
        assert compiles(engine, tag) == []
    finally:
        for reference in (tag, stripped):
            with contextlib.suppress(ImageNotFound):
                engine.images.remove(reference, force=True)
