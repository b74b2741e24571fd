"""Whole runs: the command here, workers in threads, EC2 and S3 as moto has them."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.aws.clients import Connections
from harness.aws.ec2 import account
from harness.driver.records import Outcome
from tests.aws import rights, server
from tests.aws.ec2.conftest import PROFILES, REGION, WORK, Field, launched_and_terminated, lines

JOBS = 18  # three systems on two profiles, three trials
SMALL, LARGE = PROFILES


def test_run_has_one_worker_a_profile_and_fetches_each_job_once(plain: Field) -> None:
    with plain.workers() as workers:
        done = plain.run()
    assert [result.outcome for result in plain.stored] == [Outcome.OK] * JOBS
    assert Counter(workers.measured).most_common(1)[0][1] == 1
    assert workers.worked[0] == "builds" and sorted(workers.worked[1:]) == sorted(PROFILES)
    assert launched_and_terminated() == (3, 3)
    assert done.complaints == () and done.summary.complaints == []
    assert done.summary.keys == {result.key for result in plain.stored}
    assert plain.closed()
    assert {result.spec.instance_type for result in plain.stored} == {
        result.instance.instance_type for result in plain.stored if result.instance
    }
    assert len(lines(plain.output, ": ok")) == JOBS
    assert "spent, at the dated price" in plain.output


def test_run_stays_within_the_rights_of_a_runner(plain: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    connections, name = Connections(REGION), account.stack_name(WORK, REGION)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", server.RUNNER_KEY)
        assert connections._session.get_credentials().access_key == server.RUNNER_KEY
    with plain.workers():
        assert plain.run(connections=connections).complaints == ()
    given = [rights.of_policy(f"{name}-runner")]
    denied, unused = rights.differing(server.requests(plain.endpoint), server.RUNNER_KEY, given)
    assert denied == []
    batch = ("LookAtBatch", "SuiteStacks", "Batch ", "TagJobs", "EndJobs", "MakeLaunch", "LaunchTemplates", "HostsRole")
    # Other regions, launch templates, left-over disks, and workers that do not end by themselves.
    others = {"Look ec2:DescribeRegions", "Look ec2:DescribeLaunchTemplates", "Look ec2:DescribeLaunchTemplateVersions"}
    others |= {"Look ec2:DescribeVolumes", "Look ec2:GetConsoleOutput"}
    others |= {"EndWorkers ec2:DeleteVolume", "EndWorkers ec2:TerminateInstances"}
    assert {each for each in unused if not each.startswith(batch)} <= others


def test_second_command_measures_the_jobs_of_a_dead_instance(plain: Field) -> None:
    with plain.workers(dies={LARGE: 2}) as workers:
        done = plain.run()
        assert Counter(result.outcome for result in plain.stored) == {Outcome.OK: 11, Outcome.INTERRUPTED: 1}
        (complaint,) = done.complaints
        assert LARGE in complaint and "its instance went away" in complaint
        assert "7 jobs left undone" in complaint and "the same command plans them again" in complaint
        assert plain.closed() and workers.worked.count(LARGE) == 1
        again = plain.run()
    assert again.complaints == () and again.summary.complaints == []
    assert Counter(result.outcome for result in plain.stored) == {Outcome.OK: JOBS, Outcome.INTERRUPTED: 1}
    (interrupted,) = [result for result in plain.stored if result.outcome is Outcome.INTERRUPTED]
    attempts = [
        result
        for result in plain.stored
        if result.spec.cell == interrupted.spec.cell and result.spec.job == interrupted.spec.job
    ]
    assert {result.spec.repetition for result in attempts} == {0, 1}
    assert interrupted.instance is not None and interrupted.detail
