"""Tests of image builds and of reports of failed builds."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import mmap
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import docker
import psutil
import pytest
import requests

from harness import filesystem
from harness.driver.records import PROTOCOL_VERSION
from harness.errors import EngineError, ImageError, StoreError
from harness.launch.images import builder, catalog, driver_code, emulation
from harness.launch.images.recipes import recipe
from harness.launch.images.systems import WHOLE_ENGINE, NotFor, System
from tests.support import job_fixtures
from tests.support.container_output import output_of
from tests.support.toy_dataset import with_asset

# Replaces what it was given; refuses one word.
PREPARE = """
import json, pathlib, sys
place, told = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
if told["build_params"]["say"] == "nonsense":
    sys.exit("these weights are no good")
(place / "model" / "file").unlink()
(place / "model" / "new").write_text(told["build_params"]["say"] + " " + str(told["build_params"]))
"""


class Scripted:
    """A stand-in for the Docker client with a scripted build."""

    base_url, api_version = "http+docker://localhost", "1.41"

    def __init__(self, *events: dict[str, str]) -> None:
        self.events = events
        self.api = self

    def post(self, *_: Any, **__: Any) -> Any:
        lines = [json.dumps(event).encode() for event in self.events]
        return SimpleNamespace(
            iter_lines=lambda: iter(lines), raise_for_status=lambda: None, status_code=200, close=lambda: None, raw=None
        )

    def info(self) -> dict[str, str]:
        return {"DockerRootDir": "/"}


def build(client: Scripted, cache: Path) -> None:
    file = cache / "Dockerfile"
    file.write_text("# two steps\nFROM scratch\n\nRUN make \\\n  # what?\n  it\n")
    toy = job_fixtures.system("toy")
    target = builder.ImageTarget(toy, lambda _: "0", "harness-toy", "system 'toy'", "toy", file)
    builder.ImageBuilder(cast(docker.DockerClient, client), cache).run_build(target, io.BytesIO(), {}, {})


def test_a_failed_build_is_one_line_with_step_reason_and_log(tmp_path: Path) -> None:
    client = Scripted(
        {"stream": "Step 1/2 : FROM scratch\n"},
        {"stream": " ---> 123\n"},
        {"stream": "Step 2/2 : RUN make it\n"},
        {"stream": "\x1b[91mno rule\nto make it\x1b[0m\n"},
        {"stream": "\x1b]0;owned\x07\x1b[2J\n"},
        {"error": "The command '/bin/sh -c make it' returned a non-zero code: 2"},
    )
    with pytest.raises(ImageError) as caught:
        build(client, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'Dockerfile'}:4: the image of system 'toy' failed at ")
    assert "'RUN make it': no rule | to make it | \\x1b]0;owned\\x07\\x1b[2J | FAILED: non-zero code: 2" in message
    assert "\n" not in message
    log = Path(message.rpartition(" ")[2])
    assert "Step 1/2" in log.read_text()


@pytest.mark.parametrize(
    ("stage", "code", "place", "error"),
    [("", 2, ":4", ImageError), ("[1/2] ", 2, "", ImageError), ("", WHOLE_ENGINE, ":4", builder._NeedsWholeEngine)],
)
def test_podman_names_steps_and_failures_in_words_of_its_own(
    tmp_path: Path, stage: str, code: int, place: str, error: type[ImageError]
) -> None:
    """Its words, as Podman 4.3.1 says them; it counts the steps of each stage alone."""
    client = Scripted(
        {"stream": f"{stage}STEP 1/2: FROM scratch\n"},
        {"stream": "--> af9bd44550a\n"},
        {"stream": f"{stage}STEP 2/2: RUN make it\n"},
        {"stream": "no rule to make it\n"},
        {"error": f'building at STEP "RUN make it": while running runtime: exit status {code}'},
    )
    with pytest.raises(ImageError) as caught:
        build(client, tmp_path)
    assert type(caught.value) is error
    message = f"{tmp_path / 'Dockerfile'}{place}: the image of system 'toy' failed at 'RUN make it': no rule to make it"
    assert str(caught.value).startswith(f"{message} | FAILED: exit status {code}; the whole log is ")


@pytest.mark.parametrize(
    ("step", "reason", "free_bytes", "hosts"),
    [
        ("copying", "write /var/lib/docker/tmp/x: no space left on device", 1 << 40, True),
        ("OSError: [Errno 28] No space left on device", "non-zero code: 1", 1 << 20, True),
        ("OSError: [Errno 28] No space left on device", "non-zero code: 1", 1 << 40, False),  # its own /dev/shm
        ("all is well", "non-zero code: 1", 1 << 20, False),
    ],
)
def test_full_engine_disk_is_not_the_images_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, reason: str, free_bytes: int, hosts: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free_bytes))
    client = Scripted({"stream": f"Step 1/1 : RUN it\n{step}\n"}, {"error": reason})
    with pytest.raises(StoreError if hosts else ImageError, match="make room" if hosts else "the image of system"):
        build(client, tmp_path)


class Stored:
    """A stand-in for the Docker client with one image of a recipe, whose driver has this hash."""

    def __init__(self, name: str, **labels: str) -> None:
        self.images, self.name, self.labels = self, name, {builder.RECIPE_LABEL: "0" * 64, **labels}

    def version(self) -> dict[str, str]:
        return {"Os": "linux", "Arch": "amd64"}

    def get(self, reference: str) -> Any:
        assert reference.partition(":")[0] == f"harness-{self.name}"
        return SimpleNamespace(labels=self.labels, id="sha256:e", attrs={"Size": 1})


@pytest.mark.parametrize(
    ("built_with", "here", "found"),
    [
        ("old", "new", True),
        ("new", "old", True),  # an older harness again
        ("other", "new", False),
        ("old", "edited", False),
        ("edited", "edited", True),
        (None, "new", False),
    ],
)
def test_image_is_found_if_its_driver_times_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built_with: str | None, here: str, found: bool
) -> None:
    monkeypatch.setattr(builder.ImageTarget, "recipe", "0" * 64)
    monkeypatch.setattr(driver_code, "ALIKE", {PROTOCOL_VERSION: ("old", "new"), PROTOCOL_VERSION + 1: ("other",)})
    monkeypatch.setattr(driver_code, "code_hash", lambda: here)
    labels = {builder.DRIVER_LABEL: built_with} if built_with else {}
    for name, find in (("a", "find"), ("engine-lucene", "ensure_engine")):
        made = builder.ImageBuilder(cast(docker.DockerClient, Stored(name, **labels)), tmp_path, platform="linux/amd64")
        monkeypatch.setattr(builder.ImageBuilder, "_new_engine", lambda *_: None)
        image = getattr(made, find)(job_fixtures.system("a"))
        assert (image is not None) == found
        assert image is None or (image.digest, image.recipe, image.driver) == ("sha256:e", "0" * 64, built_with)
    monkeypatch.setattr(builder.ImageTarget, "recipe", "1" * 64)
    assert made.find(job_fixtures.system("engine-lucene")) is None, "the tag of another recipe"


def test_log_of_a_build_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_LOG_CHARS", 1000)
    client = Scripted(
        {"stream": "Step 1/1 : RUN yes\n"},
        *[{"stream": "y\n" * 1000}] * 10,
        {"stream": "y" * 5000},
        {"error": "stopped"},
    )
    with pytest.raises(ImageError) as caught:
        build(client, tmp_path)
    assert len(str(caught.value)) < 2500 and "FAILED: stopped; the whole log is" in str(caught.value)
    assert len(Path(str(caught.value).rpartition(" ")[2]).read_text()) == 1000


def test_unreachable_engine_is_an_engine_error(toy: System, tmp_path: Path) -> None:
    class Gone:
        images = property(lambda self: self)

        def get(self, _: str) -> None:
            raise requests.exceptions.ConnectionError("Connection aborted.")

        def version(self) -> None:
            self.get("")

    for platform in (None, "linux/arm64"):
        with pytest.raises(EngineError, match=r"Connection aborted\..*harness doctor"):
            builder.ImageBuilder(cast(docker.DockerClient, Gone()), tmp_path, platform=platform).find(toy)


def test_missing_platform_is_refused_before_any_build(toy: System, tmp_path: Path) -> None:
    class Empty:
        images = property(lambda self: self)

        def get(self, _: str) -> None:
            raise docker.errors.ImageNotFound("none")

        def version(self) -> dict[str, str]:
            return {"Arch": "ppc64le"}

    def ensure(system: System, platform: str | None = None) -> None:
        builder.ImageBuilder(cast(docker.DockerClient, Empty()), tmp_path, platform=platform).ensure(system)

    stated = NotFor(platform="linux/arm64", reason="its compiler knows x86-64 alone")
    bound = toy.model_copy(update={"not_for": (stated,)})
    joined = toy.model_copy(update={"name": "both", "components": (toy, bound)})
    line = f"'{toy.engine}' has no linux/arm64 image: its compiler knows x86-64 alone; take another platform"
    for system in (bound, joined):
        with pytest.raises(ImageError, match=line):
            ensure(system, platform="linux/arm64")
    with pytest.raises(ImageError, match="made for linux/amd64 and linux/arm64, this engine is linux/ppc64le"):
        ensure(toy)
    assert not list(tmp_path.glob("wheels"))


@pytest.fixture
def built(engine: docker.DockerClient, toy: System) -> Iterator[docker.DockerClient]:
    yield engine
    for reference in (
        f"harness-{toy.name}",
        f"{toy.name}-other",
        f"harness-engine-{toy.engine}",
        f"harness-engine-{toy.engine}-lean",
    ):
        for found in engine.images.list(reference):
            with contextlib.suppress(docker.errors.APIError):  # steps of a failed build may hang on it
                engine.images.remove(found.id, force=True)


@pytest.mark.docker
def test_an_image_is_built_once(logged: list[str], built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    assert builder.ImageBuilder(built, tmp_path).find(toy) is None
    image = builder.ImageBuilder(built, tmp_path).ensure(toy)
    assert image.reference == f"harness-{toy.name}:{recipe(toy)[:12]}"
    assert image.digest.startswith("sha256:")
    assert image.size_bytes > 1 << 20
    logged.clear()
    assert builder.ImageBuilder(built, tmp_path).ensure(toy) == image
    assert logged == []
    command = "python3 -c 'import harness.driver.driver' ; cat /opt/harness/base-packages.txt"
    output = output_of(
        built, image.digest, ["sh", "-c", command], environment={"PYTHONPATH": "/opt/harness"}, network="none"
    )
    assert b"libc6" in output


@pytest.mark.docker
def test_systems_of_an_engine_share_layers_and_equal_systems_share_an_image(
    logged: list[str], built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    (tmp_path / "models" / "model").mkdir(parents=True)
    (tmp_path / "models" / "model" / "file").write_text("weights")
    heavy = with_asset(toy, hashlib.sha256(b"weights").hexdigest())
    twin = heavy.model_copy(update={"name": f"{toy.name}-twin", "search_params": {"k": 1}})

    def ensure(system: System) -> builder.Image:
        return builder.ImageBuilder(built, tmp_path, tmp_path / "models").ensure(system)

    def layers(image: builder.Image) -> list[str]:
        return list(built.images.get(image.digest).attrs["RootFS"]["Layers"])

    plain, weighted, same = ensure(toy), ensure(heavy), ensure(twin)
    assert sum(line.startswith("building the image of the engine") for line in logged) == 1
    assert layers(weighted)[:-1] == layers(plain), "the weights are the last layer"
    assert same.digest == weighted.digest and same.reference != weighted.reference
    output = output_of(built, same.digest, ["sh", "-c", "cat /opt/assets/model/file; echo"])
    assert output == b"weights\n"
    built.images.remove(same.reference)


def _weights_and_code(folder: Path, prepare: str) -> Path:
    """Write a model's file, and shared code that prepares it; return the code's folder."""
    (folder / "models" / "model").mkdir(parents=True)
    (folder / "models" / "model" / "file").write_text("weights")
    part = folder / "shared" / "common"
    part.mkdir(parents=True)
    (part / "__init__.py").touch()
    (part / "prepare.py").write_text(prepare)
    return part


@pytest.mark.docker
def test_prepare_runs_in_the_build_and_its_error_is_shown(
    built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    part = _weights_and_code(tmp_path, PREPARE)
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("COPY shared /opt/shared\nENV PYTHONPATH=/opt/shared\nUSER 65532:65532\n")
    update = {"shared": (part,), "prepare": "common.prepare", "prepare_params": ("say",)}
    toy = with_asset(toy, hashlib.sha256(b"weights").hexdigest()).model_copy(update=update)

    def ensure(word: str) -> builder.Image:
        system = toy.model_copy(update={"build_params": {"say": word, "other": 1}})
        return builder.ImageBuilder(built, tmp_path, tmp_path / "models").ensure(system)

    image = ensure("converted")
    command = ["sh", "-c", "id -u; ls /opt/assets/model; cat /opt/assets/model/*; echo"]
    output = output_of(built, image.digest, command)
    assert output.decode().split() == ["65532", "new", "converted", "{'say':", "'converted'}"]
    with pytest.raises(ImageError, match="these weights are no good"):
        ensure("nonsense")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "tried", "able", "makers"),
    [
        ("onnx", False, False, ["engine"]),
        ("onnx", True, True, ["engine-lean"]),
        ("onnx", True, False, ["engine-lean", "engine"]),
        ("torch", True, False, ["engine"]),
    ],
)
def test_lean_system_is_prepared_where_it_can_be_and_runs_in_the_lean_image(
    toy: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, tried: bool, able: bool, makers: list[str]
) -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    def build(_: Any, target: builder.ImageTarget, __: Any, arguments: dict[str, str], ___: Any) -> builder.Image:
        asked.append((target.image, arguments))
        if arguments.get("ENGINE", "").endswith("-lean") and not able:
            raise builder._NeedsWholeEngine
        return builder.Image(target.image, "r", "sha256:0", 1, "d")

    monkeypatch.setattr(builder.ImageBuilder, "_find", lambda *_: None)
    monkeypatch.setattr(builder.ImageBuilder, "_build", build)
    monkeypatch.setattr(builder.assets, "fetch", lambda *_: tmp_path)
    monkeypatch.setattr(builder.base_image, "ensure", lambda *_: "base")
    monkeypatch.setattr(emulation, "ensure", lambda *_: None)
    monkeypatch.setattr(builder.assets, "wheels", lambda *_: tmp_path)
    update = {"prepare": "x", "prepare_params": ("say",), "lean_if": {"say": ("onnx",)}, "prepare_lean": tried}
    toy = with_asset(toy.model_copy(update={**update, "build_params": {"say": word}}), "a" * 64)
    builder.ImageBuilder(cast(docker.DockerClient, None), tmp_path, platform="linux/amd64").ensure(toy)
    name = {"engine": f"the engine {toy.engine}", "engine-lean": f"the engine {toy.engine}-lean"}
    runtime = name["engine-lean" if word == "onnx" else "engine"]
    assert [arguments for image, arguments in asked if image == toy.name] == [
        {"ENGINE": name[maker], "PREPARE": "x", "RUNTIME": runtime} for maker in makers
    ]
    engines = {image: arguments for image, arguments in asked if image != toy.name}
    wanted = {name[maker] for maker in makers} | {runtime}
    assert engines == {
        each: {"BASE": "base"} | ({"STAGE": "lean"} if each.endswith("-lean") else {}) for each in wanted
    }


@pytest.mark.docker
def test_prepare_that_ends_with_3_gets_the_whole_engine(
    built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    part = _weights_and_code(tmp_path, f"import os, sys\nos.path.exists('/opt/whole') or sys.exit(3)\n{PREPARE}")
    own = (toy.engine_dir / "Dockerfile").read_text()
    assert own.count("FROM ${BASE}\n") == 1
    stages = "FROM ${BASE} AS lean\nFROM ${BASE} AS full\nRUN mkdir /opt/whole\nFROM ${STAGE}\n"
    (toy.engine_dir / "Dockerfile").write_text(
        "ARG STAGE=full\n"
        + own.replace("FROM ${BASE}\n", stages)
        + "COPY shared /opt/shared\nENV PYTHONPATH=/opt/shared\nUSER 65532:65532\n"
    )
    update = {"shared": (part,), "prepare": "common.prepare", "prepare_params": ("say",), "prepare_lean": True}
    update |= {"lean_if": {"say": ("converted",)}, "build_params": {"say": "converted"}}
    toy = with_asset(toy, hashlib.sha256(b"weights").hexdigest()).model_copy(update=update)
    image = builder.ImageBuilder(built, tmp_path, tmp_path / "models").ensure(toy)
    output = output_of(built, image.digest, ["sh", "-c", "ls /opt /opt/assets/model"])
    assert "new" in output.decode().split() and "whole" not in output.decode().split()


@pytest.mark.docker
def test_concurrent_builds_make_one_image(
    logged: list[str], built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    def ensure(_: int) -> builder.Image:
        return builder.ImageBuilder(built, tmp_path).ensure(toy)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(ensure, range(2))
    assert first == second
    built_now = [line for line in logged if line.startswith("building")]
    wanted = [f"the image of the engine {toy.engine}", f"the image of {toy.name}"]
    assert built_now == [f"building {image} for {emulation.native(built)}" for image in wanted]


@pytest.mark.docker
def test_a_build_whose_step_was_removed_is_done_again(
    built: docker.DockerClient, toy: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two builds share the engine's steps: one image's removal may take a step of the other away.
    lost = f"failed to get digest sha256:{'0' * 64}: open /imagedb/content: no such file or directory"
    events, calls = builder.engine_build.events, []

    def first_fails(*call: Any) -> Iterator[dict[str, Any]]:
        calls.append(call)
        if len(calls) > 1:
            return events(*call)
        call[1].read()  # as the engine does
        return iter([{"stream": "Step 1/2 : RUN x"}, {"error": lost}])

    monkeypatch.setattr(builder.engine_build, "events", first_fails)
    assert builder.ImageBuilder(built, tmp_path).ensure_engine(toy).size_bytes
    assert len(calls) == 2
    monkeypatch.setattr(builder.engine_build, "events", lambda *_: iter([{"error": lost}]))
    with pytest.raises(ImageError, match="failed to get digest"):
        builder.ImageBuilder(built, tmp_path).ensure(toy)


@pytest.mark.docker
def test_build_does_not_block_other_images(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    with filesystem.cache_lock(tmp_path, "harness-engine-other"), filesystem.cache_lock(tmp_path, "harness-other"):
        assert builder.ImageBuilder(built, tmp_path).ensure(toy).size_bytes


@pytest.mark.docker
def test_build_has_no_network_and_a_failed_build_leaves_no_image(
    built: docker.DockerClient, toy: System, tmp_path: Path
) -> None:
    before = {container.id for container in built.containers.list(all=True, ignore_removed=True)}
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("RUN cat /proc/net/route | tail -n +2 | grep . || { echo no route at all; exit 3; }\n")
    with pytest.raises(ImageError, match=r"RUN cat /proc/net/route.*no route at all.*code: 3"):
        builder.ImageBuilder(built, tmp_path).ensure(toy)
    assert builder.ImageBuilder(built, tmp_path).find(toy) is None
    left = [
        container for container in built.containers.list(all=True, ignore_removed=True) if container.id not in before
    ]
    assert not [container for container in left if "no route at all" in str(container.attrs["Config"]["Cmd"])]


@pytest.mark.docker
def test_build_may_take_half_of_the_memory(built: docker.DockerClient, toy: System, tmp_path: Path) -> None:
    limit = psutil.virtual_memory().total // 2 // mmap.PAGESIZE * mmap.PAGESIZE
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("RUN cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes memory.max 2>/dev/null; exit 3\n")
    with pytest.raises(ImageError, match=rf" {limit} \|"):
        builder.ImageBuilder(built, tmp_path).ensure(toy)


def test_a_joined_image_has_this_very_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one that measures alike may lack what the adapter of a newer component imports."""
    asked = {}

    def ensured(self: builder.ImageBuilder, system: System) -> builder.Image:
        asked[system.name] = self.measures_alike
        return builder.Image(system.name, "", "", 1, "")

    monkeypatch.setattr(builder.ImageBuilder, "ensure", ensured)
    monkeypatch.setattr(builder.ImageBuilder, "ensure_engine", ensured)
    monkeypatch.setattr(builder.ImageBuilder, "_environment", lambda *_: {})
    monkeypatch.setattr(builder.ImageBuilder, "_build", lambda *_: None)
    system = catalog.system("hybrid-minilm")
    made = builder.ImageBuilder(cast(docker.DockerClient, None), tmp_path, platform="linux/amd64")
    made._new_system(builder.ImageTarget.of_system(system))
    assert asked == {
        "tantivy": driver_code.measures_alike,
        "minilm": driver_code.measures_alike,
        "hybrid-minilm": driver_code.is_current,
    }
