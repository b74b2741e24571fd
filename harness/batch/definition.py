"""The job definition of a system image under an envelope."""

from __future__ import annotations

import ast
import base64
import zlib
from importlib import resources as files
from typing import Any

from harness.batch.wanted import HOST_FOLDER, Stack, Wanted, needs
from harness.errors import UsageError
from harness.remote import bundling, user_data

# A host that is lost (a spot interruption, a dead machine) says so as the job's status reason; one that cannot fetch or
# start the agent, as its container's reason.  Nothing else is tried again: what went wrong in a job is its outcome, and
# is stored.
ATTEMPTS = 3
_LOST_HOST = "Host EC2*"
_NOT_STARTED = ("CannotPull*", "CannotStart*", "DockerTimeout*")
# What each submission fills in: the run, which of its groups, and harness itself.
PARAMETERS = ("run", "group", "bundle", "sha256")
SHARED_VARIABLE = "HARNESS_SHARED_HOST"
# ECS takes 8192 characters of container overrides, in which Batch hands it the command with its parameters filled in;
# what Batch adds (its own variables) and the longest parameters must fit in the rest.
MOST_COMMAND = 7000
_LONGEST_PARAMETERS = 512
# Unpacks the follower, the sibling's script and the pins, and becomes the follower.
_LOADER = (
    "import base64,sys,zlib;a=sys.argv;"
    "f,i,p=zlib.decompress(base64.b64decode(a[1])).decode().split(chr(0));"
    "sys.argv=[a[0],a[2],i,a[3],a[4],p,*a[5:]];exec(compile(f,'follower.py','exec'))"
)
# The engine's socket is as good as root on the host; no other privilege is asked for.
_MOUNTS = {"engine": "/var/run/docker.sock", "harness": HOST_FOLDER}


def definition(stack: Stack, wanted: Wanted, role: Any) -> dict[str, Any]:
    """Its properties but for name and tags, in CloudFormation's form.

    Args:
        stack: what it is part of.
        wanted: image, envelope and instance type.
        role: refers to the job role.
    """
    vcpus, memory_mib = needs(wanted, stack.shared)
    required = [{"Type": "VCPU", "Value": str(vcpus)}, {"Type": "MEMORY", "Value": str(memory_mib)}]
    if wanted.envelope.gpus:
        # All of them: a job that is alone on its host chooses its own, as it does everywhere else.
        required.append({"Type": "GPU", "Value": str(wanted.instance.gpus)})
    container = {
        "Image": stack.agent_image,
        "Command": command(stack),
        "JobRoleArn": role,
        "ResourceRequirements": required,
        "Environment": [
            {"Name": SHARED_VARIABLE, "Value": "1" if stack.shared else "0"},
            {"Name": "HARNESS_GPUS", "Value": str(wanted.envelope.gpus)},
        ],
        "Volumes": [{"Name": name, "Host": {"SourcePath": path}} for name, path in _MOUNTS.items()],
        "MountPoints": [
            {"SourceVolume": name, "ContainerPath": path, "ReadOnly": False} for name, path in _MOUNTS.items()
        ],
    }
    return {
        "Type": "container",
        "PlatformCapabilities": ["EC2"],
        "Parameters": dict.fromkeys(PARAMETERS, "none"),
        "ContainerProperties": container,
        "RetryStrategy": retries(),
        "Timeout": {"AttemptDurationSeconds": wanted.timeout_s},
        "PropagateTags": True,
    }


def retries() -> dict[str, Any]:
    """Again where the host was at fault, and nowhere else: what no rule matches, Batch would try again."""
    return {
        "Attempts": ATTEMPTS,
        "EvaluateOnExit": [
            {"OnStatusReason": _LOST_HOST, "Action": "RETRY"},
            *({"OnReason": reason, "Action": "RETRY"} for reason in _NOT_STARTED),
            # The last that Batch takes, of five: every ended attempt has a status reason.
            {"OnStatusReason": "*", "Action": "EXIT"},
        ],
    }


def command(stack: Stack) -> list[str]:
    """What the job's container runs: the follower, told of the sibling's script and what that is to do.

    Raises:
        UsageError: it is longer than ECS takes.
    """
    asked = [f"Ref::{name}" for name in PARAMETERS]
    made = ["python3", "-c", _LOADER, _packed(), stack.agent_image, str(stack.work), stack.region, *asked]
    size = sum(len(word) + 4 for word in made) + _LONGEST_PARAMETERS
    if size > MOST_COMMAND:
        raise UsageError(
            f"the agents' command would have {size:,} characters, AWS Batch has room for {MOST_COMMAND:,}; shorten the"
            f" prefix of {stack.work} or the name of --agent-image"
        )
    return made


def _packed() -> str:
    """Both scripts without their comments, and the pins."""
    pins = "\n".join(bundling.pins(*user_data.BOTO3))
    whole = "\0".join((_script("follower.py"), _script("inside.py"), pins))
    return base64.b64encode(zlib.compress(whole.encode(), 9)).decode()


def _script(name: str) -> str:
    tree = ast.parse((files.files("harness.batch") / "agent" / name).read_text(encoding="utf-8"))
    for each in ast.walk(tree):
        if isinstance(each, (ast.FunctionDef, ast.ClassDef, ast.Module)) and ast.get_docstring(each, clean=False):
            del each.body[0]
    return ast.unparse(tree)
