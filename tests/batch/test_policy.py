"""The rights that the page asks for are those that are needed, and the ones that are made."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.client
import pytest

from harness.aws import uri
from harness.batch import cancelling, ending, inventory, jobs, making, policy
from harness.batch.kinds import Place
from harness.batch.resources import resources
from harness.batch.wanted import Stack
from harness.ec2 import policy as ec2_policy
from harness.remote.records import Input
from tests.batch.conftest import AGENT
from tests.batch.test_jobs import asked

EC2S = (ec2_policy.runner, ec2_policy.keeper)
PAGE = (Path(__file__).parents[2] / "docs" / "batch.md").read_text()


def block(title: str) -> Any:
    found = re.search(rf"<!-- {title} -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, title
    return json.loads(found[1])


def test_the_page_prints_what_is_made() -> None:
    assert block("policy of the user for Batch") == policy.user()


@pytest.mark.parametrize(("title", "logical"), [("role of the hosts", "InstanceRole"), ("role of the jobs", "JobRole")])
def test_the_page_prints_the_roles(title: str, logical: str, stack: Callable[..., Stack]) -> None:
    made = {each.logical: each.properties for each in resources(stack(work=uri.parse("s3://my-harness")))}
    assert block(title) == made[logical]["Policies"][0]["PolicyDocument"]
    assert AGENT not in PAGE


def test_every_request_that_is_made_is_allowed(
    place: Place, stack: Callable[..., Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: set[str] = set()
    send = botocore.client.BaseClient._make_api_call  # type: ignore[attr-defined]

    def noted(self: Any, operation: str, arguments: Any) -> Any:
        called.add(f"{self.meta.service_model.service_id.lower()}:{operation}")
        return send(self, operation, arguments)

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", noted)
    making.up(place, "quick", resources(stack()), lambda _: None)
    making.up(place, "quick", resources(stack(disk_gib=300, shared=True, wanted=stack().wanted[1:])), lambda _: None)
    monkeypatch.setattr("tests.batch.test_jobs.BUNDLE", Input("b", "0" * 64, 1))
    jobs.submit(place, asked("name"))
    inventory.present(place, "quick")
    cancelling.cancel(place, "quick", lambda _: None)
    ending.alive(place, "quick", lambda _: None, 0)
    making.down(place, "quick", inventory.things(place, "quick"), lambda _: None)
    assert {"batch:SubmitJob", "ec2:CreateLaunchTemplateVersion", "iam:CreateServiceLinkedRole"} <= called
    allowed = {
        action
        for document in (policy.user(), *(make(uri.parse("s3://bucket"), "r") for make in EC2S))
        for statement in document["Statement"]
        for action in statement["Action"]
    }
    assert not [each for each in called if not any(fnmatch.fnmatchcase(each, action) for action in allowed)]


def test_what_only_looks_is_asked_of_everything() -> None:
    """Batch knows no resources for it: with names it would refuse."""
    for statement in policy.user()["Statement"]:
        if any(action.startswith(("batch:Describe", "batch:List")) for action in statement["Action"]):
            assert statement["Resource"] == "*"
    assert len(json.dumps(policy.user(), separators=(",", ":"))) < 6144  # IAM's own limit
