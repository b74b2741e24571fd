"""What a suite needs of AWS Batch: hardware profiles, the instance type of each, a time-out."""

from __future__ import annotations

from dataclasses import dataclass

from harness import catalog, hardware, instances, offers
from harness.aws.uri import S3Uri
from harness.base_image import BaseFile
from harness.declared import read_toml, validate
from harness.ec2 import machines
from harness.errors import UsageError
from harness.instances import Instance
from harness.plan import cells
from harness.prices import Snapshot
from harness.records import Envelope
from harness.suite import Suite

MIB = 1 << 20
# Batch takes no time-out below this.
LEAST_TIMEOUT_S = 60
# On a shared host an agent needs this beside the envelope: harness itself, and what the engine starts for it.
_AGENT_VCPUS, _AGENT_MIB = 1, 1024
# Alone on its host a job asks for little: the sibling that it starts is not in its container.
_ALONE_MIB = 512
# A host registers less memory than its type has: of m5 and c5 4 % and more go to the kernel and ECS' agent.
_RESERVED_SHARE, _RESERVED_MIB = 0.05, 512
# AWS' mirror of Docker Hub, which limits nobody; images/base/base.toml pins the image.
_AGENT_REGISTRY = "public.ecr.aws/docker/library"


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
    agent_image: str | None = None


@dataclass(frozen=True)
class Requirements:
    """All that a suite has in Batch: the instance type of each envelope; ``timeout_s`` of any job."""

    suite: str
    options: Options
    machines: tuple[tuple[Envelope, Instance], ...]
    timeout_s: int
    agent_image: str

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instance types, each once."""
        return tuple({each.instance_type: each for _, each in self.machines}.values())


def requirements(suite: Suite, options: Options, snapshot: Snapshot) -> Requirements:
    """Return what a suite needs.

    Raises:
        UsageError: a name is unknown, or no instance type provides a profile.
    """
    wanted = cells(suite)
    names = {cell.profile for cell in wanted} | ({suite.build_profile} if suite.build_profile else set())
    profiles = {name: hardware.profile(name) for name in sorted(names)}
    asked = machines.Wanted(suite.ec2.instances, options.instance, options.burstable, options.architecture)
    chosen = machines.choose(profiles, snapshot, instances.read("aws"), offers.reserve(), asked)
    pairs = tuple((envelope, chosen[name].instance) for name, envelope in profiles.items())
    for envelope, instance in pairs:
        check(envelope, instance, options.shared)
    protocol = suite.protocol
    whole = protocol.build_timeout_s + len(wanted) * protocol.jobs * (protocol.job_timeout_s + protocol.load_timeout_s)
    timeout_s = max(LEAST_TIMEOUT_S, round(whole))
    return Requirements(suite.name, options, pairs, timeout_s, options.agent_image or agent_image())


def check(envelope: Envelope, instance: Instance, shared: bool) -> None:
    """Refuse a job that Batch would take and never run.

    Raises:
        UsageError: the envelope does not fit the instance type, or jobs would share a GPU.
    """
    if shared and envelope.gpus:
        raise UsageError(f"profile {envelope.name}: jobs cannot share a GPU; leave out --shared, or the profile")
    vcpus, memory_mib = needs(envelope, instance, shared)
    room = room_mib(instance)
    if vcpus > instance.vcpus or memory_mib > room or envelope.gpus > instance.gpus:
        raise UsageError(
            f"profile {envelope.name} needs {vcpus} vCPU, {memory_mib} MiB and {envelope.gpus} GPU;"
            f" {instance.instance_type} leaves a job {instance.vcpus} vCPU, {room} MiB and {instance.gpus} GPU;"
            " choose a larger --instance"
        )


def needs(envelope: Envelope, instance: Instance, shared: bool) -> tuple[int, int]:
    """Return vCPUs and MiB that a job asks for: all vCPUs, unless hosts are shared."""
    if not shared:
        return instance.vcpus, _ALONE_MIB
    return envelope.cpus + _AGENT_VCPUS, -(-envelope.memory_bytes // MIB) + _AGENT_MIB


def room_mib(instance: Instance) -> int:
    """Return MiB that a host surely registers: a job that asks for more waits for ever."""
    return int(instance.memory_bytes / MIB * (1 - _RESERVED_SHARE)) - _RESERVED_MIB


def agent_image() -> str:
    """Return the official Python image by digest, from AWS' mirror.

    Raises:
        FileError: ``images/base/base.toml`` is missing or wrong.
    """
    path = catalog.images_dir() / "base" / "base.toml"
    base = validate(BaseFile, read_toml(path), path)
    return f"{_AGENT_REGISTRY}/{base.image}@{base.digest}"
