"""The account stack: bucket, roles and their IAM policies, security group, the deadline on AWS's side.

harness/aws/templates has the stack and the policies as files.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from harness.aws import clients, cloudformation, templates
from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import instances, user_data
from harness.aws.errors import aws_errors
from harness.aws.objects import Objects
from harness.commands import quoted
from harness.errors import RemoteError, UsageError
from harness.remote import records
from harness.remote.failures import NO_STORAGE, ignoring

log = logging.getLogger(__name__)

_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<name>[^:@]+)")
# Services whose own roles workers, spot workers and compute environments need.
LINKED = ("batch.amazonaws.com", "ecs.amazonaws.com", "spot.amazonaws.com")
FOLDERS = (records.INPUTS, records.RUNS, records.OPEN, records.WORKERS)
_MADE = "harness:made"


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


def find(connections: Connections, work: S3Uri) -> Account | None:
    """Return the account stack's outputs; ``None``: it, or some, are missing."""
    stack = cloudformation.find(connections, stack_name(work, connections.known_region))
    outputs = {output_field.name: output_field.name.title().replace("_", "") for output_field in fields(Account)}
    if stack is None or not stack.outputs.keys() >= set(outputs.values()):
        return None
    return Account(**{name: stack.outputs[output] for name, output in outputs.items()})


def require(connections: Connections, work: S3Uri) -> Account:
    """Return the account stack's outputs; raise a UsageError without them."""
    stack = find(connections, work)
    if stack is None:
        raise UsageError(f"the account stack no longer exists; make it with {quoted('ec2 up', work)}")
    return stack


def check_reaper(connections: Connections, account: Account) -> None:
    """Refuse to launch where AWS would not end late workers."""
    rule, state = account.reaper_rule, "missing"
    with ignoring("ResourceNotFoundException"), aws_errors(f"looking at the rule {rule}"):
        state = connections.client("events").describe_rule(Name=rule)["State"].lower()
    if state != "enabled":
        raise UsageError(
            f"the rule {rule}, by which AWS ends late workers, is {state};"
            " enable it, or put it back as `harness ec2 template` prints it"
        )


def up(
    connections: Connections,
    work: S3Uri,
    owner: str,
    types: Sequence[str],
    *,
    subnet: str | None = None,
    agent_image: str | None = None,
) -> None:
    """Deploy the account stack and its prerequisites.

    Workers may use these types.  The security group belongs to the subnet's VPC, or to the default VPC. ``agent_image``
    is the image of Batch's agents, if hosts fetch it from ECR.
    """
    user_data.refuse_accounts(work)
    connections.expect_owner(work.bucket)
    vpc = instances.subnets(connections, [subnet])[0].vpc
    name = stack_name(work, connections.known_region)
    stack = cloudformation.find(connections, name)
    ours = _is_ours(connections, work.bucket)
    made = stack is not None and bool(stack.outputs) and stack.parameters["MakeBucket"] == "yes"
    if made and ours is None:  # CloudFormation would see no difference
        raise UsageError(f"the bucket {work.bucket} is gone; set it up again: {quoted('ec2 down', work)}, then `up`")
    if ours is False:
        log.info(f"unchanged: bucket {work.bucket}, which harness did not make; check that it is private")
    _linked_roles(connections)
    _boundary(connections, work)
    parameters = {"Vpc": vpc, **_parameters(work, types, agent_image)}
    if not made and ours is not None:
        parameters["MakeBucket"] = "no"
    text = templates.read("account")
    cloudformation.deploy(connections, name, text, parameters, {clients.OWNER: owner}, named_iam=True)
    log.info(f"attach the policy {name}-runner to the users who run suites")


def down(connections: Connections, work: S3Uri, owner: str, *, results_too: bool) -> None:
    """Remove the account stack, and an empty bucket that harness made.

    Refuses while instances that use it are alive; ``results_too``: delete the objects below the work place first.
    """
    connections.expect_owner(work.bucket)
    _refuse_alive(connections, work, owner)
    if cloudformation.delete(connections, name := stack_name(work, connections.known_region)):
        log.info(f"kept: policy {name}-boundary, which costs nothing and is an administrator's")
    else:
        log.info(f"not there: stack {name}")
    _remove_objects(connections, work, results_too)


def template(work: S3Uri, region: str, types: Iterable[str], agent_image: str | None = None) -> str:
    """Return the account stack's template (YAML), under a comment with the command that deploys it."""
    parameters = {"Vpc": "VPC", **_parameters(work, types, agent_image)}
    return _with_command("account", stack_name(work, region), region, parameters)


def administrator_template(work: S3Uri, region: str) -> str:
    """Return the template (YAML) of the boundary and the keeper's policy, under the command that deploys it."""
    name = stack_name(work, region)
    return _with_command("administrator", f"{name}-administrator", region, {"AccountStack": name, **_place(work)})


def _with_command(file: str, stack: str, region: str, parameters: Mapping[str, str]) -> str:
    deploy = ["aws", "cloudformation", "deploy", "--region", region, "--stack-name", stack]
    deploy += ["--template-file", f"{file}.yaml", "--capabilities", "CAPABILITY_NAMED_IAM"]
    deploy += ["--tags", f"{clients.OWNER}=OWNER"] if file == "account" else []
    deploy += ["--parameter-overrides", *(f"{key}={value}" for key, value in parameters.items())]
    return f"# {shlex.join(deploy)}\n#\n{templates.read(file)}"


def _parameters(work: S3Uri, types: Iterable[str], agent_image: str | None) -> dict[str, str]:
    """Return the template's parameters but for the VPC; the bucket is made where it is missing."""
    image = _ECR.match(agent_image or "")
    return {
        **_place(work),
        "MakeBucket": "yes",
        "InstanceTypes": ",".join(sorted(types)),
        "AgentRepository": f"{image['region']}:{image['account']}:repository/{image['name']}" if image else "",
    }


def _place(work: S3Uri) -> dict[str, str]:
    return {"BucketName": work.bucket, "Prefix": work.beginning}


def policy(which: str, work: S3Uri, region: str, types: Sequence[str], account: str = "*") -> dict[str, Any]:
    """Return the policy ``boundary``, ``keeper`` or ``runner``, of any account unless one is named."""
    file = "account" if which == "runner" else "administrator"
    values = {"InstanceTypes": list(types), "SecurityGroup.GroupId": "*"}
    return dict(resource(f"{which.title()}Policy", work, region, account, values, file)["PolicyDocument"])


def resource(
    name: str, work: S3Uri, region: str, account: str, values: Mapping[str, Any], file: str = "account"
) -> dict[str, Any]:
    """Return the properties of a resource of a template, with a work place's names and these values filled in."""
    import boto3

    stack = stack_name(work, region)
    known = {
        **_place(work),
        "AccountStack": stack,
        "AWS::StackName": stack,
        "AWS::Partition": boto3.session.Session().get_partition_for_region(region),
        "AWS::Region": region,
        "AWS::AccountId": account,
    }
    return dict(templates.filled(templates.load(file)["Resources"][name]["Properties"], {**known, **values}))


def _is_ours(connections: Connections, bucket: str) -> bool | None:
    """Return whether harness made a bucket; ``None``: it does not exist."""
    with ignoring(NO_STORAGE):
        tags: dict[str, str] = {}
        with ignoring("NoSuchTagSet"), aws_errors(f"looking at the bucket {bucket}"):
            tags = clients.as_dict(connections.client("s3").get_bucket_tagging(Bucket=bucket)["TagSet"])
        return _MADE in tags
    return None


def _linked_roles(connections: Connections) -> None:
    """Make the services' own roles, which a runner may not."""
    for service in LINKED:
        with ignoring("InvalidInput", "EntityAlreadyExists"), aws_errors(f"making the role of {service}"):  # it exists
            connections.client("iam").create_service_linked_role(AWSServiceName=service)
            log.info(f"made: the role of {service}")


def _boundary(connections: Connections, work: S3Uri) -> None:
    """Make the boundary where it is missing, which the keeper may not."""
    region = connections.known_region
    name, client = f"{stack_name(work, region)}-boundary", connections.client("iam")
    with aws_errors("asking AWS which account this is"):
        caller = connections.client("sts").get_caller_identity()
    partition, account = caller["Arn"].split(":")[1], caller["Account"]
    with ignoring("NoSuchEntity"), aws_errors(f"looking for the policy {name}"):
        client.get_policy(PolicyArn=f"arn:{partition}:iam::{account}:policy/{name}")
        return
    document = policy("boundary", work, region, (), account)
    with aws_errors(f"making the policy {name}, which takes an administrator"):
        arn = client.create_policy(PolicyName=name, PolicyDocument=json.dumps(document))["Policy"]["Arn"]
        client.get_waiter("policy_exists").wait(PolicyArn=arn)
    log.info(f"made: policy {name}")


def _refuse_alive(connections: Connections, work: S3Uri, owner: str) -> None:
    """Refuse while workers of any region or user need the bucket."""
    living, failed = instances.search_regions(connections, partial(instances.alive, connections))
    for unseen in failed:
        if not unseen.denied or unseen.region == connections.region:
            raise RemoteError(f"Cannot tell whether instances still run in {unseen}. Nothing was removed.", "Unseen")
    mine = [instance for instance in living if instance.tags.get(clients.OWNER) == owner]
    profiles = {region: f"{stack_name(work, region)}-worker" for region in {instance.region for instance in living}}
    users = [instance for instance in living if instance in mine or instance.profile == profiles[instance.region]]
    if users:
        where = ", ".join(sorted({instance.region for instance in users}))
        reap = quoted("ec2 reap", all_owners=users != mine)
        raise UsageError(f"{len(users)} instances are alive in {where}; {reap} ends them, then try again")


def _remove_objects(connections: Connections, work: S3Uri, results_too: bool) -> None:
    if (ours := _is_ours(connections, work.bucket)) is None:
        return
    objects = Objects(connections, work)
    names = [stored.name for folder in FOLDERS for stored in objects.list(f"{folder}/")]
    if names and not results_too:
        log.info(f"kept: {len(names)} objects below {work}, which cost their storage; --results-too deletes them")
        return
    if names:
        log.info(f"removed: {objects.delete(names)} objects below {work}")
    if not ours:
        return
    with ignoring("BucketNotEmpty"), aws_errors(f"removing the bucket {work.bucket}"):
        connections.client("s3").delete_bucket(Bucket=work.bucket)
        log.info(f"removed: bucket {work.bucket}")
        return
    log.info(f"kept: bucket {work.bucket}, which holds other objects")
