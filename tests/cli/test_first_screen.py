"""What each command over stored results prints first: an answer that fits a terminal."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.launch.base import LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.records import Isolation, Outcome
from tests.conftest import Bench

_COMMANDS = (
    "report RESULTS",
    "leaderboard RESULTS",
    "compare a b --results RESULTS",
    "compare * --results RESULTS",
    "explain --results RESULTS",
    "explain latency --results RESULTS",
    "robustness RESULTS",
    "reprice RESULTS",
    "verify RESULTS",
    "pool RESULTS",
    "plan test-suite.toml --launcher process",
    "prices",
    "instances --cpu 2 --memory 4",
    "systems bm25",
)


def _script(job: LaunchRequest) -> Outcome:
    small = job.spec.envelope.memory_bytes < 512 << 20
    return Outcome.OOM if small and job.spec.system == "b" and job.spec.kind == "search" else Outcome.OK


@pytest.mark.parametrize("width", [80, 100])
def test_first_screen_is_at_most_25_lines_within_the_terminal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    monkeypatch.setattr(FakeLauncher, "isolation", Isolation.CONTAINER)
    bench.plant("a")
    bench.plant("b")
    bench.run(FakeLauncher(_script), bench.suite(systems=["a", "b"], profiles=["cpu1-mem256m", "cpu1-mem1"]))
    shown = {command: _shown(command.replace("RESULTS", str(bench.results)).split(), width) for command in _COMMANDS}
    assert {command: lines for command, lines in shown.items() if len(lines) > 25} == {}
    assert {command for command, lines in shown.items() if lines == [""]} == set()
    assert {command: line for command, lines in shown.items() for line in lines if len(line) > width} == {}


def _shown(arguments: list[str], width: int) -> list[str]:
    terminal = {"FORCE_COLOR": "1", "COLUMNS": str(width)}
    done = CliRunner().invoke(main, arguments, env=terminal, catch_exceptions=False)
    assert not done.exception, (arguments, done.output)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]
