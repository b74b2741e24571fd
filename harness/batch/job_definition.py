"""Job definitions: how Batch runs a part under a hardware profile."""

from __future__ import annotations

import ast
import base64
import zlib
from importlib import resources
from typing import Any

from harness import records
from harness.aws.uri import S3Uri
from harness.batch.requirements import Requirements, needs
from harness.errors import UsageError
from harness.instances import Instance
from harness.records import Envelope
from harness.remote import bundling, user_data

# Batch begins a job again whose host is lost (its status reason says so), or cannot start the agent (its container's
# reason); a failure inside a job is a result.  Batch takes five rules, and tries again where none matches.
ATTEMPTS = 3
_LOST_HOST = "Host EC2*"
_NOT_STARTED = ("CannotPull*", "CannotStart*", "DockerTimeout*")
# Each submission fills these in.
PARAMETERS = ("run", "submission", "bundle", "sha256")
SHARED_VARIABLE = "HARNESS_SHARED_HOST"
# ECS takes 8192 characters of overrides: the command with its parameters, and variables that Batch adds.
_MAXIMUM_COMMAND = 7000
_LONGEST_PARAMETERS = 512
# Unpacks both scripts and the pins, and becomes the first script.
_LOADER = (
    "import base64,sys,zlib;a=sys.argv;"
    "h,c,p=zlib.decompress(base64.b64decode(a[1])).decode().split(chr(0));"
    "sys.argv=[a[0],a[2],c,a[3],a[4],p,*a[5:]];exec(compile(h,'host.py','exec'))"
)
# The engine's socket is as good as root on the host; the agent asks for no other privilege.
_MOUNTS = {"engine": "/var/run/docker.sock", "harness": "/var/lib/harness"}


def definition(wanted: Requirements, envelope: Envelope, instance: Instance, role: Any) -> dict[str, Any]:
    """Return a definition in CloudFormation's form, without its name; ``role`` refers to the workers' role."""
    options = wanted.options
    container = {
        **_identity(envelope, instance, options.shared, options.work, options.region, wanted.agent_image),
        "Image": wanted.agent_image,
        "JobRoleArn": role,
        "Volumes": [{"Name": name, "Host": {"SourcePath": path}} for name, path in _MOUNTS.items()],
        "MountPoints": [
            {"SourceVolume": name, "ContainerPath": path, "ReadOnly": False} for name, path in _MOUNTS.items()
        ],
    }
    again = [{"OnReason": reason, "Action": "RETRY"} for reason in _NOT_STARTED]
    rules = [{"OnStatusReason": _LOST_HOST, "Action": "RETRY"}, *again, {"OnStatusReason": "*", "Action": "EXIT"}]
    return {
        "Type": "container",
        "PlatformCapabilities": ["EC2"],
        "Parameters": dict.fromkeys(PARAMETERS, "none"),
        "ContainerProperties": container,
        "RetryStrategy": {"Attempts": ATTEMPTS, "EvaluateOnExit": rules},
        "Timeout": {"AttemptDurationSeconds": wanted.timeout_s},
        "PropagateTags": True,
    }


def digest(envelope: Envelope, instance: Instance, shared: bool, work: S3Uri, region: str) -> str:
    """Return a hash of what decides how a job runs; another copy of the agents' image decides nothing."""
    return records.digest(_identity(envelope, instance, shared, work, region, ""))[:16]


def _identity(
    envelope: Envelope, instance: Instance, shared: bool, work: S3Uri, region: str, image: str
) -> dict[str, Any]:
    vcpus, memory_mib = needs(envelope, instance, shared)
    required = {"VCPU": vcpus, "MEMORY": memory_mib}
    if envelope.gpus:
        # All of them: a job that is alone on its host chooses its own there.
        required["GPU"] = instance.gpus
    variables = {SHARED_VARIABLE: str(int(shared)), "HARNESS_GPUS": str(envelope.gpus)}
    return {
        "Command": command(image, work, region),
        "ResourceRequirements": [{"Type": kind, "Value": str(value)} for kind, value in required.items()],
        "Environment": [{"Name": name, "Value": value} for name, value in variables.items()],
    }


def command(image: str, work: S3Uri, region: str) -> list[str]:
    """Return the agent's command: both scripts, packed, and what they are to do.

    Raises:
        UsageError: ECS would refuse it as too long.
    """
    words = ["python3", "-c", _LOADER, _packed(), image, str(work), region, *(f"Ref::{name}" for name in PARAMETERS)]
    size = sum(len(word) + 4 for word in words) + _LONGEST_PARAMETERS
    if size > _MAXIMUM_COMMAND:
        raise UsageError(
            f"the agents' command has {size:,} characters, AWS Batch takes {_MAXIMUM_COMMAND:,}; shorten the prefix of"
            f" {work} or the name of --agent-image"
        )
    return words


def _packed() -> str:
    """Pack both scripts without comments, and the pins."""
    pins = "\n".join(bundling.pins(*user_data.BOTO3))
    whole = "\0".join((_script("host.py"), _script("container.py"), pins))
    return base64.b64encode(zlib.compress(whole.encode(), 9)).decode()


def _script(name: str) -> str:
    tree = ast.parse((resources.files("harness.batch") / "agent" / name).read_text(encoding="utf-8"))
    for each in ast.walk(tree):
        if isinstance(each, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(each, clean=False):
            del each.body[0]
    return ast.unparse(tree)
