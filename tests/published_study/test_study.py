"""Studies are loaded from harness' own files only; a paper without one is a table of rows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness import config
from harness.analysis import published as published_tables
from harness.errors import UnknownName
from harness.report import study
from tests.support.command_line import call
from tests.support.published import SHIPPED, alter, copy, shipped

ROOT = SHIPPED.parents[2]
HOSTILE = "raise SystemExit('a stranger wrote this')\n"


def output(*arguments: str) -> str:
    done = call(*arguments)
    assert done.exit_code in (0, 1), done.stderr
    return done.stdout


def plant(folder: Path) -> None:
    (folder / "study").mkdir(parents=True)
    (folder / "study" / "__init__.py").write_text(HOSTILE, encoding="utf-8")


def test_a_study_is_registered_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "santhanam2023" in study.names() and "boytsov2025" not in study.names()
    code = tmp_path / "another2024" / "study" / "__init__.py"
    code.parent.mkdir(parents=True)
    code.write_text('MEASURES = ("RR@10",)\n', encoding="utf-8")
    monkeypatch.setattr(config, "published_folder", lambda: tmp_path)
    study.names.cache_clear()
    try:
        assert study.names() == ("another2024",) and study.load("another2024").MEASURES == ("RR@10",)
    finally:
        study.names.cache_clear()
        sys.modules.pop("_harness_study_another2024", None)


def test_general_code_names_no_paper() -> None:
    papers = [name for name in config.published_names() if published_tables.is_in(config.published_folder() / name)]
    root, protocol = ROOT / "harness", "santhanam2023"  # a protocol has the name of its paper
    named = set()
    for path in root.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not any(paper in source for paper in papers):
            continue
        tree = ast.parse(source)
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs]
        words = {word for node in constants for word in re.findall(r"\w+", str(node.value))}
        named |= {(path.relative_to(root).as_posix(), paper) for paper in papers if paper in words}
    assert named == {
        (name, protocol)
        for name in (
            "experiments/calibration/cases.py",
            "experiments/viability/probe.py",
            "jobs/suite_protocol.py",
            "results/schema.py",
        )
    }


def test_an_unknown_study_is_named() -> None:
    with pytest.raises(UnknownName, match="unknown study 'santhanam'"):
        study.load("santhanam")
    assert study.of(shipped()) is study.load("santhanam2023")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["santhanam2023", "another2024", "../published/santhanam2023"])
def test_the_study_in_a_strangers_folder_is_not_executed(tmp_path: Path, name: str) -> None:
    folder = copy(tmp_path)
    alter(folder, "published.toml", 'name = "santhanam2023"', f'name = "{name}"')
    plant(folder)
    assert "BM25" in output("report", str(folder))
    assert "BM25" in output("report", str(folder), "--layout", "santhanam2023")
    assert output("verify", str(folder)).count("- fail ") == 16, "the errata"


@pytest.mark.slow
def test_a_study_below_the_working_directory_is_not_executed(tmp_path: Path) -> None:
    plant(tmp_path / "results" / "published" / "santhanam2023")
    command = [sys.executable, "-m", "harness", "report", str(SHIPPED), "--format", "csv"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and "RocketQAv2" in done.stdout, done.stderr


@pytest.mark.slow
def test_a_paper_without_study_is_shown_as_rows_with_its_recorded_errata(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    alter(folder, "published.toml", 'name = "santhanam2023"', 'name = "another2024"')
    text = output("report", str(folder), "--wide", "--as-of", "2022-12-05")
    assert "another2024" in text and "erratum (cost): 19 ms" in text
    (folder / published_tables.ERRATA).unlink()
    assert "erratum" not in output("report", str(folder), "--wide", "--as-of", "2022-12-05")
    assert published_tables.read(folder).errata == ()


@pytest.mark.slow
def test_verify_finds_a_contradiction_that_is_not_recorded(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    alter(folder, "table3a_msmarco.csv", "c7g.4xlarge,86,13.88", "c7g.4xlarge,86,13.98")
    lines = output("verify", str(folder)).splitlines()
    assert len(lines) == 18
    assert lines[-2].startswith("- fail  errata.csv: 3a/13/cost: stored: not there; follows: 86 ms, US$ 13.98")


def test_every_study_is_packed_into_wheels() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert packed["wheel"]["force-include"]["results/published"] == "harness/shipped/results/published"
    for name in study.names():
        assert (ROOT / "results" / "published" / name / "study" / "__init__.py").is_file()


@pytest.mark.slow
def test_the_study_runs_by_itself() -> None:
    command = [sys.executable, "-m", "results.published.santhanam2023.study", "--errata"]
    errata = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert errata == (SHIPPED / published_tables.ERRATA).read_text(encoding="utf-8")
