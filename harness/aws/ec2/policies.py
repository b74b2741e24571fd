"""IAM policies: three roles, their boundary, who runs, who sets up.

``${AWS::Partition}`` and the like are CloudFormation's (:func:`in_template`, :func:`printed`); ``${aws:userid}`` and
``${aws:PrincipalAccount}`` are IAM's own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from harness.aws import clients
from harness.aws.clients import S3Uri
from harness.aws.cloud_run import records

Policy = dict[str, Any]
_ARN = "arn:${AWS::Partition}"
_IAM = f"{_ARN}:iam::${{AWS::AccountId}}"
_OURS = {"StringLike": {f"aws:ResourceTag/{clients.OWNER}": "*"}}
_STACKS = "CreateStack DeleteStack DescribeStackEvents DescribeStacks TagResource UpdateStack"
# A bucket of the same name in another account gets and gives nothing.
_OWN_ACCOUNT = {"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}}
_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<name>[^:@]+)")
# Services whose own roles boxes, spot boxes and compute environments need.
LINKED = ("batch.amazonaws.com", "ecs.amazonaws.com", "spot.amazonaws.com")


def trust(*services: str) -> Policy:
    """Return who may take a role: these services."""
    return _policy({"Effect": "Allow", "Principal": {"Service": list(services)}, "Action": "sts:AssumeRole"})


def worker(work: S3Uri) -> Policy:
    """Let a box read what is shipped and write its own folder.

    ``aws:userid`` is ``<role id>:<instance or task id>``.  A box lists nothing, so S3 answers 403 for a missing object.
    """
    read = [_s3(work, work.key(name, "*")) for name in ("inputs", records.RUNS)]
    own = _s3(work, f"{work.key('boxes')}/${{aws:userid}}/*")
    return _policy(
        _allow("ReadInputsAndRuns", "s3", "GetObject", read, _OWN_ACCOUNT),
        _allow("WriteItsOwnFolder", "s3", "PutObject", own, _OWN_ACCOUNT),
    )


def host(agent_image: str | None) -> Policy:
    """Let Batch's hosts work for ECS, and fetch the agents' image.

    ``agent_image``: ``None`` is any image, for the boundary.
    """
    agent = "DeregisterContainerInstance DiscoverPollEndpoint Poll RegisterContainerInstance StartTelemetrySession"
    statements = [
        _allow("Cluster", "ecs", f"{agent} Submit* UpdateContainerInstancesState"),
        _allow("ClusterTags", "ec2", "DescribeTags"),
        _allow("JobLogs", "logs", "CreateLogStream PutLogEvents", _arn("logs", "log-group:/aws/batch/job:*")),
    ]
    found = _ECR.match(agent_image) if agent_image is not None else None
    if agent_image is None or found:
        name = f"{found['region']}:{found['account']}:repository/{found['name']}" if found else "*:*:repository/*"
        fetch = "BatchCheckLayerAvailability BatchGetImage GetDownloadUrlForLayer"
        statements += [
            _allow("RegistryLogin", "ecr", "GetAuthorizationToken"),
            _allow("AgentImage", "ecr", fetch, f"{_ARN}:ecr:{name}"),
        ]
    return _policy(*statements)


def reaper(name: str) -> Policy:
    """Let the reaper see instances, end those of harness, write its log."""
    log = _arn("logs", f"log-group:/aws/lambda/{name}-reaper")
    return _policy(
        _allow("FindBoxes", "ec2", "DescribeInstances"),
        _allow("EndBoxes", "ec2", "TerminateInstances", _ec2("instance"), _OURS),
        _allow("Log", "logs", "CreateLogGroup CreateLogStream PutLogEvents", [log, f"{log}:*"]),
    )


def boundary(work: S3Uri, name: str) -> Policy:
    """Return the most that any role of a work place may do."""
    return _policy(*(each for part in (worker(work), host(None), reaper(name)) for each in part["Statement"]))


def boundary_arn(name: str) -> str:
    """Return the ARN of the boundary of an account stack."""
    return f"{_IAM}:policy/{name}-boundary"


def bucket(work: S3Uri) -> Policy:
    """Refuse requests without TLS to a bucket that harness made."""
    plain = {"Bool": {"aws:SecureTransport": "false"}}
    both = [_s3(work), _s3(work, "*")]
    return _policy({**_allow("TlsAlone", "s3", "*", both, plain), "Effect": "Deny", "Principal": "*"})


def runner(work: S3Uri, name: str, instance_types: Any, security_group: str = "*") -> Policy:
    """Let a user run suites, look, end, and deploy suite stacks.

    Nothing here changes what a role may do; of IAM there is ``PassRole`` on the worker's and the hosts' role.
    ``instance_types`` is a list, or a reference in a template; boxes have no other security group.
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
    objects, templates = _s3(work, work.key("*")), _ec2("launch-template")
    return _policy(
        _allow("Look", "ec2", look),
        _allow("LookAtBatch", "batch", jobs),
        _allow("LookAtImages", "ssm", "GetParameter", f"{_ARN}:ssm:*::parameter/aws/service/*"),
        _allow("LookAtTheReaper", "events", "DescribeRule", _arn("events", f"rule/{name}-reaper")),
        # Without a name, as `harness batch ls` asks, CloudFormation takes no resource.
        _allow("LookAtStacks", "cloudformation", "DescribeStacks"),
        _allow("LaunchBoxes", "ec2", "RunInstances", _ec2("instance"), planned),
        _allow("LaunchTheirDisks", "ec2", "RunInstances", _ec2("volume"), owned),
        _allow("LaunchWith", "ec2", "RunInstances", beside),
        _tag("RunInstances", "CreateLaunchTemplate"),
        _allow("EndBoxes", "ec2", "DeleteVolume TerminateInstances", "*", _OURS),
        _pass("BoxesRole", f"{name}-worker", "ec2.amazonaws.com", "ecs-tasks.amazonaws.com"),
        _pass("HostsRole", f"{name}-host", "batch.amazonaws.com", "ec2.amazonaws.com"),
        _allow("WorkPlace", "s3", "ListBucket", _s3(work), _OWN_ACCOUNT),
        _allow("WorkPlaceObjects", "s3", "DeleteObject GetObject PutObject", objects, _OWN_ACCOUNT),
        _allow("SuiteStacks", "cloudformation", _STACKS, _arn("cloudformation", "stack/harness-*/*")),
        _allow("Batch", "batch", manage, batch),
        # Batch has no word for "at submission": who submits jobs with tags may tag jobs.
        _allow("TagJobs", "batch", "TagResource", _arn("batch", "job/*"), owned),
        _allow("EndJobs", "batch", "TerminateJob", _arn("batch", "job/*"), _OURS),
        _allow("MakeLaunchTemplates", "ec2", "CreateLaunchTemplate", templates),
        _allow("LaunchTemplates", "ec2", "CreateLaunchTemplateVersion DeleteLaunchTemplate", templates, _OURS),
    )


def keeper(work: S3Uri, name: str) -> Policy:
    """Let a user deploy and remove the account stack, within the boundary.

    The boundary itself, and the runner's policy once it is attached to somebody, are an administrator's to change.
    """
    roles, arn = f"{_IAM}:role/{name}-*", boundary_arn(name)
    held = {"StringLike": {"iam:PermissionsBoundary": arn}}
    linked = [f"{_IAM}:role/aws-service-role/{each}/*" for each in LINKED]
    role = "DeleteRole GetRole GetRolePolicy ListAttachedRolePolicies ListRolePolicies TagRole UpdateAssumeRolePolicy"
    profile = "AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile GetInstanceProfile"
    profile += " RemoveRoleFromInstanceProfile TagInstanceProfile"
    policy = "CreatePolicy DeletePolicy DeletePolicyVersion GetPolicy ListPolicyVersions"
    function = "AddPermission CreateFunction DeleteFunction GetFunction RemovePermission TagResource"
    function += " UpdateFunctionCode UpdateFunctionConfiguration"
    rule = "DeleteRule DescribeRule ListTargetsByRule PutRule PutTargets RemoveTargets TagResource"
    buckets = "DeleteBucket DeleteBucketPolicy GetBucketTagging ListBucket PutBucketPolicy"
    buckets += " PutBucketPublicAccessBlock PutBucketTagging PutEncryptionConfiguration PutLifecycleConfiguration"
    return _policy(
        _allow("Look", "ec2", "DescribeInstances DescribeRegions DescribeSecurityGroups DescribeSubnets DescribeVpcs"),
        _allow("AccountStack", "cloudformation", _STACKS, _arn("cloudformation", "stack/ir-harness-*/*")),
        _allow("RolesWithinTheBoundary", "iam", "CreateRole DeleteRolePolicy PutRolePolicy", roles, held),
        _allow("Roles", "iam", role, roles),
        _allow("Profiles", "iam", profile, f"{_IAM}:instance-profile/{name}-*"),
        _pass("GiveRoles", f"{name}-*", "ec2.amazonaws.com", "lambda.amazonaws.com"),
        _allow("RunnersPolicy", "iam", policy, f"{_IAM}:policy/{name}-runner"),
        _allow("SeeTheBoundary", "iam", "GetPolicy", arn),
        _allow("RolesOfServices", "iam", "CreateServiceLinkedRole", linked),
        _allow("Reaper", "lambda", function, _arn("lambda", f"function:{name}-*")),
        _allow("ReapersClock", "events", rule, _arn("events", f"rule/{name}-*")),
        _allow("MakeTheSecurityGroup", "ec2", "CreateSecurityGroup"),
        _allow("RemoveTheSecurityGroup", "ec2", "DeleteSecurityGroup", "*", _OURS),
        _tag("CreateSecurityGroup"),
        _allow("MakeTheWorkPlace", "s3", "CreateBucket", _s3(work)),
        _allow("WorkPlace", "s3", buckets, _s3(work), _OWN_ACCOUNT),
        _allow("WorkPlaceObjects", "s3", "DeleteObject", _s3(work, work.key("*")), _OWN_ACCOUNT),
    )


def in_template(value: Any) -> Any:
    """Return a policy for a template: CloudFormation substitutes its own variables."""
    if isinstance(value, dict):
        return {key: in_template(each) for key, each in value.items()}
    if isinstance(value, list):
        return [in_template(each) for each in value]
    if isinstance(value, str) and "${AWS::" in value:
        return {"Fn::Sub": value.replace("${aws:", "${!aws:")}
    return value


def printed(policy: Policy, partition: str, region: str, account: str = "*") -> Policy:
    """Return a policy for people and IAM's API."""
    text = json.dumps(policy)
    for name, value in (("Partition", partition), ("Region", region), ("AccountId", account)):
        text = text.replace(f"${{AWS::{name}}}", value)
    return dict(json.loads(text))


def _policy(*statements: Policy) -> Policy:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def _allow(
    sid: str, service: str, actions: str, resource: str | list[str] = "*", condition: Policy | None = None
) -> Policy:
    named = [f"{service}:{action}" for action in actions.split()]
    statement = {"Sid": sid, "Effect": "Allow", "Action": named, "Resource": resource}
    return statement | ({"Condition": condition} if condition else {})


def _tag(*makers: str) -> Policy:
    """Allow tags at creation alone: they say what may be ended."""
    return _allow("TagWhatIsMade", "ec2", "CreateTags", "*", {"StringEquals": {"ec2:CreateAction": list(makers)}})


def _pass(sid: str, role: str, *services: str) -> Policy:
    condition = {"StringEquals": {"iam:PassedToService": list(services)}}
    return _allow(sid, "iam", "PassRole", f"{_IAM}:role/{role}", condition)


def _arn(service: str, name: str) -> str:
    return f"{_ARN}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{name}"


def _s3(work: S3Uri, key: str = "") -> str:
    return f"{_ARN}:s3:::{work.bucket}{f'/{key}' if key else ''}"


def _ec2(kind: str) -> str:
    return f"{_ARN}:ec2:*:*:{kind}/*"
