"""CloudFormation of moto's server, mended: every resource is made by requests that the deployer's own key signs.

So AWS does it, and so recorded requests show each right that a stack needs of its deployer.  moto makes its models
without requests, tags little, updates and deletes no Batch, looks at no reference when it updates, and reports a
failure to the caller of the API instead of in the stack's events.

One class for each kind of resource: ``make``, ``change`` and ``remove`` say which requests its handler sends.
"""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError
from moto.cloudformation import models, parsing
from moto.cloudformation.exceptions import CloudFormationError, ValidationError
from moto.cloudformation.models import CloudFormationBackend, Event, Stack, cloudformation_backends
from moto.cloudformation.parsing import OutputMap, clean_json
from moto.cloudformation.responses import CloudFormationResponse
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_api._internal import mock_random

# Requests of CloudFormation for somebody are known by this word in their user agent.
AGENT = "via-cloudformation"
caller = threading.local()  # .key, .endpoint: who asks CloudFormation, and where this server listens
_clients: dict[tuple[str, ...], Any] = {}
_lock = threading.Lock()

Properties = dict[str, Any]


def _client(service: str, region: str) -> Any:
    name = (service, region, caller.key, caller.endpoint)
    with _lock:
        if name not in _clients:
            _clients[name] = boto3.client(
                service,
                region_name=region,
                endpoint_url=caller.endpoint,
                aws_access_key_id=caller.key,
                aws_secret_access_key="x",
                config=Config(user_agent_extra=AGENT, retries={"total_max_attempts": 1}),
            )
        return _clients[name]


class InsufficientCapabilities(CloudFormationError):
    code = "InsufficientCapabilitiesException"
    __module__ = "moto.cloudformation.exceptions"  # where moto looks for the error's model


class Failed(Exception):
    def __init__(self, logical: str, kind: str, reason: str, status: str) -> None:
        super().__init__(reason)
        self.logical, self.kind, self.status = logical, kind, status


@dataclass
class Made:
    """A resource that a stack has; CloudFormation's ``Ref`` is its ``physical_resource_id``."""

    logical_resource_id: str
    cf_resource_type: str
    json: dict[str, Any]
    properties: Properties
    physical_resource_id: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)

    def get_cfn_attribute(self, name: str) -> Any:
        return self.attributes[name]

    def is_created(self) -> bool:
        return True


@dataclass
class Order:
    """What a handler works with: clients of the deployer, the name to use, and all tags of the resource."""

    region: str
    name: str
    properties: Properties
    tags: dict[str, str]

    def client(self, service: str) -> Any:
        return _client(service, self.region)

    @property
    def tag_list(self) -> list[dict[str, str]]:
        return [{"Key": key, "Value": value} for key, value in self.tags.items()]


Ids = tuple[str, dict[str, Any]]


class Kind:
    """Requests of a resource's handler; ``fixed`` are the properties that only a new resource can have otherwise."""

    name_property = ""
    fixed: ClassVar[tuple[str, ...]] = ()

    def make(self, order: Order) -> Ids:
        raise NotImplementedError

    def change(self, order: Order, made: Made) -> None:
        """``None``: the resource keeps its id and attributes.  Of most kinds no test has one changed."""
        raise NotImplementedError(type(self).__name__)

    def remove(self, order: Order, made: Made) -> None:
        raise NotImplementedError


class Role(Kind):
    name_property = "RoleName"

    def make(self, order: Order) -> Ids:
        p, iam = order.properties, order.client("iam")
        role = iam.create_role(
            RoleName=order.name,
            AssumeRolePolicyDocument=json.dumps(p["AssumeRolePolicyDocument"]),
            Tags=order.tag_list,
            **{key: p[key] for key in ("Description", "PermissionsBoundary", "Path") if key in p},
        )["Role"]
        for each in p.get("Policies", []):
            document = json.dumps(each["PolicyDocument"])
            iam.put_role_policy(RoleName=order.name, PolicyName=each["PolicyName"], PolicyDocument=document)
        return order.name, {"Arn": role["Arn"], "RoleId": role["RoleId"]}

    def remove(self, order: Order, made: Made) -> None:
        iam = order.client("iam")
        for each in iam.list_role_policies(RoleName=order.name)["PolicyNames"]:
            iam.delete_role_policy(RoleName=order.name, PolicyName=each)
        iam.list_attached_role_policies(RoleName=order.name)
        iam.delete_role(RoleName=order.name)


class InstanceProfile(Kind):
    name_property = "InstanceProfileName"

    def make(self, order: Order) -> Ids:
        iam = order.client("iam")
        made = iam.create_instance_profile(InstanceProfileName=order.name)["InstanceProfile"]
        for role in order.properties["Roles"]:
            iam.add_role_to_instance_profile(InstanceProfileName=order.name, RoleName=role)
        return order.name, {"Arn": made["Arn"]}

    def remove(self, order: Order, made: Made) -> None:
        iam = order.client("iam")
        found = iam.get_instance_profile(InstanceProfileName=order.name)["InstanceProfile"]
        for role in found["Roles"]:
            iam.remove_role_from_instance_profile(InstanceProfileName=order.name, RoleName=role["RoleName"])
        iam.delete_instance_profile(InstanceProfileName=order.name)


class ManagedPolicy(Kind):
    name_property = "ManagedPolicyName"
    fixed = ("Description", "Path")

    def make(self, order: Order) -> Ids:
        p = order.properties
        arn = order.client("iam").create_policy(
            PolicyName=order.name,
            PolicyDocument=json.dumps(p["PolicyDocument"]),
            **{key: p[key] for key in ("Description", "Path") if key in p},
        )["Policy"]["Arn"]
        return arn, {"PolicyArn": arn}

    def change(self, order: Order, made: Made) -> None:
        iam, arn = order.client("iam"), made.physical_resource_id
        for each in iam.list_policy_versions(PolicyArn=arn)["Versions"]:
            if not each["IsDefaultVersion"]:
                iam.delete_policy_version(PolicyArn=arn, VersionId=each["VersionId"])
        document = json.dumps(order.properties["PolicyDocument"])
        iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)

    def remove(self, order: Order, made: Made) -> None:
        iam, arn = order.client("iam"), made.physical_resource_id
        for each in iam.list_policy_versions(PolicyArn=arn)["Versions"]:
            if not each["IsDefaultVersion"]:
                iam.delete_policy_version(PolicyArn=arn, VersionId=each["VersionId"])
        iam.delete_policy(PolicyArn=arn)


class Bucket(Kind):
    name_property = "BucketName"

    def make(self, order: Order) -> Ids:
        where = {} if order.region == "us-east-1" else {"LocationConstraint": order.region}
        p, s3, name = order.properties, order.client("s3"), order.name
        s3.create_bucket(Bucket=name, **({"CreateBucketConfiguration": where} if where else {}))
        if order.tags:
            s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": order.tag_list})
        if block := p.get("PublicAccessBlockConfiguration"):
            s3.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration=block)
        if owned := p.get("OwnershipControls"):
            s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=owned)
        if encryption := p.get("BucketEncryption"):
            rules = [
                {"ApplyServerSideEncryptionByDefault": each["ServerSideEncryptionByDefault"]}
                for each in encryption["ServerSideEncryptionConfiguration"]
            ]
            s3.put_bucket_encryption(Bucket=name, ServerSideEncryptionConfiguration={"Rules": rules})
        if lifecycle := p.get("LifecycleConfiguration"):
            rules = [
                {
                    "ID": each["Id"],
                    "Status": each["Status"],
                    "Filter": {"Prefix": each["Prefix"]},
                    "Expiration": {"Days": int(each["ExpirationInDays"])},
                    "AbortIncompleteMultipartUpload": each["AbortIncompleteMultipartUpload"],
                }
                for each in lifecycle["Rules"]
            ]
            s3.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": rules})
        return name, {"Arn": f"arn:aws:s3:::{name}"}

    def remove(self, order: Order, made: Made) -> None:
        order.client("s3").delete_bucket(Bucket=made.physical_resource_id)


class BucketPolicy(Kind):
    fixed = ("Bucket",)

    def make(self, order: Order) -> Ids:
        p = order.properties
        order.client("s3").put_bucket_policy(Bucket=p["Bucket"], Policy=json.dumps(p["PolicyDocument"]))
        return p["Bucket"], {}

    def remove(self, order: Order, made: Made) -> None:
        order.client("s3").delete_bucket_policy(Bucket=made.physical_resource_id)


class SecurityGroup(Kind):
    name_property = "GroupName"
    fixed = ("GroupDescription", "VpcId")

    def make(self, order: Order) -> Ids:
        p, ec2 = order.properties, order.client("ec2")
        assert not p.get("SecurityGroupIngress"), "nothing of ours lets anything in"
        tags = [{"ResourceType": "security-group", "Tags": order.tag_list}] if order.tags else []
        made = ec2.create_security_group(
            GroupName=order.name, Description=p["GroupDescription"], VpcId=p["VpcId"], TagSpecifications=tags
        )["GroupId"]
        return made, {"GroupId": made, "VpcId": p["VpcId"], "Id": made}

    def remove(self, order: Order, made: Made) -> None:
        order.client("ec2").delete_security_group(GroupId=made.physical_resource_id)


class LaunchTemplate(Kind):
    name_property = "LaunchTemplateName"
    fixed = ("TagSpecifications",)

    def make(self, order: Order) -> Ids:
        p = order.properties
        own = {each["Key"]: each["Value"] for spec in p.get("TagSpecifications", []) for each in spec["Tags"]}
        tags = [{"Key": key, "Value": value} for key, value in {**order.tags, **own}.items()]
        more = {"TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}]} if tags else {}
        made = order.client("ec2").create_launch_template(
            LaunchTemplateName=order.name, LaunchTemplateData=self._data(p), **more
        )["LaunchTemplate"]["LaunchTemplateId"]
        return made, {"LaunchTemplateId": made, "LatestVersionNumber": "1", "DefaultVersionNumber": "1"}

    def _data(self, p: Properties) -> Properties:
        data = json.loads(json.dumps(p["LaunchTemplateData"]))
        for each in data.get("BlockDeviceMappings", []):
            each["Ebs"]["VolumeSize"] = int(each["Ebs"]["VolumeSize"])
        return data

    def change(self, order: Order, made: Made) -> Ids | None:
        number = order.client("ec2").create_launch_template_version(
            LaunchTemplateId=made.physical_resource_id, LaunchTemplateData=self._data(order.properties)
        )["LaunchTemplateVersion"]["VersionNumber"]
        return made.physical_resource_id, {**made.attributes, "LatestVersionNumber": str(number)}

    def remove(self, order: Order, made: Made) -> None:
        order.client("ec2").delete_launch_template(LaunchTemplateId=made.physical_resource_id)


# What Batch's API takes as it is: these hold names of the user's, not of Batch.
_AS_IS = ("Tags", "Parameters", "Options")
_ONLY_STACKS = ("ReplaceComputeEnvironment", "UpdatePolicy", "Tags")


def as_api(value: Any) -> Any:
    """CloudFormation's form -> that of Batch's API: the same keys, each with a small first letter."""
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: inner if key in _AS_IS else as_api(inner) for key, inner in value.items()}
    return [as_api(each) for each in value] if isinstance(value, list) else value


def _batch(p: Properties, *without: str) -> Properties:
    return dict(as_api({key: value for key, value in p.items() if key not in (*_ONLY_STACKS, *without)}))


class ComputeEnvironment(Kind):
    name_property = "ComputeEnvironmentName"
    fixed = ("Type",)

    def make(self, order: Order) -> Ids:
        made = order.client("batch").create_compute_environment(
            **{**_batch(order.properties), "computeEnvironmentName": order.name}, tags=order.tags
        )
        order.client("batch").describe_compute_environments(computeEnvironments=[order.name])
        return made["computeEnvironmentArn"], {"ComputeEnvironmentArn": made["computeEnvironmentArn"]}

    def change(self, order: Order, made: Made) -> None:
        p = _batch(order.properties, "Type", "ComputeEnvironmentName")
        batch, arn = order.client("batch"), made.physical_resource_id
        batch.update_compute_environment(computeEnvironment=arn, **p)
        batch.tag_resource(resourceArn=arn, tags=order.tags)

    def remove(self, order: Order, made: Made) -> None:
        batch, arn = order.client("batch"), made.physical_resource_id
        batch.update_compute_environment(computeEnvironment=arn, state="DISABLED")
        batch.delete_compute_environment(computeEnvironment=arn)
        batch.describe_compute_environments(computeEnvironments=[arn])


class JobQueue(Kind):
    name_property = "JobQueueName"

    def make(self, order: Order) -> Ids:
        made = order.client("batch").create_job_queue(
            **{"state": "ENABLED", **_batch(order.properties), "jobQueueName": order.name}, tags=order.tags
        )
        order.client("batch").describe_job_queues(jobQueues=[order.name])
        return made["jobQueueArn"], {"JobQueueArn": made["jobQueueArn"]}

    def change(self, order: Order, made: Made) -> None:
        batch, arn = order.client("batch"), made.physical_resource_id
        batch.update_job_queue(jobQueue=arn, **_batch(order.properties, "JobQueueName", "JobQueueType"))
        batch.tag_resource(resourceArn=arn, tags=order.tags)

    def remove(self, order: Order, made: Made) -> None:
        batch, arn = order.client("batch"), made.physical_resource_id
        batch.update_job_queue(jobQueue=arn, state="DISABLED")
        batch.delete_job_queue(jobQueue=arn)
        batch.describe_job_queues(jobQueues=[arn])


class JobDefinition(Kind):
    """A change registers a further revision, and takes the old one back."""

    name_property = "JobDefinitionName"

    def make(self, order: Order) -> Ids:
        definition = _batch(order.properties)
        arn = order.client("batch").register_job_definition(
            **{**definition, "jobDefinitionName": order.name}, tags=order.tags
        )["jobDefinitionArn"]
        return arn, {"JobDefinitionArn": arn}

    def change(self, order: Order, made: Made) -> Ids | None:
        ids = self.make(order)
        order.client("batch").deregister_job_definition(jobDefinition=made.physical_resource_id)
        return ids

    def remove(self, order: Order, made: Made) -> None:
        order.client("batch").describe_job_definitions(jobDefinitions=[made.physical_resource_id])
        order.client("batch").deregister_job_definition(jobDefinition=made.physical_resource_id)


class Function(Kind):
    name_property = "FunctionName"

    def _asked(self, order: Order) -> Properties:
        p = {key: value for key, value in order.properties.items() if key not in ("Code", "Tags", "Architectures")}
        p["Timeout"], p["MemorySize"] = int(p.get("Timeout", 3)), int(p.get("MemorySize", 128))
        return p

    def _code(self, order: Order) -> bytes:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("index.py", order.properties["Code"]["ZipFile"])
        return packed.getvalue()

    def make(self, order: Order) -> Ids:
        p, code = self._asked(order), self._code(order)
        limit = p.pop("ReservedConcurrentExecutions", None)
        aws = order.client("lambda")
        made = aws.create_function(**p, Code={"ZipFile": code}, Tags=order.tags)
        aws.get_function(FunctionName=order.name)
        if limit is not None:
            aws.put_function_concurrency(FunctionName=order.name, ReservedConcurrentExecutions=int(limit))
        return order.name, {"Arn": made["FunctionArn"]}

    def remove(self, order: Order, made: Made) -> None:
        order.client("lambda").delete_function(FunctionName=made.physical_resource_id)


class Permission(Kind):
    fixed = ("Action", "FunctionName", "Principal", "SourceArn", "SourceAccount")

    def make(self, order: Order) -> Ids:
        order.client("lambda").add_permission(StatementId=order.name, **order.properties)
        return order.name, {"Id": order.name}

    def remove(self, order: Order, made: Made) -> None:
        order.client("lambda").remove_permission(
            FunctionName=made.properties["FunctionName"], StatementId=made.physical_resource_id
        )


class Rule(Kind):
    name_property = "Name"

    def make(self, order: Order) -> Ids:
        events = order.client("events")
        p = {key: value for key, value in order.properties.items() if key not in ("Targets", "Tags")}
        arn = events.put_rule(**p, Tags=order.tag_list)["RuleArn"]
        events.put_targets(Rule=order.name, Targets=order.properties["Targets"])
        events.describe_rule(Name=order.name)
        return order.name, {"Arn": arn}

    def remove(self, order: Order, made: Made) -> None:
        events = order.client("events")
        targets = [each["Id"] for each in events.list_targets_by_rule(Rule=order.name)["Targets"]]
        events.remove_targets(Rule=order.name, Ids=targets)
        events.delete_rule(Name=order.name)


KINDS: dict[str, type[Kind]] = {
    "AWS::IAM::Role": Role,
    "AWS::IAM::InstanceProfile": InstanceProfile,
    "AWS::IAM::ManagedPolicy": ManagedPolicy,
    "AWS::S3::Bucket": Bucket,
    "AWS::S3::BucketPolicy": BucketPolicy,
    "AWS::EC2::SecurityGroup": SecurityGroup,
    "AWS::EC2::LaunchTemplate": LaunchTemplate,
    "AWS::Batch::ComputeEnvironment": ComputeEnvironment,
    "AWS::Batch::JobQueue": JobQueue,
    "AWS::Batch::JobDefinition": JobDefinition,
    "AWS::Lambda::Function": Function,
    "AWS::Lambda::Permission": Permission,
    "AWS::Events::Rule": Rule,
}


class Attributes:
    """moto asks a resource's class which attributes it has before it makes one."""

    @classmethod
    def has_cfn_attr(cls, name: str) -> bool:
        return True


def _tags(stack: Stack, properties: Properties) -> dict[str, str]:
    own = properties.get("Tags", {})
    return {**stack.tags, **(own if isinstance(own, dict) else {each["Key"]: each["Value"] for each in own})}


def _order(stack: Stack, name: str, properties: Properties) -> Order:
    return Order(stack.region_name, name, properties, _tags(stack, properties))


def _one(stack: Stack, logical: str, kind: str, doing: str, do: Callable[[], Any]) -> Any:
    """Do something with a resource; a failure is an event of the stack."""
    try:
        return do()
    except (ClientError, ParamValidationError, KeyError, AssertionError) as error:
        _event(stack, logical, kind, f"{doing}_FAILED", str(error))
        raise Failed(logical, kind, str(error), doing) from error


def _event(stack: Stack, logical: str, kind: str, status: str, reason: str) -> None:
    stack.events.append(Event(stack.stack_id, stack.name, logical, "", kind, status, reason, None))


def _resource(logical: str, text: dict[str, Any], resources: Any, account_id: str, region_name: str) -> Made | None:
    """As moto's ``parse_and_create_resource``: make a resource, or bring the stack's own up to its properties."""
    if (condition := text.get("Condition")) and not resources.lazy_condition_map[condition]:
        return None
    stack: Any = cloudformation_backends[account_id][region_name].stacks[resources.stack_id]
    kind, old = text["Type"], stack.made.get(logical)
    doing = "UPDATE" if old else "CREATE"
    handler = KINDS[kind]()

    def resolve() -> Properties:
        found = clean_json(text.get("Properties", {}), resources)
        return dict(_without_none(found))

    properties = _one(stack, logical, kind, doing, resolve)
    wanted = {"tags": _tags(stack, properties), **properties}
    if old and old.cf_resource_type == kind and old.properties == wanted:
        old.json = text
        stack.current.append(logical)
        return old
    made = Made(logical, kind, text, wanted)
    key = handler.name_property
    name = properties.get(key) or f"{stack.name}-{logical}-{mock_random.get_random_hex(12).upper()}"
    replaced = old and any(
        old.properties.get(each) != wanted.get(each) for each in (*handler.fixed, *([key] if key else []))
    )
    if old and not replaced:
        made.attributes = old.attributes
        name = old.properties.get(key) or old.attributes.get("generated", name)
        order = _order(stack, name, {**properties, **({key: name} if key else {})})
        ids = _one(stack, logical, kind, doing, lambda: handler.change(order, old))
        ids = ids or (old.physical_resource_id, old.attributes)
    else:
        if old and key and old.properties.get(key) == properties.get(key) and properties.get(key):
            reason = f"CloudFormation cannot update a stack when a custom-named resource requires replacing: {name}"
            _event(stack, logical, kind, "UPDATE_FAILED", reason)
            raise Failed(logical, kind, reason, doing)
        order = _order(stack, name, {**properties, **({key: name} if key else {})})
        ids = _one(stack, logical, kind, doing, lambda: handler.make(order))
        if old:
            stack.replaced.append(old)
    made.physical_resource_id, attributes = ids
    made.attributes = {**attributes, "generated": name}
    stack.made.pop(logical, None)
    stack.made[logical] = made
    stack.current.append(logical)
    return made


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(each) for each in value if each is not None] if isinstance(value, list) else value


def _remove(stack: Any, made: Made) -> None:
    handler = KINDS[made.cf_resource_type]()
    order = _order(stack, made.attributes["generated"], made.properties)
    _one(stack, made.logical_resource_id, made.cf_resource_type, "DELETE", lambda: handler.remove(order, made))


def _apply(stack: Any) -> None:
    """Make and change what the template says, then remove what it says no more, the last made first."""
    stack.current, stack.replaced = [], []
    stack.parameters = _parameters(stack, stack.parameters)
    stack.resource_map = stack._create_resource_map()
    stack.resource_map._resource_json_map = stack.template_dict["Resources"]
    for logical in stack.resource_map._ResourceMap__get_resources_in_dependency_order():
        stack.resource_map[logical]
    gone = [stack.made.pop(each) for each in reversed(list(stack.made)) if each not in stack.current]
    for each in [*stack.replaced, *gone]:
        if each.json.get("DeletionPolicy") not in ("Retain", "RetainExceptOnCreate"):
            _remove(stack, each)
    stack.output_map = stack._create_output_map()


def _parameters(stack: Stack, given: dict[str, Any]) -> dict[str, str]:
    """Parameters with their defaults, as text; moto splits lists that are given, and no defaults."""
    declared = stack.template_dict.get("Parameters", {})
    if unknown := set(given) - set(declared):
        raise ValidationError(stack.name, message=f"Parameters: {sorted(unknown)} do not exist in the template")
    defaults = {key: str(each["Default"]) for key, each in declared.items() if "Default" in each}
    return {**defaults, **given}


def _parameter_list(stack: Stack) -> list[dict[str, Any]]:
    return [{"ParameterKey": key, "ParameterValue": value} for key, value in stack.parameters.items()]


def _no_outputs(stack: Any) -> None:
    stack.output_map = OutputMap(stack.resource_map, {}, stack.stack_id)


def _create(stack: Any) -> None:
    stack.status, stack.made = "CREATE_IN_PROGRESS", {}
    try:
        _apply(stack)
    except Failed:
        stack.status = "ROLLBACK_COMPLETE"
        _no_outputs(stack)
        for logical in reversed(list(stack.made)):
            made = stack.made.pop(logical)
            try:
                if made.json.get("DeletionPolicy") != "Retain":
                    _remove(stack, made)
            except Failed:
                stack.status = "ROLLBACK_FAILED"
    else:
        stack.status = "CREATE_COMPLETE"
    stack._add_stack_event(stack.status)


def _update(stack: Any, template: str, role_arn: Any = None, parameters: Any = None, tags: Any = None) -> None:
    before = (stack.template, stack.parameters, stack.tags)
    old = (stack.template_dict, stack.parameters, stack.tags)
    stack.template, stack.tags = template, tags or {}
    stack._parse_template()
    stack.parameters = _parameters(stack, parameters or {})
    if (stack.template_dict, stack.parameters, stack.tags) == old:
        stack.template, stack.parameters, stack.tags = before
        raise ValidationError(stack.name, message="No updates are to be performed.")
    stack._add_stack_event("UPDATE_IN_PROGRESS", resource_status_reason="User Initiated")
    try:
        _apply(stack)
        stack.status = "UPDATE_COMPLETE"
    except Failed:
        stack.template, stack.parameters, stack.tags = before
        stack._parse_template()
        try:
            _apply(stack)
            stack.status = "UPDATE_ROLLBACK_COMPLETE"
        except Failed:
            stack.status = "UPDATE_ROLLBACK_FAILED"
    stack._add_stack_event(stack.status)


def _delete(backend: CloudFormationBackend, name: str) -> None:
    stack: Any = next((each for each in backend.stacks.values() if name in (each.stack_id, each.name)), None)
    if stack is None:
        return
    stack._add_stack_event("DELETE_IN_PROGRESS", resource_status_reason="User Initiated")
    stack.status = "DELETE_COMPLETE"
    for logical in reversed(list(stack.made)):
        made = stack.made[logical]
        try:
            if made.json.get("DeletionPolicy") not in ("Retain", "RetainExceptOnCreate"):
                _remove(stack, made)
            del stack.made[logical]
        except Failed:
            stack.status = "DELETE_FAILED"
    stack._add_stack_event(stack.status)
    if stack.status == "DELETE_COMPLETE":
        backend.deleted_stacks[stack.stack_id] = backend.stacks.pop(stack.stack_id)
    else:
        _no_outputs(stack)


def _with_capabilities(answer: Callable[[CloudFormationResponse], Any]) -> Callable[[CloudFormationResponse], Any]:
    """AWS makes resources of IAM only with the capability, and named ones only with the named one."""

    def checked(self: CloudFormationResponse) -> Any:
        url, body = self._get_param("TemplateURL"), self._get_param("TemplateBody")
        text = Stack.parse_template(self._get_stack_from_s3_url(url) if url else body)
        iam = [each for each in text["Resources"].values() if each["Type"].startswith("AWS::IAM::")]
        named = any(key.endswith("Name") for each in iam for key in each.get("Properties", {}))
        given = self._get_param("Capabilities", [])
        needed = ["CAPABILITY_NAMED_IAM"] if named else ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"]
        if iam and not set(needed) & set(given):
            raise InsufficientCapabilities(f"Requires capabilities : [{needed[0]}]")
        return answer(self)

    return checked


def _different(self: CloudFormationResponse, *_: Any) -> None:
    """Tags count too: an update looks itself."""


def _shown_parameters(stack: Any) -> dict[str, Any]:
    """As CloudFormation shows them: a list as it was given."""
    found = stack.resource_map.resolved_parameters
    return {key: ",".join(value) if isinstance(value, list) else value for key, value in found.items()}


def mend() -> None:
    """Before the first request."""
    whole = parsing.resource_class_from_type
    parsing.resource_class_from_type = lambda kind: Attributes if kind in KINDS else whole(kind)
    parsing.parse_and_create_resource = _resource
    Stack.create_resources = _create
    Stack.update = _update
    Stack.parameter_list = property(_parameter_list)
    Stack.stack_parameters = property(_shown_parameters)
    Stack.stack_resources = property(lambda stack: list(stack.made.values()))
    models.CloudFormationBackend.delete_stack = _delete
    CloudFormationResponse._validate_different_update = _different
    for name in ("create_stack", "update_stack"):
        setattr(CloudFormationResponse, name, _with_capabilities(getattr(CloudFormationResponse, name)))
    assert DEFAULT_ACCOUNT_ID
