"""Progress is bars on a terminal and lines otherwise; job text cannot disturb it."""

from __future__ import annotations

import logging
import re
from io import StringIO

import pytest
from rich.console import Console

from harness import progress
from harness.progress import NOWHERE, TimeLeft, bar, duration, filtering, part_of, show_progress, task

log = logging.getLogger("harness.tests")


def console(terminal: bool) -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, width=120, force_terminal=terminal, force_interactive=terminal), file


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (95, "1 min 35 s"),
        (1500, "25 min"),
        (5400, "1.5 h"),
        (90_000, "25.0 h"),
        (259_200, "3.0 days"),
    ],
)
def test_duration_is_in_the_unit_of_its_size(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_task_is_one_line_without_a_terminal() -> None:
    screen, file = console(terminal=False)
    with show_progress(screen), task("bm25 tiny cpu1-mem1") as step, task("hidden", line=False):
        for done in range(1000):
            step(done, 1000, "trial-0")
    assert file.getvalue() == "  bm25 tiny cpu1-mem1 ...\n"


def test_task_shows_phase_and_steps_on_a_terminal() -> None:
    screen, file = console(terminal=True)
    with show_progress(screen), task("bm25 [tiny]") as step:
        step(12, 300, "trial-4")
    text = file.getvalue()
    assert "bm25 [tiny]" in text and "trial 5" in text and "12/300" in text


@pytest.mark.parametrize("width", [80, 100, 160])
def test_task_inside_a_task_is_a_bar_below_it_that_fits(width: int) -> None:
    screen, file = console(terminal=True)
    screen.width = width
    with show_progress(screen), task("quickstart", left=lambda: "about 2 min left") as whole:
        whole(3, 16)
        with task("bm25 scifact cpu1-mem256m") as step:
            step(120, 300, "trial-1")
            progress._bars[-1].refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue()).replace("\r", "\n").splitlines()
    assert any("3/16" in line and "about 2 min left" in line for line in shown)
    assert any("bm25 scifact cpu1-mem256m" in line and "120/300" in line and "trial 2" in line for line in shown)
    assert max(map(len, shown)) <= width


def test_task_says_how_long_it_still_needs_at_its_speed() -> None:
    now, file = [0.0], StringIO()
    screen = Console(file=file, width=120, force_terminal=True, force_interactive=True, get_time=lambda: now[0])
    with show_progress(screen), task("minilm: index") as step:
        for done in (0, 10, 20):
            step(done, 100, "build")
            now[0] += 10
    assert "20/100" in file.getvalue() and "building, 1 min 20 s left" in file.getvalue()


def test_count_never_passes_its_total() -> None:
    screen, file = console(terminal=True)
    with show_progress(screen), task("bm25") as step:
        step(483, 50, "warmup")
    text = file.getvalue()
    assert "483" in text and "/50" not in text and "warming up" in text


def test_time_left_is_unknown_at_first_and_counts_down() -> None:
    now = [0.0]
    left = TimeLeft(["a"] * 4, clock=lambda: now[0])
    assert left.text() == ""
    left.ended("a", 60)
    assert left.text() == "", "one step says little"
    left.ended("a", 60)
    assert left.text() == "about 2 min left"
    now[0] = 40
    assert left.text() == "about 80 s left"
    now[0] = 400
    assert left.text() == "about 60 s left", "the running step is late, the next one still takes its time"
    left.ended("a", 360)
    now[0] = 900
    assert left.text() == "nearly done"


def test_time_left_never_changes_threefold_when_a_step_ends() -> None:
    now = [0.0]
    left = TimeLeft(range(8), clock=lambda: now[0])
    shown: list[float] = []
    for kind, seconds in enumerate((1, 1, 60, 1, 300, 2)):
        now[0] += seconds
        before = left.seconds
        left.ended(kind, seconds)
        after = left.seconds
        if before:
            assert after is not None and before / 2 <= after <= before * 2
            shown.append(after)
    assert len(shown) == 4


def test_time_left_knows_slow_and_fast_kinds() -> None:
    left = TimeLeft(["slow", "fast", "slow", "fast", "fast"], clock=lambda: 0.0)
    left.ended("slow", 100)
    left.ended("fast", 10)
    assert left.seconds == 120


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
