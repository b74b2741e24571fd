"""What a run shows on a terminal: nothing wider than it, and nothing left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import Bench, protocol
from tests.support.terminal import Command


def run(bench: Bench, width: int, *words: str) -> Command:
    command = (sys.executable, "-m", "harness", "run", "test-suite.toml", *words)
    return Command(command, bench.folder, width, {"HARNESS_CACHE": str(bench.cache)})


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_a_run_leaves_its_rows_and_its_table(bench: Bench, width: int) -> None:
    bench.plant("other")
    bench.suite(protocol(3), systems=["planted", "other"])
    command = run(bench, width, "--launcher", "fake")
    shown = "".join(command.output())
    assert command.end() == 0, command.screen.lines
    assert "\x1b[?25l" in shown, "bars were drawn"
    lines, text = command.screen.lines, " ".join(" ".join(command.screen.lines).split())
    assert command.screen.cursor_shown and not any("━" in line for line in lines)
    assert "(preliminary: 1 of 3 trials)" in text and "(3 trials)" in text
    assert "[6/6 jobs]" in text and "6 jobs run, 0 done before" in text
    assert [line for line in lines if line.startswith("system ")]


@pytest.mark.slow
def test_ctrl_c_leaves_neither_bars_nor_a_hidden_cursor(bench: Bench) -> None:
    bench.plant("stuck", misdeed="hang", at=1)
    bench.suite(systems=["stuck"])
    command = run(bench, 80, "--launcher", "process")
    for part in command.output():
        if "warming up" in part:
            command.press_ctrl_c()
            break
    assert command.end() == 130
    lines = [line for line in command.screen.lines if line]
    assert command.screen.cursor_shown and not any("━" in line or "^C" in line for line in lines), lines
    assert not list(Path(bench.results).rglob("result.json"))
