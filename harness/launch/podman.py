"""Podman as the engine: what differs from Docker, and its service on a socket of its own for one command."""

from __future__ import annotations

import functools
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import DockerException
from docker.types import Ulimit

from harness import child_process
from harness.driver import cgroup
from harness.driver.procfs import read_text
from harness.errors import EngineError
from harness.launch import allocation, connection
from harness.launch.checks import Check, Level
from harness.untrusted import one_line

_START_S = 30.0
_END_S = 10.0
_POLL_S = 0.1
# Open files and processes of a job, at most.  Podman asks for a million, which few users may have.
_ULIMITS = {"nofile": (resource.RLIMIT_NOFILE, 1 << 16), "nproc": (resource.RLIMIT_NPROC, 1 << 15)}
_INSTALL = "install it (Debian: apt-get install podman), or leave --builder out where a Docker engine answers"


@functools.lru_cache(maxsize=8)  # each job asks
def is_engine(client: docker.DockerClient) -> bool:
    """Return whether an engine is Podman.

    Raises:
        EngineError: it does not answer.
    """
    with connection.engine_errors():
        return name(client.info()) == "Podman"


def name(info: Mapping[str, Any]) -> str:
    """Return the engine's name, by its answer to ``info``: Podman says which builder it has."""
    return "Podman" if "BuildahVersion" in info else "Docker"


def ulimits() -> Iterator[Ulimit]:
    """Yield the limits that a container needs in Podman, in addition to a job's own."""
    for name, (number, most) in _ULIMITS.items():
        own = resource.getrlimit(number)[1]
        limit = most if own == resource.RLIM_INFINITY else min(own, most)
        yield Ulimit(name=name, soft=limit, hard=limit)


def check_limits(info: Mapping[str, Any], root: Path = cgroup.ROOT, user: int | None = None) -> Check | None:
    """Check whether a user's own Podman can limit jobs; None for another engine, and for root's.

    Podman's answer claims all limits, and ignores a limit whose controller the user lacks.

    Args:
        info: the engine's answer.
        root: the host's cgroups.
        user: by default this process's.
    """
    if name(info) != "Podman" or not info.get("Rootless"):
        return None
    if str(info.get("CgroupVersion")) != "2":
        remedy = "boot with systemd.unified_cgroup_hierarchy=1, or let root start the service"
        return Check(Level.FAIL, "limits", "Podman without root enforces no limit with cgroup v1", remedy)
    user = os.getuid() if user is None else user
    folder = allocation.user_manager(root, user)
    missing = allocation.not_delegated(folder)
    if not missing:
        return None
    fact = f"Podman without root cannot limit {', '.join(missing)}: {folder} has not been given these controllers"
    return Check(Level.FAIL, "limits", fact, allocation.UserScope.remedy)


@contextmanager
def service() -> Iterator[None]:
    """Start Podman's service for the block, whose connections go to it; end it afterwards.

    Raises:
        EngineError: podman is missing, or its service does not start.
    """
    # A socket's path has at most 107 bytes: no name of ours that says whose it is.
    with tempfile.TemporaryDirectory(prefix="harness-podman-") as folder:
        socket, log = Path(folder, "s"), Path(folder, "log")
        with log.open("wb") as sink:
            child = _start(f"unix://{socket}", sink.fileno(), Path(folder))
        try:
            with connection.through(f"unix://{socket}"):
                _wait(child, log)
                yield
        finally:
            _end(child)


def _start(address: str, output: int, folder: Path) -> subprocess.Popen[bytes]:
    # crun refuses hosts that have controllers of both cgroup versions.
    mixed = (read_text(cgroup.ROOT / "unified" / "cgroup.controllers") or "").strip() and shutil.which("runc")
    command = ["podman", *(["--runtime", "runc"] if mixed else []), "system", "service", "--time=0", address]
    if shutil.which("podman") is None:
        raise EngineError(f"podman is not on this machine; {_INSTALL}")
    variables = child_process.environment(*child_process.NETWORK, "XDG_RUNTIME_DIR", "CONTAINERS_*", "STORAGE_*")
    # Its monitor of containers writes a file `oom` into its current folder.
    return subprocess.Popen(
        child_process.ends_with_us(command),
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def _wait(child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the service answers."""
    deadline = time.monotonic() + _START_S
    while child.poll() is None and time.monotonic() < deadline:
        with suppress(DockerException, requests.RequestException), closing(connection.connect(5)) as client:
            client.ping()
            return
        time.sleep(_POLL_S)
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = one_line(lines[-1], 300) if lines else f"no answer in {_START_S:.0f} s"
    raise EngineError(f"podman's service does not start: {last}; see that `podman info` works")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_END_S)
    child_process.kill_group(child)
