"""The process launcher runs ``prepare`` without secrets and prints its output safely."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from harness.errors import ImageError
from harness.launch.images import catalog
from harness.launch.images.systems import System
from harness.launch.process import ProcessLauncher
from tests.conftest import Bench

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


def test_prepare_gets_its_parameters_and_no_secrets(
    bench: Bench, prepared: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    monkeypatch.setenv("HF_TOKEN", "secret")
    ready = ProcessLauncher(bench.cache, bench.folder / "models").prepare(prepared)
    assets = Path(ready.reference) / "assets" / "model"
    assert [path.name for path in assets.iterdir()] == ["made"], "what was made takes the place of what was given"
    told, environment = json.loads((assets / "made").read_text())
    assert told == {"build_params": {}, "search_params": {"say": "hello"}}
    assert "HF_TOKEN" not in environment and "PYTHONPATH" in environment
    (cached,) = (bench.cache / "files").iterdir()
    assert cached.read_text() == "weights"


def test_one_environment_builds_and_searches(bench: Bench, prepared: System) -> None:
    with (prepared.engine_dir / "engine.toml").open("a") as file:
        file.write('lean_search_if = {say = ["hello"]}\n')
    system, launcher = catalog.system("weighted"), ProcessLauncher(bench.cache, bench.folder / "models")
    assert system.for_job("search") != system
    assert launcher.prepare(system).digest == launcher.prepare(system.for_job("search")).digest


def test_prepare_error_is_one_printable_line(bench: Bench, prepared: System) -> None:
    wrong = prepared.model_copy(update={"search_params": {"say": "nonsense"}})
    with pytest.raises(ImageError, match="its files could not be made ready: no good") as caught:
        ProcessLauncher(bench.cache, bench.folder / "models").prepare(wrong)
    assert str(caught.value).isprintable()
