"""Runs scripts in an image under a job's limits, in a warm container."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from docker.errors import ContainerError, NotFound
from docker.models.containers import Container

_FORKS = Path(__file__).with_name("forks.py")
# An engine's imports, on a busy machine.
_START_S = 120.0


def _limits() -> dict[str, Any]:
    """Return Docker SDK options that limit a container like a job."""
    return {
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "user": "65532:65532",
        "cpuset_cpus": _cpu(),
        "mem_limit": "3g",
        "memswap_limit": "3g",
        "pids_limit": 512,
        # Java's second compiler takes longer than it saves where a JVM lives for a second.
        "environment": {"OMP_NUM_THREADS": "1", "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"},
        "tmpfs": {"/tmp": "size=1024m"},
    }


def _cpu() -> str:
    """Return the one CPU of this test process: those of xdist's workers take turns."""
    cpus = sorted(os.sched_getaffinity(0))
    return str(cpus[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % len(cpus)])


def volumes(read: dict[str, Path], write: dict[str, Path]) -> dict[str, dict[str, str]]:
    """Folders by their place in the container, as the Docker SDK takes them."""
    return {
        str(folder): {"bind": place, "mode": mode}
        for mode, folders in (("ro", read), ("rw", write))
        for place, folder in folders.items()
    }


def answers_of(output: str) -> list[Any]:
    """Return the values that a script's ``say`` printed."""
    lines = [line for line in output.splitlines() if line.startswith("said ")]
    return [json.loads(line.removeprefix("said ")) for line in lines]


class Warm:
    """A container that has imported an engine, and runs each script in a fork: milliseconds instead of seconds."""

    def __init__(self, client: docker.DockerClient, image: str, imports: str, read: dict[str, Path]) -> None:
        self.image = image
        # A folder of its own: a socket's path may be 107 bytes long, and pytest's are longer.
        self._folder = Path(tempfile.mkdtemp(prefix="warm-"))
        self._folder.chmod(0o755)
        for name in ("job", "index", "door", "kept"):
            (self._folder / name).mkdir()
            (self._folder / name).chmod(0o777)
        shutil.copy(_FORKS, self._folder / "forks.py")
        own = {"/forks.py": self._folder / "forks.py", "/job": self._folder / "job", **read}
        # A script finds ``/index`` empty, and in ``/kept`` what earlier scripts have left.
        writes = {f"/{name}": self._folder / name for name in ("index", "door", "kept")}
        self._container: Container = client.containers.run(
            image,
            ["/forks.py", "/door/s", imports],
            entrypoint=["python3"],
            detach=True,
            auto_remove=True,
            volumes=volumes(own, writes),
            **_limits(),
        )
        deadline = time.monotonic() + _START_S
        while not (self._folder / "door" / "s").exists():
            assert time.monotonic() < deadline and self.alive(), self._container.logs().decode()[-2000:]
            time.sleep(0.02)

    def ask(self, job: Path) -> list[Any]:
        """Run ``job/probe.py`` over the files of ``job``; return what it ``say``s.

        Raises:
            ContainerError: it failed.
        """
        place = self._folder / "job"
        for left in place.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        shutil.copytree(job, place, dirs_exist_ok=True)
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self._folder / "door" / "s"))
            with asking.makefile("r", encoding="utf-8", errors="replace") as answer:
                output = answer.read()
        *_, last = output.strip().splitlines() or ["the container ended"]
        if last != "ended 0":
            code = int(last.removeprefix("ended ")) if last.startswith("ended ") else 137
            raise ContainerError(self._container, code, "/job/probe.py", self.image, output[-4000:])
        return answers_of(output)

    def close(self) -> None:
        """Remove the container and its folder."""
        with suppress(NotFound):  # it ends by itself when nobody has asked for long
            self._container.remove(force=True)
        shutil.rmtree(self._folder)

    def alive(self) -> bool:
        """Return whether it still answers."""
        with suppress(NotFound):
            self._container.reload()
            return self._container.status in ("created", "running")
        return False


@dataclass
class Warmth:
    """The warm containers of one test process, by image; the one that was used least recently ends first."""

    client: docker.DockerClient
    most: int = 3
    _warm: dict[str, Warm] = field(default_factory=dict)

    def of(self, image: str, imports: str, read: dict[str, Path] | None = None) -> Warm:
        """The warm container of an image.

        Args:
            imports: lines of Python that import the engine.
            read: folders that all its scripts read, by their place in the container.
        """
        warm = self._warm.pop(image, None)
        if warm is not None and not warm.alive():
            warm.close()
            warm = None
        if warm is None:
            if len(self._warm) >= self.most:
                self._warm.pop(next(iter(self._warm))).close()
            warm = Warm(self.client, image, imports, read or {})
        self._warm[image] = warm
        return warm

    def close(self) -> None:
        """End all."""
        while self._warm:
            self._warm.popitem()[1].close()
