"""Tests of the cache keys of trained checkpoints (suite ``small``)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoints import __main__, small
from harness.launch.images import catalog


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


def test_command_offers_every_kind() -> None:
    assert tuple(kind.name for kind in small.KINDS) == __main__.KINDS
