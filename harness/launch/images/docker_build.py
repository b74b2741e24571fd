"""One build by the Docker engine, without network; what it says is kept, up to a bound."""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import docker

from harness.errors import ImageError
from harness.filesystem import raise_if_disk_full, reports_full_disk
from harness.launch.docker_errors import engine_errors
from harness.untrusted import MAX_TEXT, one_line

# A step that prints without end fills neither the disk nor our memory.
_LOG_CHARS = 16 << 20
# Marks the line that ends a failed build.
_FAILED = "FAILED: "
# A step's words on a full disk count where the engine's own has less: its words may be about a disk in its container.
_ROOMY_BYTES = 2 << 30
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


def build(
    client: docker.DockerClient,
    what: str,
    tag: str,
    *,
    context: IO[bytes],
    arguments: dict[str, str],
    labels: dict[str, str],
    cache: Path,
    platform: str | None = None,
) -> None:
    """Build ``tag`` from a context.

    Args:
        what: names it for people (``system 'bm25'``).
        cache: the log goes to ``logs/`` below it.
        platform: what the image is for (``linux/arm64``); the engine's own if not given.

    Raises:
        ImageError: a step failed; says which, its last words, and where the log is.
        EngineError: the Docker engine does not answer.
        StoreError: the engine's disk is full.
    """
    log = cache / "logs" / f"{tag.replace(':', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    step, last, room, failed = "the start", deque[str](maxlen=10), _LOG_CHARS, False
    with engine_errors(), log.open("w", encoding="utf-8") as sink:
        events = client.api.build(
            fileobj=context,
            custom_context=True,
            decode=True,
            tag=tag,
            buildargs=arguments,
            labels=labels,
            platform=platform,
            network_mode="none",
            # A stranger's weights are read in there: what they say of their size is not to take the host's memory.
            container_limits={"memory": _half_of_memory(), "memswap": _half_of_memory()},
            rm=True,
            forcerm=True,
        )
        for line in _lines(events):
            sink.write(f"{line}\n"[: max(room, 0)])
            room -= len(line) + 1
            if failed:  # read to its end, the answer leaves no open connection
                continue
            last.append(line)
            if line.startswith("Step "):
                step = line
                last.clear()
            failed = line.startswith(_FAILED)
    if failed:
        words = "\n".join(last)
        if reports_full_disk(words):
            raise_if_disk_full(what, words if _little_room(client) else last[-1])
        said = " | ".join(last)[-2000:]
        raise ImageError(f"{what}: its image failed at {step[:80]!r}: {said}; its log is {log}")


def _little_room(client: docker.DockerClient) -> bool:
    """Return whether the engine's disk, where it is this host's, is nearly full."""
    with engine_errors():
        root = Path(client.info()["DockerRootDir"])
    return root.is_dir() and shutil.disk_usage(root).free < _ROOMY_BYTES


def _half_of_memory() -> int:
    """Bytes of half of the host's memory, which index builds get as well."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _lines(events: Iterator[dict[str, Any]]) -> Iterator[str]:
    """The text of a build's event stream, line by line."""
    for event in events:
        if "error" in event:
            # The engine quotes the whole command here; the step names it already.
            yield _FAILED + one_line(" ".join(str(event["error"]).split()).rpartition("' returned a ")[2], MAX_TEXT)
        said = _COLOURS.sub("", str(event.get("stream", "")))
        yield from (one_line(line.rstrip(), MAX_TEXT) for line in said.splitlines() if line.strip())
