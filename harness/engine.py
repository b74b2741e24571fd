"""What the Docker engine's SDK raises, as one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from docker.errors import DockerException

from harness.errors import EngineError


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn whatever comes of an engine that is gone or refuses into an EngineError."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        text = " ".join(str(error).split())[:300]
        raise EngineError(
            f"the Docker engine does not answer or refuses: {text}; see `harness doctor`, or use --launcher process"
        ) from error
