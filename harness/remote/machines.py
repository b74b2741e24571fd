"""Hardware profile -> the instance type that its jobs run on.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from harness import offers
from harness.errors import UsageError, did_you_mean
from harness.instances import Instance
from harness.offers import GIB, Reserve
from harness.prices import Snapshot
from harness.records import Envelope


@dataclass(frozen=True)
class Machine:
    """What a profile's jobs run on; ``remark`` says why it is not the type that the profile is priced on."""

    instance: Instance
    usd_per_hour: float
    remark: str | None = None

    @property
    def name(self) -> str:
        """The instance type."""
        return self.instance.instance_type


@dataclass(frozen=True)
class Wanted:
    """What the suite and the command line say of instance types.

    ``declared`` are a suite's own, by profile; ``everywhere`` is ``--instance``, which goes before them.
    ``architecture`` is what images are made for; ``None``: any.
    """

    declared: Mapping[str, str] = field(default_factory=dict)
    everywhere: str | None = None
    burstable: bool = False
    architecture: str | None = "x86_64"


def choose(
    profiles: Mapping[str, Envelope],
    snapshot: Snapshot,
    known: Mapping[str, Instance],
    reserve: Reserve,
    wanted: Wanted,
) -> dict[str, Machine]:
    """The machine of each profile.

    Args:
        profiles: those that have something to do, by name.
        snapshot: the prices of the region.
        known: facts of every instance type.
        reserve: what a host needs for itself.
        wanted: what was asked for.

    Raises:
        UsageError: a type is unknown, has no price, is too small, burstable unasked or of an architecture that there
            are no images for; or no type provides a profile.
    """
    chosen = {}
    bootable = replace(snapshot, prices=tuple(each for each in snapshot.prices if not _unbootable(each[0])))
    for name, envelope in profiles.items():
        asked = wanted.everywhere or wanted.declared.get(name)
        if asked:
            chosen[name] = _asked(asked, envelope, snapshot, known, reserve, wanted)
        else:
            chosen[name] = _cheapest(envelope, snapshot, bootable, reserve, wanted)
    return chosen


def _unbootable(instance: Instance) -> str | None:
    """Amazon Linux 2023 asks for ARMv8.2, which the first Graviton is not; its NVIDIA driver for newer GPUs."""
    if instance.instance_type.startswith("a1."):
        return "Amazon Linux 2023 does not run on it"
    if instance.gpus and instance.instance_type.partition(".")[0] in ("g2", "g3", "g3s", "p2", "p3", "p3dn"):
        return "its GPUs are too old for the driver of the machine image"
    return None


def _cheapest(envelope: Envelope, snapshot: Snapshot, bootable: Snapshot, reserve: Reserve, wanted: Wanted) -> Machine:
    """The type that the profile is priced on, or the next cheapest with room for the host and the harness."""
    roomy = replace(envelope, cpus=envelope.cpus + 1)
    found = offers.cheapest(roomy, bootable, architecture=wanted.architecture, reserve=reserve)
    if found is None:
        raise UsageError(
            f"no instance type of {snapshot} has room for profile {envelope.name} beside the host"
            f"{f' on {wanted.architecture}' if wanted.architecture else ''};"
            " name one in the suite's [ec2] table or with --instance"
        )
    priced = offers.cheapest(envelope, snapshot)
    if priced is None or priced.instance.instance_type == found.instance.instance_type:
        return Machine(found.instance, found.usd_per_hour)
    out = offers.provide(roomy, snapshot, architecture=wanted.architecture, reserve=reserve).left_out
    reasons = {each.instance.instance_type: each.reason for each in out}
    why = reasons.get(priced.instance.instance_type) or _unbootable(priced.instance) or "dearer"
    why = why.replace(f"fewer than {roomy.cpus} vCPUs", f"no vCPU beside the job's {envelope.cpus} for the harness")
    remark = f"{envelope.name} is priced on {priced.instance.instance_type}, which is left out: {why}"
    return Machine(found.instance, found.usd_per_hour, remark)


def _asked(
    name: str,
    envelope: Envelope,
    snapshot: Snapshot,
    known: Mapping[str, Instance],
    reserve: Reserve,
    wanted: Wanted,
) -> Machine:
    check_known(name, known)
    instance, usd = known[name], snapshot.price_of(name)
    if usd is None:
        raise UsageError(f"{name} has no price in {snapshot}, so that no bill can be foretold; choose another type")
    unbootable = _unbootable(instance)
    if unbootable:
        raise UsageError(f"{name}: {unbootable}; choose another type")
    if instance.burstable and not wanted.burstable:
        raise UsageError(
            f"{name} is burstable: it sells a share of its CPUs' time, and latencies on it belong to nothing;"
            " choose another type, or say --burstable"
        )
    if wanted.architecture not in (None, instance.architecture):
        raise UsageError(
            f"{name} is {instance.architecture}, and images are made for {wanted.architecture}; choose another type"
        )
    small = _too_small(instance, envelope, reserve)
    if small:
        raise UsageError(f"{name} is too small for profile {envelope.name}: {small}; choose a larger type")
    remark = f"{name} has no vCPU beside the job's {envelope.cpus} for the harness"
    return Machine(instance, usd, remark if instance.vcpus == envelope.cpus else None)


def check_known(name: str, known: Mapping[str, Instance]) -> None:
    """Refuse an instance type that AWS does not have."""
    if name not in known:
        raise UsageError(
            f"unknown instance type {name!r}{did_you_mean(name, known)};"
            " `harness instances` and instance_profiles/instances/aws.csv list those known"
        )


def _too_small(instance: Instance, envelope: Envelope, reserve: Reserve) -> str | None:
    if instance.vcpus < envelope.cpus:
        return f"{instance.vcpus} of {envelope.cpus} CPUs"
    left = reserve.left(instance.memory_bytes)
    if left < envelope.memory_bytes:
        return (
            f"{left / GIB:.2f} GiB of memory are left beside the host's own {reserve},"
            f" {envelope.memory_bytes / GIB:g} GiB are needed"
        )
    if instance.gpus < envelope.gpus:
        return f"{instance.gpus} of {envelope.gpus} GPUs"
    return None
