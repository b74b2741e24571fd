"""Tests of image recipes and build contexts."""

from __future__ import annotations

import ast
import io
import shutil
import tarfile
from pathlib import Path

import pytest

from harness.errors import FileError
from harness.launch.images import driver_code
from harness.launch.images import recipes as recipes_images
from harness.launch.images.dockerfile import Dockerfile
from harness.launch.images.platforms import AMD64, ARM64
from harness.launch.images.recipes import engine_recipe, recipe
from harness.launch.images.systems import System
from tests.support.toy_dataset import with_asset


@pytest.mark.parametrize("name", ["Dockerfile", "adapter.py", "requirements.lock"])
def test_each_file_of_the_build_changes_the_recipe(toy: System, name: str) -> None:
    before = recipe(toy)
    with (toy.engine_dir / name).open("a") as file:
        file.write("# more\n")
    assert recipe(toy) != before


def test_assets_change_the_recipe(toy: System) -> None:
    recipes = {recipe(toy), recipe(with_asset(toy, "a" * 64)), recipe(with_asset(toy, "b" * 64))}
    assert len(recipes | {recipe(with_asset(toy, "a" * 64, "other"))}) == 4


def test_shared_code_and_prepare_change_the_recipe(toy: System, tmp_path: Path) -> None:
    part = tmp_path / "shared" / "common"
    part.mkdir(parents=True)
    (part / "__init__.py").write_text("x = 1\n")
    toy = with_asset(
        toy.model_copy(update={"shared": (part,), "prepare": "common", "prepare_params": ("backend",)}), "a" * 64
    )
    before, engine = recipe(toy), engine_recipe(toy)
    assert recipe(toy.model_copy(update={"search_params": {"k": 3}})) == before, "not read by `prepare`"
    other = toy.model_copy(update={"search_params": {"backend": "onnxruntime"}})
    assert recipe(other) != before and engine_recipe(other) == engine
    (part / "__init__.py").write_text("x = 2\n")
    assert engine_recipe(toy) != engine


def test_lean_system_has_another_recipe_and_engine_image(toy: System) -> None:
    update = {"prepare": "x", "prepare_params": ("backend",), "search_params": {"backend": "onnx"}}
    whole = with_asset(toy.model_copy(update=update), "a" * 64)
    lean = whole.model_copy(update={"lean_if": {"backend": ("onnx",)}})
    assert lean.lean and not whole.lean and recipe(lean) != recipe(whole)
    assert engine_recipe(lean) == engine_recipe(whole) != engine_recipe(lean, lean=True)


def test_packages_of_shared_code_change_the_build_and_recipe(toy: System, tmp_path: Path) -> None:
    part = tmp_path / "shared" / "common"
    part.mkdir(parents=True)
    toy, before = toy.model_copy(update={"shared": (part,)}), engine_recipe(toy)
    assert engine_recipe(toy) == before and toy.shared_locks == {}
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("COPY packages/common /build\n")
    before = engine_recipe(toy)
    (part / "requirements.lock").write_text("plain\n")
    (part / "requirements-cuda12.lock").write_text("able\n")
    plain, able = toy.for_job("build", gpus=0), toy.for_job("build", gpus=1)
    assert len({before, engine_recipe(plain), engine_recipe(able)}) == 3
    assert able.lock == plain.lock, "the engine itself pins nothing else for an accelerator"
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a-1-py3-none-any.whl").touch()
    found = listed(packed(able, tmp_path / "wheels", tmp_path))
    assert {name for name in found if name.startswith("packages/")} == {
        *("packages/common", "packages/common/requirements.lock"),
        *("packages/common/wheels", "packages/common/wheels/a-1-py3-none-any.whl"),
    }
    assert found["packages/common/requirements.lock"].size == len("able\n")


def test_stages_of_shared_folders_stand_before_those_of_the_engine(toy: System, tmp_path: Path) -> None:
    own, first, second = toy.engine_dir / "Dockerfile", tmp_path / "shared" / "a", tmp_path / "shared" / "b"
    for folder in (first, second, tmp_path / "shared" / "none"):
        folder.mkdir(parents=True)
    toy = toy.model_copy(update={"shared": (first, tmp_path / "shared" / "none", second)})
    before = engine_recipe(toy)
    own.write_text("# FROM here\nARG BASE\n\nFROM b\nRUN one \\\n  two\n")
    (first / "stages.Dockerfile").write_text("# of a\nFROM ${BASE} AS a\nRUN a")
    (second / "stages.Dockerfile").write_text("FROM a AS b\n")
    assert engine_recipe(toy) != before
    (tmp_path / "wheels").mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed(toy, tmp_path / "wheels", tmp_path))) as tar:
        text = tar.extractfile("Dockerfile").read().decode()
        assert not [name for name in tar.getnames() if "stages" in name]
    assert text == "ARG BASE\nFROM ${BASE} AS a\nRUN a\nFROM a AS b\nFROM b\nRUN one   two\n"
    built = Dockerfile.of(own, toy.shared)
    assert [built.place_of_step(step) for step in range(1, 8)] == [
        f"{own}:2",
        f"{first / 'stages.Dockerfile'}:2",
        f"{first / 'stages.Dockerfile'}:3",
        f"{second / 'stages.Dockerfile'}:1",
        f"{own}:4",
        f"{own}:5",
        None,
    ]


def test_accelerator_has_its_own_image_and_packages(toy: System, tmp_path: Path) -> None:
    assert toy.for_job("build", gpus=1).image == toy.name, "an engine without such packages has one image"
    before = recipe(toy)
    (toy.engine_dir / "requirements-cuda12.lock").write_text("other\n")
    assert toy.for_job("build", gpus=0) == toy and recipe(toy) == before
    able = toy.for_job("build", gpus=1)
    assert able.image == f"{toy.name}-cuda" and recipe(able) != before
    (tmp_path / "files").mkdir()
    with tarfile.open(fileobj=io.BytesIO(packed(able, tmp_path / "files", tmp_path / "files"))) as tar:
        names = [name for name in tar.getnames() if "requirements" in name]
        assert names == ["requirements.lock"] and tar.extractfile(names[0]).read() == b"other\n"


def test_each_platform_has_its_own_image_and_the_engines_packages_for_it(toy: System) -> None:
    arm = toy.for_platform(ARM64)
    assert arm.lock == toy.lock and recipe(arm) != recipe(toy) and engine_recipe(arm) != engine_recipe(toy)
    assert recipe(toy.for_platform(AMD64)) == recipe(toy), "what x86-64 images are called does not change"
    before = recipe(arm)
    (toy.engine_dir / "requirements-arm64.lock").write_text("other\n")
    (toy.engine_dir / "requirements-arm64.in").write_text("other\n")
    assert arm.lock.name == "requirements-arm64.lock" and recipe(arm) != before
    assert toy.lock.name == "requirements.lock" and recipe(toy) == recipe(toy.for_platform(AMD64))
    (toy.engine_dir / "requirements-cuda12.lock").write_text("other\n")
    assert arm.for_job("build", gpus=1).lock.name == "requirements-cuda12.lock", (
        "nothing says that it holds x86-64 alone"
    )
    (toy.engine_dir / "requirements-cuda12-arm64.lock").write_text("other\n")
    assert arm.for_job("build", gpus=1).lock.name == "requirements-cuda12-arm64.lock"
    joined = toy.model_copy(update={"components": (toy, toy)}).for_platform(ARM64)
    assert [part.platform for part in joined.components] == [ARM64, ARM64]


def test_a_component_for_an_accelerator_names_the_joined_image(toy: System, tmp_path: Path) -> None:
    shutil.copytree(toy.engine_dir, tmp_path / "able")
    (tmp_path / "able" / "requirements-cuda12.lock").write_text("other\n")
    able = toy.model_copy(update={"name": "able", "engine_dir": tmp_path / "able"})
    both = toy.model_copy(update={"name": "both", "components": (toy, able)})
    there = both.for_job("build", gpus=1)
    assert (both.image, there.image, there.engine_image) == ("both", "both-cuda", toy.engine)
    assert [part.image for part in there.components] == [toy.name, "able-cuda"] and recipe(there) != recipe(both)


def test_an_engine_names_the_release_of_cuda_and_no_image_holds_two(toy: System, tmp_path: Path) -> None:
    part = tmp_path / "shared" / "common"
    part.mkdir(parents=True)
    for kind in ("", "-cuda12", "-cuda13"):
        (part / f"requirements{kind}.lock").touch()
    usual = toy.model_copy(update={"shared": (part,)})
    newer = usual.model_copy(update={"name": "newer", "cuda": 13})
    for system, lock in ((usual, "requirements-cuda12.lock"), (newer, "requirements-cuda13.lock")):
        assert system.for_job("build", gpus=1).shared_locks == {"common": part / lock}
        assert system.shared_locks == {"common": part / "requirements.lock"}
    both = toy.model_copy(update={"components": (usual, newer)})
    assert both.lacking is None and both.for_job("build", gpus=1).lacking == (
        f"its components need different releases of CUDA ({toy.name} 12, newer 13), and an image has one"
    )
    assert toy.model_copy(update={"components": (toy, newer)}).for_job("build", gpus=1).lacking is None


def test_image_that_only_searches_has_its_own_recipe(toy: System) -> None:
    with_file = with_asset(toy, "a" * 64)
    assert recipe(with_file.model_copy(update={"search_only": True})) != recipe(with_file)


def test_components_change_the_recipe(toy: System) -> None:
    first, second = (toy.model_copy(update={"name": name}) for name in ("first", "second"))
    both = toy.model_copy(update={"components": (first, second)})
    assert recipe(both) != recipe(toy)
    changed = toy.model_copy(update={"components": (first, with_asset(second, "a" * 64))})
    assert recipe(changed) != recipe(both)


def test_descriptions_and_parameters_keep_the_recipe(toy: System) -> None:
    before = recipe(toy)
    (toy.engine_dir / "engine.toml").write_text('description = "other words"\n')
    (toy.engine_dir / "__pycache__").mkdir()
    assert recipe(toy.model_copy(update={"search_params": {"k1": 1.2}})) == before


def test_driver_imports_only_files_of_the_image() -> None:
    driver = driver_code.files()
    for path in (content for content in driver.values() if isinstance(content, Path)):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            # "from harness import x" takes a module; "from harness.x import y" a name out of one.
            names += [f"{node.module}.{alias.name}" for alias in node.names] if names == ["harness"] else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in (module for module in names if module.partition(".")[0] == "harness"):
                file = name.replace(".", "/")
                assert f"{file}.py" in driver or f"{file}/__init__.py" in driver, f"{path.name} imports {name}"


def test_debian_packages_of_shared_code_change_the_build_and_recipe(toy: System, tmp_path: Path) -> None:
    part = tmp_path / "shared" / "common"
    part.mkdir(parents=True)
    toy, before = toy.model_copy(update={"shared": (part,)}), engine_recipe(toy)
    (part / "packages-amd64.lock").write_text("one\n")
    assert len({before, engine_recipe(toy), engine_recipe(toy.model_copy(update={"platform": ARM64}))}) == 3
    first = engine_recipe(toy)
    (part / "packages-amd64.lock").write_text("two\n")
    assert engine_recipe(toy) != first
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / "libc6_2.41_amd64.deb").touch()
    assert not [name for name in listed(packed(toy, tmp_path / "fetched", tmp_path)) if name.startswith("packages/")]
    with (toy.engine_dir / "Dockerfile").open("a") as file:
        file.write("COPY packages/common /build\n")
    found = listed(packed(toy, tmp_path / "fetched", tmp_path))
    assert {name for name in found if name.startswith("packages/")} == {
        *("packages/common", "packages/common/debs", "packages/common/debs/libc6_2.41_amd64.deb")
    }


def packed(system: System, wheelhouse: Path, files: Path) -> bytes:
    target = io.BytesIO()
    locks = (system.lock, *system.shared_locks.values(), *system.debian_locks.values())
    fetched = dict.fromkeys(locks, wheelhouse)
    recipes_images.write_tar(target, recipes_images.engine_context(system, fetched, files, {"BASE": "b:1"}))
    return target.getvalue()


def listed(packed: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        return {entry.name: entry for entry in tar}


def test_context_holds_the_inputs_and_nothing_of_the_host(toy: System, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").touch(mode=0o600)
    part = tmp_path / "shared" / "common"
    part.mkdir(parents=True)
    (part / "__init__.py").touch()
    (part / "notes.txt").touch()
    toy = toy.model_copy(update={"shared": (part,)})
    first = packed(with_asset(toy, "a" * 64), tmp_path / "wheels", tmp_path / "files")
    entries = listed(first)
    assert {"Dockerfile", "adapter.py", "wheels/a.whl", "assets/engine", "shared/common/__init__.py"} <= entries.keys()
    assert not any("model" in name or "notes" in name for name in entries), "weights are the system's, not the engine's"
    assert {"driver/harness/driver/records.py", "driver/harness/driver/__main__.py"} <= entries.keys()
    assert "engine.toml" not in entries
    # The builder's cache goes by these too: they must not differ from host to host.
    assert {(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in entries.values()} == {(0, 0, "", 0)}
    assert {entry.mode for entry in entries.values()} == {0o644, 0o755}
    assert packed(with_asset(toy, "a" * 64), tmp_path / "wheels", tmp_path / "files") == first


@pytest.mark.parametrize("name", ["Dockerfile", "requirements.lock"])
def test_missing_file_of_an_engine_is_named(toy: System, name: str) -> None:
    (toy.engine_dir / name).unlink()
    with pytest.raises(FileError, match=rf"/{name}: no such file; the engine 'toys-.*' needs it: see docs/guides"):
        recipe(toy)


def test_engine_with_a_file_larger_than_code_is_refused_before_it_is_read(toy: System) -> None:
    """A sparse file costs its author nothing, and a host that hashes or packs it hours and its disk."""
    with (toy.engine_dir / "weights.bin").open("wb") as file:
        file.truncate(1 << 43)
    with pytest.raises(FileError, match=r"has 8,388,608 MiB .*the limit is 512 MiB; declare weights"):
        recipe(toy)
