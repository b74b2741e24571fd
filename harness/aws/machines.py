"""The instance type on which a suite's hardware profile is measured.  Pure.

:mod:`harness.pricing.offers` decides what fits, as for tables; this module knows which types AWS's images boot on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.commands import quoted
from harness.driver.records import Envelope
from harness.errors import UnknownName, UsageError
from harness.jobs.suite import Suite
from harness.launch.images import platforms
from harness.pricing import instances, offers
from harness.pricing.instances import Instance
from harness.pricing.offers import ChosenMachine
from harness.pricing.prices import Snapshot
from harness.remote.options import RemoteOptions

X86_64 = "x86_64"


@dataclass(frozen=True)
class MachineOptions:
    """The command line's choice: ``instance`` for all profiles, and the architecture of images.

    The default architecture is the one of the types that a suite declares, else x86_64.
    """

    instance: str | None = None
    architecture: str | None = None


@dataclass(frozen=True)
class RentalOptions(MachineOptions, RemoteOptions):
    """Options of a run on EC2 or Batch."""

    region: str | None = None
    spot: bool = False
    subnet: str | None = None


def of_suite(suite: Suite, snapshot: Snapshot, choice: MachineOptions) -> dict[str, ChosenMachine]:
    """Return the machine of each hardware profile of a suite, by name.

    Raises:
        UsageError: a type is unknown, unpriced, too small, burstable or of another architecture; or no type provides a
            profile.
    """
    found = survey(suite.envelopes(), snapshot, choice, suite.ec2.instances)
    for refused in found.values():
        if isinstance(refused, UsageError):
            raise refused
    return accepted(found)


def accepted(found: Mapping[str, ChosenMachine | UsageError]) -> dict[str, ChosenMachine]:
    """Return the machines of a survey."""
    return {name: machine for name, machine in found.items() if not isinstance(machine, UsageError)}


def types_of_suites(suites: Sequence[Suite], named: Collection[str], snapshot: Snapshot) -> list[str]:
    """Return the instance types of suites, by default of all hardware profiles, and the named types.

    Raises:
        UsageError: a named type is unknown, or a suite's profile has no type.
    """
    for name in named:
        check_known(name, instances.read_instances("aws"))
    types = {
        *named,
        *(machine.name for suite in suites for machine in of_suite(suite, snapshot, MachineOptions()).values()),
    }
    if not suites:
        all_profiles = survey(instances.hardware_profiles(), snapshot, MachineOptions(), {})
        types |= {machine.name for machine in accepted(all_profiles).values()}
    return sorted(types)


def survey(
    profiles: Mapping[str, Envelope], snapshot: Snapshot, choice: MachineOptions, declared: Mapping[str, str]
) -> dict[str, ChosenMachine | UsageError]:
    """Return the machine of each profile, or why it has none; ``declared`` are a suite's own types, by profile."""
    bootable = replace(snapshot, prices=tuple(offer for offer in snapshot.prices if not _unbootable(offer[0])))
    found: dict[str, ChosenMachine | UsageError] = {}
    for name, envelope in profiles.items():
        try:
            if choice.instance:
                found[name] = _named(choice.instance, envelope, bootable, choice)
            elif name in declared:
                found[name] = _declared(declared[name], envelope, bootable, choice)
            else:
                found[name] = _cheapest(envelope, snapshot, bootable, choice)
        except UsageError as error:
            found[name] = error
    return found


def platforms_of(suite: Suite, chosen: Mapping[str, ChosenMachine]) -> dict[str, str]:
    """Return the platform of each profile's machine; none where all are x86-64, the launcher's own.

    Raises:
        UsageError: there are several, and the suite does not say which profile builds its indexes.
    """
    found = {name: platforms.parse(machine.instance.architecture) for name, machine in chosen.items()}
    several = set(found.values())
    if len(several) > 1 and suite.build_profile is None:
        raise UsageError(
            f"{suite.name} has machines of two architectures, and each index is built on one: set build_profile in the"
            " suite, or give --architecture"
        )
    return {} if several <= {platforms.AMD64} else found


def check_known(name: str, known: Mapping[str, Instance]) -> None:
    """Refuse an instance type that AWS does not have."""
    if name not in known:
        raise UnknownName("instance type", name, known, f"{quoted('instances')} lists all")


def _unbootable(instance: Instance) -> str | None:
    """Return why no machine image or no image of a system runs on a type.

    Amazon Linux 2023 asks for ARMv8.2, which the first Graviton is not; its NVIDIA driver for newer GPUs.  Images for
    GPUs, and AWS's machine image with NVIDIA's driver, are for x86_64 alone (docs/guides/platforms.md).
    """
    family = instance.instance_type.partition(".")[0]
    if family == "a1":
        return "Amazon Linux 2023 does not run on it"
    if instance.gpus and instance.architecture != X86_64:
        return f"there are no images for GPUs on {instance.architecture}"
    if instance.gpus and family in ("g2", "g3", "g3s", "p2", "p3", "p3dn"):
        return "its GPUs are too old for the driver of the machine image"
    return None


def _architecture(envelope: Envelope, choice: MachineOptions) -> str:
    return X86_64 if envelope.gpus else choice.architecture or X86_64


def _cheapest(envelope: Envelope, snapshot: Snapshot, bootable: Snapshot, choice: MachineOptions) -> ChosenMachine:
    """Return the type that the profile is priced on, or the next cheapest with a CPU for the harness too."""
    architecture = _architecture(envelope, choice)
    roomy = replace(envelope, cpus=envelope.cpus + 1)
    cheapest = offers.find_offers(roomy, bootable, architecture=architecture).chosen()
    if cheapest is None:
        raise UsageError(
            f"no instance type of {snapshot} has room for profile {envelope.name} and the harness"
            f" on {architecture}; name one in the suite's [ec2] table or with --instance"
        )
    chosen = _machine(cheapest.instance, cheapest.usd_per_hour, envelope)
    priced = offers.find_offers(envelope, snapshot).chosen(measured=cheapest.instance.architecture)
    if priced is None or priced.instance.instance_type == chosen.name:
        return chosen
    why = offers.why_left_out(priced.instance, roomy, architecture) or _unbootable(priced.instance) or "dearer"
    why = why.replace(f"fewer than {roomy.cpus} vCPUs", f"no vCPU beside the job's {envelope.cpus} for the harness")
    remark = f"{envelope.name}: {priced.instance.instance_type} is the cheapest that fits, and is left out: {why}"
    return replace(chosen, remark=remark)


def _declared(name: str, envelope: Envelope, bootable: Snapshot, choice: MachineOptions) -> ChosenMachine:
    """Return the type that a suite names, or its successor where AWS no longer rents it."""
    gone = next((instance for instance in bootable.gone if instance.instance_type == name), None)
    successor = None if gone is None else offers.successor(gone, bootable)
    if successor is None:
        return _named(name, envelope, bootable, choice)
    taken = _named(successor.instance.instance_type, envelope, bootable, choice)
    remark = f"{bootable.why_unpriced(name)}; {taken.name} is the cheapest with at least its resources"
    return replace(taken, remark=remark, substitutes=name)


def _named(name: str, envelope: Envelope, bootable: Snapshot, choice: MachineOptions) -> ChosenMachine:
    known = instances.read_instances("aws")
    check_known(name, known)
    instance, usd = known[name], bootable.price_of(name)
    if any(gone.instance_type == name for gone in bootable.gone):
        successor = offers.successor(instance, bootable)
        other = (
            f"--instance {successor.instance.instance_type} has at least its resources"
            if successor
            else "choose another type"
        )
        raise UsageError(f"{bootable.why_unpriced(name)}; {other}")
    if unbootable := _unbootable(instance):
        raise UsageError(f"{name}: {unbootable}; choose another type")
    if usd is None:
        raise UsageError(f"{name} has no price in {bootable}, so its bill is unknown; choose another type")
    if instance.burstable:
        raise UsageError(f"{name} is burstable: its latency depends on CPU credits; choose another type")
    wanted = choice.architecture and _architecture(envelope, choice)
    for reason in offers.find_shortages(instance, envelope, wanted, offers.host_reserve()):
        raise UsageError(f"{name} cannot run profile {envelope.name}: {reason}; choose another type")
    chosen = _machine(instance, usd, envelope)
    remark = f"{name} has no vCPU beside the job's {envelope.cpus} for the harness"
    return replace(chosen, remark=remark) if instance.vcpus == envelope.cpus else chosen


def _machine(instance: Instance, usd_per_hour: float, envelope: Envelope) -> ChosenMachine:
    limit = offers.host_reserve().limit(envelope.memory_bytes, instance.memory_bytes)
    return ChosenMachine(instance, usd_per_hour, asked_bytes=envelope.memory_bytes, limit_bytes=limit)
