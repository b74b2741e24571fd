"""The environment of jobs: this host's CPUs, memory, GPUs and EC2 instance, and the harness's own version."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

import harness
from harness import child_process
from harness.driver import cgroup
from harness.driver.procfs import read_text
from harness.launch import host
from harness.launch.monitor import gpu
from harness.results.schema import Environment, RentedMachine
from harness.untrusted import ForeignText, foreign

_ENDPOINT = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_DEFAULT_ENDPOINT = "http://169.254.169.254"
_DMI = Path("/sys/class/dmi/id")
_TIMEOUT_S = 2.0
_TRIES = 3
_TTL_S = "300"
_MOST_BYTES = 4096
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/-]{0,127}")


def machine() -> RentedMachine | None:
    """Return this machine's EC2 facts and CPU model; None outside EC2.  No fact names the machine's owner."""
    names = {
        "instance_id": "instance-id",
        "instance_type": "instance-type",
        "availability_zone": "placement/availability-zone",
        "ami_id": "ami-id",
        "lifecycle": "instance-life-cycle",
        "placement_group": "placement/group-name",
        "host_id": "placement/host-id",
    }
    answers = _metadata(*names.values())
    facts = {name: text if text and _VALUE.fullmatch(text) else None for name, text in zip(names, answers, strict=True)}
    instance_id, instance_type = facts.pop("instance_id"), facts.pop("instance_type")
    if instance_id is None or instance_type is None:
        return None
    return RentedMachine(instance_id, instance_type, cpu_platform=cpu_model(), **facts)


def spot_notice() -> str | None:
    """Return EC2's announcement for this spot instance (``terminate at 2023-...``), if any."""
    [content] = _metadata("spot/instance-action")
    if content is None:
        return None
    try:
        notice = json.loads(content)
        return f"{notice['action']} at {notice['time']}"[:100]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "an interruption"


def is_ec2() -> bool:
    """Return whether the instance metadata service may answer."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    if os.environ.get(_ENDPOINT):
        return True
    firmware = (read_text(_DMI / name) or "" for name in ("sys_vendor", "bios_vendor", "bios_version"))
    return any("amazon" in text.lower() for text in firmware)


def _metadata(*paths: str) -> list[str | None]:
    """Return facts of the instance metadata service; a fact is ``None`` if the service lacks it or does not answer."""
    for _ in range(_TRIES if is_ec2() else 0):
        if token := _request("api/token", {"X-aws-ec2-metadata-token-ttl-seconds": _TTL_S}, "PUT"):
            header = {"X-aws-ec2-metadata-token": token}
            return [_request(f"meta-data/{path}", header, "GET") for path in paths]
    return [None] * len(paths)


def _request(path: str, headers: dict[str, str], method: str) -> str | None:
    """Return the service's answer; None if it has no such fact."""
    endpoint = (os.environ.get(_ENDPOINT) or _DEFAULT_ENDPOINT).rstrip("/")
    if not endpoint.startswith(("http://", "https://")):
        return None
    request = urllib.request.Request(f"{endpoint}/latest/{path}", headers=headers, method=method)  # noqa: S310 # http alone
    # Without a proxy, which would answer for its own machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            return str(answer.read(_MOST_BYTES).decode("ascii")).strip()
    except (OSError, ValueError, urllib.error.URLError):
        return None


# Set by harness.aws.batch, which starts several jobs on one host.
_SHARED = "HARNESS_SHARED_HOST"


def shared_host() -> bool:
    """Return whether other jobs may run on this host at the same time."""
    return os.environ.get(_SHARED, "0") == "1"


def read(docker_version: str | None) -> Environment:
    """Read the environment of this host."""
    gpus, instance = gpu.probe(), machine()
    return Environment(
        cpu_model=ForeignText(cpu_model()),
        architecture=ForeignText(platform.machine()),
        host_cpus=host.cpus(),
        host_memory_bytes=host.memory_bytes(),
        kernel=ForeignText(platform.release()),
        cgroup_version=cgroup.host_version(),
        docker_version=foreign(docker_version),
        harness_version=ForeignText(harness.__version__),
        harness_commit=foreign(commit()),
        gpu_models=tuple(map(ForeignText, gpus.models)),
        gpu_driver=foreign(gpus.driver),
        instance_type=foreign(instance.instance_type if instance else None),
    )


# On arm64 the kernel shows numbers: these are Arm's own cores in EC2's Gravitons (1, 2, 3, 4).
_ARM = "0x41"
_ARM_CORES = {"0xd08": "Cortex-A72", "0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1", "0xd4f": "Neoverse-V2"}


def cpu_model() -> str:
    """Return the kernel's name of the processor; two kinds of processor never share a name."""
    content = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    pattern = r"^(model name|CPU implementer|CPU part)\s*:\s*(.+?)\s*$"
    facts: dict[str, str] = dict(re.findall(pattern, content, re.MULTILINE))
    if "model name" in facts:
        return facts["model name"]
    maker, part = facts.get("CPU implementer"), facts.get("CPU part")
    if maker is None or part is None:
        return platform.machine()
    named = _ARM_CORES.get(part) if maker == _ARM else None
    return f"Arm {named}" if named else f"{platform.machine()} (implementer {maker}, part {part})"


# The same changes give the same text with any git configuration.
_PLAIN = ["--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--unified=3"]
_PLAIN += ["--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/"]

# File with the commit, in a copy of a checkout without git.
COMMIT_FILE = "COMMIT"


@cache
def commit() -> str | None:
    """Return the commit of this source checkout or copy of one; None for an installed package.

    ``-dirty-`` and a hash of the changes follow where it was changed: two changed checkouts are two harnesses.
    """
    root = Path(harness.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        path = Path(harness.__file__).resolve().parent / COMMIT_FILE
        return (path.read_text(encoding="utf-8").strip() or None) if path.is_file() else None
    try:
        head = git(root, "rev-parse", "HEAD").decode().strip()
        changes = git(root, "diff", *_PLAIN, "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else head


def git(root: Path, *arguments: str) -> bytes:
    """Return the output of git in a checkout."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, check=True, env=child_process.environment("GIT_*")).stdout
