from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from harness.pricing import instances
from tests.support.command_line import call

Fetch = Callable[..., Result]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Copy the shipped instance_profiles/, so that a test may add snapshots."""
    copy = tmp_path / "instance_profiles"
    shutil.copytree(instances.data_folder(), copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return copy


@pytest.fixture
def fetch(root: Path, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    """`harness prices fetch` with the arguments given and ``--into`` that copy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return lambda *arguments: call("prices", "fetch", *arguments, "--into", str(root))


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file under a folder, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
