"""A stand-in instance: executes user data as EC2 would, on this machine and its Docker engine.

It is a root of Debian of its own (the base image, exported), in a mount namespace of its own, with a metadata service
of its own on loopback.  Powering off terminates its instance, and ends all its processes and containers at once.  Needs
root.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest

from harness import config, filesystem
from harness.aws.worker import ROOT_VARIABLE
from harness.launch.images import base_image
from harness.remote.bundle import lock
from harness.remote.worker import HEARTBEAT_VARIABLE
from tests.aws import server
from tests.aws.ec2 import imds

# What the real ones do is done from outside, once such a file is there.
_POWER = """#!/bin/sh
echo "$0 $*" >>/power/log
case "$*" in *+*) exit 0 ;; esac
touch /power/off
"""
# Arguments: folder of the instance, shared roots (the upper first), pip's cache, the engine's socket, a virtual
# environment that was made before (or nothing), of which it has a view of its own and no copy.
_MOUNTS = """set -eu
root=$1/root worker=$1/worker
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/own,workdir=$1/work" "$root" ||
    cp -a "${2##*:}/." "$1/own/." "$root" # as where the folder is on an overlay itself
for each in proc sys dev; do mount --rbind "/$each" "$root/$each"; done
# The kernel is this machine's.
mount --bind "$root/proc/sys" "$root/proc/sys" && mount -o remount,bind,ro "$root/proc/sys"
for each in "$worker" /root/.cache/pip; do mkdir -p "$root$each"; done
mount --bind "$worker" "$root$worker"
if [ -n "$5" ]; then
    mkdir -p "$worker/venv"
    mount -t overlay overlay -o "lowerdir=$5,upperdir=$1/venv,workdir=$1/venv-work" "$root$worker/venv" ||
        cp -al "$5/." "$root$worker/venv/" || cp -a "$5/." "$root$worker/venv/"
fi
mount --bind "$1/power" "$root/power"
mount --bind "$3" "$root/root/.cache/pip"
: >"$root/run/docker.sock"
mount --bind "$4" "$root/run/docker.sock"
exec setpriv --bounding-set -sys_boot chroot "$root" /bin/bash /user-data
"""
# What lets this host install packages lets its stand-ins do so.
_HOST_FILES = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/apt/sources.list", "/etc/apt/sources.list.d"),
    *("/etc/apt/apt.conf.d", "/etc/apt/auth.conf.d", "/etc/apt/keyrings", "/etc/apt/trusted.gpg.d"),
    *("/etc/ssl/certs", "/usr/share/keyrings", "/usr/local/share/ca-certificates", "/usr/share/ca-certificates"),
)
# What an instance leaves is of use to nobody, but for its worker's root folder.
_OWN = ("root", "own", "work", "venv", "venv-work")
_HOST_VARIABLES = ("PIP_", "SSL_", "REQUESTS_", "CURL_", "HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_", "no_proxy")


@dataclass
class Ground:
    """What all stand-ins share: an exported root, downloads, packages that were installed before."""

    folder: Path
    root: Path
    engine: docker.DockerClient

    @property
    def downloads(self) -> Path:
        """pip's cache."""
        return self.folder / "pip"

    @property
    def packages(self) -> Path:
        """What a boot has installed before: ``own`` in its root, and the virtual environment ``venv``."""
        what = f"{self.root.name} {lock()}"
        return self.folder / f"packages-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def ground(engine: docker.DockerClient) -> Ground:
    """Make it, once for each base image."""
    if os.geteuid() != 0:
        pytest.skip("a stand-in instance needs root: namespaces and bind mounts")
    cache = config.cache_folder()
    tag = base_image.ensure(engine, cache)
    folder = cache / "stand-ins"
    root = folder / f"root-{tag.rpartition(':')[2]}"
    with filesystem.cache_lock(cache, "stand-ins"):
        (folder / "pip").mkdir(parents=True, exist_ok=True)
        if not root.is_dir():
            partial = root.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            container = engine.containers.create(tag, command="/bin/true")
            try:
                unpack = subprocess.Popen(["tar", "-xpf", "-", "-C", str(partial)], stdin=subprocess.PIPE)
                assert unpack.stdin is not None
                for chunk in container.export():
                    unpack.stdin.write(chunk)
                unpack.stdin.close()
                assert unpack.wait() == 0
            finally:
                container.remove()
            partial.rename(root)
    return Ground(folder, root, engine)


class StandIn:
    """One instance, from its boot to its end."""

    def __init__(
        self,
        ground: Ground,
        folder: Path,
        user_data: str,
        metadata: imds.Metadata,
        *,
        fresh: bool = False,
        heartbeat_s: float = 0.5,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """``folder`` is its own; ``fresh``: install all packages again; ``on_end`` is called once it has ended."""
        self.metadata = metadata
        self.root = folder / "worker"
        self.ended = threading.Event()
        self._ground = ground
        self._on_end = on_end
        self._killing = threading.Lock()
        self._folder = folder
        for name in (*_OWN, "worker", "power"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._furnish(folder / "own", user_data)
        kept = ground.packages if not fresh and ground.packages.is_dir() else None
        self._process = self._boot([kept / "own"] if kept else [], kept / "venv" if kept else None, heartbeat_s)
        # Held open: the kernel gives the number of one that is gone to the next, such as that of a new container.
        self._held = _held(self._process.pid)
        self._namespace = str(Path(f"/proc/self/fd/{self._held}").readlink()) if self._held else None
        assert self._namespace != _namespace(os.getpid()), "all that lives in it will be killed"
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def log(self) -> str:
        """The log of user data and agent."""
        path = self.root / "log.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def power_log(self) -> str:
        """Which commands would have powered it off, and when."""
        path = self._folder / "power" / "log"
        return path.read_text() if path.exists() else ""

    @property
    def processes(self) -> list[int]:
        """All that lives in it, but for what the engine runs."""
        if self._held is None:
            return []
        return [pid for pid in _pids() if _namespace(pid) == self._namespace]

    def containers(self) -> list[docker.models.containers.Container]:
        """Those that it started: they mount folders of its root."""
        found = []
        for each in self._ground.engine.containers.list(all=True, ignore_removed=True):
            if any(str(mount.get("Source", "")).startswith(f"{self.root}/") for mount in each.attrs["Mounts"]):
                found.append(each)
        return found

    def wait(self, timeout_s: float) -> bool:
        """Wait for it to power itself off; whether it did."""
        return self.ended.wait(timeout_s)

    def kill(self) -> None:
        """It dies: everything in it ends at once."""
        with self._killing:
            if self.ended.is_set():
                return
            while living := self.processes:
                for pid in living:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
            self._process.wait()
            if self._held is not None:
                os.close(self._held)
                self._held = None
            self._remove_containers()
            self._on_end()
            self.ended.set()

    def keep_packages(self) -> None:
        """Keep what it has installed, for those that come after it."""
        with filesystem.cache_lock(config.cache_folder(), "stand-ins"):
            if not self._ground.packages.is_dir():
                partial = self._ground.packages.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                _linked(self.root / "venv", partial / "venv")
                subprocess.run(["cp", "-a", str(self._folder / "own"), str(partial / "own")], check=True)
                partial.rename(self._ground.packages)

    def _remove_containers(self) -> None:
        """Remove them until three looks in a row find none: the engine still carries out what it was last asked."""
        looks = 0
        deadline = time.monotonic() + 60
        while looks < 3 and time.monotonic() < deadline:
            left = self.containers()
            looks = 0 if left else looks + 1
            for container in left:
                with contextlib.suppress(docker.errors.APIError):
                    container.remove(force=True)
            time.sleep(0.1)

    def _furnish(self, own: Path, user_data: str) -> None:
        for name in _HOST_FILES:
            target = own / name.removeprefix("/")
            if Path(name).is_dir():
                shutil.copytree(name, target, dirs_exist_ok=True, symlinks=True, ignore_dangling_symlinks=True)
            elif Path(name).exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(name, target)
        for place in (".config/pip", ".pip"):
            if (Path.home() / place).is_dir():
                shutil.copytree(Path.home() / place, own / "root" / place, dirs_exist_ok=True)
        for command in ("shutdown", "poweroff"):
            path = own / "usr" / "sbin" / command
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_POWER)
            path.chmod(0o755)
        for name in ("proc", "sys", "dev", "run", "power"):
            (own / name).mkdir(exist_ok=True)
        (own / "user-data").write_text(user_data)

    def _boot(self, roots: list[Path], venv: Path | None, heartbeat_s: float) -> subprocess.Popen[bytes]:
        socket = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
        # Nothing of our own environment, credentials above all.
        variables = {name: value for name, value in os.environ.items() if name.startswith(_HOST_VARIABLES)}
        variables |= {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"],
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.metadata.endpoint,
            ROOT_VARIABLE: str(self.root),
            "HARNESS_WORKER_CONSOLE": "/power/console",
            HEARTBEAT_VARIABLE: str(heartbeat_s),
        }
        lower = ":".join(map(str, [*roots, self._ground.root]))
        shared = (lower, self._ground.downloads, Path(socket).resolve(), venv or "")
        places = [str(self._folder), *map(str, shared)]
        with (self._folder / "console.log").open("wb") as console:
            process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "bash", "-c", _MOUNTS, "stand-in", *places],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ours = _namespace(os.getpid())
        while _namespace(process.pid) == ours and process.poll() is None:  # unshare is about to begin
            time.sleep(0.01)
        return process

    def _watch(self) -> None:
        while not self.ended.is_set():
            if (self._folder / "power" / "off").exists():
                self.kill()
            time.sleep(0.1)


@contextlib.contextmanager
def booted(
    ground: Ground,
    folder: Path,
    user_data: str,
    paths: dict[str, str],
    *,
    fresh: bool = False,
    on_end: Callable[[], None] = lambda: None,
    role_id: str = imds.ROLE_ID,
) -> Iterator[StandIn]:
    """A running instance with its own key; only its worker's root folder is left afterwards."""
    identity = f"{role_id}:{paths['instance-id']}"
    key = server.worker_key(identity)
    server.identify(os.environ["AWS_ENDPOINT_URL"], key, identity)
    with imds.running({**paths, **imds.credentials(key)}) as metadata:
        instance = StandIn(ground, folder, user_data, metadata, fresh=fresh, on_end=on_end)
        try:
            yield instance
        finally:
            instance.kill()
            assert not [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]
            subprocess.run(["rm", "-rf", *(str(folder / name) for name in _OWN)], check=True)


def _linked(source: Path, target: Path) -> None:
    """A copy of a tree, of links to its files: they are replaced, and never written to."""
    if subprocess.run(["cp", "-al", str(source), str(target)], capture_output=True, check=False).returncode:
        shutil.rmtree(target, ignore_errors=True)  # on another disk
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _held(pid: int) -> int | None:
    try:
        return os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None  # it is dead already


def _namespace(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return None
