"""Warm-up with scripted passes: it must neither stop on a slope or beside a compiler, nor run on for noise."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from harness.driver.scenarios import ENOUGH_QUERIES, WORK_NS, steady, warm_up

SECOND = 1_000_000_000


def passes(
    levels_s: Iterable[float], most: int = 5000, compiled_s: Sequence[float] = (), queries: int = 20
) -> tuple[int, bool | None]:
    """Return how many passes were made over these levels, and how they were called.

    Args:
        most: passes.
        compiled_s: what compilers took during each pass; nothing after its end.
    """
    levels, made = iter(levels_s), list[int]()

    def ask() -> int:
        made.append(round(SECOND * next(levels)))
        return made[-1]

    last, verdict = warm_up(ask, queries, most * queries, lambda: round(SECOND * sum(compiled_s[: len(made)])))
    assert last == made[-1]
    return len(made), verdict


def test_three_long_passes_that_agree_are_enough() -> None:
    assert passes([1.0] * 50) == (3, True)


@pytest.mark.parametrize("level_s", [0.3, 0.02, 0.001])
def test_short_passes_go_on_for_as_long_as_the_work_that_must_be_level(level_s: float) -> None:
    made, verdict = passes([level_s] * 5000)
    assert verdict is True and WORK_NS <= made * level_s * SECOND <= 1.2 * WORK_NS


def test_a_few_fast_passes_that_agree_say_nothing() -> None:
    """Three of .15 s within 10 %, as once was enough, in the middle of a slope of seconds."""
    levels = [1.0, 0.6, *[0.15] * 3, *[0.15 * 0.97**number for number in range(80)], *[0.01] * 400]
    made, verdict = passes(levels)
    assert verdict is True and levels[made - 1] == 0.01


def test_one_pass_has_nothing_to_compare_and_two_are_compared() -> None:
    assert passes([10.0], 1) == (1, None)
    assert passes([10.0, 9.5], 2) == (2, True)
    assert passes([10.0, 8.0], 2) == (2, False)


def test_passes_that_agree_by_chance_on_a_slope_are_not_enough() -> None:
    assert passes([2.0, 1.2, 1.19, 0.8, 0.5, 0.5, 0.5]) == (7, True)


@pytest.mark.parametrize("fall", [0.95, 0.96, 0.97, 0.98])
def test_a_gentle_slope_is_a_slope(fall: float) -> None:
    """Each pass a little faster than the one before: always within 10 % of its neighbours, far from done."""
    levels = [max(0.5, 2 * fall**number) for number in range(200)]
    made, verdict = passes(levels, 200)
    if verdict:
        assert levels[made - 1] == 0.5
    else:
        assert sum(levels[:made]) >= 60, "it took too long"


@pytest.mark.parametrize("seed", range(20))
def test_a_compiler_that_warms_up_under_noise_is_waited_for(seed: int) -> None:
    """From 4 times the time to once over some 10 passes, each off by 2 %: the end is within 15 % of the level."""
    chance = random.Random(seed)
    levels = [0.6 * (1 + 3 * 0.7**number) * chance.gauss(1, 0.02) for number in range(50)]
    made, verdict = passes(levels)
    assert verdict is True and levels[made - 1] < 0.6 * 1.15


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_a_level_ends_warm_up_soon(seed: int) -> None:
    chance = random.Random(seed)
    made, verdict = passes(chance.gauss(0.6, 0.02) for _ in range(50))
    assert verdict is True and made <= 12


def test_warm_up_waits_for_compilers_whose_level_looks_steady() -> None:
    """A level of .6 s a pass while a compiler takes half a CPU for ten passes."""
    assert passes([0.6] * 50, compiled_s=[0.3] * 10) == (13, True)
    assert passes([0.6] * 20, 20, compiled_s=[0.3] * 20) == (20, False), "to the cap"
    assert passes([0.6] * 50, compiled_s=[0.006] * 50) == (3, True), "one per cent"


def test_one_stall_only_delays() -> None:
    assert passes([1.0, 1.0, 9.9, 1.0, 1.0, 1.0]) == (6, True)


def test_a_level_that_never_settles_is_called_so_at_the_cap_and_after_a_minute() -> None:
    assert passes([100 * 0.9**number / 1e6 for number in range(50)], 50) == (50, False)
    assert passes([2 * 0.97**number for number in range(100)]) == (76, False)
    assert passes([30.0, 20.0, 10.0, 5.0]) == (3, False), "three passes at least"


def test_too_little_work_is_judged_at_the_cap_without_its_coldest_third() -> None:
    many = ENOUGH_QUERIES // 6
    levels = [0.01, 0.005, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001]
    assert passes(levels, 9, queries=many) == (9, True)
    assert passes([0.001, 0.001, 0.001, 0.001, 0.002, 0.002], 6, queries=many) == (6, False)
    assert passes(levels, 9, queries=many // 2) == (9, False), "neither 1.5 s of work nor queries enough"


def test_steady_by_itself() -> None:
    assert steady([100, 110, 105]) and not steady([100, 111, 105])
    assert steady([1015, 1010, 1000]), "a fall under 2 % is noise"
    assert not steady([104, 102, 100]) and steady([102, 104, 100])
    assert steady([0, 0, 0]), "a clock that does not move"
    assert steady([90, 110, 110, 90, 100, 100, 100]), "parts are compared, not passes"
