"""What a job ran on, read from the host."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import harness
from harness import cgroup, instance_metadata
from harness.launch import gpu, host
from harness.result import Ec2Instance, Environment


def instance() -> Ec2Instance | None:
    """This machine, if it is one of EC2."""
    found = instance_metadata.instance()
    return replace(found, cpu_platform=cpu_model()) if found else None


# Set by whoever starts jobs of others beside ours (harness.batch).
_SHARED = "HARNESS_SHARED_HOST"


def shared_host() -> bool:
    """Whether other jobs may run on this host at the same time, as whoever started this one says."""
    return os.environ.get(_SHARED, "0") == "1"


def read(docker_version: str | None, known: Ec2Instance | None = None) -> Environment:
    """The environment of this host; ``known``: what EC2 has said of it already."""
    gpus, found = gpu.probe(), known or instance()
    return Environment(
        cpu_model=cpu_model(),
        architecture=platform.machine(),
        host_cpus=host.cpus(),
        host_memory_bytes=host.memory_bytes(),
        kernel=platform.release(),
        cgroup_version=cgroup.host_version(),
        docker_version=docker_version,
        harness_version=harness.__version__,
        harness_commit=commit(),
        gpu_models=gpus.models,
        gpu_driver=gpus.driver,
        instance_type=found.instance_type if found else None,
    )


# On arm64 the kernel shows numbers: these are Arm's own cores in EC2's Gravitons (1, 2, 3, 4).
_ARM = "0x41"
_ARM_CORES = {"0xd08": "Cortex-A72", "0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1", "0xd4f": "Neoverse-V2"}


def cpu_model() -> str:
    """The processor's name, as the kernel shows it; two that differ are never called the same."""
    shown = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    facts: dict[str, str] = dict(
        re.findall(r"^(model name|CPU implementer|CPU part)\s*:\s*(.+?)\s*$", shown, re.MULTILINE)
    )
    if "model name" in facts:
        return facts["model name"]
    maker, part = facts.get("CPU implementer"), facts.get("CPU part")
    if maker is None or part is None:
        return platform.machine()
    named = _ARM_CORES.get(part) if maker == _ARM else None
    return f"Arm {named}" if named else f"{platform.machine()} (implementer {maker}, part {part})"


# The same changes give the same text whatever somebody's git is set to.
_PLAIN = [
    "--binary",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--unified=3",
    "--diff-algorithm=myers",
]
_PLAIN += ["--src-prefix=a/", "--dst-prefix=b/"]


# In a copy of a checkout without its git: the commit that it is of.
COMMIT_FILE = "COMMIT"


@cache
def commit() -> str | None:
    """The commit of a source checkout, or of the checkout that this is a copy of; None for an installed package.

    ``-dirty-`` and a hash of the changes are appended where it was changed: two changed checkouts are two harnesses.
    """
    root = Path(harness.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        told = Path(harness.__file__).resolve().parent / COMMIT_FILE
        return (told.read_text(encoding="utf-8").strip() or None) if told.is_file() else None
    try:
        head = _git(root, "rev-parse", "HEAD").decode().strip()
        changes = _git(root, "diff", *_PLAIN, "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else head


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True).stdout
