"""What a suite has in Batch, found by name and tag: what its file says now does not matter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from harness.aws.failures import aws_errors
from harness.batch import names
from harness.batch.kinds import Place
from harness.batch.making import kinds

# Jobs in these states may still cost something.
UNFINISHED = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")

_ALIVE = ("pending", "running", "shutting-down", "stopping", "stopped")


@dataclass(frozen=True)
class Job:
    """A submitted job; of an array, the whole of it.  ``created``: when, in Batch's own time."""

    job_id: str
    name: str
    queue: str
    status: str
    parts: int = 1
    created: int = 0


def things(place: Place, suite: str) -> list[tuple[str, str]]:
    """Kind and name of everything that a suite has or may have, in the order that it is made in.

    Raises:
        AwsError: it cannot be listed.
    """
    region = place.connections.region or ""
    role = [names.role(suite, region, kind) for kind in ("host", "job")]
    fixed = [
        ("AWS::IAM::Role", role[0]),
        ("AWS::IAM::InstanceProfile", role[0]),
        ("AWS::IAM::Role", role[1]),
        ("AWS::EC2::SecurityGroup", names.shared(suite)),
        ("AWS::EC2::LaunchTemplate", names.shared(suite)),
    ]
    tagged = [(kind, name) for kind, name, owner in _listed(place) if owner == suite]
    return [*fixed, *dict.fromkeys(tagged)]


def suites(place: Place) -> list[str]:
    """The suites that have something in Batch here.

    Raises:
        AwsError: it cannot be listed.
    """
    return sorted({owner for _, _, owner in _listed(place)})


def present(place: Place, suite: str) -> list[tuple[str, str]]:
    """Word and name of what is really there.

    Raises:
        AwsError: it cannot be looked at.
    """
    every = kinds(place)
    return [(every[kind].word, name) for kind, name in things(place, suite) if every[kind].find(name)]


def _listed(place: Place) -> Iterator[tuple[str, str, str]]:
    """Kind, name and suite of all that Batch has with our tag: environments, queues, definitions."""
    listings: tuple[tuple[str, str, str, dict[str, str]], ...] = (
        ("AWS::Batch::ComputeEnvironment", "describe_compute_environments", "computeEnvironment", {}),
        ("AWS::Batch::JobQueue", "describe_job_queues", "jobQueue", {}),
        ("AWS::Batch::JobDefinition", "describe_job_definitions", "jobDefinition", {"status": "ACTIVE"}),
    )
    client = place.client("batch")
    for kind, operation, word, asked in listings:
        with aws_errors("listing what is in AWS Batch"):
            for page in client.get_paginator(operation).paginate(**asked):
                for each in page[f"{word}s"]:
                    suite = each.get("tags", {}).get(names.SUITE_TAG)
                    if suite is not None and each.get("status") != "DELETED":
                        yield kind, each[f"{word}Name"], suite


def machines(place: Place, suite: str) -> list[tuple[str, str]]:
    """Id and state of the suite's instances that are not gone.

    Raises:
        AwsError: they cannot be listed.
    """
    filters = [
        {"Name": f"tag:{names.LAUNCHER_TAG}", "Values": [names.LAUNCHER]},
        {"Name": f"tag:{names.SUITE_TAG}", "Values": [suite]},
        {"Name": "instance-state-name", "Values": list(_ALIVE)},
    ]
    with aws_errors("listing the instances of AWS Batch"):
        pages = place.client("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        return [
            (each["InstanceId"], f"{each['InstanceType']} {each['State']['Name']}")
            for page in pages
            for reservation in page["Reservations"]
            for each in reservation["Instances"]
        ]


def jobs(place: Place, suite: str) -> list[Job]:
    """Jobs in the suite's queues that wait or run.

    Raises:
        AwsError: they cannot be listed.
    """
    found = []
    for kind, queue in things(place, suite):
        if kind == "AWS::Batch::JobQueue":
            found += [job for state in UNFINISHED for job in in_queue(place, queue, jobStatus=state)]
    return [known for job in found if (known := _unfinished(place, job))]


def _unfinished(place: Place, job: Job) -> Job | None:
    """The job with the number of its children, unless all of these have ended."""
    with aws_errors(f"looking at {job.name}"):
        described = place.client("batch").describe_jobs(jobs=[job.job_id])["jobs"]
    array = described[0].get("arrayProperties", {}) if described else {}
    states: dict[str, int] = array.get("statusSummary") or {}
    if states and not any(states.get(state) for state in UNFINISHED):
        return None
    return replace(job, parts=array.get("size", 1))


def in_queue(place: Place, queue: str, **asked: Any) -> list[Job]:
    """Jobs of one queue; none where there is no such queue.

    Raises:
        AwsError: they cannot be listed.
    """
    with aws_errors(f"listing the jobs of {queue}"):
        pages = place.client("batch").get_paginator("list_jobs").paginate(jobQueue=queue, **asked)
        # A child of an array has its number behind a colon, and is in the array's own figures.
        return [
            Job(each["jobId"], each["jobName"], queue, each["status"], created=int(each.get("createdAt", 0)))
            for page in pages
            for each in page["jobSummaryList"]
            if ":" not in each["jobId"]
        ]
