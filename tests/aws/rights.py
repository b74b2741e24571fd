"""What IAM would say: every request that moto's server saw, held against the policy of whoever sent it.

moto enforces nothing.  Here a policy's statements are read as IAM reads them, as far as ours go: actions and resources
with stars and variables (``${aws:userid}``), the conditions below, what is denied before what is allowed.  What a stack
needs of its deployer is recorded as any request is: ``moto_stacks.py`` sends requests with the deployer's key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from urllib.parse import parse_qsl, unquote

import botocore.session

from tests.aws import server

Policy = Mapping[str, Any]

# What each operation of S3 needs, by method and the word in its query; "" is none.
_OF_OBJECTS = {
    ("GET", ""): "GetObject",
    ("HEAD", ""): "GetObject",
    ("PUT", ""): "PutObject",
    ("PUT", "partNumber"): "PutObject",
    ("POST", "uploads"): "PutObject",
    ("POST", "uploadId"): "PutObject",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("DELETE", ""): "DeleteObject",
    ("GET", "tagging"): "GetObjectTagging",
}
_OF_BUCKETS = {
    ("GET", ""): "ListBucket",
    ("GET", "list-type"): "ListBucket",
    ("HEAD", ""): "ListBucket",
    ("PUT", ""): "CreateBucket",
    ("DELETE", ""): "DeleteBucket",
    ("GET", "tagging"): "GetBucketTagging",
    ("PUT", "tagging"): "PutBucketTagging",
    ("PUT", "encryption"): "PutEncryptionConfiguration",
    ("PUT", "publicAccessBlock"): "PutBucketPublicAccessBlock",
    ("GET", "lifecycle"): "GetLifecycleConfiguration",
    ("PUT", "lifecycle"): "PutLifecycleConfiguration",
    ("GET", "policy"): "GetBucketPolicy",
    ("PUT", "policy"): "PutBucketPolicy",
    ("DELETE", "policy"): "DeleteBucketPolicy",
    ("GET", "location"): "GetBucketLocation",
}
_SAYS_WHAT = ("partNumber", "uploads", "uploadId", "list-type", "delete")
_OF_QUERIES = frozenset(word for _, word in (*_OF_OBJECTS, *_OF_BUCKETS) if word) | {"delete"}
# What EC2's operations make, and what its ids say.
_MADE = {
    "RunInstances": ("instance", "volume", "network-interface"),
    "CreateSecurityGroup": ("security-group",),
    "CreateLaunchTemplate": ("launch-template",),
}
_KINDS = {
    "ami": "image",
    "i": "instance",
    "lt": "launch-template",
    "sg": "security-group",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
}
_ACCOUNT = {"aws:resourceaccount": server.ACCOUNT, "aws:principalaccount": server.ACCOUNT}


@dataclass(frozen=True)
class NeededRight:
    """A right that a request needs: ``who`` is an access key; ``context`` holds condition keys, in lower case."""

    who: str
    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}" + (f" with {dict(self.context)}" if self.context else "")


def needed_rights(requests: Iterable[Mapping[str, Any]], who: str) -> Iterator[NeededRight]:
    """Yield the rights that recorded requests (``tests.aws.server.requests``) of an access key need.

    Raises:
        AssertionError: a request is of a kind that is not known here.
    """
    for each in requests:
        if each["who"] != who:
            continue
        for right in _READERS.get(each["service"], _of_others)(each):
            userid = {"aws:userid": each["userid"]} if each.get("userid") else {}
            yield replace(right, context={**_ACCOUNT, **userid, **right.context})


def _of_s3(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    bucket, _, key = unquote(request["path"]).lstrip("/").partition("/")
    if not bucket:
        yield NeededRight(request["who"], "s3:ListAllMyBuckets", "*")
        return
    query = dict(parse_qsl(request["query"], keep_blank_values=True))
    words = [word for word in query if word in _OF_QUERIES]
    # Of several words one says what is done: the part of an upload, before the upload.
    word = next((each for each in _SAYS_WHAT if each in words), words[0] if words else "")
    method, arn = request["method"], f"arn:aws:s3:::{bucket}"
    if method == "POST" and word == "delete":
        for found in re.findall(r"<Key>(.*?)</Key>", request["body"]):
            yield NeededRight(request["who"], "s3:DeleteObject", f"{arn}/{found}")
        return
    known = _OF_OBJECTS if key else _OF_BUCKETS
    assert (method, word) in known, f"unknown request to S3: {method} {request['path']}?{request['query']}"
    context = {
        f"s3:{name}": request["headers"][name] for name in ("if-none-match", "if-match") if name in request["headers"]
    }
    if key and known[method, word] == "PutObject":
        context["s3:objectcreationoperation"] = "false" if word in ("uploads", "partNumber") else "true"
    if not key and "prefix" in query:
        context["s3:prefix"] = query["prefix"]
    yield NeededRight(request["who"], f"s3:{known[method, word]}", f"{arn}/{key}" if key else arn, context)
    if source := request["headers"].get("x-amz-copy-source"):
        yield NeededRight(
            request["who"], "s3:GetObject", f"arn:aws:s3:::{unquote(source).lstrip('/').partition('?')[0]}"
        )


def _of_others(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    action = f"{request['service']}:{_operation(request)}"
    if action != "sts:GetCallerIdentity":  # AWS answers it to everybody
        yield NeededRight(request["who"], action, "*")


def _of_ec2(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    given, operation = dict(parse_qsl(request["body"])), _operation(request)
    if operation.startswith(("Describe", "Get")):
        yield from _of_others(request)
        return
    tagging = _request_tags(
        dict(zip(*(_values(given, rf"Tag\.\d+\.{word}") for word in ("Key", "Value")), strict=True))
    )

    def arn(kind: str, name: str) -> str:
        owner = "" if kind == "image" else server.ACCOUNT
        return f"arn:aws:ec2:{request['region']}:{owner}:{kind}/{name}"

    made = _MADE.get(operation, ())
    for kind in made:
        tags = _tags_asked(given, kind)
        context = _request_tags(tags)
        if kind == "instance":
            context["ec2:instancetype"] = given["InstanceType"]
        yield NeededRight(request["who"], f"ec2:{operation}", arn(kind, "*"), context)
        if tags:
            yield NeededRight(
                request["who"], "ec2:CreateTags", arn(kind, "*"), {**context, "ec2:createaction": operation}
            )
    named = {
        value: _KINDS[value.partition("-")[0]]
        for name, value in given.items()
        if value.partition("-")[0] in _KINDS and "-" in value and name != "UserData"
    }
    if operation != "CreateLaunchTemplate" and (name := given.get("LaunchTemplateName")):
        named[name] = "launch-template"
    for name, kind in sorted(named.items()):
        tags = request["tags"].get(name, {})
        context = {f"aws:resourcetag/{key.lower()}": value for key, value in tags.items()}
        yield NeededRight(request["who"], f"ec2:{operation}", arn(kind, name), {**context, **tagging})
    if pair := given.get("KeyName"):
        yield NeededRight(request["who"], f"ec2:{operation}", arn("key-pair", pair))
    profile = given.get("IamInstanceProfile.Name") or given.get("IamInstanceProfile.Arn", "").rpartition("/")[2]
    if profile:  # ours has the name of its role
        yield _passed(request["who"], f"arn:aws:iam::{server.ACCOUNT}:role/{profile}", "ec2.amazonaws.com")
    assert made or named, f"unknown request to EC2: {request['body'][:200]}"


def _tags_asked(given: Mapping[str, str], kind: str) -> dict[str, str]:
    """The tags that a request asks for on what it makes."""
    found = {}
    for name, value in given.items():
        if value == kind and (place := re.fullmatch(r"(TagSpecification\.\d+)\.ResourceType", name)):
            start = f"{place[1]}.Tag."
            keys = {key: name for key, name in given.items() if key.startswith(start) and key.endswith(".Key")}
            found |= {name: given[f"{key.removesuffix('.Key')}.Value"] for key, name in keys.items()}
    return found


def _values(given: Mapping[str, str], name: str) -> list[str]:
    return [value for key, value in sorted(given.items()) if re.fullmatch(name, key)]


def _request_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:requesttag/{key.lower()}": value for key, value in tags.items()}


def _passed(who: str, role: str, service: str) -> NeededRight:
    return NeededRight(who, "iam:PassRole", role, {"iam:passedtoservice": service})


def _of_iam(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    given, operation, who = dict(parse_qsl(request["body"])), _operation(request), request["who"]
    names = {"role": "RoleName", "instance-profile": "InstanceProfileName", "policy": "PolicyName"}
    arns = {
        kind: f"arn:aws:iam::{server.ACCOUNT}:{kind}/{given[name]}" for kind, name in names.items() if name in given
    }
    if "PolicyArn" in given:
        arns["policy"] = given["PolicyArn"]
    if service := given.get("AWSServiceName"):
        arns["role"] = f"arn:aws:iam::{server.ACCOUNT}:role/aws-service-role/{service}/AWSServiceRole"
    if operation == "AddRoleToInstanceProfile":
        yield _passed(who, arns["role"], "ec2.amazonaws.com")
    order = ("instance-profile", "role", "policy")
    resource = next((arns[kind] for kind in order if kind in arns), "*")
    boundary = given.get("PermissionsBoundary") or request.get("boundary")
    context = {"iam:permissionsboundary": boundary} if boundary else {}
    if "PolicyArn" in given and "role" in arns:
        context["iam:policyarn"] = given["PolicyArn"]
    yield NeededRight(who, f"iam:{operation}", resource, context)
    if operation.startswith("Create") and any(name.startswith("Tags.") for name in given):
        yield NeededRight(who, f"iam:Tag{operation.removeprefix('Create')}", resource, context)


def _of_batch(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    operation, who = _operation(request), request["who"]
    given = json.loads(request["body"] or "{}")

    def arn(kind: str, name: str) -> str:
        return name if name.startswith("arn:") else f"arn:aws:batch:{request['region']}:{server.ACCOUNT}:{kind}/{name}"

    kinds = {"computeEnvironment": "compute-environment", "jobQueue": "job-queue", "jobDefinition": "job-definition"}
    named = [
        arn(kind, given[key])
        for word, kind in kinds.items()
        for key in (word, f"{word}Name")
        if key in given and not operation.startswith(("Describe", "List"))
    ]
    if operation in ("TerminateJob", "CancelJob"):
        named = [arn("job", given["jobId"])]
    if operation == "TagResource":
        named = [unquote(request["path"]).partition("/tags/")[2]]
    tagging = _request_tags(given.get("tags", {}))
    for name in named or ["*"]:
        tags = request.get("tags", {}).get(name.rpartition("/")[2], {})
        context = {f"aws:resourcetag/{key.lower()}": value for key, value in tags.items()}
        yield NeededRight(who, f"batch:{operation}", name, {**context, **tagging})
        if tagging and operation.startswith(("Create", "Register", "Submit")):
            tagged = arn("job", "*") if operation == "SubmitJob" else name
            yield NeededRight(who, "batch:TagResource", tagged, tagging)
    container = given.get("containerProperties", {})
    for role in filter(None, (container.get("jobRoleArn"), container.get("executionRoleArn"))):
        yield _passed(who, role, "ecs-tasks.amazonaws.com")
    if profile := given.get("computeResources", {}).get("instanceRole"):  # ours has the name of its role
        role = f"arn:aws:iam::{server.ACCOUNT}:role/{profile.rpartition('/')[2]}"
        yield _passed(who, role, "ec2.amazonaws.com")
    if role := given.get("serviceRole"):
        yield _passed(who, role, "batch.amazonaws.com")


def _of_stacks(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    given, operation = dict(parse_qsl(request["body"])), _operation(request)
    name = given.get("StackName")
    here = f"arn:aws:cloudformation:{request['region']}:{server.ACCOUNT}"
    resource = "*" if name is None else name if name.startswith("arn:") else f"{here}:stack/{name}/*"
    yield NeededRight(request["who"], f"cloudformation:{operation}", resource)
    if any(key.startswith("Tags.") for key in given):
        yield NeededRight(request["who"], "cloudformation:TagResource", resource)
    if role := given.get("RoleARN"):
        yield _passed(request["who"], role, "cloudformation.amazonaws.com")


def _of_events(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    given, operation = json.loads(request["body"] or "{}"), _operation(request)
    name = given.get("Name") or given.get("Rule")
    resource = f"arn:aws:events:{request['region']}:{server.ACCOUNT}:rule/{name}" if name else "*"
    yield NeededRight(request["who"], f"events:{operation}", resource)
    if given.get("Tags"):
        yield NeededRight(request["who"], "events:TagResource", resource)


def _of_lambda(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    given, operation = json.loads(request["body"] or "{}"), _operation(request)
    found = re.search(r"/functions/([^/]+)|/tags/(.+)", unquote(request["path"]))
    name = given.get("FunctionName") or (found and (found[1] or found[2])) or "*"
    here = f"arn:aws:lambda:{request['region']}:{server.ACCOUNT}:function"
    resource = name if name.startswith("arn:") else f"{here}:{name}"
    yield NeededRight(request["who"], f"lambda:{operation}", resource)
    if given.get("Tags") and operation == "CreateFunction":
        yield NeededRight(request["who"], "lambda:TagResource", resource)
    if role := given.get("Role"):
        yield _passed(request["who"], role, "lambda.amazonaws.com")


def _of_ssm(request: Mapping[str, Any]) -> Iterator[NeededRight]:
    name = json.loads(request["body"])["Name"]
    region, account = request["region"], "" if name.startswith("/aws/") else server.ACCOUNT
    yield NeededRight(request["who"], f"ssm:{_operation(request)}", f"arn:aws:ssm:{region}:{account}:parameter{name}")


def _operation(request: Mapping[str, Any]) -> str:
    """The operation that a request of a service other than S3 names."""
    if target := request["headers"].get("x-amz-target"):
        return str(target.rpartition(".")[2])
    if found := re.search(r"(?:^|&)Action=(\w+)", request["body"]):
        return found[1]
    for (method, uri), name in _paths(request["service"]).items():
        if method == request["method"] and re.fullmatch(re.sub(r"\{.*?\}", ".+", uri), request["path"].rstrip("/")):
            return re.sub(r"\d{8}v?\d*$", "", name)  # of Lambda's the date is no part of the right
    raise AssertionError(f"unknown request to {request['service']}: {request['path']}")


@cache
def _paths(service: str) -> dict[tuple[str, str], str]:
    """Operations by method and path."""
    model = botocore.session.get_session().get_service_model(service)
    operations = [model.operation_model(name) for name in model.operation_names]
    uris = {(each.http["method"], each.http["requestUri"].rstrip("/")): each.name for each in operations}
    # "functions/{name}/policy" before "functions/{name}"
    return dict(sorted(uris.items(), key=lambda item: -len(re.sub(r"\{.*?\}", "", item[0][1]))))


_READERS = {
    "s3": _of_s3,
    "ec2": _of_ec2,
    "iam": _of_iam,
    "batch": _of_batch,
    "cloudformation": _of_stacks,
    "events": _of_events,
    "lambda": _of_lambda,
    "ssm": _of_ssm,
}


def allows(policies: Sequence[Policy], right: NeededRight) -> bool:
    """Return whether some statement allows it and none denies it."""
    found = {
        statement["Effect"] for policy in policies for statement in policy["Statement"] if _holds(statement, right)
    }
    return found == {"Allow"}


def may(policy: Policy, action: str, resource: str, **context: str) -> bool:
    """As :func:`allows`; condition keys with ``_`` for ``:`` and ``-``."""
    named = {name.replace("_", ":", 1).replace("_", "-").lower(): value for name, value in context.items()}
    return allows([policy], NeededRight("", action, resource, {**_ACCOUNT, **named}))


def unused(policies: Sequence[Policy], rights: Iterable[NeededRight]) -> list[str]:
    """Return the rights that statements allow and no request used: ``Sid action``."""
    asked_for = list(rights)
    return [
        f"{statement['Sid']} {action}"
        for policy in policies
        for statement in policy["Statement"]
        for action in as_list(statement["Action"])
        if not any(_holds({**statement, "Action": [action]}, right) for right in asked_for)
    ]


def differing(
    requests: Iterable[Mapping[str, Any]], who: str, policies: Sequence[Policy]
) -> tuple[list[str], list[str]]:
    """Return what IAM would have denied to an access key, and the rights that it did not use.

    Raises:
        AssertionError: it made no request.
    """
    needed = list(needed_rights(requests, who))
    assert needed, f"{who} sent no request"
    denied = dict.fromkeys(str(each) for each in needed if not allows(policies, each))
    return list(denied), unused(policies, needed)


def _holds(statement: Mapping[str, Any], right: NeededRight) -> bool:
    return (
        any(_like(right.action.lower(), each.lower(), {}) for each in as_list(statement["Action"]))
        and any(_like(right.resource, each, right.context) for each in as_list(statement["Resource"]))
        and all(
            _meets(operator, right.context.get(key.lower()), as_list(wanted), right.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _like(text: str, pattern: str, context: Mapping[str, str]) -> bool:
    """Return whether a text is of a pattern with stars; a variable that the request does not have fits nothing."""
    regex = ""
    for part in re.split(r"(\$\{[^}]*\}|\*|\?)", pattern):
        if part in ("*", "?"):
            regex += {"*": ".*", "?": "."}[part]
        elif part.startswith("${"):
            value = context.get(part[2:-1].lower())
            if value is None:
                return False
            regex += re.escape(value)
        else:
            regex += re.escape(part)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def _meets(operator: str, given: str | None, wanted: Sequence[str], context: Mapping[str, str]) -> bool:
    match operator:
        case "Null":
            return (given is None) == (wanted[0] == "true")
        case "StringEquals":
            return given is not None and any(_equal(given, each, context) for each in wanted)
        case "StringLike":
            return given is not None and any(_like(given, each, context) for each in wanted)
        case "Bool":
            return given == wanted[0]
    raise AssertionError(f"{operator} is not known here")


def _equal(text: str, wanted: str, context: Mapping[str, str]) -> bool:
    found = re.sub(r"\$\{([^}]*)\}", lambda name: context.get(name[1].lower(), name[0]), wanted)
    return text == found


def as_list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def of_role(name: str) -> list[Policy]:
    """The inline policies of a role, as they were made in the tests' AWS."""
    import boto3

    iam = boto3.client("iam", region_name=server.REGION)
    made = [
        iam.get_role_policy(RoleName=name, PolicyName=each)
        for each in iam.list_role_policies(RoleName=name)["PolicyNames"]
    ]
    return [
        each["PolicyDocument"] if isinstance(each["PolicyDocument"], dict) else json.loads(each["PolicyDocument"])
        for each in made
    ]


def of_policy(name: str) -> Policy:
    """A managed policy of the tests' account, in its present version."""
    import boto3

    iam, arn = boto3.client("iam", region_name=server.REGION), f"arn:aws:iam::{server.ACCOUNT}:policy/{name}"
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    document: Policy = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    return document
