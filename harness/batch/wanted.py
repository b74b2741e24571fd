"""What a suite needs of Batch: which images under which envelopes, on which instance types."""

from __future__ import annotations

from dataclasses import dataclass

from harness.aws.uri import S3Uri
from harness.errors import UsageError
from harness.instances import Instance
from harness.records import Envelope

MIB = 1 << 20
# What the agent needs beside the envelope, where a host is shared: the harness in Python, the engine's children.
OVERHEAD_VCPUS = 1
OVERHEAD_MIB = 1024
# What a follower may take that has its host to itself: what it starts there is beside it, not in it.
FOLLOWER_MIB = 512
# By what a host's memory is less than its type's, once kernel and ECS' agent have theirs: of m5 and c5 4 % and more.
_KEPT_SHARE, _KEPT_MIB = 0.05, 512
# The official image of Python that images/base/base.toml pins, where AWS mirrors it: no registry's limits.
AGENT_REGISTRY = "public.ecr.aws/docker/library"
# Where a host keeps what agents share: mounted at the same place in every container of ours.
HOST_FOLDER = "/var/lib/harness"


@dataclass(frozen=True)
class Wanted:
    """A system image under an envelope, and the instance type that serves it.

    ``timeout_s`` is the longest that one job of it may take; a submission may say less.
    """

    image: str
    envelope: Envelope
    instance: Instance
    timeout_s: int


@dataclass(frozen=True)
class Stack:
    """All that ``harness batch up`` makes for a suite in a region.

    ``most_instances`` is the cap for each instance type; ``disk_gib`` each one's disk; ``agent_image`` what the jobs'
    containers are made of.  ``shared``: jobs may share a host, and their results say so.
    """

    suite: str
    region: str
    work: S3Uri
    wanted: tuple[Wanted, ...]
    agent_image: str
    most_instances: int = 4
    disk_gib: int = 100
    spot: bool = False
    shared: bool = False

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instance types, each once."""
        return tuple({each.instance.instance_type: each.instance for each in self.wanted}.values())


def check(stack: Stack) -> None:
    """Refuse what Batch would take and never run.

    Raises:
        UsageError: an envelope does not fit its instance type, or GPUs would be shared.
    """
    for each in stack.wanted:
        if stack.shared and each.envelope.gpus:
            raise UsageError(
                f"profile {each.envelope.name}: a GPU is not shared between jobs; leave --shared out, or the profile"
            )
        vcpus, memory_mib = needs(each, stack.shared)
        most = room_mib(each.instance)
        if vcpus > each.instance.vcpus or memory_mib > most or each.envelope.gpus > each.instance.gpus:
            asked = f"{vcpus} vCPU, {memory_mib} MiB and {each.envelope.gpus} GPU"
            raise UsageError(
                f"profile {each.envelope.name}: needs {asked}, and {each.instance.instance_type} leaves a job"
                f" {each.instance.vcpus} vCPU, {most} MiB and {each.instance.gpus} GPU; choose a larger --instance"
            )


def needs(wanted: Wanted, shared: bool) -> tuple[int, int]:
    """vCPUs and MiB that a job asks Batch for.

    All vCPUs of the instance, so that it is alone there, unless it is shared; then its envelope and an allowance.
    """
    if not shared:
        return wanted.instance.vcpus, FOLLOWER_MIB
    return wanted.envelope.cpus + OVERHEAD_VCPUS, -(-wanted.envelope.memory_bytes // MIB) + OVERHEAD_MIB


def room_mib(instance: Instance) -> int:
    """MiB that an instance has for jobs, carefully.

    ECS registers less than the type's nominal memory (the kernel's share, and what its agent keeps); a job that asks
    for more than was registered waits for ever.
    """
    return int(instance.memory_bytes / MIB * (1 - _KEPT_SHARE)) - _KEPT_MIB
