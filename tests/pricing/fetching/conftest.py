import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.pricing import instances
from instance_profiles import fetch_prices

Fetch = Callable[..., Result]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Copy the shipped instance_profiles/, so that a test may add snapshots."""
    copy = tmp_path / "instance_profiles"
    shutil.copytree(instances.data_folder(), copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    return copy


@pytest.fixture
def fetch(root: Path, monkeypatch: pytest.MonkeyPatch) -> Fetch:
    """The script, with the arguments given and ``--into`` that copy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(fetch_prices.main, [*arguments, "--into", str(root)], catch_exceptions=False)

    return run


def content(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file under a folder, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
