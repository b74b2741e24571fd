"""The process launcher installs the packages of an engine and its shared parts."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from harness.launch.images import assets
from harness.launch.images.systems import System
from harness.launch.process import ProcessLauncher


def wheel(folder: Path, name: str) -> str:
    """Make a wheel with one empty module; return the lock line that pins it."""
    folder.mkdir()
    path, info = folder / f"{name}-1-py3-none-any.whl", f"{name}-1.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", "")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return f"{name}==1 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


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
