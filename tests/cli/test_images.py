"""``harness images``: what is made beforehand, and what it says of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import docker
import pytest
from click.testing import Result

from harness.launch.images import catalog, emulation
from harness.launch.images.builder import Image, ImageBuilder
from harness.launch.images.systems import System
from tests.conftest import Bench
from tests.support.command_line import call
from tests.support.model_hub import Hub, chosen, serve


def harness(bench: Bench, *arguments: str) -> Result:
    command = ["images", *arguments, "--cache", str(bench.cache)]
    return call(*command)


@pytest.mark.docker
def test_images_builds_the_requested_images_despite_a_failure(bench: Bench, engine: docker.DockerClient) -> None:
    lacking = bench.folder / "engines" / "planted" / "systems" / "lacking.toml"
    asset = f'[[assets]]\nfolder = "model"\nlicence = "MIT"\nsha256 = {{ "weights" = "{"0" * 64}" }}\n'
    lacking.write_text(f'description = "its weights are nowhere"\n{asset}', encoding="utf-8")
    done = harness(bench, "lacking", "planted", "planted")
    assert done.exit_code == 1
    head, row = done.stdout.splitlines()
    assert head.split() == ["image", "of", "platform", "size", "took", "digest", "tag"]
    image = engine.images.get(row.split()[-1])
    assert row.startswith("planted") and image.id.removeprefix("sha256:").startswith(row.split()[-2])
    assert f"{image.attrs['Size'] / 1e6:,.0f} MB" in row and emulation.native(engine) in row
    assert "harness: lacking: cannot find weights of 'model'" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_images_are_exported_with_sums_that_sha256sum_accepts(bench: Bench, engine: docker.DockerClient) -> None:
    folder = bench.folder / "out"
    done = harness(bench, "planted", "--export", str(folder))
    assert done.exit_code == 0, done.output
    head, row = done.stdout.splitlines()
    file = Path(row.split()[-1])
    assert head.split()[-1] == "file" and file.parent == folder and file.suffix == ".tar"
    assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", file.name]
    subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)
    with file.open("rb") as packed:
        (loaded,) = engine.images.load(packed)
    assert loaded.id == engine.images.get(row.split()[-2]).id
    if shutil.which("apptainer"):
        done = harness(bench, "planted", "--export", str(folder), "--format", "sif")
        assert done.exit_code == 0, done.output
        sums = (folder / "SHA256SUMS").read_text().splitlines()
        assert sorted(Path(line.split()[-1]).suffix for line in sums) == [".json", ".sif", ".tar"]
        subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=folder, check=True, capture_output=True)


def test_a_format_without_export_is_a_usage_error(bench: Bench) -> None:
    done = harness(bench, "planted", "--format", "sif")
    assert done.exit_code == 2 and "--format needs --export; give both" in done.stderr


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_images_pins_for_itself_and_says_that_it_keeps_no_pins(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[System] = []

    def ensure(_builder: ImageBuilder, system: System) -> Image:
        made.append(system)
        return Image("tag", "recipe", "sha256:00", 1, "driver")

    monkeypatch.setattr(ImageBuilder, "ensure", ensure)
    for name, model in (("bare", "someone/toy"), ("lost", "someone/else")):
        asset = f'[[assets]]\nfolder = "toy"\nlicence = "MIT"\nhub = "{model}"\nfiles = ["w.bin"]\n'
        path = bench.folder / "engines" / "planted" / "systems" / f"{name}.toml"
        path.write_text(f'description = "bare"\n{asset}', encoding="utf-8")
    with serve(Hub({"someone/toy": {"a" * 40: {"w.bin": b"weights"}}})) as hub, chosen(hub.url):
        done = harness(bench, "lost", "bare", "planted")
    assert [system.name for system in made] == ["bare", "planted"] and not made[0].unpinned
    assert "bare: this command stores no results, so its pins are not kept; `harness run` keeps them" in done.stderr
    assert done.exit_code == 1 and "harness: lost: the hub has no model someone/else" in done.stderr


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
def test_platform_is_passed_by_its_engine_name(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[object] = []

    def ensure(builder: ImageBuilder, _system: System) -> Image:
        options.append(builder.platform)
        return Image("tag", "recipe", "sha256:00", 1, "driver", "linux/arm64")

    monkeypatch.setattr(ImageBuilder, "ensure_engine", ensure)
    monkeypatch.setattr(ImageBuilder, "ensure", ensure)
    done = harness(bench, "planted", "--engine", "dense", "--platform", "aarch64")
    assert done.exit_code == 0 and options == ["linux/arm64", "linux/arm64"]
    assert all("linux/arm64" in row for row in done.stdout.splitlines()[1:])
    assert harness(bench, "planted").exit_code == 0 and options.pop() is None, "the engine's own"
    done = harness(bench, "planted", "--platform", "linux/arm46")
    assert done.exit_code == 2 and "unknown platform 'linux/arm46'. Did you mean 'linux/arm64'" in done.stderr


@pytest.mark.slow
def test_unknown_system_is_a_usage_error(bench: Bench) -> None:
    done = harness(bench, "plantet")
    assert done.exit_code == 2 and "unknown system 'plantet'. Did you mean 'planted'?" in done.stderr
    done = harness(bench, "--engine", "dens")
    assert done.exit_code == 2 and "unknown engine 'dens'. Did you mean 'dense'?" in done.stderr


@pytest.mark.slow
def test_images_for_gpus_are_those_of_engines_with_gpu_packages(bench: Bench) -> None:
    def images(systems: list[str], engines: tuple[str, ...], gpus: int) -> list[str]:
        declared = list(catalog.named(systems).values()) if systems else []
        found = catalog.images_to_build(declared, engines, gpus, {})
        return [system.engine_image if whole else system.image for system, whole in found]

    planted = bench.folder / "engines" / "planted"
    assert "dense-cuda" in images([], (), 1) and "planted-cuda" not in images([], (), 1)
    assert images(["planted"], (), 1) == ["planted"]
    shutil.copy(planted / "requirements.lock", planted / "requirements-cuda12.lock")
    assert "planted-cuda" in images([], (), 1) and images(["planted"], (), 1) == ["planted-cuda"]
    assert "planted" in images([], (), 0) and not [name for name in images([], (), 0) if name.endswith("-cuda")]
    assert images(["planted"], ("dense", "dense"), 0) == ["planted", "dense"]
    assert images([], ("dense",), 1) == ["dense-cuda"]
