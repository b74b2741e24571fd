"""Warm-up with scripted passes: it must neither stop on a slope nor run on for noise."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from harness.measure.warmup import steady, warm_up


def passes(levels: Iterator[float], most: int = 50) -> tuple[int, bool | None]:
    """How many passes were made over these levels, and how they were called."""
    made = []

    def ask() -> int:
        made.append(round(1e6 * next(levels)))
        return made[-1]

    last, verdict = warm_up(ask, most)
    assert last == made[-1]
    return len(made), verdict


def test_a_level_is_seen_after_three_passes() -> None:
    assert passes(iter([10.0] * 50)) == (3, True)


def test_one_pass_has_nothing_to_compare_and_two_are_compared() -> None:
    assert passes(iter([10.0]), 1) == (1, None)
    assert passes(iter([10.0, 9.5]), 2) == (2, True)
    assert passes(iter([10.0, 8.0]), 2) == (2, False)


def test_two_passes_that_agree_by_chance_on_a_slope_are_not_enough() -> None:
    assert passes(iter([20.0, 12.0, 11.9, 8.0, 5.0, 5.0, 5.0])) == (7, True)


@pytest.mark.parametrize("fall", [0.95, 0.96, 0.97, 0.98])
def test_a_gentle_slope_is_a_slope(fall: float) -> None:
    """Each pass a little faster than the one before: always within 10 % of its neighbours, far from done."""
    levels = [max(5.0, 20 * fall**number) for number in range(200)]
    made, verdict = passes(iter(levels), 200)
    assert verdict is True and levels[made - 1] == 5.0


@pytest.mark.parametrize("seed", range(20))
def test_a_compiler_that_warms_up_under_noise_is_waited_for(seed: int) -> None:
    """From 4 ms to 1 ms over some 10 passes, each pass off by 2 %: what is called steady is within 15 % of the end."""
    chance = random.Random(seed)
    levels = [(1 + 3 * 0.7**number) * chance.gauss(1, 0.02) for number in range(50)]
    made, verdict = passes(iter(levels))
    assert verdict is True and levels[made - 1] < 1.15


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_a_level_ends_warm_up_soon(seed: int) -> None:
    chance = random.Random(seed)
    made, verdict = passes(chance.gauss(10, 0.3) for _ in range(50))
    assert verdict is True and made <= 12


def test_one_stall_only_delays() -> None:
    assert passes(iter([10.0, 10.0, 99.0, 10.0, 10.0, 10.0])) == (6, True)


def test_what_never_settles_is_called_so_at_the_cap() -> None:
    assert passes(iter([10.0, 20.0] * 25)) == (50, False)
    assert passes(iter([100 * 0.9**number for number in range(50)])) == (50, False)


def test_steady_by_itself() -> None:
    assert steady([100, 110, 105]) and not steady([100, 111, 105])
    assert steady([1015, 1010, 1000]), "a fall under 2 % is noise"
    assert not steady([104, 102, 100]) and steady([102, 104, 100])
    assert steady([0, 0, 0]), "a clock that does not move"
