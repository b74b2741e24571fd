"""An unreachable engine is reported in one line."""

from __future__ import annotations

import errno
import os

import docker
import pytest

from harness.errors import EngineError
from harness.launch.docker_errors import engine_errors


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ECONNREFUSED, errno.EACCES])
def test_unreachable_engine_is_named_by_its_address(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere/docker.sock")
    with pytest.raises(EngineError) as raised, engine_errors():
        try:
            raise OSError(number, os.strerror(number))
        except OSError as error:
            raise docker.errors.DockerException(f"('Connection aborted.', {error!r})") from error
    message = f"refuses: {os.strerror(number)} (unix:///somewhere/docker.sock); see `harness doctor`"
    assert message in str(raised.value)


def test_message_of_the_engine_is_kept() -> None:
    with pytest.raises(EngineError, match="refuses: no such image; see"), engine_errors():
        raise docker.errors.DockerException("no  such\nimage")
