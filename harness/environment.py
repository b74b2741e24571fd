"""What a job ran on, read from the host."""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
from functools import cache
from pathlib import Path

import harness
from harness import cgroup
from harness.launch import gpu, host
from harness.result import Environment


def read(docker_version: str | None) -> Environment:
    """The environment of this host."""
    gpus = gpu.probe()
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
    )


def cpu_model() -> str:
    """The processor's name, as the kernel shows it."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


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


@cache
def commit() -> str | None:
    """The commit of a source checkout; None for an installed package.

    ``-dirty-`` and a hash of the changes are appended where it was changed: two changed checkouts are two harnesses.
    """
    root = Path(harness.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD").decode().strip()
        changes = _git(root, "diff", *_PLAIN, "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else head


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=True).stdout
