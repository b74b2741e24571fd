"""The account stack: bucket, roles and their IAM policies, security group, the deadline on AWS's side."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from harness.aws import clients, cloudformation
from harness.aws.clients import Connections, S3Uri
from harness.aws.cloud_run import bundle, records
from harness.aws.ec2 import instances
from harness.aws.errors import aws_errors, ignoring
from harness.aws.objects import Objects
from harness.commands import quoted
from harness.errors import AwsError, UsageError

log = logging.getLogger(__name__)

Policy = dict[str, Any]
_ARN = "arn:${AWS::Partition}"
_IAM = f"{_ARN}:iam::${{AWS::AccountId}}"
_OURS = {"StringLike": {f"aws:ResourceTag/{clients.OWNER}": "*"}}
_STACKS = "CreateStack DeleteStack DescribeStackEvents DescribeStacks TagResource UpdateStack"
# A bucket of the same name in another account gets and gives nothing.
_OWN_ACCOUNT = {"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}}
_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<name>[^:@]+)")
# Services whose own roles workers, spot workers and compute environments need.
LINKED = ("batch.amazonaws.com", "ecs.amazonaws.com", "spot.amazonaws.com")
# Inputs and traces of runs are of no use after that: results are fetched.
EXPIRES_DAYS = 90
FOLDERS = (records.INPUTS, records.RUNS, records.OPEN, records.WORKERS)
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
    outputs = {output_field.name: output_field.name.title().replace("_", "") for output_field in fields(Account)}
    if stack is None or not stack.outputs.keys() >= set(outputs.values()):
        return None
    return Account(**{name: stack.outputs[output] for name, output in outputs.items()})


def check_reaper(connections: Connections, region: str, account: Account) -> None:
    """Refuse to launch where AWS would not end late workers."""
    rule, state = account.reaper_rule, "missing"
    with ignoring("ResourceNotFoundException"), aws_errors(f"looking at the rule {rule}"):
        state = connections.client("events", region).describe_rule(Name=rule)["State"].lower()
    if state != "enabled":
        raise UsageError(
            f"the rule {rule}, by which AWS ends late workers, is {state};"
            " enable it, or put it back as `harness ec2 template` prints it"
        )


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
    """Deploy the account stack and its prerequisites.

    Workers may be of these types; the security group is for the subnet's VPC, or the default one; ``agent_image`` is
    that of Batch's agents, if hosts fetch it from ECR.
    """
    bundle.refuse_accounts(work)
    connections = _at(connections, region)
    connections.expect_owner(work.bucket)
    vpc = instances.subnets(connections, region, [subnet])[0].vpc
    name = stack_name(work, region)
    stack = cloudformation.find(connections, name)
    ours = _is_ours(connections, work.bucket)
    made = stack is not None and bool(stack.outputs) and stack.parameters["MakeBucket"] == "yes"
    if made and ours is None:  # CloudFormation would see no difference
        raise UsageError(f"the bucket {work.bucket} is gone; set it up again: {quoted('ec2 down', work)}, then `up`")
    if ours is False:
        log.info(f"left as it is: bucket {work.bucket}, which harness did not make; see that it is private")
    _linked_roles(connections)
    _boundary(connections, work, region)
    makes = "yes" if made or ours is None else "no"
    parameters = {"Vpc": vpc, "InstanceTypes": ",".join(sorted(types)), "MakeBucket": makes}
    text = template(work, region, types, agent_image)
    cloudformation.deploy(connections, name, text, parameters, {clients.OWNER: owner}, named_iam=True)
    log.info(f"attach the policy {name}-runner to the users who run suites")


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
    runner = in_template(runner_policy(work, name, {"Ref": "InstanceTypes"}, "${SecurityGroup.GroupId}"))
    resources = {
        **_bucket(work),
        "SecurityGroup": resource("EC2::SecurityGroup", GroupDescription="nothing comes in", VpcId={"Ref": "Vpc"}),
        "WorkerRole": _role(name, "worker", ("ec2.amazonaws.com", "ecs-tasks.amazonaws.com"), worker_policy(work)),
        "WorkerProfile": _profile(name, "Worker"),
        "HostRole": _role(name, "host", ("ec2.amazonaws.com",), host_policy(agent_image or "")),
        "HostProfile": _profile(name, "Host"),
        "ReaperRole": _role(name, "reaper", ("lambda.amazonaws.com",), reaper_policy(name)),
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
            "Vpc": {"Type": "AWS::EC2::VPC::Id", "Description": "where workers live; the default VPC will do"},
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
        "boundary": boundary_policy(work, name),
        "keeper": keeper_policy(work, name),
        "runner": runner_policy(work, name, list(types)),
    }[which]
    partition = boto3.session.Session().get_partition_for_region(region)
    return json.dumps(resolve_policy(made, partition, region), indent=2) + "\n"


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    """Return a resource of a CloudFormation template."""
    return {"Type": f"AWS::{kind}", "Properties": properties}


def _role(name: str, which: str, services: Sequence[str], policy: Policy) -> dict[str, Any]:
    return resource(
        "IAM::Role",
        RoleName=f"{name}-{which}",
        AssumeRolePolicyDocument=trust_policy(*services),
        PermissionsBoundary=in_template(boundary_arn(name)),
        Policies=[{"PolicyName": "harness", "PolicyDocument": in_template(policy)}],
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
    document = in_template(bucket_policy(work))
    guard = resource("S3::BucketPolicy", Bucket={"Ref": "Bucket"}, PolicyDocument=document)
    keep = {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain", "Condition": "MakesBucket"}
    return {"Bucket": made | keep, "BucketPolicy": guard | keep}


def _at(connections: Connections, region: str) -> Connections:
    return connections if connections.region == region else Connections(region)


def _is_ours(connections: Connections, bucket: str) -> bool | None:
    """Return whether harness made a bucket; ``None``: it does not exist."""
    with ignoring("NoSuchBucket"):
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


def _boundary(connections: Connections, work: S3Uri, region: str) -> None:
    """Make the boundary where it is missing, which the keeper may not."""
    name, client = f"{stack_name(work, region)}-boundary", connections.client("iam")
    with aws_errors("asking AWS which account this is"):
        caller = connections.client("sts").get_caller_identity()
    partition, account = caller["Arn"].split(":")[1], caller["Account"]
    with ignoring("NoSuchEntity"), aws_errors(f"looking for the policy {name}"):
        client.get_policy(PolicyArn=f"arn:{partition}:iam::{account}:policy/{name}")
        return
    document = resolve_policy(boundary_policy(work, stack_name(work, region)), partition, region, account)
    with aws_errors(f"making the policy {name}, which takes an administrator"):
        arn = client.create_policy(PolicyName=name, PolicyDocument=json.dumps(document))["Policy"]["Arn"]
        client.get_waiter("policy_exists").wait(PolicyArn=arn)
    log.info(f"made: policy {name}")


def _refuse_alive(connections: Connections, work: S3Uri, owner: str, region: str) -> None:
    """Refuse while workers of any region or user need the bucket."""
    living, failed = instances.search_regions(connections, partial(instances.alive, connections))
    for unseen in failed:
        if not unseen.denied or unseen.region == region:
            raise AwsError(f"whether instances are alive in {unseen}; nothing was removed", "Unseen")
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


def trust_policy(*services: str) -> Policy:
    """Return the trust policy of a role of these services."""
    return _document({"Effect": "Allow", "Principal": {"Service": list(services)}, "Action": "sts:AssumeRole"})


def worker_policy(work: S3Uri) -> Policy:
    """Let a worker read inputs and write its own folder.

    ``aws:userid`` is ``<role id>:<instance or task id>``.  A worker may not
    list, so S3 answers 403 for a missing object.
    """
    read = [_s3(work, work.key(name, "*")) for name in ("inputs", records.RUNS)]
    own = _s3(work, f"{work.key(records.WORKERS)}/${{aws:userid}}/*")
    return _document(
        _allow("ReadInputsAndRuns", "s3", "GetObject", read, _OWN_ACCOUNT),
        _allow("WriteItsOwnFolder", "s3", "PutObject", own, _OWN_ACCOUNT),
    )


def host_policy(agent_image: str | None) -> Policy:
    """Let Batch's hosts work for ECS, and fetch the agents' image.

    ``agent_image``: ``None`` is any image, for the boundary.
    """
    agent = "DeregisterContainerInstance DiscoverPollEndpoint Poll RegisterContainerInstance StartTelemetrySession"
    statements = [
        _allow("Cluster", "ecs", f"{agent} Submit* UpdateContainerInstancesState"),
        _allow("ClusterTags", "ec2", "DescribeTags"),
        _allow("JobLogs", "logs", "CreateLogStream PutLogEvents", _arn("logs", "log-group:/aws/batch/job:*")),
    ]
    image = _ECR.match(agent_image) if agent_image is not None else None
    if agent_image is None or image:
        name = f"{image['region']}:{image['account']}:repository/{image['name']}" if image else "*:*:repository/*"
        fetch = "BatchCheckLayerAvailability BatchGetImage GetDownloadUrlForLayer"
        statements += [
            _allow("RegistryLogin", "ecr", "GetAuthorizationToken"),
            _allow("AgentImage", "ecr", fetch, f"{_ARN}:ecr:{name}"),
        ]
    return _document(*statements)


def reaper_policy(name: str) -> Policy:
    """Let the reaper see instances, end those of harness, write its log."""
    log = _arn("logs", f"log-group:/aws/lambda/{name}-reaper")
    return _document(
        _allow("FindWorkers", "ec2", "DescribeInstances"),
        _allow("EndWorkers", "ec2", "TerminateInstances", _ec2("instance"), _OURS),
        _allow("Log", "logs", "CreateLogGroup CreateLogStream PutLogEvents", [log, f"{log}:*"]),
    )


def boundary_policy(work: S3Uri, name: str) -> Policy:
    """Return the most that any role of a work place may do."""
    roles = (worker_policy(work), host_policy(None), reaper_policy(name))
    return _document(*(statement for role in roles for statement in role["Statement"]))


def boundary_arn(name: str) -> str:
    """Return the ARN of the boundary of an account stack."""
    return f"{_IAM}:policy/{name}-boundary"


def bucket_policy(work: S3Uri) -> Policy:
    """Refuse requests without TLS to a bucket that harness made."""
    plain = {"Bool": {"aws:SecureTransport": "false"}}
    both = [_s3(work), _s3(work, "*")]
    return _document({**_allow("TlsAlone", "s3", "*", both, plain), "Effect": "Deny", "Principal": "*"})


def runner_policy(work: S3Uri, name: str, instance_types: Any, security_group: str = "*") -> Policy:
    """Let a user run suites, look, end, and deploy suite stacks.

    Nothing here changes what a role may do; of IAM there is ``PassRole`` on the worker's and the hosts' role.
    ``instance_types`` is a list, or a reference in a template; workers have no other security group.
    """
    look = "DescribeImages DescribeInstanceTypeOfferings DescribeInstances DescribeLaunchTemplateVersions"
    look += " DescribeLaunchTemplates DescribeRegions DescribeSubnets DescribeVolumes GetConsoleOutput"
    jobs = "DescribeComputeEnvironments DescribeJobDefinitions DescribeJobQueues DescribeJobs ListJobs"
    manage = "CreateComputeEnvironment CreateJobQueue DeleteComputeEnvironment DeleteJobQueue DeregisterJobDefinition"
    manage += " RegisterJobDefinition SubmitJob TagResource UntagResource UpdateComputeEnvironment UpdateJobQueue"
    batch = [_arn("batch", f"{kind}/harness-*") for kind in ("compute-environment", "job-definition", "job-queue")]
    request = {f"aws:RequestTag/{tag}": "*" for tag in (clients.OWNER, clients.EXPIRY)}
    planned = {"StringLike": request, "StringEquals": {"ec2:InstanceType": instance_types}}
    owned = {"StringLike": {f"aws:RequestTag/{clients.OWNER}": "*"}}
    beside = [_ec2(kind) for kind in ("network-interface", "spot-instances-request", "subnet")]
    beside += [f"{_ARN}:ec2:*::image/*", _arn("ec2", f"security-group/{security_group}")]
    objects, inputs = _s3(work, work.key("*")), _s3(work, work.key(records.INPUTS, "*"))
    runs = [_s3(work, work.key(name, "*")) for name in (records.RUNS, records.OPEN)]
    once = {**_OWN_ACCOUNT, "Null": {"s3:if-none-match": "false"}}
    # Parts of an upload make no object yet: its last request does, which is conditional.
    parts = {**_OWN_ACCOUNT, "Bool": {"s3:ObjectCreationOperation": "false"}}
    templates = _ec2("launch-template")
    return _document(
        _allow("Look", "ec2", look),
        _allow("LookAtBatch", "batch", jobs),
        _allow("LookAtImages", "ssm", "GetParameter", f"{_ARN}:ssm:*::parameter/aws/service/*"),
        _allow("LookAtTheReaper", "events", "DescribeRule", _arn("events", f"rule/{name}-reaper")),
        # Without a name, as `harness batch ls` asks, CloudFormation takes no resource.
        _allow("LookAtStacks", "cloudformation", "DescribeStacks"),
        _allow("LaunchWorkers", "ec2", "RunInstances", _ec2("instance"), planned),
        _allow("LaunchTheirDisks", "ec2", "RunInstances", _ec2("volume"), owned),
        _allow("LaunchWith", "ec2", "RunInstances", beside),
        _allow_tags("RunInstances", "CreateLaunchTemplate"),
        _allow("EndWorkers", "ec2", "DeleteVolume TerminateInstances", "*", _OURS),
        _allow_pass_role("WorkersRole", f"{name}-worker", "ec2.amazonaws.com", "ecs-tasks.amazonaws.com"),
        _allow_pass_role("HostsRole", f"{name}-host", "batch.amazonaws.com", "ec2.amazonaws.com"),
        _allow("ReadWorkPlace", "s3", "GetObject ListBucket", [_s3(work), objects], _OWN_ACCOUNT),
        _allow("WriteRuns", "s3", "DeleteObject PutObject", runs, _OWN_ACCOUNT),
        # What workers fetch: nobody replaces or deletes the object of another.
        _allow("WriteInputsOnce", "s3", "PutObject", inputs, once),
        _allow("WriteInputsInParts", "s3", "PutObject", inputs, parts),
        _allow("SuiteStacks", "cloudformation", _STACKS, _arn("cloudformation", "stack/harness-*/*")),
        _allow("Batch", "batch", manage, batch),
        # Batch has no word for "at submission": who submits jobs with tags may tag jobs.
        _allow("TagJobs", "batch", "TagResource", _arn("batch", "job/*"), owned),
        _allow("EndJobs", "batch", "TerminateJob", _arn("batch", "job/*"), _OURS),
        _allow("MakeLaunchTemplates", "ec2", "CreateLaunchTemplate", templates),
        _allow("LaunchTemplates", "ec2", "CreateLaunchTemplateVersion DeleteLaunchTemplate", templates, _OURS),
    )


def keeper_policy(work: S3Uri, name: str) -> Policy:
    """Let a user deploy and remove the account stack, within the boundary.

    The boundary itself, and the runner's policy once it is attached to somebody, are an administrator's to change.
    """
    roles, arn = f"{_IAM}:role/{name}-*", boundary_arn(name)
    held = {"StringLike": {"iam:PermissionsBoundary": arn}}
    linked = [f"{_IAM}:role/aws-service-role/{service}/*" for service in LINKED]
    role = "DeleteRole GetRole GetRolePolicy ListAttachedRolePolicies ListRolePolicies TagRole UpdateAssumeRolePolicy"
    profile = "AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile GetInstanceProfile"
    profile += " RemoveRoleFromInstanceProfile TagInstanceProfile"
    policy = "CreatePolicy DeletePolicy DeletePolicyVersion GetPolicy ListPolicyVersions"
    function = "AddPermission CreateFunction DeleteFunction GetFunction RemovePermission TagResource"
    function += " UpdateFunctionCode UpdateFunctionConfiguration"
    rule = "DeleteRule DescribeRule ListTargetsByRule PutRule PutTargets RemoveTargets TagResource"
    buckets = "DeleteBucket DeleteBucketPolicy GetBucketTagging ListBucket PutBucketPolicy"
    buckets += " PutBucketPublicAccessBlock PutBucketTagging PutEncryptionConfiguration PutLifecycleConfiguration"
    return _document(
        _allow("Look", "ec2", "DescribeInstances DescribeRegions DescribeSecurityGroups DescribeSubnets DescribeVpcs"),
        _allow("AccountStack", "cloudformation", _STACKS, _arn("cloudformation", "stack/ir-harness-*/*")),
        _allow("RolesWithinTheBoundary", "iam", "CreateRole DeleteRolePolicy PutRolePolicy", roles, held),
        _allow("Roles", "iam", role, roles),
        _allow("Profiles", "iam", profile, f"{_IAM}:instance-profile/{name}-*"),
        _allow_pass_role("GiveRoles", f"{name}-*", "ec2.amazonaws.com", "lambda.amazonaws.com"),
        _allow("RunnersPolicy", "iam", policy, f"{_IAM}:policy/{name}-runner"),
        _allow("SeeTheBoundary", "iam", "GetPolicy", arn),
        _allow("RolesOfServices", "iam", "CreateServiceLinkedRole", linked),
        _allow("Reaper", "lambda", function, _arn("lambda", f"function:{name}-*")),
        _allow("ReapersClock", "events", rule, _arn("events", f"rule/{name}-*")),
        _allow("MakeTheSecurityGroup", "ec2", "CreateSecurityGroup"),
        _allow("RemoveTheSecurityGroup", "ec2", "DeleteSecurityGroup", "*", _OURS),
        _allow_tags("CreateSecurityGroup"),
        _allow("MakeTheWorkPlace", "s3", "CreateBucket", _s3(work)),
        _allow("WorkPlace", "s3", buckets, _s3(work), _OWN_ACCOUNT),
        _allow("WorkPlaceObjects", "s3", "DeleteObject", _s3(work, work.key("*")), _OWN_ACCOUNT),
    )


def in_template(value: Any) -> Any:
    """Return a policy for a template: CloudFormation substitutes its own variables."""
    if isinstance(value, dict):
        return {key: in_template(part) for key, part in value.items()}
    if isinstance(value, list):
        return [in_template(part) for part in value]
    if isinstance(value, str) and "${AWS::" in value:
        return {"Fn::Sub": value.replace("${aws:", "${!aws:")}
    return value


def resolve_policy(policy: Policy, partition: str, region: str, account: str = "*") -> Policy:
    """Return a policy for people and IAM's API."""
    text = json.dumps(policy)
    for name, value in (("Partition", partition), ("Region", region), ("AccountId", account)):
        text = text.replace(f"${{AWS::{name}}}", value)
    return dict(json.loads(text))


def _document(*statements: Policy) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(
    sid: str, service: str, actions: str, resource: str | list[str] = "*", condition: Policy | None = None
) -> Policy:
    named = [f"{service}:{action}" for action in actions.split()]
    statement = {"Sid": sid, "Effect": "Allow", "Action": named, "Resource": resource}
    return statement | ({"Condition": condition} if condition else {})


def _allow_tags(*makers: str) -> Policy:
    """Allow tags at creation alone: they say what may be ended."""
    return _allow("TagWhatIsMade", "ec2", "CreateTags", "*", {"StringEquals": {"ec2:CreateAction": list(makers)}})


def _allow_pass_role(sid: str, role: str, *services: str) -> Policy:
    condition = {"StringEquals": {"iam:PassedToService": list(services)}}
    return _allow(sid, "iam", "PassRole", f"{_IAM}:role/{role}", condition)


def _arn(service: str, name: str) -> str:
    return f"{_ARN}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{name}"


def _s3(work: S3Uri, key: str = "") -> str:
    return f"{_ARN}:s3:::{work.bucket}{f'/{key}' if key else ''}"


def _ec2(kind: str) -> str:
    return f"{_ARN}:ec2:*:*:{kind}/*"
