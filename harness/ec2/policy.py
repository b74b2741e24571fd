"""What a box may do, and what the user's own credentials must be allowed: IAM policies, made here and nowhere else."""

from __future__ import annotations

from typing import Any

from harness.aws.uri import S3Uri
from harness.ec2 import tags
from harness.remote import layout

_VERSION = "2012-10-17"
Policy = dict[str, Any]


def trust() -> Policy:
    """Who may take the boxes' role: EC2, for its instances."""
    return {
        "Version": _VERSION,
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }


def box(work: S3Uri, *, claims: bool = False) -> Policy:
    """The boxes' rights: read what is shipped, hand over jobs, ends and indexes once each, and say how it goes.

    What is handed over can be replaced by nobody who has only these: such writes are allowed where S3 is to refuse
    them if something is there.  An index's bytes may come in parts, which know no such condition; its record, which
    says what they must be, is written once.

    Args:
        work: the work place.
        claims: also claim parts, as jobs of Batch do, of which two may be given the same part.
    """
    bucket = f"arn:aws:s3:::{work.bucket}"

    def below(*names: str) -> str:
        return f"{bucket}/{work.key(*names)}"

    def of_runs(folder: str) -> str:
        return below(layout.RUNS, "*", folder, "*")

    once = [layout.JOBS, layout.ENDS, *([layout.CLAIMS] if claims else [])]
    folders = [work.key(name, "*") for name in ("inputs", layout.RUNS)]
    statements: list[Policy] = [
        {
            "Sid": "ReadInputsAndRuns",
            "Action": ["s3:GetObject"],
            "Resource": [below("inputs", "*"), below(layout.RUNS, "*")],
        },
        {
            "Sid": "HandOverOnce",
            "Action": ["s3:PutObject"],
            "Resource": [*(of_runs(each) for each in once), below(layout.INDEXES, "*.json")],
            "Condition": {"Null": {"s3:if-none-match": "false"}},
        },
        {
            "Sid": "SayHowItGoes",
            "Action": ["s3:PutObject"],
            "Resource": [of_runs(layout.BEATS), of_runs(layout.LOGS)],
        },
        {
            "Sid": "BytesOfIndexes",
            "Action": ["s3:PutObject"],
            "Resource": [below(layout.INDEXES, "*.tar.gz")],
        },
        {
            # Without it a missing object is "forbidden", and could not be told from one that may not be read;
            # that question has no prefix, so the condition holds for those that have one.
            "Sid": "SeeWhatIsThere",
            "Action": ["s3:ListBucket"],
            "Resource": [bucket],
            "Condition": {"StringLikeIfExists": {"s3:prefix": folders}},
        },
    ]
    return _policy(statements)


def bucket(work: S3Uri, partition: str = "aws") -> Policy:
    """Return the policy of a bucket that harness made: it refuses requests without TLS."""
    arn = f"arn:{partition}:s3:::{work.bucket}"
    statement = {
        "Sid": "TlsAlone",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [arn, f"{arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return {"Version": _VERSION, "Statement": [statement]}


def _policy(statements: list[Policy]) -> Policy:
    return {
        "Version": _VERSION,
        "Statement": [{"Sid": each["Sid"], "Effect": "Allow", **each} for each in statements],
    }


def runner(work: S3Uri, role: str) -> Policy:
    """What ``harness run --launcher ec2``, ``harness ec2 ls`` and ``reap`` ask of the user's own credentials.

    Nothing here can change what a role may do, and only the boxes' role can be given to an instance.

    Args:
        work: the work place.
        role: the boxes' role and instance profile.
    """
    bucket = f"arn:aws:s3:::{work.bucket}"
    looks = ["Images", "InstanceTypeOfferings", "Instances", "Regions", "SecurityGroups", "Subnets", "Volumes"]
    statements: list[Policy] = [
        {
            "Sid": "Look",
            "Action": [
                *(f"ec2:Describe{each}" for each in looks),
                "ec2:GetConsoleOutput",
                "servicequotas:GetAWSDefaultServiceQuota",
                "servicequotas:GetServiceQuota",
                "ssm:GetParameter",
                "sts:GetCallerIdentity",
            ],
            "Resource": "*",
        },
        {
            "Sid": "LaunchWhatIsOurs",
            "Action": ["ec2:RunInstances"],
            "Resource": [_ec2("instance"), _ec2("volume")],
            "Condition": {"StringLike": {f"aws:RequestTag/{tags.OWNER}": "*"}},
        },
        {
            "Sid": "LaunchWith",
            "Action": ["ec2:RunInstances"],
            "Resource": [
                "arn:aws:ec2:*::image/*",
                *(_ec2(kind) for kind in ("network-interface", "security-group", "spot-instances-request", "subnet")),
            ],
        },
        _tagging("RunInstances"),
        {
            "Sid": "EndWhatIsOurs",
            "Action": ["ec2:TerminateInstances", "ec2:DeleteVolume"],
            "Resource": "*",
            "Condition": _OURS,
        },
        {"Sid": "SeeTheBoxesRole", "Action": ["iam:GetInstanceProfile"], "Resource": [_profile(role)]},
        {
            "Sid": "GiveBoxesTheirRole",
            "Action": ["iam:PassRole"],
            "Resource": [_role(role)],
            "Condition": {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        },
        {
            "Sid": "FirstSpotInstanceOfAnAccount",
            "Action": ["iam:CreateServiceLinkedRole"],
            "Resource": "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*",
        },
        {
            "Sid": "WorkPlace",
            "Action": ["s3:DeleteObject", "s3:GetObject", "s3:ListBucket", "s3:PutObject"],
            "Resource": [bucket, f"{bucket}/*"],
        },
    ]
    return _policy(statements)


def keeper(work: S3Uri, role: str) -> Policy:
    """What ``harness ec2 up`` and ``down`` ask: who has this decides what boxes may do.

    Args:
        work: the work place.
        role: the boxes' role and instance profile.
    """
    bucket = f"arn:aws:s3:::{work.bucket}"
    looks = ["Instances", "Regions", "SecurityGroups", "Subnets"]
    roles = ["AddRoleToInstanceProfile", "CreateInstanceProfile", "CreateRole", "DeleteInstanceProfile", "DeleteRole"]
    roles += ["DeleteRolePolicy", "GetInstanceProfile", "PutRolePolicy", "RemoveRoleFromInstanceProfile"]
    # A role that is added to an instance profile is passed to EC2.
    roles += ["PassRole", "TagInstanceProfile", "TagRole"]
    buckets = ["CreateBucket", "DeleteBucket", "DeleteObject", "GetBucketTagging", "GetLifecycleConfiguration"]
    buckets += ["ListBucket", "PutBucketPolicy", "PutBucketPublicAccessBlock", "PutBucketTagging"]
    buckets += ["PutEncryptionConfiguration", "PutLifecycleConfiguration"]
    statements: list[Policy] = [
        {
            "Sid": "Look",
            "Action": [*(f"ec2:Describe{each}" for each in looks), "sts:GetCallerIdentity"],
            "Resource": "*",
        },
        {"Sid": "MakeTheSecurityGroup", "Action": ["ec2:CreateSecurityGroup"], "Resource": "*"},
        _tagging("CreateSecurityGroup"),
        {
            "Sid": "RemoveTheSecurityGroup",
            "Action": ["ec2:DeleteSecurityGroup"],
            "Resource": "*",
            "Condition": _OURS,
        },
        {
            "Sid": "BoxesRole",
            "Action": [f"iam:{each}" for each in sorted(roles)],
            "Resource": [_role(role), _profile(role)],
        },
        {"Sid": "WorkPlace", "Action": [f"s3:{each}" for each in buckets], "Resource": [bucket, f"{bucket}/*"]},
    ]
    return _policy(statements)


_OURS = {"StringLike": {f"aws:ResourceTag/{tags.OWNER}": "*"}}


def _tagging(maker: str) -> Policy:
    """Tags on what is being made, and on nothing that is there: they say what is ours to end."""
    return {
        "Sid": "TagWhatIsMade",
        "Action": ["ec2:CreateTags"],
        "Resource": "*",
        "Condition": {"StringEquals": {"ec2:CreateAction": [maker]}},
    }


def _ec2(kind: str) -> str:
    return f"arn:aws:ec2:*:*:{kind}/*"


def _role(name: str) -> str:
    return f"arn:aws:iam::*:role/{name}"


def _profile(name: str) -> str:
    return f"arn:aws:iam::*:instance-profile/{name}"
