"""Waiting for a container's end."""

from __future__ import annotations

import threading

import requests
from docker.errors import DockerException
from docker.models.containers import Container

from harness.errors import EngineError

# What an engine may take to end a container that was killed.
_KILL_S = 60


class Waiting(threading.Thread):
    """Waits for a container's end: one request that stays open, so that waiting costs the measured CPUs nothing."""

    def __init__(self, container: Container) -> None:
        super().__init__(daemon=True, name="container-wait")
        self._container = container
        self._broken = False
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Block until the container ends or the engine goes away."""
        try:
            self._container.wait(timeout=None)
        except (DockerException, requests.RequestException):
            self._broken = True
        finally:
            self.ended.set()

    def result(self) -> None:
        """Return when the container has ended.

        Raises:
            EngineError: the engine went away meanwhile: it takes its containers down with it, so that what their end
                looks like says nothing about the job.
        """
        if not self.ended.wait(_KILL_S):
            raise EngineError(
                f"the Docker engine did not end a container within {_KILL_S} s; see `harness doctor`, then run again"
            )
        if self._broken:
            raise EngineError(
                "the Docker engine went away while a job ran; see that it is back (`harness doctor`), then run again: "
                "what was finished is kept, and what is left of the job is removed"
            )
