"""What the Docker engine's SDK raises, as one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import requests
from docker.errors import DockerException

from harness.errors import EngineError

_SOCKET = "unix:///var/run/docker.sock"


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn whatever comes of an engine that is gone or refuses into an EngineError."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        raise EngineError(
            f"the Docker engine does not answer or refuses: {plain(error)}; see `harness doctor` (--launcher process"
            " alone needs no engine)"
        ) from error


def plain(error: BaseException) -> str:
    """What is wrong, in one line: where the engine was looked for, where nobody could be reached there."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, FileNotFoundError | PermissionError | ConnectionError) and below.strerror:
            return f"{below.strerror} ({os.environ.get('DOCKER_HOST') or _SOCKET})"
        below = below.__cause__ or below.__context__
    return " ".join(str(error).split())[:300]
