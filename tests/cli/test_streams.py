"""Commands whose reader goes, whose terminal is odd, or whose user stops them early: no traceback, no lost run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.progress import Screen
from tests.conftest import Bench
from tests.support.command_line import Call

HARNESS = (sys.executable, "-m", "harness")


@pytest.fixture
def folder(harness: Call, bench: Bench) -> Path:
    """A folder with stored results."""
    bench.suite()
    assert harness("run", "test-suite.toml", "--launcher", "fake").exit_code == 0
    return bench.folder


@pytest.mark.slow
@pytest.mark.parametrize("command", [("report",), ("systems",)])
def test_command_ends_well_when_its_reader_has_gone(folder: Path, command: tuple[str, ...]) -> None:
    with subprocess.Popen(
        (*HARNESS, *command), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, "Traceback" in said, "Exception" in said) == (0, False, False), said


@pytest.mark.slow
def test_run_goes_on_when_nobody_reads_its_messages(folder: Path) -> None:
    command = (*HARNESS, "run", "test-suite.toml", "--launcher", "fake", "--results", "others")
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stderr.close()
        assert "report.html" in process.stdout.read()
    assert process.returncode == 0 and len(list(folder.glob("others/**/result.json"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii"])
def test_characters_that_a_terminal_lacks_are_escaped(folder: Path, encoding: str) -> None:
    done = subprocess.run(
        (*HARNESS, "explain", "planted"),
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"") and rb"(\u2014) ms" in done.stdout


@pytest.mark.slow
def test_interrupt_during_imports_ends_without_a_word() -> None:
    script = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "harness.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from harness.__main__ import start
start()
"""
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_width_of_0_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert Screen().width > 20
    monkeypatch.setenv("COLUMNS", "40")
    assert Screen().width == 40


def test_removed_folder_is_one_line(harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = bench.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = harness("report")
    assert (done.exit_code, done.stderr) == (2, "harness: the folder that you are in was removed; change to another\n")
