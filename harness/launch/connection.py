"""The connection to the Docker engine that the ``docker`` command would use, and its errors as one line.

Harness never reads the user's credentials.

https://docs.docker.com/engine/manage-work/contexts/: DOCKER_HOST, else the context that DOCKER_CONTEXT or
``~/.docker/config.json`` names, else the local socket.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker import ContextAPI
from docker.auth import AuthConfig
from docker.context.config import get_current_context_name
from docker.errors import DockerException
from docker.utils import kwargs_from_env

from harness.errors import EngineError
from harness.untrusted import one_line

_SOCKET = "unix:///var/run/docker.sock"
_DEFAULT = "default"
# The address of :func:`through`, for all threads.
_chosen: list[str] = []


@dataclass(frozen=True)
class Endpoint:
    """The address of an engine, the name of the context that gives it (``None``: no context), and its TLS settings."""

    host: str
    context: str | None = None
    tls: Any = None

    def __str__(self) -> str:
        """Return its address, and its context if there is one."""
        return f"context {one_line(self.context)}, {one_line(self.host)}" if self.context else one_line(self.host)


class _NoCredentials(AuthConfig):
    """No credentials: the only base image is public, and the program that keeps passwords may be gone."""

    # Else the SDK would read the user's file instead.
    is_empty = False


@contextmanager
def through(host: str) -> Iterator[None]:
    """Let all connections of the block go to the engine at this address."""
    _chosen.append(host)
    try:
        yield
    finally:
        _chosen.remove(host)


def endpoint() -> Endpoint:
    """Return the engine's endpoint.

    Raises:
        EngineError: the context is unknown or damaged.
    """
    if _chosen:
        return Endpoint(_chosen[-1])
    if host := os.environ.get("DOCKER_HOST"):
        return Endpoint(host)
    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    if name == _DEFAULT:
        return Endpoint(_SOCKET)
    remedy = "choose another (docker context use), or set DOCKER_HOST"
    try:
        context = ContextAPI.get_context(name)
        host = context.Host if context else None
    except Exception as error:  # the SDK raises it bare
        raise EngineError(f"the Docker context {one_line(str(name))!r} cannot be read: {error}; {remedy}") from error
    if not host:
        raise EngineError(f"the Docker context {one_line(str(name))!r} does not exist or has no address; {remedy}")
    return Endpoint(host, name, context.TLSConfig)


def is_local() -> bool:
    """Return whether the engine is the one at this host's usual socket; it need not run."""
    try:
        return endpoint().host == _SOCKET
    except EngineError:
        return False


def connect(timeout_s: int) -> docker.DockerClient:
    """Return a client of the engine, which may not answer.

    Raises:
        EngineError: as :func:`endpoint`.
        DockerException: the address is wrong.
    """
    found = endpoint()
    own = {"base_url": found.host, "tls": found.tls or False}
    client = docker.DockerClient(timeout=timeout_s, **(own if found.context or _chosen else kwargs_from_env()))
    vars(client.api)["_auth_configs"] = _NoCredentials({})  # the SDK has no public way
    if found.host.startswith("unix://"):
        client.api.trust_env = False  # no proxy is before a socket, and looking for one takes half of a request's CPU
    return client


@contextmanager
def engine_errors() -> Iterator[None]:
    """Turn errors of an engine that is gone or refuses into an EngineError."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        raise EngineError(
            f"the Docker engine does not answer or refuses: {reason(error)}; see `harness doctor` (--launcher process"
            " and --launcher apptainer need none)"
        ) from error


def reason(error: BaseException) -> str:
    """Say in one line why the engine failed, with its address where nothing answers there."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, FileNotFoundError | PermissionError | ConnectionError) and below.strerror:
            return f"{below.strerror} ({endpoint()})"
        below = below.__cause__ or below.__context__
    return one_line(str(error), 300)
