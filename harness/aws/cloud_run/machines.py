"""The instance type on which a suite's hardware profile is measured.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harness.errors import UsageError, did_you_mean
from harness.jobs.suite import Suite
from harness.pricing import instances, offers
from harness.pricing.instances import Instance
from harness.pricing.offers import HostReserve
from harness.pricing.prices import Snapshot
from harness.records import Envelope


@dataclass(frozen=True)
class ChosenMachine:
    """An instance type with its price; ``remark``: why it is not the type that the profile is priced on."""

    instance: Instance
    usd_per_hour: float
    remark: str | None = None

    @property
    def name(self) -> str:
        """The instance type."""
        return self.instance.instance_type


@dataclass(frozen=True)
class MachineOptions:
    """The command line's choice: ``instance`` for all profiles, and the architecture of images."""

    instance: str | None = None
    burstable: bool = False
    architecture: str = "x86_64"


def of_suite(suite: Suite, snapshot: Snapshot, choice: MachineOptions) -> dict[str, ChosenMachine]:
    """Return the machine of each hardware profile of a suite, by name."""
    return choose(suite.envelopes(), snapshot, choice, suite.ec2.instances)


def choose(
    profiles: Mapping[str, Envelope], snapshot: Snapshot, choice: MachineOptions, declared: Mapping[str, str]
) -> dict[str, ChosenMachine]:
    """Return the machine of each profile; ``declared`` are a suite's own types, by profile.

    Raises:
        UsageError: a type is unknown, unpriced, too small, burstable unasked or of another architecture; or no type
            provides a profile.
    """
    reserve, known = offers.host_reserve(), instances.read_instances("aws")
    bootable = replace(snapshot, prices=tuple(offer for offer in snapshot.prices if not _unbootable(offer[0])))
    chosen = {}
    for name, envelope in profiles.items():
        type_name = choice.instance or declared.get(name)
        if type_name:
            check_known(type_name, known)
            chosen[name] = _named(known[type_name], envelope, snapshot, reserve, choice)
        else:
            chosen[name] = _cheapest(envelope, snapshot, bootable, reserve, choice.architecture)
    return chosen


def check_known(name: str, known: Mapping[str, Instance]) -> None:
    """Refuse an instance type that AWS does not have."""
    if name not in known:
        raise UsageError(
            f"unknown instance type {name!r}{did_you_mean(name, known)};"
            " `harness instances` and instance_profiles/instances/aws.csv list those known"
        )


def _unbootable(instance: Instance) -> str | None:
    """Amazon Linux 2023 asks for ARMv8.2, which the first Graviton is not; its NVIDIA driver for newer GPUs."""
    if instance.instance_type.startswith("a1."):
        return "Amazon Linux 2023 does not run on it"
    if instance.gpus and instance.instance_type.partition(".")[0] in ("g2", "g3", "g3s", "p2", "p3", "p3dn"):
        return "its GPUs are too old for the driver of the machine image"
    return None


def _cheapest(
    envelope: Envelope, snapshot: Snapshot, bootable: Snapshot, reserve: HostReserve, architecture: str
) -> ChosenMachine:
    """Return the type that the profile is priced on, or the next cheapest with room for the host and the harness."""
    roomy = replace(envelope, cpus=envelope.cpus + 1)
    cheapest = offers.find_offers(roomy, bootable, architecture=architecture, reserve=reserve).chosen()
    if cheapest is None:
        raise UsageError(
            f"no instance type of {snapshot} has room for profile {envelope.name} beside the host"
            f" on {architecture}; name one in the suite's [ec2] table or with --instance"
        )
    priced = offers.find_offers(envelope, snapshot).chosen(measured=cheapest.instance.architecture)
    if priced is None or priced.instance.instance_type == cheapest.instance.instance_type:
        return ChosenMachine(cheapest.instance, cheapest.usd_per_hour)
    out = offers.find_offers(roomy, snapshot, architecture=architecture, reserve=reserve).left_out
    reasons = {unfit.instance.instance_type: unfit.reason for unfit in out}
    why = reasons.get(priced.instance.instance_type) or _unbootable(priced.instance) or "dearer"
    why = why.replace(f"fewer than {roomy.cpus} vCPUs", f"no vCPU beside the job's {envelope.cpus} for the harness")
    remark = f"{envelope.name} is priced on {priced.instance.instance_type}, which is left out: {why}"
    return ChosenMachine(cheapest.instance, cheapest.usd_per_hour, remark)


def _named(
    instance: Instance, envelope: Envelope, snapshot: Snapshot, reserve: HostReserve, choice: MachineOptions
) -> ChosenMachine:
    name, usd = instance.instance_type, snapshot.price_of(instance.instance_type)
    if usd is None:
        raise UsageError(f"{name} has no price in {snapshot}, so its bill is unknown; choose another type")
    if unbootable := _unbootable(instance):
        raise UsageError(f"{name}: {unbootable}; choose another type")
    if instance.burstable and not choice.burstable:
        raise UsageError(
            f"{name} is burstable: its latency depends on CPU credits; choose another type, or pass --burstable"
        )
    for reason in offers.find_shortages(instance, envelope, choice.architecture, reserve):
        raise UsageError(f"{name} cannot run profile {envelope.name}: {reason}; choose another type")
    remark = f"{name} has no vCPU beside the job's {envelope.cpus} for the harness"
    return ChosenMachine(instance, usd, remark if instance.vcpus == envelope.cpus else None)
