"""What decides an image, what goes into its build, and how a build that fails is told."""

from __future__ import annotations

import ast
import io
import re
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import docker
import pytest
import requests

from harness import base_image, catalog, images
from harness.catalog import Asset, System
from harness.errors import EngineError, ImageError

ENGINES = sorted(path.parent for path in catalog.images_dir().glob("*/engine.toml"))

DOCKERFILE = """\
ARG BASE
FROM ${BASE}
COPY adapter.py /opt/adapter/adapter.py
COPY driver /opt/harness
"""


@pytest.fixture
def toy(tmp_path: Path) -> System:
    """An engine without packages and assets."""
    folder = tmp_path / "toys"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "adapter.py").write_text("ENGINE = None\n")
    (folder / "requirements.lock").write_text("")
    (folder / "engine.toml").write_text('description = "toys"\n')
    return System(
        name=f"toy-{tmp_path.name.replace('_', '-')}",
        engine="toys",
        engine_dir=folder,
        description="",
        fewer_hits_ok=False,
        build_params={},
        search_params={},
        engine_assets=(),
        system_assets=(),
    )


def with_asset(system: System, sha: str, folder: str = "model") -> System:
    asset = Asset.model_validate({"folder": folder, "licence": "MIT", "sha256": {"file": sha}})
    return system.model_copy(update={"system_assets": (asset,)})


@pytest.mark.parametrize("name", ["Dockerfile", "adapter.py", "requirements.lock"])
def test_every_file_of_the_build_decides_the_recipe(toy: System, name: str) -> None:
    before = images.recipe(toy)
    with (toy.engine_dir / name).open("a") as file:
        file.write("# more\n")
    assert images.recipe(toy) != before


def test_assets_decide_the_recipe(toy: System) -> None:
    recipes = {images.recipe(toy), images.recipe(with_asset(toy, "a" * 64)), images.recipe(with_asset(toy, "b" * 64))}
    assert len(recipes | {images.recipe(with_asset(toy, "a" * 64, "other"))}) == 4


def test_descriptions_and_parameters_do_not(toy: System) -> None:
    before = images.recipe(toy)
    (toy.engine_dir / "engine.toml").write_text('description = "other words"\n')
    (toy.engine_dir / "__pycache__").mkdir()
    assert images.recipe(toy.model_copy(update={"search_params": {"k1": 1.2}})) == before


def test_the_driver_in_the_image_imports_nothing_that_is_not_there() -> None:
    driver = images.driver_files()
    for path in driver.values():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            # "from harness import x" takes a module; "from harness.x import y" a name out of one.
            names += [f"{node.module}.{each.name}" for each in node.names] if names == ["harness"] else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            for name in (each for each in names if each.partition(".")[0] == "harness"):
                file = name.replace(".", "/")
                assert f"{file}.py" in driver or f"{file}/__init__.py" in driver, f"{path.name} imports {name}"


def packed(system: System, wheelhouse: Path, files: Path) -> bytes:
    target = io.BytesIO()
    images._write_context(target, system, wheelhouse, files)
    return target.getvalue()


def test_the_context_holds_what_is_needed_and_nothing_of_the_host(toy: System, tmp_path: Path) -> None:
    (tmp_path / "files" / "model").mkdir(parents=True)
    (tmp_path / "files" / "model" / "file").write_bytes(b"weights")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").touch(mode=0o600)
    first = packed(with_asset(toy, "a" * 64), tmp_path / "wheels", tmp_path / "files")
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert {"Dockerfile", "adapter.py", "wheels/a.whl", "assets/engine", "assets/system/model/file"} <= entries.keys()
    assert {"driver/harness/records.py", "driver/harness/measure/__main__.py"} <= entries.keys()
    assert "engine.toml" not in entries
    # The builder's cache goes by these too: they must not differ from host to host.
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries.values()} == {(0, 0, "", 0)}
    assert {entry.mode for entry in entries.values()} == {0o644, 0o755}
    assert packed(with_asset(toy, "a" * 64), tmp_path / "wheels", tmp_path / "files") == first


class Scripted:
    """A stand-in for the Docker client whose build says what it is told to."""

    def __init__(self, *events: dict[str, str]) -> None:
        self.events = events
        self.api = self

    def build(self, **_: Any) -> Iterator[dict[str, str]]:
        yield from self.events


def test_a_failed_build_is_one_line_with_step_reason_and_log(toy: System, tmp_path: Path) -> None:
    client = Scripted(
        {"stream": "Step 1/2 : FROM base\n"},
        {"stream": " ---> 123\n"},
        {"stream": "Step 2/2 : RUN make it\n"},
        {"stream": "\x1b[91mno rule\nto make it\x1b[0m\n"},
        {"error": "The command '/bin/sh -c make it' returned a non-zero code: 2"},
    )
    with pytest.raises(ImageError) as caught:
        images._build(
            cast(docker.DockerClient, client), toy, "0" * 64, base="base", context=io.BytesIO(), cache=tmp_path
        )
    message = str(caught.value)
    assert "'Step 2/2 : RUN make it': no rule | to make it | FAILED: non-zero code: 2" in message
    assert "\n" not in message
    log = Path(message.rpartition(" ")[2])
    assert "Step 1/2" in log.read_text()


def test_a_build_that_prints_without_end_is_cut(toy: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "_LOG_CHARS", 1000)
    client = Scripted(
        {"stream": "Step 1/1 : RUN yes\n"},
        *[{"stream": "y\n" * 1000}] * 10,
        {"stream": "y" * 5000},
        {"error": "stopped"},
    )
    with pytest.raises(ImageError) as caught:
        images._build(
            cast(docker.DockerClient, client), toy, "0" * 64, base="base", context=io.BytesIO(), cache=tmp_path
        )
    assert len(str(caught.value)) < 2500 and "FAILED: stopped; its log is" in str(caught.value)
    assert len(Path(str(caught.value).rpartition(" ")[2]).read_text()) == 1000


def test_an_engine_that_is_gone_is_an_engine_error(toy: System) -> None:
    class Gone:
        images = property(lambda self: self)

        def get(self, _: str) -> None:
            raise requests.exceptions.ConnectionError("Connection aborted.")

    with pytest.raises(EngineError, match=r"Connection aborted\..*harness doctor"):
        images.find(cast(docker.DockerClient, Gone()), toy)


@pytest.mark.parametrize("folder", ENGINES, ids=lambda path: path.name)
def test_locks_are_complete_pinned_and_name_no_index(folder: Path) -> None:
    text = (folder / "requirements.lock").read_text()
    requirements = text.replace("\\\n", " ").splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==\S+( +--hash=sha256:[0-9a-f]{64})+", line) for line in requirements)
    locked = {line.partition("==")[0] for line in requirements}
    declared = folder / "requirements.in"
    names = declared.read_text().split() if declared.exists() else []
    wanted = {re.split(r"[=<>]", name)[0] for name in names}
    assert wanted <= locked
    assert bool(wanted) is bool(locked), "an engine without packages has an empty lock"
    assert "pip" in locked or not locked  # the builder runs it from its wheel
    assert "://" not in text


@pytest.mark.parametrize("folder", ENGINES, ids=lambda path: path.name)
def test_dockerfiles_do_not_reach_for_the_network_and_end_unprivileged(folder: Path) -> None:
    text = (folder / "Dockerfile").read_text()
    assert not re.search(r"\b(apt-get|curl|wget|ADD|--mount)\b", text)
    assert text.split("USER ")[1].startswith("65532:65532")
    assert text.rstrip().endswith('ENTRYPOINT ["python3", "-m", "harness.measure"]')


@pytest.fixture
def built(engine: docker.DockerClient, toy: System) -> Iterator[docker.DockerClient]:
    yield engine
    for found in engine.images.list(filters={"label": f"{images.SYSTEM_LABEL}={toy.name}"}):
        engine.images.remove(found.id, force=True)


@pytest.mark.docker
def test_an_image_is_built_once(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    said: list[str] = []
    assert images.find(built, toy) is None
    image = images.ensure(built, toy, cache=tmp_path, models=None, report=said.append)
    assert image.reference == f"harness-{toy.name}:{images.recipe(toy)[:12]}"
    assert image.digest.startswith("sha256:")
    assert image.size_bytes > 1 << 20
    said.clear()
    assert images.ensure(built, toy, cache=tmp_path, models=None, report=said.append) == image
    assert said == []
    command = "python3 -c 'import harness.measure.driver' ; cat /opt/harness/base-packages.txt"
    output = built.containers.run(
        image.digest, ["sh", "-c", command], remove=True, environment={"PYTHONPATH": "/opt/harness"}, network="none"
    )
    assert b"libc6" in output


@pytest.mark.docker
def test_two_at_once_build_one_image(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    def ensure(_: int) -> images.Image:
        return images.ensure(built, toy, cache=tmp_path, models=None, report=said.append)

    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ensure, range(2))
    assert first == second
    assert [line for line in said if line.startswith("building")] == [f"building the image of {toy.name}"]


@pytest.mark.docker
def test_a_build_has_no_network_and_a_failed_one_does_not_count(
    built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    before = {container.id for container in built.containers.list(all=True)}
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("RUN cat /proc/net/route | tail -n +2 | grep . || { echo no route at all; exit 3; }\n")
    with pytest.raises(ImageError, match=r"RUN cat /proc/net/route.*no route at all.*code: 3"):
        images.ensure(built, toy, cache=tmp_path, models=None, report=lambda _: None)
    assert images.find(built, toy) is None
    left = [each for each in built.containers.list(all=True) if each.id not in before]
    assert not [each for each in left if "no route at all" in str(each.attrs["Config"]["Cmd"])]


@pytest.mark.docker
def test_a_tag_of_another_recipe_does_not_count(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    base = base_image.ensure(built, tmp_path, lambda _: None)
    repository, _, tag = f"harness-{toy.name}:{images.recipe(toy)[:12]}".partition(":")
    built.images.get(base).tag(repository, tag)
    assert images.find(built, toy) is None
    built.images.remove(f"{repository}:{tag}")
