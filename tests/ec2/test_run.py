"""Whole runs: the orchestrator here, boxes in threads, EC2 and S3 as moto has them."""

from __future__ import annotations

from collections import Counter

from harness.records import Outcome
from tests.ec2.boxes import Fate
from tests.ec2.conftest import Field, launched_and_terminated, lines

JOBS = 9  # three systems, three trials


def test_all_jobs_come_home_once_and_nothing_is_left(plain: Field) -> None:
    with plain.boxes() as boxes:
        done = plain.run()
    assert [result.outcome for result in plain.stored] == [Outcome.OK] * JOBS
    assert Counter(boxes.measured).most_common(1)[0][1] == 1
    # One for the indexes, two for the jobs.
    assert launched_and_terminated() == (3, 3)
    assert done.complaints == () and done.summary.complaints == []
    assert done.summary.keys == {result.key for result in plain.stored}
    assert plain.closed()
    assert {result.spec.instance_type for result in plain.stored} == {
        result.instance.instance_type for result in plain.stored if result.instance
    }
    assert len(lines(plain.said, ": ok")) == JOBS
    assert "spent, at the dated price" in plain.said


def test_a_second_time_there_is_nothing_to_do(plain: Field) -> None:
    with plain.boxes():
        plain.run()
        first = launched_and_terminated()
        done = plain.run()
    assert launched_and_terminated() == first
    assert done.summary.done_before == JOBS and len(done.summary.keys) == JOBS


def test_an_instance_that_dies_midway(plain: Field) -> None:
    with plain.boxes(fates={"003-1": Fate(after=2, dies=True)}) as boxes:
        done = plain.run()
    outcomes = Counter(result.outcome for result in plain.stored)
    assert outcomes == {Outcome.OK: JOBS, Outcome.INTERRUPTED: 1}
    assert "003-2" in boxes.worked
    (line,) = lines(plain.said, "goes to another instance")
    assert "its instance went away" in line
    # In the end all is well: what was interrupted was measured again.
    assert done.complaints == () and done.summary.complaints == []
    (interrupted,) = [result for result in plain.stored if result.outcome is Outcome.INTERRUPTED]
    again = [
        result
        for result in plain.stored
        if result.spec.cell == interrupted.spec.cell and result.spec.job == interrupted.spec.job
    ]
    assert {result.spec.repetition for result in again} == {0, 1}
    assert interrupted.instance is not None and interrupted.detail
