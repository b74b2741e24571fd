"""Errors of the Docker engine's SDK, as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from docker.errors import DockerException

from harness.errors import EngineError
from harness.launch import connection
from harness.untrusted import one_line


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn errors of an engine that is gone or refuses into an EngineError."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        raise EngineError(
            f"the Docker engine does not answer or refuses: {reason(error)}; see `harness doctor` (--launcher process"
            " alone needs no engine)"
        ) from error


def reason(error: BaseException) -> str:
    """Say in one line why the engine failed, with its address if nobody answers there."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, FileNotFoundError | PermissionError | ConnectionError) and below.strerror:
            return f"{below.strerror} ({connection.endpoint()})"
        below = below.__cause__ or below.__context__
    return one_line(str(error), 300)
