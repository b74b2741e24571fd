"""The engine that the ``docker`` command would use is found, and no credentials are needed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import docker
import pytest

from harness.errors import EngineError
from harness.launch import connection
from harness.launch.connection import engine_errors

HERE = connection.endpoint().host


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the docker command's files, without any variable of it."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


def add_context(folder: Path, name: str, endpoints: object) -> None:
    """Write a context as ``docker context create`` does."""
    path = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))


def config(folder: Path, **values: object) -> None:
    """Write the docker command's config.json."""
    (folder / "config.json").write_text(json.dumps(values))


def test_the_socket_is_found_as_the_docker_command_finds_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(connection.endpoint()) == "unix:///var/run/docker.sock"
    for name in ("colima", "rootless"):
        add_context(folder, name, {"docker": {"Host": f"unix:///run/{name}.sock", "SkipTLSVerify": False}})
    config(folder, currentContext="colima")
    assert str(connection.endpoint()) == "context colima, unix:///run/colima.sock"
    monkeypatch.setenv("DOCKER_CONTEXT", "rootless")
    assert str(connection.endpoint()) == "context rootless, unix:///run/rootless.sock"
    monkeypatch.setenv("DOCKER_CONTEXT", "default")
    assert connection.endpoint() == connection.Endpoint("unix:///var/run/docker.sock")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    assert str(connection.endpoint()) == "unix:///run/mine.sock"


@pytest.mark.parametrize(("host", "read"), [("unix:///run/mine.sock", False), ("tcp://engine:2375", True)])
def test_proxies_are_looked_for_unless_the_engine_has_a_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch, host: str, read: bool
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    client = SimpleNamespace(api=SimpleNamespace(trust_env=True))
    monkeypatch.setattr(docker, "DockerClient", lambda **_: client)
    connection.connect(5)
    assert client.api.trust_env is read


def test_an_engine_behind_a_context_that_is_down_is_named(folder: Path) -> None:
    add_context(folder, "colima", {"docker": {"Host": f"unix://{folder}/absent.sock"}})
    config(folder, currentContext="colima")
    named = r"No such file or directory \(context colima, unix://.*absent.sock\)"
    with pytest.raises(EngineError, match=named), engine_errors():
        connection.connect(5).ping()


@pytest.mark.parametrize("endpoints", [None, {"docker": "x"}, "damaged", 3], ids=repr)
def test_a_context_that_cannot_be_used_is_one_line(folder: Path, endpoints: object) -> None:
    if endpoints is not None:
        add_context(folder, "gone", endpoints)
    config(folder, currentContext="gone")
    with pytest.raises(EngineError, match=r"the Docker context 'gone' .*choose another \(docker context use\)"):
        connection.connect(5)


@pytest.mark.docker
def test_image_is_built_through_a_context_whose_keeper_of_passwords_is_gone(
    folder: Path, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_context(folder, "wsl", {"docker": {"Host": HERE}})
    config(folder, currentContext="wsl", credsStore="desktop", credHelpers={"docker.io": "gone"})
    monkeypatch.setenv("PATH", str(folder))
    client = connection.connect(60)
    try:
        assert client.info()["ID"] == engine.info()["ID"]
        image, _ = client.images.build(fileobj=io.BytesIO(b"FROM scratch\nLABEL a=b\n"), rm=True)
        assert image.labels == {"a": "b"}
        client.images.remove(image.id)
        with pytest.raises(docker.errors.APIError):  # the engine's answer, not the keeper's
            client.images.pull("localhost:1/nothing:here")
    finally:
        client.close()


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
