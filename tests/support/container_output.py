"""What a container prints, complete."""

from __future__ import annotations

from typing import Any

import docker
from docker.errors import ContainerError


def output_of(
    engine: docker.DockerClient, image: str, command: list[str], *, stderr: bool = False, **options: Any
) -> bytes:
    """Run a container to its end, and return what it printed.

    ``containers.run(remove=True)`` removes the container before it reads the output, so on a busy machine a part or
    all of the output is lost.

    Args:
        stderr: whether to return the error output too.
        options: as ``containers.run`` takes them.

    Raises:
        ContainerError: if the container ends with another status than 0.
    """
    container = engine.containers.run(image, command, detach=True, **options)
    try:
        status = container.wait()["StatusCode"]
        printed: bytes = container.logs(stderr=stderr)
        if status != 0:
            raise ContainerError(container, status, command, image, container.logs().decode())
        return printed
    finally:
        container.remove(force=True)
