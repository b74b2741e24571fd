"""A suite's stack, unfinished jobs and instances in AWS Batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.aws import clients, cloudformation
from harness.aws.clients import Connections
from harness.aws.cloudformation import Stack
from harness.aws.ec2 import instances
from harness.aws.errors import aws_errors

log = logging.getLogger(__name__)

# Instances of Batch have this beside the suite's tag, which boxes of EC2 have too.
LAUNCHER_TAG, LAUNCHER = "harness:launcher", "batch"
# The output of a suite's stack that names its queues.
QUEUES = "Queues"
ENDED = ("SUCCEEDED", "FAILED")
_UNFINISHED = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")
_DESCRIBED_AT_ONCE = 100
# An array's children end with it; those that have not after this time are ended one by one.
_GRACE_S = 30.0
_CANCELLED = "cancelled by harness batch cancel"


@dataclass(frozen=True)
class Job:
    """A submitted job; an array is one job of several parts."""

    job_id: str
    name: str
    status: str
    parts: int = 1
    created: int = 0


def stacks(connections: Connections) -> list[Stack]:
    """Return the stacks of all suites in this region."""
    with aws_errors("listing stacks"):
        pages = connections.client("cloudformation").get_paginator("describe_stacks").paginate()
        shown = [
            each for page in pages for each in page["Stacks"] if clients.SUITE in clients.as_dict(each.get("Tags"))
        ]
    names = sorted(each["StackName"] for each in shown)
    return [stack for name in names if (stack := cloudformation.find(connections, name))]


def machines(connections: Connections, suite: str) -> list[str]:
    """Return a line for each living instance of a suite."""
    found = instances.alive(connections, None, {LAUNCHER_TAG: LAUNCHER, clients.SUITE: suite})
    return [f"{box.instance_id} ({box.instance_type} {box.state})" for box in found]


def queues(stack: Stack) -> list[str]:
    """Return the names of a suite's queues."""
    return list(filter(None, stack.outputs.get(QUEUES, "").split(",")))


def jobs(connections: Connections, stack: Stack) -> list[Job]:
    """Return the jobs in a suite's queues that wait or run."""
    if not (named := queues(stack)):
        return []
    # After a deletion that failed halfway the outputs name queues that are gone.
    with aws_errors(f"looking for the queues of {stack.name}"):
        there = connections.client("batch").describe_job_queues(jobQueues=named)["jobQueues"]
    names = [each["jobQueueName"] for each in there if each["status"] != "DELETED"]
    pairs = ((queue, status) for queue in names for status in _UNFINISHED)
    found = {job.job_id: job for queue, status in pairs for job in listed(connections, queue, jobStatus=status)}
    unfinished = []
    for each in described(connections, list(found)):
        array = each.get("arrayProperties", {})
        states: dict[str, int] = array.get("statusSummary") or {}
        # An array may be shown as pending although all of its children have ended.
        if not states or any(states.get(status) for status in _UNFINISHED):
            unfinished.append(replace(found[each["jobId"]], parts=array.get("size", 1)))
    return unfinished


def listed(connections: Connections, queue: str, **filters: Any) -> list[Job]:
    """Return the jobs of one queue, an array once."""
    with aws_errors(f"listing the jobs of {queue}"):
        pages = connections.client("batch").get_paginator("list_jobs").paginate(jobQueue=queue, **filters)
        found = [each for page in pages for each in page["jobSummaryList"] if ":" not in each["jobId"]]
    return [Job(each["jobId"], each["jobName"], each["status"], created=each.get("createdAt", 0)) for each in found]


def described(connections: Connections, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield jobs as Batch describes them, without those it has forgotten."""
    for start in range(0, len(ids), _DESCRIBED_AT_ONCE):
        with aws_errors("asking AWS Batch for the state of its jobs"):
            some = list(ids[start : start + _DESCRIBED_AT_ONCE])
            yield from connections.client("batch").describe_jobs(jobs=some)["jobs"]


def terminate(connections: Connections, job_id: str, reason: str) -> None:
    """End a job; the children of an array follow after a while."""
    with aws_errors("ending a job"):
        connections.client("batch").terminate_job(jobId=job_id, reason=reason)


def cancel(connections: Connections, stack: Stack) -> tuple[int, int]:
    """End a suite's jobs and wait; return how many, and the rest."""
    found = jobs(connections, stack)
    for job in found:
        terminate(connections, job.job_id, _CANCELLED)
        log.info(f"ending  {job.name}")
    children = [f"{job.job_id}:{number}" for job in found if job.parts > 1 for number in range(job.parts)]
    if children:
        time.sleep(_GRACE_S)
    for each in described(connections, children):
        if each["status"] not in ENDED:
            terminate(connections, each["jobId"], _CANCELLED)
    return len(found), len(instances.wait(lambda: jobs(connections, stack)))
