"""Everything that a suite has in Batch, as data in CloudFormation's own form.

The template prints it; ``up`` makes the same through the API.  One description, so that they cannot drift.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from harness.batch import names
from harness.batch.definition import definition
from harness.batch.wanted import Stack, check
from harness.ec2 import policy
from harness.instances import Instance
from harness.records import digest

# What a template asks for, and ``up`` finds.
VPC, SUBNETS, OWNER = "Vpc", "Subnets", "Owner"
# Why a job could wait for ever; Batch ends it after its own least time.
_STUCK = ("MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE", "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT")
_STUCK_S = 600
_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<name>[^:@]+)")
_ROOT_DEVICE = "/dev/xvda"  # of the ECS-optimised images


@dataclass(frozen=True)
class Resource:
    """One thing in AWS.

    ``properties`` are CloudFormation's, references (``Ref``, ``Fn::GetAtt``, ``Fn::Sub``) included; ``name`` is what
    AWS calls it.  Where the name stands in the properties too, a template sets it; else CloudFormation chooses one.
    """

    logical: str
    kind: str
    name: str
    properties: dict[str, Any]

    @property
    def digest(self) -> str:
        """Of all that it is made of."""
        return digest(self.properties)[:16]


def resources(stack: Stack) -> list[Resource]:
    """All of them, each after those that it refers to.

    Raises:
        UsageError: something of it could never run.
    """
    check(stack)
    found = [_instance_role(stack), _instance_profile(stack), _job_role(stack), _security_group(stack)]
    found.append(_launch_template(stack))
    for instance in stack.instances:
        found += [_environment(stack, instance), _queue(stack, instance)]
    tags = {names.SUITE_TAG: stack.suite}
    for each in stack.wanted:
        name = names.definition(stack.suite, each.image, each.envelope.name)
        properties = definition(stack, each, {"Fn::GetAtt": ["JobRole", "Arn"]})
        found.append(
            Resource(
                names.logical("Definition", each.image, each.envelope.name),
                "AWS::Batch::JobDefinition",
                name,
                {"JobDefinitionName": name, **properties, "Tags": tags},
            )
        )
    return found


def _trusted(service: str) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _role(stack: Stack, logical: str, kind: str, service: str, statements: list[dict[str, Any]]) -> Resource:
    document = {"Version": "2012-10-17", "Statement": statements}
    properties = {
        "AssumeRolePolicyDocument": _trusted(service),
        "Policies": [{"PolicyName": "harness", "PolicyDocument": document}],
        "Tags": _tags(stack),
    }
    return Resource(logical, "AWS::IAM::Role", names.role(stack.suite, stack.region, kind), properties)


def _instance_role(stack: Stack) -> Resource:
    """What ECS' agent needs on a host, and no more: it comes to no data of ours."""
    cluster = [
        "ecs:DeregisterContainerInstance",
        "ecs:DiscoverPollEndpoint",
        "ecs:Poll",
        "ecs:RegisterContainerInstance",
        "ecs:StartTelemetrySession",
        "ecs:Submit*",
        "ecs:UpdateContainerInstancesState",
        "ec2:DescribeTags",
    ]
    logs = {"Fn::Sub": "arn:${AWS::Partition}:logs:${AWS::Region}:${AWS::AccountId}:log-group:/aws/batch/job:*"}
    statements: list[dict[str, Any]] = [
        {"Sid": "Cluster", "Effect": "Allow", "Action": cluster, "Resource": "*"},
        {
            "Sid": "Log",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": logs,
        },
    ]
    return _role(stack, "InstanceRole", "host", "ec2.amazonaws.com", [*statements, *_registry(stack.agent_image)])


def _registry(image: str) -> list[dict[str, Any]]:
    """What a host needs to fetch the agents' image from a private registry of ECR; of others nothing."""
    found = _ECR.match(image)
    if found is None:
        return []
    repository = {"Fn::Sub": "arn:${AWS::Partition}:ecr:" + ":".join(found.group("region", "account"))}
    repository["Fn::Sub"] += f":repository/{found['name']}"
    fetch = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    return [
        {"Sid": "RegistryLogin", "Effect": "Allow", "Action": ["ecr:GetAuthorizationToken"], "Resource": "*"},
        {"Sid": "AgentImage", "Effect": "Allow", "Action": fetch, "Resource": repository},
    ]


def _instance_profile(stack: Stack) -> Resource:
    name = names.role(stack.suite, stack.region, "host")
    return Resource("InstanceProfile", "AWS::IAM::InstanceProfile", name, {"Roles": [{"Ref": "InstanceRole"}]})


def _job_role(stack: Stack) -> Resource:
    """Return the role of the agent: it may do what a box of EC2 may, and claim its part."""
    statements = [
        {**statement, "Resource": [_any_partition(arn) for arn in statement["Resource"]]}
        for statement in policy.box(stack.work, claims=True)["Statement"]
    ]
    return _role(stack, "JobRole", "job", "ecs-tasks.amazonaws.com", statements)


def _any_partition(arn: str) -> dict[str, str]:
    return {"Fn::Sub": arn.replace("arn:aws:", "arn:${AWS::Partition}:", 1)}


def _security_group(stack: Stack) -> Resource:
    everywhere = {"IpProtocol": "-1", "CidrIp": "0.0.0.0/0", "Description": "S3, ECS, packages"}
    properties = {
        "GroupDescription": f"harness suite {stack.suite}: nothing comes in",
        "VpcId": {"Ref": VPC},
        "SecurityGroupEgress": [everywhere],
        "Tags": _tags(stack),
    }
    return Resource("SecurityGroup", "AWS::EC2::SecurityGroup", names.shared(stack.suite), properties)


def _launch_template(stack: Stack) -> Resource:
    disk = {"VolumeSize": stack.disk_gib, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    tags = [
        *_tags(stack),
        {"Key": names.LAUNCHER_TAG, "Value": names.LAUNCHER},
        {"Key": names.OWNER_TAG, "Value": {"Ref": OWNER}},
        {"Key": "Name", "Value": names.shared(stack.suite)},
    ]
    data = {
        # ECS' agent and ours are on the host's network: one hop.  A measured image has no network at all.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [{"DeviceName": _ROOT_DEVICE, "Ebs": disk}],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    properties = {
        "LaunchTemplateData": data,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": _tags(stack)}],
    }
    return Resource("LaunchTemplate", "AWS::EC2::LaunchTemplate", names.shared(stack.suite), properties)


def _environment(stack: Stack, instance: Instance) -> Resource:
    name = names.queue(stack.suite, instance.instance_type)
    tags = {names.SUITE_TAG: stack.suite}
    computing = {
        "Type": "SPOT" if stack.spot else "EC2",
        "AllocationStrategy": "BEST_FIT_PROGRESSIVE",
        "MinvCpus": 0,
        "MaxvCpus": instance.vcpus * stack.most_instances,
        "InstanceTypes": [instance.instance_type],
        "Ec2Configuration": [{"ImageType": "ECS_AL2023_NVIDIA" if instance.gpus else "ECS_AL2023"}],
        "InstanceRole": {"Fn::GetAtt": ["InstanceProfile", "Arn"]},
        "LaunchTemplate": {
            "LaunchTemplateId": {"Ref": "LaunchTemplate"},
            "Version": {"Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]},
        },
        "SecurityGroupIds": [{"Fn::GetAtt": ["SecurityGroup", "GroupId"]}],
        "Subnets": {"Ref": SUBNETS},
    }
    properties = {
        "ComputeEnvironmentName": name,
        "Type": "MANAGED",
        "State": "ENABLED",
        "ComputeResources": computing,
        "Tags": tags,
    }
    logical = names.logical("Machines", instance.instance_type)
    return Resource(logical, "AWS::Batch::ComputeEnvironment", name, properties)


def _queue(stack: Stack, instance: Instance) -> Resource:
    name = names.queue(stack.suite, instance.instance_type)
    environment = {"Ref": names.logical("Machines", instance.instance_type)}
    properties = {
        "JobQueueName": name,
        "Priority": 1,
        "State": "ENABLED",
        "ComputeEnvironmentOrder": [{"Order": 1, "ComputeEnvironment": environment}],
        "JobStateTimeLimitActions": [
            {"Reason": reason, "State": "RUNNABLE", "MaxTimeSeconds": _STUCK_S, "Action": "CANCEL"} for reason in _STUCK
        ],
        "Tags": {names.SUITE_TAG: stack.suite},
    }
    return Resource(names.logical("Queue", instance.instance_type), "AWS::Batch::JobQueue", name, properties)


def _tags(stack: Stack) -> list[dict[str, Any]]:
    return [{"Key": names.SUITE_TAG, "Value": stack.suite}]
