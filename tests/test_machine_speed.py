"""What the canary says against a cell."""

from __future__ import annotations

from dataclasses import replace

from harness import machine_speed
from harness.machine_speed import levels
from harness.records import Outcome
from harness.result import Result
from harness.table import Cause, Finding, Validity
from tests import build
from tests.build import canary, result

RETRY = "run its suite again with --retry-noisy 3 --only 'bm25/scifact/single_stream/cpu1-mem1'"


def look(*results: Result, known: machine_speed.Levels | None = None) -> list[Finding]:
    return machine_speed.look(results, known or {})


def test_a_machine_that_changes_its_speed_is_told() -> None:
    (finding,) = look(result(canary=(canary(0.010), canary(0.0125))))
    assert "fixed processor work took 10 to 12.5 ms beside the trials, 1.25 times (steady: up to 1.15)" in finding.text
    assert finding.cause is Cause.CANARY and finding.transient and RETRY in finding.text
    (finding,) = look(result(canary=(canary(), canary(memory_s=0.030))))
    assert "fixed memory work" in finding.text and finding.validity is Validity.NOISY
    (finding,) = look(result(canary=(canary(), canary(disk_s=0.030))))
    assert "fixed disk work" in finding.text and finding.validity is Validity.CLEAN
    assert look(result(canary=(canary(), canary(disk_s=None)))) == []


def test_a_change_between_two_jobs_of_a_cell_is_told() -> None:
    jobs = [result(job=number, jobs=2, trials=1, canary=(canary(0.010 + 0.003 * number),)) for number in range(2)]
    assert len(look(*jobs)) == 1


def test_a_cell_that_met_a_slower_machine_than_the_others_is_told() -> None:
    others = [result(job=number, canary=(canary(0.010),)) for number in range(8)]
    slow = result(job=9, canary=(canary(0.012), canary(0.0121)))
    known = levels([*others, slow])
    (finding,) = look(slow, known=known)
    assert "1.21 times the median of 9 jobs on it (steady: up to 1.15)" in finding.text
    assert finding.cause is Cause.SLOW_MACHINE and finding.transient
    assert look(others[0], known=known) == []


def test_levels_of_other_machines_and_of_failures_do_not_count() -> None:
    elsewhere = replace(build.ENVIRONMENT, cpu_model="fast")
    others = [result(canary=(canary(0.001),), environment=elsewhere) for _ in range(8)]
    others += [result(Outcome.CRASH, canary=(canary(0.001),)) for _ in range(8)]
    slow = result(canary=(canary(0.012),))
    assert look(slow, known=levels([*others, slow])) == []
