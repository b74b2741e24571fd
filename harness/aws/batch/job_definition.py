"""A suite's job definitions: machines, vCPUs, memory, command, retries, a time-out."""

from __future__ import annotations

import ast
import base64
import zlib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from harness import records
from harness.aws.clients import S3Uri
from harness.aws.cloud_run import archive, costs, user_data
from harness.config import read_toml, validate
from harness.errors import UsageError
from harness.jobs import machines
from harness.jobs.machines import MachineChoice
from harness.jobs.suite import Suite
from harness.launch.images import catalog
from harness.launch.images.base_image import BaseFile
from harness.pricing import instances
from harness.pricing.instances import Instance
from harness.pricing.prices import Snapshot
from harness.records import Envelope

MIB = 1 << 20
# Batch takes no time-out below this; every submission has its own, and this one is for jobs that a user submits.
LEAST_TIMEOUT_S, _TIMEOUT_S = 60, 86_400
# On a shared host an agent needs this beside the envelope: harness itself, and what the engine starts for it.
_AGENT_VCPUS, _AGENT_MIB = 1, 1024
# Alone on its host a job asks for little: the sibling that it starts is not in its container.
_ALONE_MIB = 512
# A host registers less memory than its type has: of m5 and c5 4 % and more go to the kernel and ECS' agent.
_RESERVED_SHARE, _RESERVED_MIB = 0.05, 512
# AWS' mirror of Docker Hub, which limits nobody; images/base/base.toml pins the image.
_AGENT_REGISTRY = "public.ecr.aws/docker/library"
# Batch begins a job again whose host is lost (its status reason says so), or cannot start the agent (its container's
# reason); a failure inside a job is a result.  Batch takes five rules, and tries again where none matches.
_LOST_HOST, _NOT_STARTED = "Host EC2*", ("CannotPull*", "CannotStart*", "DockerTimeout*")
# Each submission fills these in.
PARAMETERS = ("run", "submission", "bundle", "sha256")
# ECS takes 8192 characters of overrides: the command with its parameters, and variables that Batch adds.
_MAXIMUM_COMMAND, _LONGEST_PARAMETERS = 7000, 512
# Unpacks both scripts and the pins, and becomes the first script.
_LOADER = (
    "import base64,sys,zlib;a=sys.argv;"
    "h,c,p=zlib.decompress(base64.b64decode(a[1])).decode().split(chr(0));"
    "sys.argv=[a[0],a[2],c,a[3],a[4],p,*a[5:]];exec(compile(h,'host.py','exec'))"
)
# The engine's socket is as good as root on the host; the agent asks for no other privilege.
_MOUNTS = {"engine": "/var/run/docker.sock", "harness": "/var/lib/harness"}


@dataclass(frozen=True)
class Options:
    """The machines that the command line asks for; ``max_instances`` of each type."""

    region: str
    work: S3Uri
    instance: str | None = None
    burstable: bool = False
    architecture: str | None = "x86_64"
    max_instances: int = 4
    disk_gib: int = 100
    spot: bool = False
    shared: bool = False
    agent_image: str = ""


@dataclass(frozen=True)
class Requirements:
    """A suite's machines in Batch: the instance type of each envelope."""

    suite: str
    options: Options
    machines: tuple[tuple[Envelope, Instance], ...]


def requirements(suite: Suite, options: Options, snapshot: Snapshot) -> Requirements:
    """Choose the instance type of each profile of a suite."""
    choice = MachineChoice(options.instance, options.burstable, options.architecture)
    chosen = machines.of_suite(suite, snapshot, choice).items()
    pairs = tuple((instances.hardware_profile(name), machine.instance) for name, machine in chosen)
    for envelope, instance in pairs:
        check(envelope, instance, options.shared)
    path = catalog.images_dir() / "base" / "base.toml"
    base = validate(BaseFile, read_toml(path), path)
    image = options.agent_image or f"{_AGENT_REGISTRY}/{base.image}@{base.digest}"
    return Requirements(suite.name, replace(options, agent_image=image), pairs)


def check(envelope: Envelope, instance: Instance, shared: bool) -> None:
    """Refuse jobs that would wait for ever, or share a GPU."""
    if shared and envelope.gpus:
        raise UsageError(f"profile {envelope.name}: jobs cannot share a GPU; leave out --shared, or the profile")
    (vcpus, memory_mib), room = needs(envelope, instance, shared), room_mib(instance)
    if vcpus > instance.vcpus or memory_mib > room or envelope.gpus > instance.gpus:
        raise UsageError(
            f"profile {envelope.name} needs {vcpus} vCPU, {memory_mib} MiB and {envelope.gpus} GPU;"
            f" {instance.instance_type} leaves a job {instance.vcpus} vCPU, {room} MiB and {instance.gpus} GPU;"
            " choose a larger --instance"
        )


def needs(envelope: Envelope, instance: Instance, shared: bool) -> tuple[int, int]:
    """Return a job's vCPUs and MiB: all vCPUs, unless hosts are shared."""
    if not shared:
        return instance.vcpus, _ALONE_MIB
    return envelope.cpus + _AGENT_VCPUS, -(-envelope.memory_bytes // MIB) + _AGENT_MIB


def room_mib(instance: Instance) -> int:
    """Return MiB that a host surely registers."""
    return int(instance.memory_bytes / MIB * (1 - _RESERVED_SHARE)) - _RESERVED_MIB


def definition(envelope: Envelope, instance: Instance, options: Options, role: Any) -> dict[str, Any]:
    """Return a definition in CloudFormation's form, without its name."""
    mounts = [{"SourceVolume": name, "ContainerPath": path, "ReadOnly": False} for name, path in _MOUNTS.items()]
    container = {
        **_identity(envelope, instance, options),
        "Image": options.agent_image,
        "JobRoleArn": role,
        "Volumes": [{"Name": name, "Host": {"SourcePath": path}} for name, path in _MOUNTS.items()],
        "MountPoints": mounts,
    }
    again = [{"OnReason": reason, "Action": "RETRY"} for reason in _NOT_STARTED]
    rules = [{"OnStatusReason": _LOST_HOST, "Action": "RETRY"}, *again, {"OnStatusReason": "*", "Action": "EXIT"}]
    return {
        "Type": "container",
        "PlatformCapabilities": ["EC2"],
        "Parameters": dict.fromkeys(PARAMETERS, "none"),
        "ContainerProperties": container,
        "RetryStrategy": {"Attempts": costs.ATTEMPTS, "EvaluateOnExit": rules},
        "Timeout": {"AttemptDurationSeconds": _TIMEOUT_S},
        "PropagateTags": True,
    }


def digest(envelope: Envelope, instance: Instance, options: Options) -> str:
    """Return a hash of how a job runs, wherever its image is."""
    return records.digest(_identity(envelope, instance, replace(options, agent_image="")))[:16]


def _identity(envelope: Envelope, instance: Instance, options: Options) -> dict[str, Any]:
    vcpus, memory_mib = needs(envelope, instance, options.shared)
    required = {"VCPU": vcpus, "MEMORY": memory_mib}
    if envelope.gpus:
        # All of them: a job that is alone on its host chooses its own there.
        required["GPU"] = instance.gpus
    variables = {"HARNESS_SHARED_HOST": str(int(options.shared)), "HARNESS_GPUS": str(envelope.gpus)}
    return {
        "Command": command(options.agent_image, options.work, options.region),
        "ResourceRequirements": [{"Type": kind, "Value": str(value)} for kind, value in required.items()],
        "Environment": [{"Name": name, "Value": value} for name, value in variables.items()],
    }


def command(image: str, work: S3Uri, region: str) -> list[str]:
    """Return the agent's command: both scripts, packed, and their arguments."""
    pins = "\n".join(archive.pins(*user_data.BOTO3))
    scripts = "\0".join((_script("host.py"), _script("container.py"), pins)).encode()
    packed = base64.b64encode(zlib.compress(scripts, 9)).decode()
    words = ["python3", "-c", _LOADER, packed, image, str(work), region, *(f"Ref::{name}" for name in PARAMETERS)]
    size = sum(len(word) + 4 for word in words) + _LONGEST_PARAMETERS
    if size > _MAXIMUM_COMMAND:
        raise UsageError(
            f"the agents' command has {size:,} characters, AWS Batch takes {_MAXIMUM_COMMAND:,}; shorten the prefix of"
            f" {work} or the name of --agent-image"
        )
    return words


def _script(name: str) -> str:
    """Return a script without comments and docstrings."""
    tree = ast.parse((resources.files("harness.aws.batch") / "agent" / name).read_text(encoding="utf-8"))
    for each in ast.walk(tree):
        if isinstance(each, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(each, clean=False):
            del each.body[0]
    return ast.unparse(tree)
