"""CloudFormation stacks: deploy a template, read a stack, delete one; errors name the first failed resource."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from harness.aws import clients
from harness.aws.clients import Connections
from harness.aws.errors import aws_errors
from harness.aws.objects import Objects, checksums_of
from harness.errors import RemoteError
from harness.remote.failures import concealed

log = logging.getLogger(__name__)

_POLL_S = 5.0
# CloudFormation takes larger templates from S3 only.
_INLINE_BYTES = 51_200
# A change set for a new stack that was never executed.
_DRAFT = "REVIEW_IN_PROGRESS"
# CloudFormation cannot update such a stack, only delete it.
_DEAD = (_DRAFT, "CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED")
_GOOD = ("CREATE_COMPLETE", "UPDATE_COMPLETE")
_BEGINNINGS = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS")


@dataclass(frozen=True)
class Stack:
    """A stack as CloudFormation shows it; ``status`` is its word, e.g. ``UPDATE_COMPLETE``."""

    name: str
    status: str
    outputs: Mapping[str, str]
    parameters: Mapping[str, str]
    tags: Mapping[str, str]


def deploy(
    connections: Connections,
    stack: str,
    template: str,
    parameters: Mapping[str, str],
    tags: Mapping[str, str],
    *,
    named_iam: bool = False,
    store: Objects | None = None,
) -> dict[str, str]:
    """Create or update a stack, wait for the end, return its outputs.

    ``named_iam`` permits IAM resources with names of their own; ``store`` takes a template too large for a request.
    """
    existing = _settled(connections, stack)
    if existing is not None and existing.status in _DEAD:
        delete(connections, stack)
        existing = None
    client = connections.client("cloudformation")
    send = client.create_stack if existing is None else client.update_stack
    try:
        with aws_errors(f"deploying the stack {stack}"):
            send(
                StackName=stack,
                Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
                Tags=clients.as_list(tags),
                Capabilities=["CAPABILITY_NAMED_IAM"] if named_iam else [],
                **_body(template, store),
            )
    except RemoteError as error:
        if existing is None or "No updates are to be performed" not in str(error):
            raise
        log.info(f"unchanged: stack {stack}")
        return dict(existing.outputs)
    done = _settled(connections, stack)
    if done is None or done.status not in _GOOD:
        raise _failure(connections, stack, "deploying")
    log.info(f"{'made' if existing is None else 'changed'}: stack {stack}")
    return dict(done.outputs)


def find(connections: Connections, stack: str) -> Stack | None:
    """Return a stack; ``None``: it does not exist."""
    try:
        with aws_errors(f"looking for the stack {stack}"):
            [shown] = connections.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except RemoteError as error:
        if error.code == "ValidationError" and "does not exist" in str(error):
            return None
        raise
    return _stack(shown)


def find_tagged(connections: Connections, tag: str) -> list[Stack]:
    """Return a region's stacks with this tag, by name."""
    with aws_errors("listing stacks"):
        pages = connections.client("cloudformation").get_paginator("describe_stacks").paginate()
        stacks = [_stack(shown) for page in pages for shown in page["Stacks"]]
    return sorted((stack for stack in stacks if tag in stack.tags), key=lambda stack: stack.name)


def _stack(shown: Mapping[str, Any]) -> Stack:
    return Stack(
        shown["StackName"],
        shown["StackStatus"],
        {output["OutputKey"]: output["OutputValue"] for output in shown.get("Outputs", ())},
        {parameter["ParameterKey"]: parameter["ParameterValue"] for parameter in shown.get("Parameters", ())},
        clients.as_dict(shown.get("Tags")),
    )


def delete(connections: Connections, stack: str) -> bool:
    """Delete a stack and wait until it is gone; return whether there was one."""
    if _settled(connections, stack) is None:
        return False
    with aws_errors(f"deleting the stack {stack}"):
        connections.client("cloudformation").delete_stack(StackName=stack)
    if _settled(connections, stack) is not None:
        raise _failure(connections, stack, "deleting")
    log.info(f"removed: stack {stack}")
    return True


def _settled(connections: Connections, stack: str) -> Stack | None:
    """Wait until CloudFormation is done with a stack; return it, or ``None`` once it is gone."""
    shown = ""
    while True:
        state = find(connections, stack)
        if state is None or state.status == _DRAFT or not state.status.endswith("_IN_PROGRESS"):
            return state
        if state.status != shown:
            shown = state.status
            log.info(f"waiting: stack {stack} is {shown}")
        time.sleep(_POLL_S)


def _body(template: str, store: Objects | None) -> dict[str, str]:
    content = template.encode()
    if len(content) <= _INLINE_BYTES:
        return {"TemplateBody": template}
    if store is None:
        raise RemoteError(f"the template has {len(content)} bytes; CloudFormation takes {_INLINE_BYTES}", "TooLarge")
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"inputs/templates/{sha256}.yaml"
    store.put_new(name, content)
    if (state := store.state(name)) is None or state.checksum not in checksums_of(sha256):
        # A stranger's template would be deployed with our rights.
        name = f"inputs/templates/{sha256}.{secrets.token_hex(8)}.yaml"
        store.put_new(name, content)
    host = f"{store.place.bucket}.s3.{store.client.meta.region_name}.amazonaws.com"
    return {"TemplateURL": f"https://{host}/{quote(store.place.key(name))}"}


def _failure(connections: Connections, stack: str, doing: str) -> RemoteError:
    """Return an error with the first failed resource of the last operation, and its reason."""
    first: dict[str, Any] = {}
    pages = connections.client("cloudformation").get_paginator("describe_stack_events")
    with aws_errors(f"asking why {doing} the stack {stack} failed"):
        for event in (event for page in pages.paginate(StackName=stack) for event in page["StackEvents"]):
            status, reason = event["ResourceStatus"], event.get("ResourceStatusReason", "")
            if event["ResourceType"] == "AWS::CloudFormation::Stack" and status in _BEGINNINGS:
                break  # events come newest first: older ones are of earlier operations
            if status.endswith("_FAILED") and "cancelled" not in reason:
                first = event
    kind = first.get("ResourceType", "AWS::CloudFormation::Stack")
    reason = concealed(" ".join(first.get("ResourceStatusReason", "no reason was given").split()))[:300]
    return RemoteError(
        f"{doing} the stack {stack}: {first.get('LogicalResourceId', stack)} ({kind}): {reason}", "Failed"
    )
