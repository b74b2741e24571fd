"""Progress is bars on a terminal and lines otherwise; job text cannot disturb it."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
from rich.console import Console

from harness.progress import NOWHERE, bar, duration, filtering, part_of, show_progress, task

log = logging.getLogger("harness.tests")


def console(terminal: bool) -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, width=120, force_terminal=terminal, force_interactive=terminal), file


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (95, "1 min 35 s"), (7322, "122 min 2 s")],
)
def test_duration_is_in_minutes_and_seconds(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_task_is_one_line_without_a_terminal() -> None:
    screen, file = console(terminal=False)
    with show_progress(screen), task("bm25 tiny cpu1-mem1", "[1/6]") as step:
        for done in range(1000):
            step(done, 1000, "trial-0")
    assert file.getvalue() == "  bm25 tiny cpu1-mem1  [1/6] ...\n"


def test_task_shows_phase_and_steps_on_a_terminal() -> None:
    screen, file = console(terminal=True)
    with show_progress(screen), task("bm25 [tiny]", "[1/6]") as step:
        step(12, 300, "trial-4")
    text = file.getvalue()
    assert "bm25 [tiny]  [1/6]" in text and "trial 5" in text and "12/300" in text


@pytest.mark.parametrize(
    ("done", "total", "phase"),
    [
        (0, 0, "trial-"),
        (1, 0, "trial-²"),
        (1, 0, "trial-x"),
        (5, 3, "[bold]"),
        (2**53 - 1, 1, "[/dim]"),
        (0, 2**53 - 1, ""),
    ],
)
def test_task_shows_impossible_steps(done: int, total: int, phase: str) -> None:
    screen, file = console(terminal=True)
    with show_progress(screen), task("x") as step:
        step(done, total, phase)
    assert "x" in file.getvalue()


def test_bar_appears_once_a_total_is_known() -> None:
    screen, file = console(terminal=True)
    with show_progress(screen), bar("fetch", "jobs", 50) as step:
        step(1, 49)
        assert not file.getvalue()
        step(2, 50)
    assert "fetch" in file.getvalue() and "2/50" in file.getvalue()


@pytest.mark.parametrize("line", [True, False])
def test_bar_is_at_most_one_line_without_a_terminal(line: bool) -> None:
    screen, file = console(terminal=False)
    with show_progress(screen), bar("tiny: corpus", "documents", line=line) as step:
        step(1, 2)
        step(2, 2)
    assert file.getvalue() == "  tiny: corpus ...\n" * line


def test_messages_are_printed_as_they_are() -> None:
    screen, file = console(terminal=False)
    long = "x" * 300
    with show_progress(screen):
        log.info("[bold]bm25[/bold] %s [1/6]\n  two", long)
    log.info("too late")
    assert file.getvalue() == f"[bold]bm25[/bold] {long} [1/6]\n  two\n"


def test_messages_cannot_move_the_cursor() -> None:
    screen, file = console(terminal=True)
    with show_progress(screen):
        log.info("bm25 \x1b[2J\r\u202e")
    assert file.getvalue() == "bm25 \\x1b[2J\\r\\u202e\n"


def test_a_later_console_takes_over() -> None:
    (outer, before), (inner, file) = console(terminal=False), console(terminal=False)
    with show_progress(outer):
        with show_progress(inner):
            log.info("one")
        with show_progress(NOWHERE):
            log.info("two")
            with task("three"):
                pass
        log.info("four")
    assert (before.getvalue(), file.getvalue()) == ("four\n", "one\n")


def test_part_of_counts_steps_of_the_whole() -> None:
    steps: list[tuple[int, int, str]] = []

    def take(done: int, total: int = 0, phase: str = "", /) -> None:
        steps.append((done, total, phase))

    for number in range(2):
        part_of(take, number, 2)(3, 10, "judging")
    assert steps == [(3, 20, "judging"), (13, 20, "judging")]


def test_filtering_hides_and_changes_messages() -> None:
    screen, file = console(terminal=False)
    with show_progress(screen), filtering(lambda text: None if "secret" in text else text.upper()):
        log.info("secret")
        log.info("plain %s", "text")
    assert file.getvalue() == "PLAIN TEXT\n"
