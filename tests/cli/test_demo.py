"""`harness demo`: the main job without a clone."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main


def test_demo_runs_the_shipped_suite_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    done = CliRunner().invoke(main, ["demo", "--launcher", "fake"], catch_exceptions=False)
    assert done.stdout.startswith("scifact, ") and "| minilm " in done.stdout, done.output
    assert (tmp_path / "results" / "quickstart" / "report.html").is_file()


def test_wheel_has_the_suite_of_the_demo() -> None:
    packed = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert packed["wheel"]["force-include"]["suites/quickstart.toml"] == "harness/shipped/suites/quickstart.toml"
