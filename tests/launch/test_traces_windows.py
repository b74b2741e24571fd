"""Tests of the choice of counter readings for each trial."""

from __future__ import annotations

from dataclasses import dataclass

from harness.launch.monitor.traces import over_trials, trials_of
from harness.records import Phase


@dataclass(frozen=True)
class At:
    t_ns: int


def over(times: list[int], *phases: Phase) -> list[list[int]]:
    return [[each.t_ns for each in stretch] for stretch in over_trials([At(t_ns) for t_ns in times], phases)]


def test_trials_are_separated_from_other_phases_and_sorted() -> None:
    phases = (Phase("load", 0, 1), Phase("trial-1", 30, 40), Phase("trial-0", 10, 20), Phase("trial-x", 50, 60))
    assert [trial.name for trial in trials_of(phases)] == ["trial-0", "trial-1"]


def test_readings_between_two_trials_are_omitted() -> None:
    trials = (Phase("trial-0", 10, 20), Phase("trial-1", 30, 40))
    assert over([0, 9, 15, 21, 29, 41, 50], *trials) == [[9, 15, 21], [29, 41]]


def test_trials_between_two_readings_use_the_surrounding_readings() -> None:
    assert over([0, 100], Phase("trial-0", 10, 20), Phase("trial-1", 30, 40)) == [[0, 100]]


def test_windows_are_empty_without_readings_or_trials() -> None:
    assert over([], Phase("trial-0", 10, 20)) == over([5, 15], Phase("load", 0, 20)) == []
    assert over([15], Phase("trial-0", 10, 20)) == []
