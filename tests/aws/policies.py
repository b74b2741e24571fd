"""Policies of the roles in the account stack's template, as CloudFormation would make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.aws.clients import S3Uri
from harness.aws.ec2 import account
from tests.aws.server import ACCOUNT, REGION


def of_role(role: str, work: S3Uri, repository: str = "", of_account: str = ACCOUNT) -> dict[str, Any]:
    """Return the policy of ``worker``, ``host`` or ``reaper``; hosts may fetch the agents' image from a repository."""
    values: Mapping[str, Any] = {"AgentRepository": repository, "FetchesFromEcr": bool(repository)}
    properties = account.resource(f"{role.title()}Role", work, REGION, of_account, values)
    return dict(properties["Policies"][0]["PolicyDocument"])
