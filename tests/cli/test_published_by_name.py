"""Published results are found by their name, in every format, from a wheel and wherever one is."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from harness import config
from tests.support.command_line import Call

ROOT = Path(__file__).resolve().parents[2]
NAMES = config.published_names()
FORMATS = ("md", "csv", "json", "latex", "html")
# One process for all commands; each prints its exit code and where its output is from.
COMMANDS = """
import sys
from pathlib import Path
from click.testing import CliRunner
import harness
from harness.cli import main

assert Path(harness.__file__).is_relative_to(sys.argv[1]), harness.__file__
for line in sys.stdin.read().splitlines():
    done = CliRunner().invoke(main, line.split("\\t"))
    print(done.exit_code, len(done.stdout) > 20, line, done.exception or "", sep="\\t")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a folder, without its dependencies, which come from this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--offline"]
    subprocess.run([*uv, "--target", folder / "site", wheel], check=True, capture_output=True)
    return folder / "site"


@pytest.mark.slow
def test_wheel_finds_published_results_by_name_in_every_format(installed: Path, tmp_path: Path) -> None:
    commands = []
    for name in ("santhanam2023", "results/published/santhanam2023"):
        for form in FORMATS if name == "santhanam2023" else ("md", "csv"):
            commands.append(["report", name, "--format", form])
    commands += [["report", name, "--format", "csv"] for name in NAMES if name != "santhanam2023"]
    board = ["leaderboard", "santhanam2023", "--dataset", "msmarco"]
    commands += [board, [*board, "--format", "png", "-o", "out"]]
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        # Without the editable installation of this environment: its interpreter reads no .pth file.
        [getattr(sys, "_base_executable", sys.executable), "-c", COMMANDS, str(installed)],
        input="\n".join("\t".join(command) for command in commands),
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{installed}{os.pathsep}{sysconfig.get_path('purelib')}",
            "HARNESS_CACHE": str(tmp_path / "cache"),
        },
        cwd=tmp_path / "empty",
        check=True,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(commands), done.stderr
    assert [line for line in lines if not line.startswith("0\tTrue\t")] == []


def test_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = config.published_folder() / "santhanam2023"
    assert config.results_by_name(Path("santhanam2023")) == shipped
    assert config.results_by_name(Path("results/published/santhanam2023")) == shipped
    for other in ("other/santhanam2023", "..", ".", "", "../santhanam2023", "santhanam2024", "results"):
        assert config.results_by_name(Path(other)) == Path(other)
    (tmp_path / "santhanam2023").mkdir()
    assert config.results_by_name(Path("santhanam2023")) == Path("santhanam2023")


def test_name_is_shown_as_it_was_given_and_a_near_one_is_offered(four_systems: Call) -> None:
    done = four_systems("report", "santhanm2023")
    assert done.exit_code == 2 and "Did you mean 'santhanam2023'?" in done.stderr
    shown = four_systems("report", "santhanam2023", "--columns", "cost")
    assert shown.stdout.splitlines()[-1].endswith("harness explain --results santhanam2023")
