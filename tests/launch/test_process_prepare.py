"""The process launcher installs packages, and runs ``prepare`` without secrets; its output is printed safely."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from harness.errors import ImageError
from harness.launch.images import assets, catalog
from harness.launch.images.systems import System
from harness.launch.process import ProcessLauncher
from tests.conftest import Bench
from tests.support import wheel_file
from tests.support.toy_dataset import with_asset

PREPARE = """
import json, os, pathlib, sys
place, told = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
if told["search_params"]["say"] == "nonsense":
    sys.exit("no good: \\x1b]0;owned\\x07\\x1b[2J")
(place / "model" / "weights").unlink()
(place / "model" / "made").write_text(json.dumps([told, sorted(os.environ)]))
"""


@pytest.fixture
def prepared(bench: Bench) -> System:
    folder = bench.folder / "engines" / "planted"
    (folder / "planted_prepare.py").write_text(PREPARE.replace("\\\\", "\\"))
    with (folder / "engine.toml").open("a") as file:
        file.write('prepare = "planted_prepare"\nprepare_params = ["say"]\n')
    (bench.folder / "models" / "model").mkdir(parents=True)
    (bench.folder / "models" / "model" / "weights").write_text("weights")
    sha = hashlib.sha256(b"weights").hexdigest()
    asset = f'[[assets]]\nfolder = "model"\nlicence = "MIT"\nsha256 = {{ "weights" = "{sha}" }}\n'
    text = f'description = "planted"\n[search_params]\nsay = "hello"\nother = 1\n{asset}'
    (folder / "systems" / "weighted.toml").write_text(text)
    return catalog.system("weighted")


@pytest.mark.slow
def test_prepare_gets_its_parameters_and_no_secrets(
    bench: Bench, prepared: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    ready = ProcessLauncher(bench.cache, bench.folder / "models").prepare(prepared)
    model = Path(ready.reference) / "assets" / "model"
    assert [path.name for path in model.iterdir()] == ["made"], "what was made takes the place of what was given"
    told, environment = json.loads((model / "made").read_text())
    assert told == {"build_params": {}, "search_params": {"say": "hello"}}
    assert "HF_TOKEN" not in environment and "PYTHONPATH" in environment
    (cached,) = (bench.cache / "files").iterdir()
    assert cached.read_text() == "weights"


@pytest.mark.slow
def test_prepare_error_is_one_printable_line(bench: Bench, prepared: System) -> None:
    wrong = prepared.model_copy(update={"search_params": {"say": "nonsense"}})
    with pytest.raises(ImageError, match="its files could not be made ready: no good") as caught:
        ProcessLauncher(bench.cache, bench.folder / "models").prepare(wrong)
    assert str(caught.value).isprintable()


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


@pytest.mark.slow
@pytest.mark.parametrize("able", [True, False])
def test_packages_that_only_the_whole_engine_has_are_installed_if_prepare_asks(
    toy: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    code, lean, whole = (tmp_path / "shared" / name for name in ("code", "lean", "whole"))
    for folder in (code, lean, whole):
        folder.mkdir(parents=True)
    (code / "__init__.py").touch()
    needs = "" if able else "import importlib.util\nimportlib.util.find_spec('of_whole') or sys.exit(3)\n"
    (code / "ready.py").write_text(f"import pathlib, sys\npathlib.Path(sys.argv[1], 'model', 'file').unlink()\n{needs}")
    (lean / "requirements.lock").write_text(wheel(tmp_path / "of_lean", "of_lean"))
    (whole / "requirements.lock").write_text(wheel(tmp_path / "of_whole", "of_whole"))
    places = {part / "requirements.lock": tmp_path / f"of_{part.name}" for part in (lean, whole)}
    monkeypatch.setattr(assets, "wheels", lambda lock, *_: places.get(lock, tmp_path))
    (toy.engine_dir / "Dockerfile").write_text(
        "ARG BASE\nARG STAGE=full\nFROM ${BASE} AS lean\nCOPY packages/lean /\n"
        "FROM lean AS full\nCOPY packages/whole /\nFROM ${STAGE}\n"
    )
    (tmp_path / "models" / "model").mkdir(parents=True)
    (tmp_path / "models" / "model" / "file").write_text("weights")
    update = {"shared": (code, lean, whole), "prepare": "code.ready", "prepare_params": ("say",), "prepare_lean": True}
    update |= {"lean_if": {"say": ("it",)}, "build_params": {"say": "it"}}
    toy = with_asset(toy, hashlib.sha256(b"weights").hexdigest()).model_copy(update=update)
    made = Path(ProcessLauncher(tmp_path / "cache", tmp_path / "models").prepare(toy).reference)
    found = {path.stem for path in (made / "packages").glob("*.py")}
    assert found == ({"of_lean"} if able else {"of_lean", "of_whole"})
    assert not list((made / "assets" / "model").iterdir())
