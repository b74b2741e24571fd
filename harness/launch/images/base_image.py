"""The base image of all engines, and the image that compiles for them (``toolchain``), for each platform.

Each is pulled by digest if a registry answers, else bootstrapped here.  The digest is an index's, for all platforms.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from harness import child_process, filesystem
from harness.config import ConfigModel, read_toml, validate
from harness.driver.records import digest
from harness.errors import ImageError
from harness.launch.images import emulation, platforms
from harness.launch.images.catalog import images_dir

log = logging.getLogger(__name__)

# The label with the origin of a base.
ORIGIN_LABEL = "harness.base"
# Bootstraps a minimal Debian, for both bases.
_SCRIPT = "rootfs.sh"


class BaseFile(ConfigModel):
    """``images/base/base.toml``, ``images/toolchain/base.toml``."""

    image: str
    tag: str
    digest: str
    suite: str
    packages: tuple[str, ...]


def recipe(name: str = "base") -> str:
    """Hash all inputs of a base: its folder and the bootstrap script."""
    files = [*sorted((images_dir() / name).iterdir()), images_dir() / "base" / _SCRIPT]
    return digest({path.name: path.read_text(encoding="utf-8") for path in files if path.is_file()})


def reference(name: str = "base", platform: str = platforms.AMD64) -> str:
    """Return a base's tag."""
    return f"harness-{name}:{platforms.with_platform(recipe(name)[:12], platform)}"


def lock(name: str, platform: str) -> Path:
    """Return the file that pins the packages of a bootstrapped base (written by scripts/lock-base)."""
    return images_dir() / name / f"packages-{platforms.debian(platform)}.lock"


def ensure(client: docker.DockerClient, cache: Path, name: str = "base", platform: str | None = None) -> str:
    """Return the tag of a base image; pull or bootstrap a missing one.

    Args:
        platform: by default the engine's own.

    Raises:
        ImageError: it can neither be pulled nor bootstrapped here; says what to install.
    """
    platform = platform or emulation.native(client)
    tag = reference(name, platform)
    if not client.images.list(tag):
        with filesystem.cache_lock(cache, tag.replace(":", "-")):  # an emulated one takes long, and holds up no other
            if not client.images.list(tag):
                folder = images_dir() / name
                base = validate(BaseFile, read_toml(folder / "base.toml"), folder / "base.toml")
                # All platforms share one digest: the image that was pulled last has its name.
                with filesystem.cache_lock(cache, "base-images"):
                    failure = _pull(client, base, folder, tag, platform)
                if failure:
                    _bootstrap(client, base, lock(name, platform), tag, platform, cache, failure)
    return tag


def _pull(client: docker.DockerClient, base: BaseFile, folder: Path, tag: str, platform: str) -> str | None:
    """Pull the official image and tag it; return ``None``, or the reason of a failure."""
    log.info(f"pulling the base image {base.image}:{base.tag} for {platform}")
    official = f"{base.image}@{base.digest}"
    try:
        client.images.pull(official, platform=platform)
    except APIError as error:
        return " ".join(str(error.explanation or error).split())[:200]
    # The build runs one command, so that the packages can be seen in both kinds of base.
    _build(client, folder, tag, platform, official, buildargs={"IMAGE": official}, network_mode="none")
    return None


def _build(client: docker.DockerClient, folder: Path, tag: str, platform: str, origin: str, **options: Any) -> None:
    # The legacy builder takes a folder.
    labels = {ORIGIN_LABEL: origin}
    options |= {"labels": labels, "platform": platform, "use_config_proxy": False}
    client.images.build(path=str(folder), tag=tag, rm=True, forcerm=True, **options)


def _bootstrap(
    client: docker.DockerClient, base: BaseFile, pinned: Path, tag: str, platform: str, cache: Path, failure: str
) -> None:
    """Bootstrap a base from its pinned packages with mmdebstrap, which needs root."""
    cannot = f"the base image cannot be pulled ({failure})"
    if os.geteuid() != 0:
        raise ImageError(f"{cannot}, and only root can bootstrap one: connect to a registry, or run as root")
    if not emulation.host_runs(platform):  # it runs the new root's own programs
        raise ImageError(f"{cannot}, and this host does not run programs of {platform} to bootstrap one: install qemu")
    with filesystem.cache_lock(cache, "mmdebstrap"):
        if shutil.which("mmdebstrap") is None and (reason := emulation.install_package("mmdebstrap")):
            filesystem.raise_if_disk_full("apt-get", reason)
            raise ImageError(f"{cannot}, and {reason}: install mmdebstrap, or connect to a registry")
    took = "about a minute" if platform == platforms.host() else "some minutes, emulated"
    log.info(f"bootstrapping Debian {base.suite} as {tag.partition(':')[0]} for {platform} ({took})")
    log_file = cache / "logs" / f"{tag.replace(':', '-')}.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    # Device nodes and foreign owners: a plain temporary folder of root's, outside a cache that may be on NFS.
    with filesystem.temporary_folder("base") as work, log_file.open("wb") as sink:
        tar, script = work / "rootfs.tar", images_dir() / "base" / _SCRIPT
        arguments = [base.suite, platforms.debian(platform), *map(str, (pinned, work, tar))]
        command = [*_namespaces(), "bash", str(script), *arguments]
        variables = child_process.environment(*child_process.NETWORK, "HARNESS_DEBIAN_MIRROR")
        done = subprocess.run(command, stdout=sink, stderr=sink, check=False, env=variables)
        if done.returncode != 0:
            filesystem.raise_if_disk_full(f"{work}: mmdebstrap failed", _tail(log_file))
            raise ImageError(f"{cannot}, and mmdebstrap failed: {_tail(log_file)}; the whole log is {log_file}")
        _import(client, tar, tag, platform, f"mmdebstrap-{base.suite}-{filesystem.sha256(pinned)[:12]}")


def _import(client: docker.DockerClient, tar: Path, tag: str, platform: str, origin: str) -> None:
    """Make an image of a root folder: import it for the engine's own platform, build it for another."""
    if platform == emulation.native(client):
        changes = [f"LABEL {ORIGIN_LABEL}={origin}"]
        client.api.import_image(src=str(tar), repository=tag, changes=changes)  # Podman ignores a `tag` of its own
        return
    (tar.parent / "Dockerfile").write_text(f"FROM scratch\nADD {tar.name} /\n", encoding="utf-8")
    (tar.parent / ".dockerignore").write_text(f"*\n!{tar.name}\n!Dockerfile\n", encoding="utf-8")
    _build(client, tar.parent, tag, platform, origin)


def _namespaces() -> list[str]:
    """Return the prefix that runs a command in its own namespaces, which die with us; empty if this host forbids it.

    mmdebstrap mounts /proc below its folder, a mount that must not outlive a ``kill -9``.
    """
    apart = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
    try:
        return apart if child_process.run([*apart, "true"]).returncode == 0 else []
    except OSError:
        return []


def _tail(file: Path) -> str:
    """Return the last lines of a log as one line."""
    return " | ".join(file.read_text(encoding="utf-8", errors="replace").split("\n")[-4:]).strip(" |")
