"""The deadline on AWS's side: deployed code ends late workers when all your instances and disks are gone."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import EndpointConnectionError

from harness.aws import clients
from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import account
from harness.aws.ec2 import instances as regions
from harness.errors import UsageError
from tests.aws import reaper, rights, server
from tests.aws.server import REGION

WORK = S3Uri("harness-work", "some/prefix")
NAME = account.stack_name(WORK, REGION)


@pytest.fixture
def made(aws: str) -> account.Account:
    connections = Connections(REGION)
    up = functools.partial(account.up, connections, WORK, "0123456789ab", ["m6i.large"])
    server.made_once(aws, "account", up)
    found = account.find(connections, WORK)
    assert found is not None
    return found


def start(count: int = 1, *, after_s: float | str | None = 600, owner: str | None = "0123456789ab") -> list[str]:
    """Launch workers whose user data never runs; ``after_s``: until their expiry, or its text."""
    client = boto3.client("ec2", region_name=REGION)
    expiry = after_s
    if isinstance(expiry, (int, float)):
        at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=expiry)
        expiry = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    marks = {key: value for key, value in ((clients.EXPIRY, expiry), (clients.OWNER, owner)) if value}
    answer = client.run_instances(
        ImageId=regions.ami(Connections(REGION), "al2023", "x86_64", False).image_id,
        InstanceType="m6i.large",
        MinCount=count,
        MaxCount=count,
        TagSpecifications=[{"ResourceType": "instance", "Tags": clients.as_list(marks)}],
    )
    return [each["InstanceId"] for each in answer["Instances"]]


def states() -> dict[str, str]:
    pages = boto3.client("ec2", region_name=REGION).get_paginator("describe_instances").paginate()
    found = [each for page in pages for one in page["Reservations"] for each in one["Instances"]]
    return {each["InstanceId"]: each["State"]["Name"] for each in found}


def alive() -> set[str]:
    return {name for name, state in states().items() if state not in ("terminated", "shutting-down")}


def test_a_worker_is_ended_after_its_expiry_when_nothing_else_is_alive(aws: str, made: account.Account) -> None:
    """Its user data never ran, and there is no orchestrator."""
    started = set(start(after_s=600))
    assert reaper.tick(aws, WORK) and alive() == started
    server.forward(aws, 601)
    assert reaper.tick(aws, WORK) and alive() == set()
    assert reaper.tick(aws, WORK), "a worker that is gone is no failure"


def test_a_stopped_and_a_pending_worker_are_ended(aws: str, made: account.Account) -> None:
    stopped, pending = start(2, after_s=-1)
    boto3.client("ec2", region_name=REGION).stop_instances(InstanceIds=[stopped])
    server.pend(aws, REGION, pending)
    assert states() == {stopped: "stopped", pending: "pending"}
    assert reaper.tick(aws, WORK) and alive() == set()


def test_workers_in_time_and_other_instances_are_left(aws: str, made: account.Account) -> None:
    left = {*start(after_s=3600), *start(after_s=-1, owner=None), *start(after_s=None)}
    late = set(start(after_s=-1, owner="ffffffffffff"))
    assert reaper.tick(aws, WORK) and alive() == left and not late & left


def test_worker_with_an_unreadable_expiry_is_ended(aws: str, made: account.Account) -> None:
    """A worker must not outlive its cap because of a tag that nobody reads; nor one whose tag has no time zone."""
    start(after_s="never")
    start(after_s="2999-01-01T00:00:00")
    assert reaper.tick(aws, WORK) and alive() == set()


def failing(monkeypatch: pytest.MonkeyPatch, operation: str, fails: Callable[[dict[str, Any]], bool]) -> None:
    """Let requests fail as they do where the network does."""
    call = BaseClient._make_api_call

    def answer(client: Any, name: str, given: dict[str, Any]) -> Any:
        if name == operation and fails(given):
            raise EndpointConnectionError(endpoint_url="ec2")
        return call(client, name, given)

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)


@pytest.mark.parametrize("protected", [True, False])
def test_other_workers_are_ended_although_one_cannot_be(
    aws: str, made: account.Account, monkeypatch: pytest.MonkeyPatch, protected: bool
) -> None:
    """It is protected, or the network fails for it."""
    held, _ = start(after_s=-1)[0], start(after_s=-1)
    client = boto3.client("ec2", region_name=REGION)
    client.modify_instance_attribute(InstanceId=held, DisableApiTermination={"Value": protected})
    with monkeypatch.context() as patch:
        if not protected:
            failing(patch, "TerminateInstances", lambda given: given["InstanceIds"] == [held])
        with pytest.raises(RuntimeError, match=held if protected else "Could not connect"):
            reaper.tick(aws, WORK)
    assert alive() == {held}
    client.modify_instance_attribute(InstanceId=held, DisableApiTermination={"Value": False})
    assert reaper.tick(aws, WORK) and alive() == set()


def test_workers_on_every_page_are_ended_although_one_page_is_missing_for_a_while(
    aws: str, made: account.Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {each for _ in range(3) for each in start(after_s=-1)}
    left = {each for _ in range(6) for each in start()}
    last = {each for _ in range(3) for each in start(after_s=-1)}
    with monkeypatch.context() as patch:
        failing(patch, "DescribeInstances", lambda given: "NextToken" in given)
        with pytest.raises(EndpointConnectionError):
            reaper.tick(aws, WORK, page=5)
    assert alive() == left | last and not first & alive()
    assert reaper.tick(aws, WORK, page=5) and alive() == left
    shown = [each for each in server.requests(aws) if "Action=DescribeInstances" in each["body"]]
    assert len([each for each in shown if each["who"] == server.REAPER_KEY]) > 2


def test_function_uses_exactly_the_rights_of_its_role(aws: str, made: account.Account) -> None:
    start(after_s=-1)
    reaper.tick(aws, WORK)
    given = rights.of_role(f"{NAME}-reaper")
    denied, unused = rights.differing(server.requests(aws), server.REAPER_KEY, given)
    assert denied == []
    assert unused == [f"Log logs:{each}" for each in ("CreateLogGroup", "CreateLogStream", "PutLogEvents")]
    others = start(owner=None)
    boto3.client("ec2", region_name=REGION)
    [foreign] = [f"arn:aws:ec2:{REGION}:{server.ACCOUNT}:instance/{each}" for each in others]
    assert not any(rights.may(each, "ec2:TerminateInstances", foreign) for each in given)


def test_nothing_is_launched_where_the_rule_is_missing_or_disabled(aws: str, made: account.Account) -> None:
    connections = Connections(REGION)
    account.check_reaper(connections, made)
    events = boto3.client("events", region_name=REGION)
    events.disable_rule(Name=made.reaper_rule)
    assert not reaper.tick(aws, WORK)
    with pytest.raises(UsageError, match=rf"{made.reaper_rule}.*is disabled"):
        account.check_reaper(connections, made)
    events.remove_targets(Rule=made.reaper_rule, Ids=["reaper"])
    events.delete_rule(Name=made.reaper_rule)
    assert not reaper.tick(aws, WORK)
    with pytest.raises(UsageError, match=r"is missing.*harness ec2 template"):
        account.check_reaper(connections, made)
