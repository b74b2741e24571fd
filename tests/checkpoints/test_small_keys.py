"""Tests of the cache keys of trained checkpoints (suite ``small``), and of the systems over them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from checkpoints import __main__, small
from harness.launch.images import catalog

pytestmark = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["engine", "encoder"])
def test_checkpoints_are_retrained_if_a_training_package_changes(tmp_path: Path, changed: str) -> None:
    shutil.copytree(catalog.images_dir() / "dense", tmp_path / "engine")
    shutil.copytree(catalog.images_dir() / "shared" / "encoder", tmp_path / "encoder")
    minilm = catalog.systems()["minilm"]
    engine = minilm.model_copy(update={"engine_dir": tmp_path / "engine", "shared": (tmp_path / "encoder",)})

    def key() -> str:
        return small._key(small.KINDS[0], engine, minilm, Path(__file__), small.STEPS)

    before = key()
    with (tmp_path / changed / "requirements.lock").open("a") as lock:
        lock.write("another==1.0\n")
    assert key() != before


@pytest.mark.slow
def test_command_offers_every_kind() -> None:
    assert tuple(kind.name for kind in small.KINDS) == __main__.KINDS


@pytest.mark.slow
def test_stand_ins_change_only_parameters_of_their_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "colbertv2.0").mkdir(parents=True)
    (tmp_path / "models" / "colbertv2.0" / "config.json").write_text("{}")
    monkeypatch.setattr(small, "train_missing", lambda *_args, **_options: None)
    kind = next(kind for kind in small.KINDS if kind.name == "colbert")
    client: Any = None
    written = small.make(client, tmp_path, cache=tmp_path, heard=lambda *_: None, kinds=[kind])
    published = catalog.systems(catalog.images_dir())
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "images"))
    for name, path in zip(kind.systems, written, strict=True):
        made = catalog.system(path.stem)
        assert made.params.keys() == published[name].params.keys(), f"{name}: an engine refuses unknown ones"
        assert made.params["document_tokens"] == 96
