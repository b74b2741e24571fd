"""The base image that all engines share, and the one that compiles for them (``toolchain``).

Each is pulled by digest where a registry answers, else bootstrapped here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
from docker.errors import APIError, ImageNotFound, NotFound

from harness import leftovers, locks
from harness.catalog import images_dir
from harness.declared import Declared, read_toml, validate
from harness.errors import ImageError
from harness.records import digest

# The label that says how a base came about.
ORIGIN_LABEL = "harness.base"
# Makes a minimal Debian; both bases come out of it.
_SCRIPT = "rootfs.sh"


class BaseFile(Declared):
    """``images/base/base.toml``, ``images/toolchain/base.toml``."""

    image: str
    tag: str
    digest: str
    suite: str
    packages: tuple[str, ...]


def recipe(name: str = "base", images: Path | None = None) -> str:
    """Hash of all that decides a base: its folder, and how one is bootstrapped."""
    home = images or images_dir()
    files = [*sorted((home / name).iterdir()), home / "base" / _SCRIPT]
    return digest({path.name: path.read_text(encoding="utf-8") for path in files if path.is_file()})


def reference(name: str = "base", images: Path | None = None) -> str:
    """Its tag."""
    return f"harness-{name}:{recipe(name, images)[:12]}"


def ensure(client: docker.DockerClient, cache: Path, report: Callable[[str], None], name: str = "base") -> str:
    """Make a base image unless it is there; return its tag.

    Raises:
        ImageError: it can neither be pulled nor bootstrapped on this host; says what to install.
    """
    tag = reference(name)
    if not _is_there(client, tag):
        with locks.alone(cache, "base-images"):  # debootstrap may have to be installed, once
            if not _is_there(client, tag):
                folder = images_dir() / name
                base = validate(BaseFile, read_toml(folder / "base.toml"), folder / "base.toml")
                remark = _pull(client, base, folder, tag, report)
                if remark:
                    _bootstrap(client, base, tag, cache=cache, remark=remark, report=report)
    return tag


def _is_there(client: docker.DockerClient, tag: str) -> bool:
    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _pull(
    client: docker.DockerClient, base: BaseFile, folder: Path, tag: str, report: Callable[[str], None]
) -> str | None:
    """Pull the official image and tag it; ``None``, or why it cannot be had."""
    report(f"pulling the base image {base.image}:{base.tag}")
    official = f"{base.image}@{base.digest}"
    try:
        client.images.pull(official)
    except (APIError, NotFound) as error:
        return " ".join(str(error.explanation or error).split())[:200]
    # The legacy builder takes a folder; it runs one command, so that the packages can be seen in both kinds of base.
    client.images.build(
        path=str(folder),
        tag=tag,
        buildargs={"IMAGE": official},
        labels={ORIGIN_LABEL: official},
        network_mode="none",
        rm=True,
        forcerm=True,
    )
    return None


def _bootstrap(
    client: docker.DockerClient, base: BaseFile, tag: str, *, cache: Path, remark: str, report: Callable[[str], None]
) -> None:
    """Make the base from Debian's archive with debootstrap, which needs root."""
    cannot = f"the base image cannot be pulled ({remark})"
    if os.geteuid() != 0:
        raise ImageError(f"{cannot}, and only root can bootstrap one: connect to a registry, or run as root")
    if shutil.which("debootstrap") is None:
        _install_debootstrap(cannot, report)
    report(f"bootstrapping Debian {base.suite} as {tag.partition(':')[0]} (about a minute)")
    (cache / "logs").mkdir(parents=True, exist_ok=True)
    log = cache / "logs" / f"{tag.replace(':', '-')}.log"
    # Device nodes and foreign owners: a plain temporary folder of root's, outside a cache that may be on NFS.
    with leftovers.temporary("base") as work, log.open("wb") as sink:
        tar = work / "rootfs.tar"
        script = images_dir() / "base" / _SCRIPT
        command = [*_apart(), "bash", str(script), base.suite, ",".join(base.packages), str(work), str(tar)]
        done = subprocess.run(command, stdout=sink, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise ImageError(f"{cannot}, and debootstrap failed: {_tail(log)}; the whole log is {log}")
        repository, _, version = tag.partition(":")
        client.api.import_image(
            src=str(tar), repository=repository, tag=version, changes=[f"LABEL {ORIGIN_LABEL}=debootstrap-{base.suite}"]
        )


def _apart() -> list[str]:
    """What puts a command into namespaces of its own that die with us, where this host lets us; else nothing.

    debootstrap mounts /proc below its folder.  Whoever clears up after a ``kill -9`` must not meet that mount.
    """
    apart = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]
    try:
        done = subprocess.run([*apart, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return apart if done.returncode == 0 else []


def _install_debootstrap(cannot: str, report: Callable[[str], None]) -> None:
    if shutil.which("apt-get") is None:
        raise ImageError(f"{cannot}, and debootstrap is missing: install debootstrap, or connect to a registry")
    report("installing debootstrap")
    for arguments in (["update", "-qq"], ["install", "-qq", "--no-install-recommends", "debootstrap"]):
        done = subprocess.run(
            ["apt-get", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if done.returncode != 0:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise ImageError(f"{cannot}, and 'apt-get {arguments[0]}' failed: {last}; install debootstrap by hand")


def _tail(log: Path) -> str:
    """The last lines of a log as one line."""
    return " | ".join(log.read_text(encoding="utf-8", errors="replace").split("\n")[-4:]).strip(" |")
