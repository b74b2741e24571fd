"""IAM policies: the three roles, their boundary, who runs and who sets up.  Made here and nowhere else.

``${AWS::Partition}`` and the like are CloudFormation's (:func:`in_template`, :func:`printed`); ``${aws:userid}`` and
``${aws:PrincipalAccount}`` are IAM's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from harness.aws import tags
from harness.aws.client import S3Uri
from harness.remote import layout

Policy = dict[str, Any]
# IAM's limit for a managed policy, whitespace not counted.
MANAGED_CHARACTERS = 6144
_ARN = "arn:${AWS::Partition}"
_HERE = "${AWS::Region}:${AWS::AccountId}"
_IAM = f"{_ARN}:iam::${{AWS::AccountId}}"
_OURS = {"StringLike": {f"aws:ResourceTag/{tags.OWNER}": "*"}}
# A bucket of the same name in another account gets and gives nothing.
_OWN_ACCOUNT = {"StringEquals": {"aws:ResourceAccount": "${aws:PrincipalAccount}"}}
_ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<name>[^:@]+)")
# Services whose own roles an account gets with its first box, spot box or compute environment.
LINKED = ("batch.amazonaws.com", "ecs.amazonaws.com", "spot.amazonaws.com")


def trust(*services: str) -> Policy:
    """Return who may take a role: these services."""
    return _policy([{"Effect": "Allow", "Principal": {"Service": list(services)}, "Action": "sts:AssumeRole"}])


def worker(work: S3Uri) -> Policy:
    """Let a box read what is shipped and write its own folder.

    ``aws:userid`` is ``<role id>:<instance or task id>``.  A box lists nothing, so S3 answers 403 for a missing object.
    """
    own = f"{work.key('boxes')}/${{aws:userid}}/*"
    read = [_s3(work, work.key(name, "*")) for name in ("inputs", layout.RUNS)]
    return _policy(
        [
            _allow("ReadInputsAndRuns", "s3", ["GetObject"], read, _OWN_ACCOUNT),
            _allow("WriteItsOwnFolder", "s3", ["PutObject"], _s3(work, own), _OWN_ACCOUNT),
        ]
    )


def host(agent_image: str | None) -> Policy:
    """Let the ECS agent on Batch's hosts do its part, and fetch the agents' image where that is in ECR.

    Args:
        agent_image: the image; ``None``: any of the region's registries, for the boundary.
    """
    agent = ["DeregisterContainerInstance", "DiscoverPollEndpoint", "Poll", "RegisterContainerInstance"]
    agent += ["StartTelemetrySession", "Submit*", "UpdateContainerInstancesState"]
    logs = f"{_ARN}:logs:{_HERE}:log-group:/aws/batch/job:*"
    statements = [
        _allow("Cluster", "ecs", agent),
        _allow("ClusterTags", "ec2", ["DescribeTags"]),
        _allow("JobLogs", "logs", ["CreateLogStream", "PutLogEvents"], logs),
    ]
    found = _ECR.match(agent_image) if agent_image is not None else None
    if agent_image is None or found:
        name = f"{found['region']}:{found['account']}:repository/{found['name']}" if found else "*:*:repository/*"
        fetch = ["BatchCheckLayerAvailability", "BatchGetImage", "GetDownloadUrlForLayer"]
        statements += [
            _allow("RegistryLogin", "ecr", ["GetAuthorizationToken"]),
            _allow("AgentImage", "ecr", fetch, f"{_ARN}:ecr:{name}"),
        ]
    return _policy(statements)


def reaper(name: str) -> Policy:
    """Let the function that ends late boxes see instances, end those of harness, and write its log."""
    log = f"{_ARN}:logs:{_HERE}:log-group:/aws/lambda/{name}-reaper"
    return _policy(
        [
            _allow("FindBoxes", "ec2", ["DescribeInstances"]),
            _allow("EndBoxes", "ec2", ["TerminateInstances"], _ec2("instance"), _OURS),
            _allow("Log", "logs", ["CreateLogGroup", "CreateLogStream", "PutLogEvents"], [log, f"{log}:*"]),
        ]
    )


def boundary(work: S3Uri, name: str) -> Policy:
    """Return the most that any role of a work place may ever do, whoever writes its policy."""
    parts = (worker(work), host(None), reaper(name))
    return _policy([statement for part in parts for statement in part["Statement"]])


def bucket(work: S3Uri) -> Policy:
    """Return the policy of a bucket that harness made: it refuses requests without TLS."""
    return _policy(
        [
            {
                "Sid": "TlsAlone",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [_s3(work), _s3(work, "*")],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ]
    )


def runner(work: S3Uri, name: str, instance_types: Any, security_group: str = "*") -> Policy:
    """Let a user run suites on EC2 and Batch, look, end, and deploy a suite's Batch stack.

    Nothing here changes what a role may do; of IAM there is ``PassRole`` on the worker's and the hosts' role.

    Args:
        work: the work place.
        name: of the account stack.
        instance_types: that boxes may be of: a list, or a reference in a template.
        security_group: the only one that boxes may have.
    """
    look = ["Images", "InstanceTypeOfferings", "Instances", "LaunchTemplateVersions", "LaunchTemplates", "Regions"]
    look += ["Subnets", "Volumes"]
    batch_look = [f"Describe{each}" for each in ("ComputeEnvironments", "JobDefinitions", "JobQueues", "Jobs")]
    kinds = ("compute-environment", "job-queue", "job-definition")
    manage = [f"{verb}{each}" for each in ("ComputeEnvironment", "JobQueue") for verb in ("Create", "Delete", "Update")]
    manage += ["DeregisterJobDefinition", "RegisterJobDefinition", "SubmitJob", "TagResource", "UntagResource"]
    request = {f"aws:RequestTag/{tag}": "*" for tag in (tags.OWNER, tags.EXPIRY)}
    planned = {"StringLike": request, "StringEquals": {"ec2:InstanceType": instance_types}}
    owned = {"StringLike": {f"aws:RequestTag/{tags.OWNER}": "*"}}
    stacks = _stacks("harness-*")
    return _policy(
        [
            _allow("Look", "ec2", [*(f"Describe{each}" for each in look), "GetConsoleOutput"]),
            _allow("LookAtBatch", "batch", [*batch_look, "ListJobs"]),
            _allow("LookAtQuotas", "servicequotas", ["GetAWSDefaultServiceQuota", "GetServiceQuota"]),
            _allow("LookAtImages", "ssm", ["GetParameter"], f"{_ARN}:ssm:*::parameter/aws/service/*"),
            _allow("LookAtTheReaper", "events", ["DescribeRule"], f"{_ARN}:events:{_HERE}:rule/{name}-reaper"),
            # Without a name, as `harness batch ls` asks, CloudFormation takes no resource.
            _allow("LookAtStacks", "cloudformation", ["DescribeStacks"]),
            _allow("LaunchBoxes", "ec2", ["RunInstances"], _ec2("instance"), planned),
            _allow("LaunchTheirDisks", "ec2", ["RunInstances"], _ec2("volume"), owned),
            _allow(
                "LaunchWith",
                "ec2",
                ["RunInstances"],
                [
                    f"{_ARN}:ec2:*::image/*",
                    *(_ec2(kind) for kind in ("network-interface", "spot-instances-request", "subnet")),
                    f"{_ARN}:ec2:{_HERE}:security-group/{security_group}",
                ],
            ),
            _tagging("RunInstances", "CreateLaunchTemplate"),
            _allow("EndBoxes", "ec2", ["DeleteVolume", "TerminateInstances"], "*", _OURS),
            _passing("BoxesRole", f"{name}-worker", "ec2.amazonaws.com", "ecs-tasks.amazonaws.com"),
            _passing("HostsRole", f"{name}-host", "batch.amazonaws.com", "ec2.amazonaws.com"),
            _allow("WorkPlace", "s3", ["ListBucket"], _s3(work), _OWN_ACCOUNT),
            _allow(
                "WorkPlaceObjects",
                "s3",
                ["DeleteObject", "GetObject", "PutObject"],
                _s3(work, work.key("*")),
                _OWN_ACCOUNT,
            ),
            _allow("SuiteStacks", "cloudformation", [each for each in _STACKS if each != "DescribeStacks"], stacks),
            _allow("Batch", "batch", manage, [f"{_ARN}:batch:{_HERE}:{kind}/harness-*" for kind in kinds]),
            # Batch has no word for "at submission": who submits with tags may tag jobs.
            _allow("TagJobs", "batch", ["TagResource"], f"{_ARN}:batch:{_HERE}:job/*", owned),
            _allow("EndJobs", "batch", ["TerminateJob"], f"{_ARN}:batch:{_HERE}:job/*", _OURS),
            _allow("MakeLaunchTemplates", "ec2", ["CreateLaunchTemplate"], _ec2("launch-template")),
            _allow(
                "LaunchTemplates",
                "ec2",
                ["CreateLaunchTemplateVersion", "DeleteLaunchTemplate"],
                _ec2("launch-template"),
                _OURS,
            ),
        ]
    )


def keeper(work: S3Uri, name: str) -> Policy:
    """Let a user deploy and remove the account stack, with roles that the boundary holds.

    The boundary itself, and the runner's policy once it is attached to somebody, are an administrator's to change.
    """
    roles, profiles = f"{_IAM}:role/{name}-*", f"{_IAM}:instance-profile/{name}-*"
    held = {"StringLike": {"iam:PermissionsBoundary": f"{_IAM}:policy/{name}-boundary"}}
    runners = f"{_IAM}:policy/{name}-runner"
    linked = [f"{_IAM}:role/aws-service-role/{each}/*" for each in LINKED]
    buckets = ["DeleteBucket", "DeleteBucketPolicy", "GetBucketTagging", "ListBucket"]
    buckets += ["PutBucketPolicy", "PutBucketPublicAccessBlock", "PutBucketTagging", "PutEncryptionConfiguration"]
    buckets += ["PutLifecycleConfiguration"]
    profile = ["AddRoleToInstanceProfile", "CreateInstanceProfile", "DeleteInstanceProfile", "GetInstanceProfile"]
    profile += ["RemoveRoleFromInstanceProfile", "TagInstanceProfile"]
    function = ["AddPermission", "CreateFunction", "DeleteFunction", "GetFunction", "RemovePermission", "TagResource"]
    function += ["UpdateFunctionCode", "UpdateFunctionConfiguration"]
    rule = ["DeleteRule", "DescribeRule", "ListTargetsByRule", "PutRule", "PutTargets", "RemoveTargets", "TagResource"]
    look = [f"Describe{each}" for each in ("Instances", "Regions", "SecurityGroups", "Subnets", "Vpcs")]
    role = ["DeleteRole", "GetRole", "GetRolePolicy", "ListAttachedRolePolicies", "ListRolePolicies", "TagRole"]
    return _policy(
        [
            _allow("Look", "ec2", look),
            _allow("AccountStack", "cloudformation", _STACKS, _stacks("ir-harness-*")),
            _allow("RolesWithinTheBoundary", "iam", ["CreateRole", "DeleteRolePolicy", "PutRolePolicy"], roles, held),
            _allow("Roles", "iam", [*role, "UpdateAssumeRolePolicy"], roles),
            _allow("Profiles", "iam", profile, profiles),
            _passing("GiveRoles", f"{name}-*", "ec2.amazonaws.com", "lambda.amazonaws.com"),
            _allow(
                "RunnersPolicy",
                "iam",
                ["CreatePolicy", "DeletePolicy", "DeletePolicyVersion", "GetPolicy", "ListPolicyVersions"],
                runners,
            ),
            _allow("SeeTheBoundary", "iam", ["GetPolicy"], f"{_IAM}:policy/{name}-boundary"),
            _allow("RolesOfServices", "iam", ["CreateServiceLinkedRole"], linked),
            _allow("Reaper", "lambda", function, f"{_ARN}:lambda:{_HERE}:function:{name}-*"),
            _allow("ReapersClock", "events", rule, f"{_ARN}:events:{_HERE}:rule/{name}-*"),
            _allow("MakeTheSecurityGroup", "ec2", ["CreateSecurityGroup"]),
            _allow("RemoveTheSecurityGroup", "ec2", ["DeleteSecurityGroup"], "*", _OURS),
            _tagging("CreateSecurityGroup"),
            _allow("MakeTheWorkPlace", "s3", ["CreateBucket"], _s3(work)),
            _allow("WorkPlace", "s3", buckets, _s3(work), _OWN_ACCOUNT),
            _allow("WorkPlaceObjects", "s3", ["DeleteObject"], _s3(work, work.key("*")), _OWN_ACCOUNT),
        ]
    )


def in_template(value: Any) -> Any:
    """Return a policy as CloudFormation takes it: its own variables substituted, IAM's left."""
    return _strings(value, lambda text: {"Fn::Sub": text.replace("${aws:", "${!aws:")} if "${AWS::" in text else text)


def printed(policy: Policy, partition: str, region: str, account: str = "*") -> Policy:
    """Return a policy for people and IAM's API; without an account, of any."""
    values = {"${AWS::Partition}": partition, "${AWS::Region}": region, "${AWS::AccountId}": account}

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    return dict(_strings(policy, fill))


def _strings(value: Any, change: Any) -> Any:
    if isinstance(value, dict):
        return {key: inner if key == "Ref" else _strings(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_strings(each, change) for each in value]
    return change(value) if isinstance(value, str) else value


_STACKS = ["CreateStack", "DeleteStack", "DescribeStackEvents", "DescribeStacks", "TagResource", "UpdateStack"]


def _stacks(name: str) -> str:
    return f"{_ARN}:cloudformation:{_HERE}:stack/{name}/*"


def _policy(statements: list[Policy]) -> Policy:
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(
    sid: str,
    service: str,
    actions: Sequence[str],
    resource: str | list[str] = "*",
    condition: Policy | None = None,
) -> Policy:
    statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": [f"{service}:{each}" for each in actions],
        "Resource": resource,
    }
    return {**statement, **({"Condition": condition} if condition else {})}


def _tagging(*makers: str) -> Policy:
    """Allow tags on what is being made, and on nothing that exists: they say what may be ended."""
    return _allow("TagWhatIsMade", "ec2", ["CreateTags"], "*", {"StringEquals": {"ec2:CreateAction": list(makers)}})


def _passing(sid: str, role: str, *services: str) -> Policy:
    return _allow(
        sid, "iam", ["PassRole"], f"{_IAM}:role/{role}", {"StringEquals": {"iam:PassedToService": list(services)}}
    )


def _s3(work: S3Uri, key: str = "") -> str:
    return f"{_ARN}:s3:::{work.bucket}{f'/{key}' if key else ''}"


def _ec2(kind: str) -> str:
    return f"{_ARN}:ec2:*:*:{kind}/*"
