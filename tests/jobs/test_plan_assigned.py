"""A part of another machine's plan: its jobs, exactly as planned there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.errors import UsageError
from harness.jobs import inputs, suite
from harness.jobs.inputs import AssignedJob, AssignedWork, RunOptions
from harness.jobs.plan import Planned, assigned, plan_here
from harness.launch.fake import FakeLauncher
from harness.results.schema import job_key
from tests.conftest import Bench, protocol

TYPES = {"cpu1-mem256m": "c7g.large"}


@pytest.fixture
def planned(bench: Bench) -> list[Planned]:
    launcher, options = FakeLauncher(), RunOptions(bench.results, bench.cache, bench.folder, instance_types=TYPES)
    loaded = suite.load(bench.suite(protocol(3)))
    return plan_here(inputs.gather(loaded, options), options, launcher)


def assignment(job: Planned, repetition: int = 0) -> AssignedJob:
    return AssignedJob(repetition, job_key(replace(job.spec, repetition=repetition)))


def work(*jobs: tuple[Planned, AssignedJob]) -> AssignedWork:
    return AssignedWork({(job.cell, job.spec.job): what for job, what in jobs})


@pytest.mark.slow
def test_assignment_keeps_only_its_jobs_and_attempts(planned: list[Planned]) -> None:
    assert len(planned) == 3 and {job.spec.instance_type for job in planned} == {"c7g.large"}
    first, last = assigned(
        planned, work((planned[0], assignment(planned[0])), (planned[2], assignment(planned[2], 4))), set()
    )
    assert (first.spec, first.done) == (planned[0].spec, False)
    assert last.spec == replace(planned[2].spec, repetition=4) and not last.done


@pytest.mark.slow
def test_assigned_job_is_done_if_stored_locally(planned: list[Planned]) -> None:
    assigned_work = work((planned[0], assignment(planned[0])))
    assert [job.done for job in assigned(planned, assigned_work, {job_key(planned[0].spec)})] == [True]


def refused(planned: Planned, key: str) -> str:
    with pytest.raises(UsageError) as caught:
        assigned([planned], work((planned, AssignedJob(0, key))), set())
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("planted tiny single_stream cpu1-mem256m job 0: ")
    return str(caught.value)


@pytest.mark.slow
def test_assignment_refuses_a_different_job_and_names_the_difference(planned: list[Planned]) -> None:
    job = planned[0]
    assert "would be another job here" in refused(job, "0" * 16)
    assert "planned for no instance type, here it is c7g.large" in refused(
        job, job_key(replace(job.spec, instance_type=None))
    )
    assert "its image is not here" in refused(replace(job, built=False), job_key(job.spec))
    assert "cannot run it: no GPU; choose" in refused(replace(job, cannot="no GPU"), "0" * 16)
    with pytest.raises(UsageError, match="job 1: the suite here does not declare it"):
        assigned(planned[:1], work((planned[1], assignment(planned[1]))), set())
