"""What a run refuses to be submitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness import instances
from harness.batch import checking, definition, inventory, making, names
from harness.batch.grouping import Submission
from harness.batch.kinds import Place
from harness.batch.resources import resources
from harness.batch.wanted import Stack
from harness.ec2 import quotas
from harness.ec2.records import Group
from harness.errors import UsageError

QUEUE = names.queue("quick", "c7g.xlarge")
GROUP = Group("001", "c7g.xlarge", 0.1, 100, (), expected_s=600, worst_s=7200)
WANTED = Submission("001", names.definition("quick", "bm25", "cpu2-mem4"), QUEUE, (GROUP,))
KNOWN = instances.read("aws")


@pytest.fixture
def check(place: Place, stack: Callable[..., Stack], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    making.up(place, "quick", resources(stack()), lambda _: None)
    monkeypatch.setattr(checking, "place_of", lambda *_: ("bm25", "cpu2-mem4"))
    draft: Any = SimpleNamespace(inputs=None)
    request: Any = SimpleNamespace(suite=SimpleNamespace(name="quick"), work=stack().work)
    yield lambda: checking.check(place, [WANTED], draft, request, KNOWN)


def test_what_up_has_made_will_do(check: Callable[[], None]) -> None:
    check()


def test_a_queue_that_takes_no_jobs_is_refused(check: Callable[[], None], place: Place) -> None:
    place.client("batch").update_job_queue(jobQueue=QUEUE, state="DISABLED")
    with pytest.raises(UsageError, match=f"the queue {QUEUE} is disabled.*batch up"):
        check()


def test_an_environment_that_is_invalid_is_refused_with_its_reason(
    check: Callable[[], None], place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = place.client("batch")
    described = client.describe_compute_environments

    def invalid(**asked: Any) -> Any:
        found = described(**asked)
        for each in found["computeEnvironments"]:
            each |= {"status": "INVALID", "statusReason": "no such role"}
        return found

    monkeypatch.setattr(client, "describe_compute_environments", invalid)
    with pytest.raises(UsageError, match="invalid, no such role"):
        check()


def test_a_definition_of_another_harness_is_refused(check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition, "_packed", lambda: "another")
    with pytest.raises(UsageError, match="made by another version of harness"):
        check()


def test_what_nobody_made_is_named(check: Callable[[], None], place: Place) -> None:
    making.down(place, "quick", inventory.things(place, "quick"), lambda _: None)
    with pytest.raises(UsageError, match=f"not in AWS Batch yet: {QUEUE}"):
        check()


def test_a_quota_of_nothing_is_said_before_anything_is_submitted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "known", lambda *_: quotas.Quota("L-1", 0))
    with pytest.raises(UsageError, match="nothing was submitted"):
        checking.quotas_of(place, [WANTED], KNOWN)
