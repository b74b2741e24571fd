"""What EventBridge does every five minutes: call the function of an account stack, as it was deployed."""

from __future__ import annotations

import builtins
import json
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import boto3

from harness.aws import templates
from harness.aws.clients import S3Uri
from harness.aws.ec2 import account
from tests.aws import server


def tick(endpoint: str, work: S3Uri, region: str = server.REGION, *, page: int | None = None) -> bool:
    """Run the deployed code once, at the time of AWS' clock; ``False``: nothing would call it.

    Args:
        page: how many instances EC2 shows in one answer (at least 5).
    """
    admin = _session(endpoint, server.ACCESS_KEY, region)
    rule = f"{account.stack_name(work, region)}-reaper"
    events, functions = admin.client("events"), admin.client("lambda")
    if rule not in {each["Name"] for each in events.list_rules()["Rules"]}:
        return False
    found = events.describe_rule(Name=rule)
    if found["State"] != "ENABLED" or found["ScheduleExpression"] != "rate(5 minutes)":
        return False
    [target] = events.list_targets_by_rule(Rule=rule)["Targets"]
    function = functions.get_function(FunctionName=target["Arn"])["Configuration"]
    [allowed] = json.loads(functions.get_policy(FunctionName=target["Arn"])["Policy"])["Statement"]
    assert allowed["Principal"] == {"Service": "events.amazonaws.com"} and found["Arn"] in json.dumps(allowed)
    text = admin.client("cloudformation").get_template(StackName=account.stack_name(work, region))["TemplateBody"]
    code = templates.parsed(text)["Resources"]["ReaperFunction"]["Properties"]["Code"]["ZipFile"]
    time = parsedate_to_datetime(functions.list_functions()["ResponseMetadata"]["HTTPHeaders"]["date"])
    session = _session(endpoint, server.REAPER_KEY, region)
    if page is not None:
        small = {"MaxResults": page}
        session.events.register("provide-client-params.ec2.DescribeInstances", lambda params, **_: {**params, **small})
    name: dict[str, Any] = {"__builtins__": {**vars(builtins), "__import__": _importing(session)}}
    exec(compile(code, function["Handler"], "exec"), name)  # the function's own
    name["handler"]({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ")}, None)
    return True


def _session(endpoint: str, key: str, region: str) -> Any:
    """A session of one's own, whatever the environment says."""
    made = boto3.session.Session(key, server.SECRET_KEY, server.TOKEN, region)
    return SimpleNamespace(
        client=lambda service, **keys: made.client(service, endpoint_url=endpoint, **keys), events=made.events
    )


def _importing(session: Any) -> Any:
    """``import boto3`` gives the function clients that are its role's."""

    def load(name: str, *arguments: Any, **keys: Any) -> Any:
        return (
            SimpleNamespace(client=session.client) if name == "boto3" else builtins.__import__(name, *arguments, **keys)
        )

    return load
