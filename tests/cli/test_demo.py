"""`harness demo`: the main job without a clone, from the wheel too."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.jobs import suite
from harness.pricing import instances
from harness.results.schema import NULL_SYSTEM

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_demo_runs_the_shipped_suite_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    done = CliRunner().invoke(main, ["demo", "--launcher", "fake"], catch_exceptions=False)
    assert done.stdout.startswith("scifact-1200, ") and "| minilm " in done.stdout, done.output
    assert (tmp_path / "results" / "quickstart" / "report.html").is_file()
    assert "next, your own documents: harness run bm25 minilm --dataset ./my-data --launcher fake" in done.stdout
    answer = done.stdout.split("\n\n")
    assert sum(line.startswith("- ") for line in answer[-1].splitlines()) <= 5


@pytest.mark.parametrize(("launcher", "only"), [("docker", None), ("process", "*/cpu1-mem1")])
def test_demo_leaves_the_small_machine_out_where_memory_is_not_limited(
    monkeypatch: pytest.MonkeyPatch, launcher: str, only: str | None
) -> None:
    given: list[tuple[tuple[Path, ...], str | None]] = []

    @click.command()
    def run(suites: tuple[Path, ...], only: str | None, **_others: object) -> None:
        given.append((suites, only))

    monkeypatch.setattr("harness.cli.run.run", run)
    for arguments in ([], ["--only", "bm25"]):
        CliRunner().invoke(main, ["demo", "--launcher", launcher, *arguments], catch_exceptions=False)
    suites = (ROOT / "suites" / "quickstart.toml",)
    assert given == [(suites, only), (suites, "bm25")]


def test_demo_has_five_rows_and_leaves_the_harness_a_cpu() -> None:
    cells = [cell for cell in suite.load(ROOT / "suites" / "quickstart.toml").cells() if cell.system != NULL_SYSTEM]
    assert len(cells) == 5
    assert {instances.hardware_profile(cell.profile).cpus for cell in cells} == {1}


def _install(wheel: Path, folder: Path) -> Path:
    """Install a wheel and its pinned packages into a fresh environment; uv is quicker, pip knows its configuration."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    lock = ROOT / "harness" / "remote" / "requirements.lock"
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for what in (["--require-hashes", "-r", lock], ["--no-deps", wheel]):
        if subprocess.run([*uv, *what], check=False, capture_output=True).returncode:
            subprocess.run([python, "-m", "ensurepip"], check=True, capture_output=True)
            subprocess.run([*pip, *what], check=True)
    return folder / "bin" / "harness"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a wheel in an environment of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return _install(next(folder.glob("*.whl")), folder / "venv")


@pytest.mark.docker
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("only", "systems"),
    [
        ("tantivy", {"tantivy"}),
        pytest.param("*", {"tantivy", "bm25", "minilm", "hybrid-minilm"}, marks=pytest.mark.soak),
    ],
)
def test_demo_of_the_wheel_measures_outside_a_clone(
    installed: Path, tmp_path: Path, only: str, systems: set[str]
) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in ("HARNESS_IMAGES", "PYTHONPATH")}
    command = [installed, "demo", "--only", only]
    done = subprocess.run(command, cwd=tmp_path, env=kept, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("scifact-1200, ") and ", 240 queries x 3 trials, " in done.stdout
    assert (tmp_path / "results" / "quickstart" / "report.html").is_file()
    report = subprocess.run(
        [installed, "report", "--format", "csv"], cwd=tmp_path, env=kept, check=True, capture_output=True, text=True
    )
    rows = list(csv.DictReader(report.stdout.splitlines()))
    assert {row["system"] for row in rows if row["outcome"] == "ok"} == systems
    again = subprocess.run(command, cwd=tmp_path, env=kept, check=True, capture_output=True, text=True)
    assert "0 jobs run" in again.stderr
