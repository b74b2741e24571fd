"""The account stack: bucket, roles, security group, the deadline on AWS's side."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from harness.aws import clients, cloudformation
from harness.aws.clients import Connections, S3Uri
from harness.aws.cloud_run import records, user_data
from harness.aws.ec2 import instances, policies
from harness.aws.ec2 import region as regions
from harness.aws.ec2.policies import Policy
from harness.aws.errors import aws_errors
from harness.aws.objects import Objects
from harness.errors import AwsError, UsageError

log = logging.getLogger(__name__)

# Inputs and traces of runs are of no use after that: results are fetched.
EXPIRES_DAYS = 90
FOLDERS = (records.INPUTS, records.RUNS, records.OPEN, records.BOXES)
_MADE = "harness:made"
_REAPER = Path(__file__).with_name("reaper.py")


@dataclass(frozen=True)
class Account:
    """Outputs of an account stack; ``worker_profile`` is a name."""

    vpc: str
    security_group: str
    worker_role_id: str
    worker_role_arn: str
    worker_profile: str
    host_profile_arn: str
    reaper_rule: str


def stack_name(work: S3Uri, region: str) -> str:
    """Return the account stack's name, which begins its resources' names."""
    return f"ir-harness-{hashlib.sha256(f'{work} {region}'.encode()).hexdigest()[:8]}"


def find(connections: Connections, work: S3Uri, region: str) -> Account | None:
    """Return the account stack's outputs; ``None``: it, or some, are missing."""
    stack = cloudformation.find(_at(connections, region), stack_name(work, region))
    outputs = {each.name: each.name.title().replace("_", "") for each in fields(Account)}
    if stack is None or not stack.outputs.keys() >= set(outputs.values()):
        return None
    return Account(**{name: stack.outputs[output] for name, output in outputs.items()})


def check_reaper(connections: Connections, region: str, account: Account) -> None:
    """Refuse to launch where AWS would not end late boxes."""
    rule, state = account.reaper_rule, "missing"
    with _errors_but(f"looking at the rule {rule}", "ResourceNotFoundException"):
        state = connections.client("events", region).describe_rule(Name=rule)["State"].lower()
    if state != "enabled":
        raise UsageError(
            f"the rule {rule}, by which AWS ends late boxes, is {state};"
            " enable it, or put it back as `harness ec2 template` prints it"
        )


@contextmanager
def _errors_but(what: str, *codes: str) -> Iterator[None]:
    """Turn what botocore raises into an :class:`AwsError`, but let these codes pass."""
    try:
        with aws_errors(what):
            yield
    except AwsError as error:
        if error.code not in codes:
            raise


def up(
    connections: Connections,
    work: S3Uri,
    region: str,
    owner: str,
    types: Sequence[str],
    *,
    subnet: str | None = None,
    agent_image: str | None = None,
) -> None:
    """Deploy the account stack, and what must be there before it.

    Boxes may be of these types; the security group is for the subnet's VPC, or the default one; ``agent_image`` is that
    of Batch's agents, if hosts fetch it from ECR.
    """
    user_data.refuse_accounts(work)
    connections = _at(connections, region)
    connections.expect_owner(work.bucket)
    vpc = regions.subnets(connections, region, [subnet])[0].vpc
    name = stack_name(work, region)
    stack = cloudformation.find(connections, name)
    ours = _is_ours(connections, work.bucket)
    made = stack is not None and bool(stack.outputs) and stack.parameters["MakeBucket"] == "yes"
    if made and ours is None:  # CloudFormation would see no difference
        raise UsageError(f"the bucket {work.bucket} is gone; make all of it anew: `harness ec2 down {work}`, then `up`")
    if ours is False:
        log.info(f"left as it is: bucket {work.bucket}, which harness did not make; see that it is private")
    _linked_roles(connections)
    _boundary(connections, work, region)
    makes = "yes" if made or ours is None else "no"
    parameters = {"Vpc": vpc, "InstanceTypes": ",".join(sorted(types)), "MakeBucket": makes}
    text = template(work, region, types, agent_image)
    cloudformation.deploy(connections, name, text, parameters, {clients.OWNER: owner}, named_iam=True)
    log.info(f"attach the policy {name}-runner to whoever runs")


def down(connections: Connections, work: S3Uri, region: str, owner: str, *, results_too: bool) -> None:
    """Remove the account stack, and an empty bucket that harness made.

    Refuses while instances that use it are alive; ``results_too``: delete the objects below the work place first.
    """
    connections = _at(connections, region)
    connections.expect_owner(work.bucket)
    _refuse_alive(connections, work, owner, region)
    if cloudformation.delete(connections, name := stack_name(work, region)):
        log.info(f"kept: policy {name}-boundary, which costs nothing and is an administrator's")
    else:
        log.info(f"not there: stack {name}")
    _remove_objects(connections, work, results_too)


def template(work: S3Uri, region: str, types: Iterable[str], agent_image: str | None = None) -> str:
    """Return the account stack's template (JSON)."""
    name = stack_name(work, region)
    runner = policies.in_template(policies.runner(work, name, {"Ref": "InstanceTypes"}, "${SecurityGroup.GroupId}"))
    resources = {
        **_bucket(work),
        "SecurityGroup": resource("EC2::SecurityGroup", GroupDescription="nothing comes in", VpcId={"Ref": "Vpc"}),
        "WorkerRole": _role(name, "worker", ("ec2.amazonaws.com", "ecs-tasks.amazonaws.com"), policies.worker(work)),
        "WorkerProfile": _profile(name, "Worker"),
        "HostRole": _role(name, "host", ("ec2.amazonaws.com",), policies.host(agent_image or "")),
        "HostProfile": _profile(name, "Host"),
        "ReaperRole": _role(name, "reaper", ("lambda.amazonaws.com",), policies.reaper(name)),
        "ReaperFunction": resource(
            "Lambda::Function",
            FunctionName=f"{name}-reaper",
            Runtime="python3.13",
            Handler="index.handler",
            Role={"Fn::GetAtt": ["ReaperRole", "Arn"]},
            Timeout=120,
            Code={"ZipFile": _REAPER.read_text(encoding="utf-8")},
        ),
        "ReaperRule": resource(
            "Events::Rule",
            Name=f"{name}-reaper",
            ScheduleExpression="rate(5 minutes)",
            State="ENABLED",
            Targets=[{"Id": "reaper", "Arn": {"Fn::GetAtt": ["ReaperFunction", "Arn"]}}],
        ),
        "ReaperPermission": resource(
            "Lambda::Permission",
            Action="lambda:InvokeFunction",
            FunctionName={"Ref": "ReaperFunction"},
            Principal="events.amazonaws.com",
            SourceArn={"Fn::GetAtt": ["ReaperRule", "Arn"]},
        ),
        "RunnerPolicy": resource("IAM::ManagedPolicy", ManagedPolicyName=f"{name}-runner", PolicyDocument=runner),
    }
    document = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"ir-harness: what runs through {work} need in {region}; costs nothing but the bucket's content",
        "Parameters": {
            "Vpc": {"Type": "AWS::EC2::VPC::Id", "Description": "where boxes live; the default VPC will do"},
            "InstanceTypes": {"Type": "CommaDelimitedList", "Default": ",".join(sorted(types))},
            "MakeBucket": {"Type": "String", "AllowedValues": ["yes", "no"], "Default": "yes"},
        },
        "Conditions": {"MakesBucket": {"Fn::Equals": [{"Ref": "MakeBucket"}, "yes"]}},
        "Resources": resources,
        "Outputs": {
            **{key: {"Value": {"Ref": key}} for key in ("Vpc", "WorkerProfile", "ReaperRule")},
            "SecurityGroup": {"Value": {"Fn::GetAtt": ["SecurityGroup", "GroupId"]}},
            "WorkerRoleId": {"Value": {"Fn::GetAtt": ["WorkerRole", "RoleId"]}},
            "WorkerRoleArn": {"Value": {"Fn::GetAtt": ["WorkerRole", "Arn"]}},
            "HostProfileArn": {"Value": {"Fn::GetAtt": ["HostProfile", "Arn"]}},
        },
    }
    return json.dumps(document, indent=2) + "\n"


def policy(which: str, work: S3Uri, region: str, types: Sequence[str]) -> str:
    """Return a policy (JSON) of any account: ``boundary``, ``keeper`` or ``runner``."""
    import boto3

    name = stack_name(work, region)
    made = {
        "boundary": policies.boundary(work, name),
        "keeper": policies.keeper(work, name),
        "runner": policies.runner(work, name, list(types)),
    }[which]
    partition = boto3.session.Session().get_partition_for_region(region)
    return json.dumps(policies.printed(made, partition, region), indent=2) + "\n"


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    """Return a resource of a CloudFormation template."""
    return {"Type": f"AWS::{kind}", "Properties": properties}


def _role(name: str, which: str, services: Sequence[str], policy: Policy) -> dict[str, Any]:
    return resource(
        "IAM::Role",
        RoleName=f"{name}-{which}",
        AssumeRolePolicyDocument=policies.trust(*services),
        PermissionsBoundary=policies.in_template(policies.boundary_arn(name)),
        Policies=[{"PolicyName": "harness", "PolicyDocument": policies.in_template(policy)}],
    )


def _profile(name: str, role: str) -> dict[str, Any]:
    roles = [{"Ref": f"{role}Role"}]
    return resource("IAM::InstanceProfile", InstanceProfileName=f"{name}-{role.lower()}", Roles=roles)


def _bucket(work: S3Uri) -> dict[str, Any]:
    """Return the bucket, which is private, encrypted, and outlives the stack."""
    rules = [
        {
            "Id": folder,
            "Status": "Enabled",
            "Prefix": f"{work.key(folder)}/",
            "ExpirationInDays": EXPIRES_DAYS,
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7},
        }
        for folder in FOLDERS
    ]
    encryption = [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
    private = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    made = resource(
        "S3::Bucket",
        BucketName=work.bucket,
        PublicAccessBlockConfiguration=dict.fromkeys(private, True),
        BucketEncryption={"ServerSideEncryptionConfiguration": encryption},
        LifecycleConfiguration={"Rules": rules},
        Tags=[{"Key": _MADE, "Value": "yes"}],
    )
    document = policies.in_template(policies.bucket(work))
    guard = resource("S3::BucketPolicy", Bucket={"Ref": "Bucket"}, PolicyDocument=document)
    keep = {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain", "Condition": "MakesBucket"}
    return {"Bucket": made | keep, "BucketPolicy": guard | keep}


def _at(connections: Connections, region: str) -> Connections:
    return connections if connections.region == region else Connections(region)


def _is_ours(connections: Connections, bucket: str) -> bool | None:
    """Return whether harness made a bucket; ``None``: it does not exist."""
    try:
        with aws_errors(f"looking at the bucket {bucket}"):
            found = clients.as_dict(connections.client("s3").get_bucket_tagging(Bucket=bucket)["TagSet"])
    except AwsError as error:
        if error.code not in ("NoSuchBucket", "NoSuchTagSet"):
            raise
        return None if error.code == "NoSuchBucket" else False
    return _MADE in found


def _linked_roles(connections: Connections) -> None:
    """Make the services' own roles: who runs has no right to."""
    for service in policies.LINKED:
        with _errors_but(f"making the role of {service}", "InvalidInput", "EntityAlreadyExists"):  # it exists
            connections.client("iam").create_service_linked_role(AWSServiceName=service)
            log.info(f"made: the role of {service}")


def _boundary(connections: Connections, work: S3Uri, region: str) -> None:
    """Make the boundary where it is missing, which the keeper may not."""
    name, client = f"{stack_name(work, region)}-boundary", connections.client("iam")
    with aws_errors("asking AWS which account this is"):
        caller = connections.client("sts").get_caller_identity()
    partition, account = caller["Arn"].split(":")[1], caller["Account"]
    with _errors_but(f"looking for the policy {name}", "NoSuchEntity"):
        client.get_policy(PolicyArn=f"arn:{partition}:iam::{account}:policy/{name}")
        return
    document = policies.printed(policies.boundary(work, stack_name(work, region)), partition, region, account)
    with aws_errors(f"making the policy {name}, which takes an administrator"):
        arn = client.create_policy(PolicyName=name, PolicyDocument=json.dumps(document))["Policy"]["Arn"]
        client.get_waiter("policy_exists").wait(PolicyArn=arn)
    log.info(f"made: policy {name}")


def _refuse_alive(connections: Connections, work: S3Uri, owner: str, region: str) -> None:
    """Refuse while boxes of any region or user need the bucket."""
    found, failed = instances.everywhere(connections, partial(instances.alive, connections))
    for unseen in failed:
        if not unseen.denied or unseen.region == region:
            raise AwsError(f"whether instances are alive in {unseen}; nothing was removed", "Unseen")
    mine = [box for box in found if box.tags.get(clients.OWNER) == owner]
    users = [box for box in found if box in mine or box.profile == f"{stack_name(work, box.region)}-worker"]
    if users:
        where = ", ".join(sorted({box.region for box in users}))
        whose = "" if users == mine else " --all-owners"
        raise UsageError(
            f"{len(users)} instances are alive in {where}; `harness ec2 reap{whose}` ends them, then try again"
        )


def _remove_objects(connections: Connections, work: S3Uri, results_too: bool) -> None:
    if (ours := _is_ours(connections, work.bucket)) is None:
        return
    objects = Objects(connections, work)
    names = [each.name for folder in FOLDERS for each in objects.list(f"{folder}/")]
    if names and not results_too:
        log.info(f"kept: {len(names)} objects below {work}, which cost their storage; --results-too deletes them")
        return
    if names:
        log.info(f"removed: {objects.delete(names)} objects below {work}")
    if not ours:
        return
    with _errors_but(f"removing the bucket {work.bucket}", "BucketNotEmpty"):
        connections.client("s3").delete_bucket(Bucket=work.bucket)
        log.info(f"removed: bucket {work.bucket}")
        return
    log.info(f"kept: bucket {work.bucket}, which holds other objects")
