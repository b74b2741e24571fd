"""What the user's own credentials must be allowed for Batch, beside what EC2's side needs: an IAM policy, made here."""

from __future__ import annotations

from typing import Any

from harness.batch import names

_ROLES = f"{names.PREFIX}-batch-*"
# Service-linked roles that an account gets with its first environment: Batch's, and those that Batch works with.
_LINKED = ("batch.amazonaws.com", "ecs.amazonaws.com", "spot.amazonaws.com")


def user() -> dict[str, Any]:
    """For ``harness batch`` and ``harness run --launcher batch``; add those of :mod:`harness.ec2.policy`."""
    return {"Version": "2012-10-17", "Statement": [*_batch(), *_templates(), *_roles()]}


def _statement(sid: str, actions: list[str], resource: str | list[str], **more: Any) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource, **more}


def _batch() -> list[dict[str, Any]]:
    # Batch takes no names of resources for what only looks.
    look = [f"batch:Describe{each}" for each in ("ComputeEnvironments", "JobDefinitions", "JobQueues", "Jobs")]
    things = ("compute-environment", "job-queue", "job-definition")
    manage = [
        f"batch:{verb}{each}" for each in ("ComputeEnvironment", "JobQueue") for verb in ("Create", "Delete", "Update")
    ]
    manage += ["batch:RegisterJobDefinition", "batch:DeregisterJobDefinition", "batch:TagResource", "batch:SubmitJob"]
    ours = [f"arn:aws:batch:*:*:{each}/{names.PREFIX}-*" for each in things]
    return [
        _statement("LookAtBatch", [*look, "batch:ListJobs"], "*"),
        _statement("Batch", manage, ours),
        _statement("Jobs", ["batch:TagResource", "batch:TerminateJob"], "arn:aws:batch:*:*:job/*"),
    ]


def _templates() -> list[dict[str, Any]]:
    # Their ARNs hold ids: what is ours has our tag.
    ours = {"StringLike": {f"aws:ResourceTag/{names.SUITE_TAG}": "*"}}
    look = ["ec2:DescribeLaunchTemplateVersions", "ec2:DescribeLaunchTemplates"]
    return [
        _statement("LookAtTemplates", [*look, "ec2:CreateLaunchTemplate"], "*"),
        # A template that is made with tags needs the right to set them, on what is being made and on nothing else.
        _statement(
            "TagTemplates",
            ["ec2:CreateTags"],
            "*",
            Condition={"StringEquals": {"ec2:CreateAction": ["CreateLaunchTemplate"]}},
        ),
        _statement("Templates", ["ec2:CreateLaunchTemplateVersion", "ec2:DeleteLaunchTemplate"], "*", Condition=ours),
    ]


def _roles() -> list[dict[str, Any]]:
    actions = [
        "AddRoleToInstanceProfile",
        "CreateInstanceProfile",
        "CreateRole",
        "DeleteInstanceProfile",
        "DeleteRole",
        "DeleteRolePolicy",
        "GetInstanceProfile",
        "GetRole",
        "ListRolePolicies",
        "PassRole",
        "PutRolePolicy",
        "RemoveRoleFromInstanceProfile",
        "TagInstanceProfile",
        "TagRole",
        "UpdateAssumeRolePolicy",
    ]
    linked = [f"arn:aws:iam::*:role/aws-service-role/{each}/*" for each in _LINKED]
    return [
        _statement(
            "Roles",
            [f"iam:{each}" for each in actions],
            [f"arn:aws:iam::*:role/{_ROLES}", f"arn:aws:iam::*:instance-profile/{_ROLES}"],
        ),
        _statement("FindBatchsRole", ["iam:ListRoles"], "*"),
        _statement("FirstEnvironmentOfAnAccount", ["iam:CreateServiceLinkedRole"], linked),
    ]
