"""Jobs in moto's Batch, which here ends them at once and starts no container."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from harness.batch import cancelling, inventory, jobs, making, names
from harness.batch.jobs import Child, Request
from harness.batch.kinds import Place
from harness.batch.resources import resources
from harness.batch.wanted import Stack
from harness.errors import AwsError
from harness.remote.records import Input

BUNDLE = Input("inputs/bundles/x.tar.gz", "0" * 64, 1)


@pytest.fixture
def made(aws: str, place: Place, stack: Callable[..., Stack]) -> Iterator[Place]:
    """A stack that is up."""
    _configure(aws, use_docker=False)
    making.up(place, "quick", resources(stack()), lambda _: None)
    yield place
    _configure(aws, use_docker=True)


def _configure(endpoint: str, use_docker: bool) -> None:
    content = json.dumps({"batch": {"use_docker": use_docker}}).encode()
    request = urllib.request.Request(f"{endpoint}/moto-api/config", content, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 201


def asked(name: str, parts: int = 1) -> Request:
    queue, definition = names.queue("quick", "c7g.xlarge"), names.definition("quick", "bm25", "cpu2-mem4")
    return Request(name, queue, definition, "run", "group", BUNDLE, parts, 600)


def test_a_job_is_found_by_its_name_alone_whatever_became_of_it(made: Place) -> None:
    request = asked("run-1-group")
    assert jobs.find(made, request.queue, request.name) == []
    job_id = jobs.submit(made, request)
    jobs.submit(made, asked("run-1-group-other"))
    wait(lambda: jobs.look(made, job_id, 1)[0].ended)
    assert jobs.find(made, request.queue, request.name) == [job_id]
    twin = jobs.submit(made, request)
    assert jobs.find(made, request.queue, request.name) == [job_id, twin]
    [described] = made.client("batch").describe_jobs(jobs=[job_id])["jobs"]
    assert described["parameters"] == {
        "run": "run",
        "group": "group",
        "bundle": BUNDLE.name,
        "sha256": BUNDLE.sha256,
    }
    assert described["timeout"] == {"attemptDurationSeconds": 600}


def test_each_child_of_an_array_is_looked_at(made: Place) -> None:
    job_id = jobs.submit(made, asked("array", parts=130))  # more than one request describes
    wait(lambda: all(child.ended for child in jobs.look(made, job_id, 130)))
    assert {child.status for child in jobs.look(made, job_id, 130)} == {"SUCCEEDED"}


def test_jobs_that_batch_has_forgotten_are_unseen(made: Place) -> None:
    assert jobs.look(made, "no-such-job", 2) == [Child(jobs.UNSEEN, 0, "")] * 2


@pytest.mark.parametrize(
    ("array", "child"), [("PENDING", "SUBMITTED"), ("FAILED", "FAILED"), ("SUCCEEDED", "SUCCEEDED")]
)
def test_children_that_batch_has_not_made_yet_are_as_their_array_is(
    made: Place, monkeypatch: pytest.MonkeyPatch, array: str, child: str
) -> None:
    described: dict[str, Any] = {"jobs": [{"jobId": "j", "status": array}, {"jobId": "j:1", "status": "RUNNABLE"}]}
    monkeypatch.setattr(made.client("batch"), "describe_jobs", lambda **_: described)
    assert [each.status for each in jobs.look(made, "j", 2)] == [child, "RUNNABLE"]


def test_a_submission_is_never_sent_twice(made: Place) -> None:
    """Batch would have two jobs, if only the answer to the first was lost."""
    client, sent = made.connections.client("batch", attempts=1), []
    assert client is not made.client("batch")

    def fails(**_: Any) -> Any:
        sent.append(1)
        raise EndpointConnectionError(endpoint_url="x")

    client.meta.events.register("before-send.batch.SubmitJob", fails)
    with pytest.raises(AwsError, match="AWS is not reached"):
        jobs.submit(made, asked("once"))
    assert len(sent) == 1


def test_an_array_is_ended_by_one_request_and_its_stragglers_one_by_one(
    made: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    client = made.client("batch")
    monkeypatch.setattr(client, "terminate_job", lambda jobId, reason: ended.append(jobId))
    job = inventory.Job("j", "j", "q", "PENDING", parts=250)
    monkeypatch.setattr(inventory, "jobs", lambda *_: [] if "j:240" in ended else [job])

    def described(jobs: list[str]) -> dict[str, Any]:
        assert len(jobs) <= 100
        return {"jobs": [{"jobId": each, "status": "RUNNING" if each == "j:240" else "FAILED"} for each in jobs]}

    monkeypatch.setattr(client, "describe_jobs", described)
    assert cancelling.cancel(made, "quick", lambda _: None) == (1, 0)
    assert ended == ["j", "j:240"]


def test_no_account_is_in_a_reason(made: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"jobs": [{"jobId": "j", "status": "FAILED", "statusReason": "role arn:aws:iam::123456789012:role/x"}]}
    monkeypatch.setattr(made.client("batch"), "describe_jobs", lambda **_: said)
    assert jobs.look(made, "j", 1)[0].reason == "role arn:aws:iam::<account>:role/x"


def test_nothing_to_cancel_is_no_failure(made: Place) -> None:
    assert cancelling.cancel(made, "quick", lambda _: None) == (0, 0)
    assert cancelling.cancel(made, "unknown", lambda _: None) == (0, 0)


def test_a_queue_that_is_not_there_is_one_line(made: Place) -> None:
    with pytest.raises(AwsError, match="listing the jobs of nowhere"):
        inventory.in_queue(made, "nowhere", jobStatus="RUNNING")


def wait(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until, "waited for a minute"
        time.sleep(0.1)
