"""One build in the Docker engine: its request, and the limits at which harness ends it.

The engine's API has no limit of time or disk for a build.  So harness watches it, and cuts the connection at a limit.
The engine then ends the build and removes its container.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import docker
import requests
from docker.errors import create_api_error_from_http_exception

_POLL_S = 0.5


@dataclass(frozen=True)
class BuildLimits:
    """The limits of a build; ``disk_bytes`` and ``kept_free_bytes`` hold where this host sees the engine's folder.

    ``stopped``: set by whoever no longer wants the image.
    """

    # The longest build that we know exports a large model under emulation: some hours.
    seconds: float = 6 * 3600.0
    disk_bytes: int = 200 << 30  # layers of weights included
    kept_free_bytes: int = 1 << 30
    stopped: threading.Event = field(default_factory=threading.Event)


class _Watch:
    """A watch over a build: what is exceeded, as one line, or nothing."""

    def __init__(self, limits: BuildLimits, root: Path) -> None:
        self._limits, self._begun = limits, time.monotonic()
        self._root = root if root.is_dir() else None
        self._free_bytes = self._free()

    def _free(self) -> int | None:
        with contextlib.suppress(OSError):
            return None if self._root is None else shutil.disk_usage(self._root).free
        return None

    def exceeded(self) -> str:
        """Return which limit the build has passed."""
        limits, free = self._limits, self._free()
        if limits.stopped.is_set():
            return "harness ended the build: the run was stopped"
        if time.monotonic() - self._begun > limits.seconds:
            return f"harness ended the build after {limits.seconds / 3600:.3g} h, the longest that it may take"
        if free is None or self._free_bytes is None:
            return ""
        if self._free_bytes - free > limits.disk_bytes:
            most = f"{limits.disk_bytes / 2**30:.3g} GiB, the most that a build may write"
            return f"harness ended the build: the engine's disk lost {most}"
        if free < limits.kept_free_bytes:
            return f"harness ended the build: the engine's disk has only {free >> 20:,} MiB left; make room"
        return ""


def events(
    client: docker.DockerClient, context: IO[bytes], parameters: Mapping[str, str], limits: BuildLimits
) -> Iterator[dict[str, Any]]:
    """Build an image and yield the engine's events; at a limit, an ``error`` is the last.

    Args:
        context: a tar.
        parameters: of the engine's request ``build``.
    """
    watch = _Watch(limits, Path(client.info()["DockerRootDir"]))
    # Not docker.api.build, which hides the connection and adds the user's proxies to the build.
    response = client.api.post(
        f"{client.api.base_url}/v{client.api.api_version}/build",
        params=parameters,
        data=context,
        headers={"Content-Type": "application/tar"},
        stream=True,
        timeout=None,
    )
    ended, exceeded = threading.Event(), list[str]()

    def follow() -> None:
        while not ended.wait(_POLL_S):
            if reason := watch.exceeded():
                exceeded.append(reason)
                _cut(response)
                return

    follower = threading.Thread(target=follow, name="build-limits", daemon=True)
    try:
        with contextlib.closing(response):
            if response.status_code == requests.codes.bad_request:
                # The engine cannot read this Dockerfile: other images can still be built.
                yield {"error": response.json()["message"]}
                return
            try:
                response.raise_for_status()
            except requests.HTTPError as error:
                create_api_error_from_http_exception(error)
            follower.start()
            try:
                yield from (json.loads(line) for line in response.iter_lines() if line)
            except (requests.RequestException, ValueError):  # the second: the last line is cut
                if not exceeded:
                    raise
    finally:
        ended.set()
        if follower.is_alive():
            follower.join()
    if exceeded:
        yield {"error": exceeded[0]}


def _cut(response: requests.Response) -> None:
    """End the connection of an answer that another thread reads."""
    connection = response.raw.connection
    if connection is not None and connection.sock is not None:
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
