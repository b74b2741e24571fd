"""Progress is bars on a terminal and lines otherwise; job text cannot disturb it."""

from __future__ import annotations

import logging
from io import StringIO

import pytest
from rich.cells import cell_len
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
        progress._screens[-1]._live.refresh()
    text = file.getvalue()
    assert "bm25 [tiny]" in text and "trial 5" in text and "12/300" in text


@pytest.mark.parametrize("width", [20, 80, 100, 160])
def test_task_inside_a_task_is_a_bar_below_it_that_fits(width: int) -> None:
    screen, _ = console(terminal=True)
    screen.width = width
    with show_progress(screen), task("quickstart", left=lambda: "about 2 min left") as whole:
        whole(3, 16)
        with task("multilingual-e5-small 日本語 cpu1-mem256m") as step:
            step(8_120_000, 8_841_823, "trial-1")
            first, second = progress._screens[-1].lines().plain.split("\n")
    assert max(map(cell_len, (first, second))) <= width - 3
    if width >= 80:
        assert first.startswith("quickstart ") and "3/16 about 2 min left" in first
        assert "8,120,000/8,841,823 trial 2" in second
        ends = f"{first.partition('3/16')[0]}3/16", second.partition(" trial 2")[0]
        assert len(set(map(cell_len, ends))) == 1, "counts end below one another"
        assert "…" in second if width < 160 else "cpu1-mem256m" in second


def test_bars_of_a_narrow_terminal_keep_their_title() -> None:
    screen, _ = console(terminal=True)
    screen.width = 80
    with show_progress(screen), task("minilm: index of scifact") as step:
        step(1_000, 5_183, "build")
        assert progress._screens[-1].lines().plain.split("━")[0].rstrip() == "minilm: index of scifact"


def pace(*steps: tuple[float, int, int, str], now: float) -> progress._Bar:
    """A bar that took these steps, each at its second."""
    clock = [0.0]
    made = progress._Bar("minilm: index", None, lambda: clock[0])
    for second, *step in steps:
        clock[0] = second
        made.step(*step)
    clock[0] = now
    return made


@pytest.mark.parametrize(
    ("steps", "now", "remark"),
    [
        ([(0, 0, 100, "build")], 5, "time left unknown"),
        ([(0, 0, 100, "build"), (20, 20, 100, "build")], 20, "about 80 s left"),
        ([(0, 0, 100, "build"), (20, 20, 100, "build")], 70, "about 30 s left"),
        ([(0, 0, 100, "build"), (20, 20, 100, "build")], 101, "time left unknown"),
        ([(0, 0, 100, "build"), (20, 100, 100, "build")], 21, "time left unknown"),
        ([(0, 0, 100, "build"), (20, 20, 100, "build"), (21, 0, 0, "check")], 22, "checking"),
        ([(0, 0, 0, "load")], 22, "loading"),
        ([(0, 0, 240, "trial-1"), (10, 24, 240, "trial-1")], 10, "trial 2, 90 s left"),
        ([(0, 240, 240, "trial-0"), (1, 0, 240, "trial-1")], 1, "trial 2"),
        ([(0, 0, 50, "warmup"), (9, 483, 50, "warmup")], 9, "warming up"),
        ([], 9, "time left unknown"),
    ],
)
def test_bar_says_how_long_it_still_needs_or_that_this_is_unknown(
    steps: list[tuple[float, int, int, str]], now: float, remark: str
) -> None:
    assert pace(*steps, now=now).remark == remark


def test_pace_is_that_of_the_last_minute() -> None:
    slow_then_fast = [(float(second), second, 1000, "build") for second in range(0, 301, 10)]
    slow_then_fast += [(300.0 + second, 300 + 10 * second, 1000, "build") for second in range(10, 61, 10)]
    assert pace(*slow_then_fast, now=360).remark == "about 10 s left"


def test_time_passed_goes_on_from_trial_to_trial() -> None:
    assert pace((0, 0, 9, "trial-0"), (5, 9, 9, "trial-0"), (6, 0, 9, "trial-1"), now=3725).elapsed == "1:02:05"


def test_count_never_passes_its_total() -> None:
    made = pace((0, 483, 50, "warmup"), now=1)
    assert (made.count, made.share) == ("483", 0.0)


def test_time_left_is_unknown_at_first_and_counts_down() -> None:
    now = [0.0]
    left = TimeLeft(["a"] * 4, clock=lambda: now[0])
    assert left.text() == ""
    left.ended("a", 60)
    assert left.text() == "", "one step says little"
    left.ended("a", 60)
    assert left.text() == "about 2 min left"
    now[0] = 100
    assert left.text() == "about 2 min left", "an index is built between two steps"
    left.begins()
    now[0] = 140
    assert left.text() == "about 80 s left"
    now[0] = 400
    assert left.text() == "over 60 s left", "the running step is late, the next one still takes its time"
    left.ended("a", 300)
    left.begins()
    assert left.text() == "about 90 s left", "between the mean of 140 s and the 60 s of before"
    now[0] = 900
    assert left.text() == "", "nobody knows how late the last step is"


def test_time_left_of_short_steps() -> None:
    now = [0.0]
    left = TimeLeft(["a"] * 5, clock=lambda: now[0])
    for _ in range(2):
        left.ended("a", 1)
    assert left.text() == "nearly done"
    left.begins()
    now[0] = 30
    assert left.text() == "over 2 s left"


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
        progress._screens[-1]._live.refresh()
    assert "x" in file.getvalue()


def test_bar_appears_once_a_total_is_known() -> None:
    screen, file = console(terminal=True)
    with show_progress(screen), bar("fetch", "jobs", 50) as step:
        step(1, 49)
        assert not file.getvalue()
        step(2, 50)
        progress._screens[-1]._live.refresh()
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


def test_messages_fold_between_words_on_a_terminal() -> None:
    screen, file = console(terminal=True)
    screen.width = 40
    with show_progress(screen):
        log.info("  bm25, 1 CPU, 1 GiB: nDCG@10 0.679, 0.410 ms (preliminary: 1 of 3 trials); `harness explain bm25`")
    first, second, third = file.getvalue().splitlines()
    assert first == "  bm25, 1 CPU, 1 GiB: nDCG@10 0.679,"
    assert second == "    0.410 ms (preliminary: 1 of 3"
    assert third == "    trials); `harness explain bm25`", "a command stays whole"


def test_dumb_terminal_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    file = StringIO()
    with show_progress(Console(file=file, force_terminal=True)), task("bm25: image"):
        pass
    assert file.getvalue() == "  bm25: image ...\n"


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


@pytest.mark.parametrize(
    ("least_s", "most_s", "text"),
    [
        (29.0, 118.0, "29 to 118 s"),
        (170.0, 650.0, "3 to 11 min"),
        (20.0, 130.0, "1 to 3 min"),
        (3600, 9000, "1.0 to 2.5 h"),
    ],
)
def test_range_of_time_is_in_one_unit(least_s: float, most_s: float, text: str) -> None:
    assert progress.duration_range(least_s, most_s) == text
