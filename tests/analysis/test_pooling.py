"""Jobs of a cell that make its row, and jobs that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.analysis import pooling
from harness.driver.records import Outcome
from harness.untrusted import ForeignText
from tests.support import sample_records
from tests.support.sample_records import FakeJob

FRESH = "run `harness run SUITE --fresh --only bm25/scifact/single_stream/cpu1-mem1`"


def five(**changes: Any) -> list[FakeJob]:
    return [sample_records.job(number, job=number, jobs=5, trials=1, **changes) for number in range(5)]


def elsewhere(job: FakeJob, **environment: Any) -> FakeJob:
    return replace(job, result=replace(job.result, environment=replace(sample_records.ENVIRONMENT, **environment)))


def test_jobs_of_a_cell_are_pooled() -> None:
    jobs = five()
    pool = pooling.pool(reversed(jobs))
    assert pool.jobs == tuple(jobs)
    assert (pool.outcome, pool.detail, pool.missing, pool.notes) == (Outcome.OK, None, 0, ())
    assert pool.lead is jobs[0]


def test_missing_jobs_are_counted() -> None:
    assert pooling.pool(five()[1:4]).missing == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kernel": "6.2"}, 'kernel "6.1" against "6.2"'),
        ({"docker_version": None}, 'docker_version "20.10" against null'),
        ({"cpu_model": "other", "host_cpus": 8}, 'cpu_model "CPU" against "other", host_cpus 4 against 8'),
        ({"gpu_models": ("L4",)}, 'gpu_models [] against ["L4"]'),
    ],
)
def test_job_of_another_environment_is_refused_by_name(changed: dict[str, Any], message: str) -> None:
    jobs = five()
    jobs[2:] = [elsewhere(job, **changed) for job in jobs[2:]]
    pool = pooling.pool(jobs)
    assert pool.jobs == tuple(jobs[2:])
    assert pool.missing == 2
    assert pool.notes == (f"2 of 5 trials were measured in another environment ({message}): not pooled; {FRESH}",)


def test_jobs_of_several_versions_of_harness_are_pooled_and_say_so() -> None:
    jobs = five()
    jobs[2:] = [elsewhere(job, harness_version=ForeignText("0.2"), harness_commit=ForeignText("c")) for job in jobs[2:]]
    pool = pooling.pool(jobs)
    assert (pool.jobs, pool.missing) == (tuple(jobs), 0)
    assert pool.notes == ('measured by 2 versions of harness ("0.1" to "0.2"), whose drivers time alike',)


def test_newest_job_decides_the_environment_at_any_job_number() -> None:
    jobs = five()[1:]
    again = elsewhere(sample_records.job(20, job=0, jobs=5, trials=1), kernel="6.2")
    pool = pooling.pool([*jobs, again])
    assert pool.jobs == (again,)
    assert pool.missing == 4
    assert "4 of 5 trials were measured in another environment" in pool.notes[-1]


def test_several_other_environments_are_listed_separately() -> None:
    jobs = five()
    jobs[0], jobs[1] = elsewhere(jobs[0], kernel="5"), elsewhere(jobs[1], docker_version="19")
    notes = pooling.pool(jobs).notes
    assert [note.partition("(")[2].partition(")")[0] for note in notes] == [
        'kernel "5" against "6.1"',
        'docker_version "19" against "20.10"',
    ]
    assert all(note.startswith("1 of 5 trials was measured") for note in notes)


def test_the_first_failure_names_the_outcome_and_counts_the_others() -> None:
    jobs = five()
    jobs[1] = sample_records.job(1, Outcome.CRASH, detail="raised", job=1, jobs=5, trials=1)
    jobs[2] = sample_records.job(2, Outcome.TIMEOUT, job=2, jobs=5, trials=1)
    jobs[4] = sample_records.job(4, Outcome.CRASH, job=4, jobs=5, trials=1)
    pool = pooling.pool(jobs)
    assert (pool.outcome, pool.detail) == (Outcome.CRASH, "2 of 5 trials ended crash, 1 otherwise not ok: raised")
    assert pool.lead == jobs[1]


def test_failure_of_the_only_job_keeps_its_message() -> None:
    pool = pooling.pool([sample_records.job(0, Outcome.OOM, detail="killed at 256 MiB")])
    assert (pool.outcome, pool.detail) == (Outcome.OOM, "killed at 256 MiB")


def test_a_cell_whose_trials_all_failed_alike_says_why_alone() -> None:
    """The reason is what a reader needs; a narrow terminal cuts what follows a count."""
    jobs = [sample_records.job(at, Outcome.OOM, detail="48 MiB", job=at, jobs=5, trials=1) for at in range(5)]
    assert pooling.pool(jobs).detail == "48 MiB"
    assert pooling.pool(jobs[:4]).detail == "4 of 5 trials ended oom: 48 MiB"
