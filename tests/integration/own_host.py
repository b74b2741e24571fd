"""A host name of a test's own: what its dead runs leave, no other run sweeps, nor does it sweep what others leave."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from harness.launch.container import LABEL


@contextmanager
def own_host(engine: docker.DockerClient) -> Iterator[str]:
    """This process and its children in Python live on another host; at the end nothing of it is left."""
    name = f"test-{secrets.token_hex(4)}"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent / "elsewhere"), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: name)
        patch.setenv("HARNESS_TEST_HOST", name)
        patch.setenv("PYTHONPATH", path)
        try:
            yield name
        finally:
            for each in engine.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
                if each.labels[LABEL].startswith(f"{name}_"):
                    each.remove(force=True)
