"""What each command over stored results prints first: an answer that fits a terminal."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.driver.records import Outcome
from harness.launch.base import LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.results.isolation import CONTAINER
from tests.conftest import Bench
from tests.support import publisher
from tests.support.publisher import Made

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
    "report RESULTS --at-least RR@10=.01",
    "recall RESULTS --of a",
    "prices",
    "instances --cpu 2 --memory 4",
    "systems bm25",
)


def _script(job: LaunchRequest) -> Outcome:
    small = job.spec.envelope.memory_bytes < 512 << 20
    return Outcome.OOM if small and job.spec.system == "b" and job.spec.kind == "search" else Outcome.OK


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100])
def test_first_screen_is_at_most_25_lines_within_the_terminal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    monkeypatch.setattr(FakeLauncher, "isolation", CONTAINER)
    bench.plant("a")
    bench.plant("b")
    bench.run(FakeLauncher(_script), bench.suite(systems=["a", "b"], profiles=["cpu1-mem256m", "cpu1-mem1"]))
    shown = {command: _shown(command.replace("RESULTS", bench.results.name).split(), width) for command in _COMMANDS}
    assert {command: lines for command, lines in shown.items() if len(lines) > 25} == {}
    assert {command for command, lines in shown.items() if lines == [""]} == set()
    assert {command: line for command, lines in shown.items() for line in lines if len(line) > width} == {}


_FIRST = (1, 2, 15, 3, 0)  # ranks of the judged documents in a first stage of 20


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100])
def test_first_screen_of_two_stages_and_language_models_fits_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    work = {"pairs": 20, "windows": 21, "tokens": 3100, "padded_tokens": 3500, "calls": 2, "flop": 6_610_000_000}
    model = {"pairs": 20, "calls": 1, "prompt_tokens": 3123, "completion_tokens": 80}
    results = publisher.put(
        tmp_path / "results",
        Made("bm25", 2.0, (1, 2, 0, 3, 0)),
        Made("bm25-minilm", 40.0, (1, 1, 2, 1, 0), first=_FIRST, counts=work),
        Made(
            "bm25-gpt", 400.0, (1, 1, 1, 5, 0), first=_FIRST, counts=model, params={"llm.token_prices": "gpt-4o-mini"}
        ),
        Made(
            "stored-minilm", 35.0, (1, 1, 2, 1, 0), first=_FIRST, first_name="fixed-run/dl19", counts=work, staged=0.9
        ),
    )
    commands = ("report", "reprice", "leaderboard", "report --columns harm")
    shown = {command: _shown([*command.split(), str(results)], width) for command in commands}
    assert {command: lines for command, lines in shown.items() if len(lines) > 25} == {}
    assert {command: line for command, lines in shown.items() for line in lines if len(line) > width} == {}
    report = " ".join(shown["report"])
    assert "points RR@10" in report and "first 20 hold 80 % of the relevant" in report
    assert "tokens US$/1M" in report and "516" in report, "to the cent in tests/pricing"


def _shown(arguments: list[str], width: int) -> list[str]:
    terminal = {"FORCE_COLOR": "1", "COLUMNS": str(width)}
    done = CliRunner().invoke(main, arguments, env=terminal, catch_exceptions=False)
    assert not done.exception, (arguments, done.output)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    lines = [line.rstrip() for line in text.rstrip("\n").split("\n")]
    # A command is never broken by a line end: the terminal folds a long one, here the path of the test's own folder.
    return [part for line in lines for part in (textwrap.wrap(line, width) if line.startswith("harness ") else [line])]
