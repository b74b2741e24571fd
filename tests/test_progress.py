"""What a person sees: bars on a terminal, lines elsewhere; nothing that a job writes can disturb it."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from harness.progress import Progress, Screen, duration


def screen(terminal: bool) -> tuple[Screen, StringIO]:
    file = StringIO()
    return Screen(Console(file=file, width=120, force_terminal=terminal, force_interactive=terminal)), file


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (95, "1 min 35 s"), (7322, "122 min 2 s")],
)
def test_durations_are_written_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_without_a_terminal_each_task_is_one_line() -> None:
    shown, file = screen(terminal=False)
    with shown.task("bm25 tiny cpu1-mem1", "[1/6]") as watcher:
        for done in range(1000):
            watcher(Progress("trial-0", done, 1000))
    assert file.getvalue() == "  bm25 tiny cpu1-mem1  [1/6] ...\n"


def test_on_a_terminal_phase_and_steps_are_shown() -> None:
    shown, file = screen(terminal=True)
    with shown.task("bm25 [tiny]", "[1/6]") as watcher:
        watcher(Progress("trial-4", 12, 300))
    text = file.getvalue()
    assert "bm25 [tiny]  [1/6]" in text and "trial 5" in text and "12/300" in text


@pytest.mark.parametrize(
    "step",
    [
        Progress("trial-", 0, 0),
        Progress("trial-²", 1, 0),
        Progress("trial-x", 1, 0),
        Progress("[bold]", 5, 3),
        Progress("[/dim]", 2**53 - 1, 1),
        Progress("", 0, 2**53 - 1),
    ],
)
def test_a_step_that_makes_no_sense_is_shown_all_the_same(step: Progress) -> None:
    shown, file = screen(terminal=True)
    with shown.task("x") as watcher:
        watcher(step)
    assert "x" in file.getvalue()


def test_lines_are_shown_as_they_are() -> None:
    shown, file = screen(terminal=False)
    long = "x" * 300
    shown.say(f"[bold]bm25[/bold] {long} [1/6]")
    assert file.getvalue() == f"[bold]bm25[/bold] {long} [1/6]\n"
