"""The same as a CloudFormation template."""

from __future__ import annotations

import json
from typing import Any

from harness.batch.resources import OWNER, SUBNETS, VPC, Resource


def template(suite: str, made: list[Resource]) -> str:
    """A template in JSON; it names no account, and asks for a VPC and its subnets.

    Roles get names from CloudFormation: the template needs ``CAPABILITY_IAM`` alone.
    """
    parameters = {
        VPC: {"Type": "AWS::EC2::VPC::Id", "Description": "Where the instances live; the default VPC will do"},
        SUBNETS: {
            "Type": "List<AWS::EC2::Subnet::Id>",
            "Description": "Its subnets, with a way to S3, ECS and a package index",
        },
        OWNER: {
            "Type": "String",
            "Default": "cloudformation",
            "Description": "Whose the instances are said to be, in the tag harness:owner",
        },
    }
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"AWS Batch for the suite {suite} of harness; costs nothing while no job runs",
        "Parameters": parameters,
        "Resources": {each.logical: {"Type": each.kind, "Properties": _properties(each)} for each in made},
    }
    return json.dumps(document, indent=2) + "\n"


def _properties(each: Resource) -> dict[str, Any]:
    if each.kind != "AWS::Batch::ComputeEnvironment":
        return each.properties
    # By default CloudFormation makes another one and removes the old: not with a name of our own, nor under a queue.
    return {**each.properties, "ReplaceComputeEnvironment": False}
