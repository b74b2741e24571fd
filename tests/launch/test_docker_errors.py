"""What comes of an engine that cannot be reached, in one line."""

from __future__ import annotations

import errno
import os

import docker
import pytest

from harness.errors import EngineError
from harness.launch.docker_errors import engine_errors


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ECONNREFUSED, errno.EACCES])
def test_where_nobody_can_be_reached_the_place_is_named(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere/docker.sock")
    with pytest.raises(EngineError) as raised, engine_errors():
        try:
            raise OSError(number, os.strerror(number))
        except OSError as error:
            raise docker.errors.DockerException(f"('Connection aborted.', {error!r})") from error
    said = f"refuses: {os.strerror(number)} (unix:///somewhere/docker.sock); see `harness doctor`"
    assert said in str(raised.value)


def test_what_an_engine_says_itself_is_kept() -> None:
    with pytest.raises(EngineError, match="refuses: no such image; see"), engine_errors():
        raise docker.errors.DockerException("no  such\nimage")
