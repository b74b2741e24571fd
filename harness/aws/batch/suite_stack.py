"""A suite's CloudFormation stack: machines, queues, job definitions; no IAM."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness import records
from harness.aws import clients, cloudformation
from harness.aws.batch import inventory, job_definition
from harness.aws.batch.job_definition import Requirements
from harness.aws.clients import Connections
from harness.aws.ec2 import instances, region
from harness.aws.ec2.account import Account, resource
from harness.aws.objects import Objects
from harness.errors import UsageError
from harness.pricing.instances import Instance

log = logging.getLogger(__name__)

# MERGED harness.aws.batch.suite_stack: Names of a suite's things in AWS Batch, fixed for all commands.


# Batch and CloudFormation take 128 characters.
_MAXIMUM = 128


def stack(suite: str) -> str:
    """Return the name of a suite's CloudFormation stack."""
    return _safe(f"harness-batch-{suite}", "[^A-Za-z0-9-]")


def definition(suite: str, profile: str) -> str:
    """Return the job definition of a hardware profile."""
    return _safe(f"harness-{suite}-{profile}")


def queue(suite: str, instance_type: str) -> str:
    """Return the queue, and the compute environment, of an instance type."""
    return _safe(f"harness-{suite}-{instance_type}")


def job(run_id: str, submission: str) -> str:
    """Return the name by which later commands find a submission's job."""
    return _safe(f"{run_id}-{submission}")


def logical_name(*words: str) -> str:
    """Return a name for a template; distinct words stay distinct."""
    text = "-".join(words)
    return re.sub("[^A-Za-z0-9]", "", text.title())[:200] + _hash(text)


def _safe(text: str, forbidden: str = "[^A-Za-z0-9_-]") -> str:
    """Replace forbidden characters; a hash keeps changed and cut names distinct."""
    plain = re.sub(forbidden, "-", text)
    # An instance type has one dot (``c7g.large``), and no type has a dash in its place.
    distinct = plain == text or re.fullmatch(r"[A-Za-z0-9_-]*\.[a-z0-9]+", text)
    return plain if distinct and len(plain) <= _MAXIMUM else f"{plain[: _MAXIMUM - 9]}-{_hash(text)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# Outputs; beside them one for each profile, with its definition's digest.
WORK, MACHINES = "WorkPlace", "Machines"
_WORKER_ROLE = "WorkerRoleArn"
_PARAMETERS = {
    _WORKER_ROLE: ("String", "Role of the jobs: output of the stack of `harness ec2 up`"),
    "HostProfileArn": ("String", "Instance profile of the hosts: output of the same stack"),
    "SecurityGroup": ("AWS::EC2::SecurityGroup::Id", "Security group of the hosts: output of the same stack"),
    "Subnets": ("List<AWS::EC2::Subnet::Id>", "Subnets with a way to S3, ECS and a package index"),
    "Owner": ("String", "Value of the tag harness:owner of instances and disks"),
}
# Batch ends a job that waits for ever for one of these reasons, after 600 s: its own least time.
_STUCK = ("MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE", "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT")
_ROOT_DEVICE = "/dev/xvda"  # of the ECS-optimised images

Resource = dict[str, Any]


def template(wanted: Requirements) -> str:
    """Return the template; it names no account."""
    suite, options = wanted.suite, wanted.options
    machines = {"LaunchTemplate": _launch_template(wanted)}
    others: dict[str, Resource] = {}
    types = {instance.instance_type: instance for _, instance in wanted.machines}
    for name, instance in types.items():
        machines[logical_name("Machines", name)] = _environment(wanted, instance)
        others[logical_name("Queue", name)] = _queue(suite, name)
    outputs = {
        WORK: str(options.work),
        MACHINES: records.digest(machines)[:16],
        inventory.QUEUES: ",".join(queue(suite, name) for name in types),
    }
    for envelope, instance in wanted.machines:
        properties = job_definition.definition(envelope, instance, options, {"Ref": _WORKER_ROLE})
        properties["JobDefinitionName"] = definition(suite, envelope.name)
        logical = logical_name("Jobs", envelope.name)
        others[logical] = resource("Batch::JobDefinition", **properties)
        outputs[logical] = job_definition.digest(envelope, instance, options)
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"AWS Batch for the suite {suite} of harness; costs nothing while no job runs",
        "Parameters": {name: {"Type": kind, "Description": text} for name, (kind, text) in _PARAMETERS.items()},
        "Resources": {**machines, **others},
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }
    return json.dumps(document, indent=1) + "\n"


def _launch_template(wanted: Requirements) -> Resource:
    own: dict[str, Any] = {clients.SUITE: wanted.suite, clients.OWNER: {"Ref": "Owner"}}
    of_hosts = clients.as_list(own | {inventory.LAUNCHER_TAG: inventory.LAUNCHER, "Name": stack(wanted.suite)})
    data = {
        # ECS' agent and ours are on the host's network: one hop.  A measured image has no network at all.
        "MetadataOptions": instances.METADATA,
        "BlockDeviceMappings": instances.root_disk(_ROOT_DEVICE, wanted.options.disk_gib),
        "TagSpecifications": [{"ResourceType": kind, "Tags": of_hosts} for kind in ("instance", "volume")],
    }
    specifications = [{"ResourceType": "launch-template", "Tags": clients.as_list(own)}]
    return resource("EC2::LaunchTemplate", LaunchTemplateData=data, TagSpecifications=specifications)


def _environment(wanted: Requirements, instance: Instance) -> Resource:
    options, version = wanted.options, {"Fn::GetAtt": ["LaunchTemplate", "LatestVersionNumber"]}
    compute = {
        "Type": "SPOT" if options.spot else "EC2",
        "AllocationStrategy": "BEST_FIT_PROGRESSIVE",
        "MinvCpus": 0,
        "MaxvCpus": instance.vcpus * options.max_instances,
        "InstanceTypes": [instance.instance_type],
        "Ec2Configuration": [{"ImageType": "ECS_AL2023_NVIDIA" if instance.gpus else "ECS_AL2023"}],
        "InstanceRole": {"Ref": "HostProfileArn"},
        "LaunchTemplate": {"LaunchTemplateId": {"Ref": "LaunchTemplate"}, "Version": version},
        "SecurityGroupIds": [{"Ref": "SecurityGroup"}],
        "Subnets": {"Ref": "Subnets"},
    }
    return resource(
        "Batch::ComputeEnvironment",
        ComputeEnvironmentName=queue(wanted.suite, instance.instance_type),
        Type="MANAGED",
        State="ENABLED",
        ComputeResources=compute,
        # A second environment could not have the same name, and the queue needs the first.
        ReplaceComputeEnvironment=False,
    )


def _queue(suite: str, instance_type: str) -> Resource:
    environment = {"Ref": logical_name("Machines", instance_type)}
    return resource(
        "Batch::JobQueue",
        JobQueueName=queue(suite, instance_type),
        Priority=1,
        State="ENABLED",
        ComputeEnvironmentOrder=[{"Order": 1, "ComputeEnvironment": environment}],
        JobStateTimeLimitActions=[
            {"Reason": reason, "State": "RUNNABLE", "MaxTimeSeconds": 600, "Action": "CANCEL"} for reason in _STUCK
        ],
    )


def up(connections: Connections, wanted: Requirements, account: Account, owner: str, subnets: Sequence[str]) -> None:
    """Deploy the stack and wait; refuse to change machines under unfinished jobs."""
    name, text = stack(wanted.suite), template(wanted)
    found = cloudformation.find(connections, name)
    places = region.subnets(connections, wanted.options.region, subnets)
    if any(subnet.vpc != account.vpc for subnet in places):
        raise UsageError(f"name --subnet of {account.vpc}, the VPC of `harness ec2 up`, with a way to the internet")
    parameters = {
        _WORKER_ROLE: account.worker_role_arn,
        "HostProfileArn": account.host_profile_arn,
        "SecurityGroup": account.security_group,
        "Subnets": ",".join(sorted(subnet.subnet_id for subnet in places)),
        # Stays: CloudFormation would replace the queues, which have the stack's tags.
        "Owner": found.parameters.get("Owner", owner) if found else owner,
    }
    if found and _changes_machines(found, text, parameters) and (jobs := inventory.jobs(connections, found)):
        raise UsageError(
            f"{len(jobs)} jobs of {wanted.suite} are not finished, and their machines would change; wait, or end them:"
            f" `harness batch cancel {wanted.suite}`"
        )
    own = {clients.SUITE: wanted.suite, clients.OWNER: parameters["Owner"]}
    store = Objects(connections, wanted.options.work)
    cloudformation.deploy(connections, name, text, parameters, own, store=store)


def _changes_machines(found: cloudformation.Stack, text: str, parameters: Mapping[str, str]) -> bool:
    same = found.outputs.get(MACHINES) == json.loads(text)["Outputs"][MACHINES]["Value"]
    return not same or any(found.parameters.get(key) != parameters[key] for key in parameters if key != _WORKER_ROLE)


def down(connections: Connections, suite: str) -> list[str]:
    """Delete the stack; return a line for each instance still alive."""
    name = stack(suite)
    found = cloudformation.find(connections, name)
    if found and (jobs := inventory.jobs(connections, found)):
        raise UsageError(f"{len(jobs)} jobs of {suite} are not finished; end them: `harness batch cancel {suite}`")
    if not cloudformation.delete(connections, name):
        log.info(f"not there: stack {name}")
    return inventory.machines(connections, suite)
