"""The process launcher installs the packages of an engine and its shared parts."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from harness.launch.images import assets
from harness.launch.images.systems import System
from harness.launch.process import ProcessLauncher
from tests.support import wheel_file


def wheel(folder: Path, name: str) -> str:
    """Make a wheel with one empty module; return the lock line that pins it."""
    folder.mkdir()
    packed = wheel_file.distribution(name, b"")
    (folder / f"{name}-1-py3-none-any.whl").write_bytes(packed)
    return f"{name}==1 --hash=sha256:{hashlib.sha256(packed).hexdigest()}\n"


@pytest.mark.slow
def test_packages_of_an_engine_and_its_component_are_installed_together(
    toy: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = tmp_path / "shared" / "common"
    part.mkdir(parents=True)
    toy.lock.write_text(wheel(tmp_path / "own", "only_here"))
    (part / "requirements.lock").write_text(wheel(tmp_path / "theirs", "with_others"))
    places = {toy.lock: tmp_path / "own", part / "requirements.lock": tmp_path / "theirs"}
    monkeypatch.setattr(assets, "wheels", lambda lock, *_: places[lock])
    launcher = ProcessLauncher(tmp_path / "cache")
    made = launcher.prepare(toy.model_copy(update={"shared": (part,)}))
    assert {path.name for path in (Path(made.reference) / "packages").glob("*.py")} == {
        "only_here.py",
        "with_others.py",
    }
