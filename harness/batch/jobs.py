"""Jobs in Batch: found by their names, submitted once, asked how they are, ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.aws.failures import aws_errors, concealed
from harness.batch import inventory
from harness.batch.definition import ATTEMPTS
from harness.batch.kinds import Place
from harness.remote.records import Input

# What one request describes.
_AT_ONCE = 100
ENDED = ("SUCCEEDED", "FAILED")
# Batch shows it not yet, or no more; whoever watches decides when it is taken to be gone for good.
UNSEEN, FORGOTTEN = "UNSEEN", "FORGOTTEN"


@dataclass(frozen=True)
class Child:
    """A job, or one child of an array: its state as Batch names it, how often it was begun, and why it ended.

    ``seconds`` is how long its attempts ran, all together.
    """

    status: str
    attempts: int
    reason: str
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status in (*ENDED, FORGOTTEN)


@dataclass(frozen=True)
class Request:
    """What is submitted: ``parts`` says how many children; ``attempts``: how often a lost host's job is begun."""

    name: str
    queue: str
    definition: str
    run_id: str
    group: str
    bundle: Input
    parts: int
    timeout_s: int
    attempts: int = ATTEMPTS


def find(place: Place, queue: str, name: str) -> list[str]:
    """The ids of the jobs of that name, whatever has become of them; the oldest first.

    There should be one at most: two, where an answer of Batch's was lost, or a job was not shown at once.

    Raises:
        AwsError: it cannot be asked.
    """
    # With a filter Batch lists jobs in all states.
    found = inventory.in_queue(place, queue, filters=[{"name": "JOB_NAME", "values": [name]}])
    mine = [job for job in found if job.name == name]
    return [job.job_id for job in sorted(mine, key=lambda job: (job.created, job.job_id))]


def submit(place: Place, request: Request) -> str:
    """Submit it; return its id.

    Raises:
        AwsError: Batch refuses, or is not heard; then it may have the job all the same.
    """
    more: dict[str, Any] = {}
    if request.parts > 1:  # an array of one is refused
        more["arrayProperties"] = {"size": request.parts}
    if request.attempts != ATTEMPTS:
        more["retryStrategy"] = {"attempts": request.attempts}
    with aws_errors(f"submitting {request.name}"):
        # Batch cannot be told that two requests are one and the same.
        answer = place.connections.client("batch", attempts=1).submit_job(
            jobName=request.name,
            jobQueue=request.queue,
            jobDefinition=request.definition,
            parameters={
                "run": request.run_id,
                "group": request.group,
                "bundle": request.bundle.name,
                "sha256": request.bundle.sha256,
            },
            timeout={"attemptDurationSeconds": request.timeout_s},
            tags={"harness:run": request.run_id},
            propagateTags=True,
            **more,
        )
    return str(answer["jobId"])


def look(place: Place, job_id: str, parts: int) -> list[Child]:
    """How each of its children is, by number.

    Batch makes an array's children some time after the array: until then they are as their array is.

    Raises:
        AwsError: it cannot be asked.
    """
    ids = [f"{job_id}:{number}" for number in range(parts)] if parts > 1 else [job_id]
    found = {each["jobId"]: each for each in _described(place, list(dict.fromkeys([job_id, *ids])))}
    return [_child(found.get(each), found.get(job_id)) for each in ids]


def _described(place: Place, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(ids), _AT_ONCE):
        with aws_errors("asking AWS Batch how its jobs are"):
            yield from place.client("batch").describe_jobs(jobs=list(ids[start : start + _AT_ONCE]))["jobs"]


def _child(found: dict[str, Any] | None, array: dict[str, Any] | None) -> Child:
    if found is None:
        if array is None:
            return Child(UNSEEN, 0, "")
        if array["status"] not in ENDED:
            return Child("SUBMITTED", 0, "")
        found = {"status": array["status"], "statusReason": array.get("statusReason")}
    container = found.get("container", {})
    said = [found.get("statusReason"), container.get("reason")]
    if container.get("exitCode"):
        said.append(f"exit code {container['exitCode']}")
    # A reason may name what belongs to the account.
    reason = concealed(" ".join("; ".join(each for each in said if each).split()))[:300]
    attempts = found.get("attempts", ())
    seconds = sum(max(0, each.get("stoppedAt", 0) - each.get("startedAt", 0)) for each in attempts) / 1000
    return Child(found["status"], len(attempts), reason, seconds)


def end(place: Place, job_id: str, reason: str) -> None:
    """End a job that waits or runs; of an array, every child, though that may take Batch a while.

    Raises:
        AwsError: Batch refuses.
    """
    with aws_errors("ending a job"):
        place.client("batch").terminate_job(jobId=job_id, reason=reason)


def end_children(place: Place, job_id: str, parts: int, reason: str) -> None:
    """End those children of an array that have not ended with it.

    Raises:
        AwsError: Batch refuses.
    """
    ids = [f"{job_id}:{number}" for number in range(parts) if parts > 1]
    for each in _described(place, ids):
        if each["status"] not in ENDED:
            end(place, each["jobId"], reason)
