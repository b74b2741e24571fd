"""What decides an image, what goes into its build, and how a build that fails is told."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import re
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import docker
import pytest
import requests

from harness import base_image, catalog
from harness.catalog import System
from harness.errors import EngineError, ImageError
from harness.images import building, context, making
from harness.images.recipe import driver_files, engine_recipe, recipe
from harness.system_files import Asset

ENGINES = sorted(path.parent for path in catalog.images_dir().glob("*/engine.toml"))

DOCKERFILE = """\
ARG BASE
FROM ${BASE}
COPY adapter.py /opt/adapter/adapter.py
COPY driver /opt/harness
"""

# Replaces what it was given; refuses one word.
PREPARE = """
import json, pathlib, sys
place, told = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
if told["build_params"]["say"] == "nonsense":
    sys.exit("these weights are no good")
(place / "model" / "file").unlink()
(place / "model" / "new").write_text(told["build_params"]["say"] + " " + str(told["build_params"]))
"""


@pytest.fixture
def toy(tmp_path: Path) -> System:
    """An engine without packages and assets."""
    folder = tmp_path / f"toys-{tmp_path.name.replace('_', '-').lower()}"
    folder.mkdir()
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "adapter.py").write_text("ENGINE = None\n")
    (folder / "requirements.lock").write_text("")
    (folder / "engine.toml").write_text('description = "toys"\n')
    return System(
        name=f"toy-{tmp_path.name.replace('_', '-').lower()}",
        engine=folder.name,
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
    before = recipe(toy)
    with (toy.engine_dir / name).open("a") as file:
        file.write("# more\n")
    assert recipe(toy) != before


def test_assets_decide_the_recipe(toy: System) -> None:
    recipes = {recipe(toy), recipe(with_asset(toy, "a" * 64)), recipe(with_asset(toy, "b" * 64))}
    assert len(recipes | {recipe(with_asset(toy, "a" * 64, "other"))}) == 4


def test_parts_and_what_is_prepared_decide_the_recipe(toy: System, tmp_path: Path) -> None:
    part = tmp_path / "parts" / "shared"
    part.mkdir(parents=True)
    (part / "__init__.py").write_text("x = 1\n")
    toy = with_asset(
        toy.model_copy(update={"parts": (part,), "prepare": "shared", "prepare_params": ("backend",)}), "a" * 64
    )
    before, engine = recipe(toy), engine_recipe(toy)
    assert recipe(toy.model_copy(update={"search_params": {"k": 3}})) == before, "not read by `prepare`"
    other = toy.model_copy(update={"search_params": {"backend": "onnxruntime"}})
    assert recipe(other) != before and engine_recipe(other) == engine
    (part / "__init__.py").write_text("x = 2\n")
    assert engine_recipe(toy) != engine


def test_an_accelerator_has_an_image_with_packages_of_its_own(toy: System, tmp_path: Path) -> None:
    assert toy.on(1).image == toy.name, "an engine without such packages has one image"
    before = recipe(toy)
    (toy.engine_dir / "requirements-cuda.lock").write_text("other\n")
    assert toy.on(0) == toy and recipe(toy) == before
    able = toy.on(1)
    assert able.image == f"{toy.name}-cuda" and recipe(able) != before
    (tmp_path / "files").mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed(able, tmp_path / "files", tmp_path / "files"))) as tar:
        names = [name for name in tar.getnames() if "requirements" in name]
        assert names == ["requirements.lock"] and tar.extractfile(names[0]).read() == b"other\n"  # type: ignore[union-attr]


def test_a_component_for_an_accelerator_names_the_joined_image(toy: System, tmp_path: Path) -> None:
    shutil.copytree(toy.engine_dir, tmp_path / "able")
    (tmp_path / "able" / "requirements-cuda.lock").write_text("other\n")
    able = toy.model_copy(update={"name": "able", "engine_dir": tmp_path / "able"})
    both = toy.model_copy(update={"name": "both", "components": (toy, able)})
    there = both.on(1)
    assert (both.image, there.image, there.engine_image) == ("both", "both-cuda", toy.engine)
    assert [each.image for each in there.components] == [toy.name, "able-cuda"] and recipe(there) != recipe(both)


def test_components_decide_the_recipe(toy: System) -> None:
    first, second = (toy.model_copy(update={"name": name}) for name in ("first", "second"))
    both = toy.model_copy(update={"components": (first, second)})
    assert recipe(both) != recipe(toy)
    changed = toy.model_copy(update={"components": (first, with_asset(second, "a" * 64))})
    assert recipe(changed) != recipe(both)


def test_descriptions_and_parameters_do_not(toy: System) -> None:
    before = recipe(toy)
    (toy.engine_dir / "engine.toml").write_text('description = "other words"\n')
    (toy.engine_dir / "__pycache__").mkdir()
    assert recipe(toy.model_copy(update={"search_params": {"k1": 1.2}})) == before


def test_the_driver_in_the_image_imports_nothing_that_is_not_there() -> None:
    driver = driver_files()
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
    context.engine(target, system, wheelhouse, files)
    return target.getvalue()


def listed(packed: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {entry.name: entry for entry in tar}


def test_the_context_holds_what_is_needed_and_nothing_of_the_host(toy: System, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").touch(mode=0o600)
    part = tmp_path / "parts" / "shared"
    part.mkdir(parents=True)
    (part / "__init__.py").touch()
    (part / "notes.txt").touch()
    toy = toy.model_copy(update={"parts": (part,)})
    first = packed(with_asset(toy, "a" * 64), tmp_path / "wheels", tmp_path / "files")
    entries = listed(first)
    assert {"Dockerfile", "adapter.py", "wheels/a.whl", "assets/engine", "parts/shared/__init__.py"} <= entries.keys()
    assert not any("model" in name or "notes" in name for name in entries), "weights are the system's, not the engine's"
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


def build(client: Scripted, cache: Path) -> None:
    building.build(
        cast(docker.DockerClient, client),
        "system 'toy'",
        "harness-toy:0",
        context=io.BytesIO(),
        arguments={},
        labels={},
        cache=cache,
    )


def test_a_failed_build_is_one_line_with_step_reason_and_log(tmp_path: Path) -> None:
    client = Scripted(
        {"stream": "Step 1/2 : FROM base\n"},
        {"stream": " ---> 123\n"},
        {"stream": "Step 2/2 : RUN make it\n"},
        {"stream": "\x1b[91mno rule\nto make it\x1b[0m\n"},
        {"stream": "\x1b]0;owned\x07\x1b[2J\n"},
        {"error": "The command '/bin/sh -c make it' returned a non-zero code: 2"},
    )
    with pytest.raises(ImageError) as caught:
        build(client, tmp_path)
    message = str(caught.value)
    assert (
        "'Step 2/2 : RUN make it': no rule | to make it | \ufffd]0;owned\ufffd\ufffd[2J | FAILED: non-zero code: 2"
        in message
    )
    assert "\n" not in message
    log = Path(message.rpartition(" ")[2])
    assert "Step 1/2" in log.read_text()


def test_a_build_that_prints_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "_LOG_CHARS", 1000)
    client = Scripted(
        {"stream": "Step 1/1 : RUN yes\n"},
        *[{"stream": "y\n" * 1000}] * 10,
        {"stream": "y" * 5000},
        {"error": "stopped"},
    )
    with pytest.raises(ImageError) as caught:
        build(client, tmp_path)
    assert len(str(caught.value)) < 2500 and "FAILED: stopped; its log is" in str(caught.value)
    assert len(Path(str(caught.value).rpartition(" ")[2]).read_text()) == 1000


def test_an_engine_that_is_gone_is_an_engine_error(toy: System) -> None:
    class Gone:
        images = property(lambda self: self)

        def get(self, _: str) -> None:
            raise requests.exceptions.ConnectionError("Connection aborted.")

    with pytest.raises(EngineError, match=r"Connection aborted\..*harness doctor"):
        making.find(cast(docker.DockerClient, Gone()), toy)


LOCKS = sorted(path for folder in ENGINES for path in folder.glob("requirements*.lock"))


def locked(path: Path) -> dict[str, str]:
    """Version by package, of a lock in which each is pinned with hashes."""
    requirements = path.read_text().replace("\\\n", " ").splitlines()
    assert all(re.fullmatch(r"[a-z0-9.-]+==\S+( +--hash=sha256:[0-9a-f]{64})+", line) for line in requirements)
    return dict(line.split()[0].split("==") for line in requirements)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_locks_are_complete_pinned_and_name_no_index(path: Path) -> None:
    declared = path.with_suffix(".in")
    lines = declared.read_text().splitlines() if declared.exists() else []
    wanted = {re.split(r"[=<>]", line)[0] for line in lines if not line.startswith("#")}
    assert wanted <= locked(path).keys()
    assert bool(wanted) is bool(locked(path)), "an engine without packages has an empty lock"
    assert "pip" in locked(path) or not locked(path)  # the builder runs it from its wheel
    assert "://" not in path.read_text()


@pytest.mark.parametrize(
    "path", [path for path in LOCKS if path.stem.endswith("-cuda")], ids=lambda path: path.parent.name
)
def test_packages_for_gpus_are_those_for_cpus_with_another_pytorch(path: Path) -> None:
    here, there = locked(path), locked(path.with_name("requirements.lock"))
    assert there.keys() - here.keys() <= {"setuptools"}  # which PyTorch asks for or not
    assert {name for name in there.keys() & here.keys() if here[name] != there[name]} == {"torch"}
    assert "+cpu" in there["torch"] and "+" not in here["torch"]
    added = here.keys() - there.keys() - {"cuda-toolkit"}
    assert added and all(name.startswith("nvidia-") for name in added)
    cuda = {here[name].rpartition(".")[0] for name in here if re.match(r"nvidia-(cuda-(runtime|nvcc|crt)|nvvm)", name)}
    assert len(cuda) == 1, "CUDA's runtime and compiler are of one release"


@pytest.mark.parametrize("folder", ENGINES, ids=lambda path: path.name)
def test_dockerfiles_do_not_reach_for_the_network_and_end_unprivileged(folder: Path) -> None:
    text = (folder / "Dockerfile").read_text()
    assert not re.search(r"\b(apt-get|curl|wget|ADD|--mount)\b", text)
    assert text.split("USER ")[1].startswith("65532:65532")
    assert text.rstrip().endswith('ENTRYPOINT ["python3", "-m", "harness.measure"]')


@pytest.fixture
def built(engine: docker.DockerClient, toy: System) -> Iterator[docker.DockerClient]:
    yield engine
    for reference in (f"harness-{toy.name}", f"{toy.name}-other", f"harness-engine-{toy.engine}"):
        for found in engine.images.list(reference):
            with contextlib.suppress(docker.errors.APIError):  # steps of a failed build may hang on it
                engine.images.remove(found.id, force=True)


@pytest.mark.docker
def test_an_image_is_built_once(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    said: list[str] = []
    assert making.find(built, toy) is None
    image = making.ensure(built, toy, cache=tmp_path, models=None, report=said.append)
    assert image.reference == f"harness-{toy.name}:{recipe(toy)[:12]}"
    assert image.digest.startswith("sha256:")
    assert image.size_bytes > 1 << 20
    said.clear()
    assert making.ensure(built, toy, cache=tmp_path, models=None, report=said.append) == image
    assert said == []
    command = "python3 -c 'import harness.measure.driver' ; cat /opt/harness/base-packages.txt"
    output = built.containers.run(
        image.digest, ["sh", "-c", command], remove=True, environment={"PYTHONPATH": "/opt/harness"}, network="none"
    )
    assert b"libc6" in output


@pytest.mark.docker
def test_systems_of_one_engine_share_its_layers_and_equal_ones_their_image(
    built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    (tmp_path / "models" / "model").mkdir(parents=True)
    (tmp_path / "models" / "model" / "file").write_text("weights")
    heavy = with_asset(toy, hashlib.sha256(b"weights").hexdigest())
    twin = heavy.model_copy(update={"name": f"{toy.name}-twin", "search_params": {"k": 1}})

    def ensure(system: System) -> making.Image:
        return making.ensure(built, system, cache=tmp_path, models=tmp_path / "models", report=said.append)

    def layers(image: making.Image) -> list[str]:
        return list(built.images.get(image.digest).attrs["RootFS"]["Layers"])

    said: list[str] = []
    plain, weighted, same = ensure(toy), ensure(heavy), ensure(twin)
    assert sum(line.startswith("building the image of the engine") for line in said) == 1
    assert layers(weighted)[:-1] == layers(plain), "the weights are the last layer"
    assert same.digest == weighted.digest and same.reference != weighted.reference
    output = built.containers.run(same.digest, ["sh", "-c", "cat /opt/assets/model/file; echo"], remove=True)
    assert output == b"weights\n"
    built.images.remove(same.reference)


@pytest.mark.docker
def test_what_prepares_the_assets_runs_at_the_build_and_its_complaint_is_told(
    built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    (tmp_path / "models" / "model").mkdir(parents=True)
    (tmp_path / "models" / "model" / "file").write_text("weights")
    part = tmp_path / "parts" / "shared"
    part.mkdir(parents=True)
    (part / "__init__.py").touch()
    (part / "prepare.py").write_text(PREPARE)
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("COPY parts /opt/parts\nENV PYTHONPATH=/opt/parts\nUSER 65532:65532\n")
    update = {"parts": (part,), "prepare": "shared.prepare", "prepare_params": ("say",)}
    toy = with_asset(toy, hashlib.sha256(b"weights").hexdigest()).model_copy(update=update)

    def ensure(word: str) -> making.Image:
        system = toy.model_copy(update={"build_params": {"say": word, "other": 1}})
        return making.ensure(built, system, cache=tmp_path, models=tmp_path / "models", report=lambda _: None)

    image = ensure("converted")
    command = ["sh", "-c", "id -u; ls /opt/assets/model; cat /opt/assets/model/*; echo"]
    output = built.containers.run(image.digest, command, remove=True)
    assert output.decode().split() == ["65532", "new", "converted", "{'say':", "'converted'}"]
    with pytest.raises(ImageError, match="these weights are no good"):
        ensure("nonsense")


@pytest.mark.docker
def test_two_at_once_build_one_image(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    def ensure(_: int) -> making.Image:
        return making.ensure(built, toy, cache=tmp_path, models=None, report=said.append)

    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ensure, range(2))
    assert first == second
    built_now = [line for line in said if line.startswith("building")]
    assert built_now == [f"building the image of the engine {toy.engine}", f"building the image of {toy.name}"]


@pytest.mark.docker
def test_a_build_has_no_network_and_a_failed_one_does_not_count(
    built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    before = {container.id for container in built.containers.list(all=True)}
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("RUN cat /proc/net/route | tail -n +2 | grep . || { echo no route at all; exit 3; }\n")
    with pytest.raises(ImageError, match=r"RUN cat /proc/net/route.*no route at all.*code: 3"):
        making.ensure(built, toy, cache=tmp_path, models=None, report=lambda _: None)
    assert making.find(built, toy) is None
    left = [each for each in built.containers.list(all=True) if each.id not in before]
    assert not [each for each in left if "no route at all" in str(each.attrs["Config"]["Cmd"])]


@pytest.mark.docker
def test_a_tag_of_another_recipe_does_not_count(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    base = base_image.ensure(built, tmp_path, lambda _: None)
    repository, _, tag = f"harness-{toy.name}:{recipe(toy)[:12]}".partition(":")
    built.images.get(base).tag(repository, tag)
    assert making.find(built, toy) is None
    built.images.remove(f"{repository}:{tag}")
