"""Find the instance types that provide a hardware profile, cheapest first, and say why the others do not.

A profile asks for a machine's nominal memory, as its price list does: a type of 32 GiB provides a profile of 32 GiB.
The job's limit there is what the host leaves of it (:class:`HostReserve`).  Tables, quotes and launchers all ask here.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from harness.config import ConfigModel
from harness.driver.records import Envelope
from harness.pricing import cost, instances
from harness.pricing.instances import DEFAULT_CHOICE, Instance, TypeChoice
from harness.pricing.prices import Snapshot

GIB = cost.GIB
MIB = 1 << 20


class HostReserve(ConfigModel):
    """``[reserve]`` of ``defaults.toml``: CPUs and memory that the host needs for itself."""

    memory: str = Field(description='operating system, container engine and harness, e.g. "512MiB"')
    share: float = Field(ge=0, lt=1, description="what firmware and kernel keep of the machine's memory")

    @functools.cached_property
    def _own_bytes(self) -> int:
        return instances.parse_memory(self.memory)

    def left(self, memory_bytes: int) -> int:
        """Return the bytes, in whole MiB, that a machine of this nominal memory leaves to a job."""
        left = memory_bytes - round(self.share * memory_bytes) - self._own_bytes
        return max(0, left // MIB * MIB)

    def limit(self, wanted_bytes: int, memory_bytes: int) -> int:
        """Return the limit of a job that asks for ``wanted_bytes`` of a machine's nominal memory."""
        return min(wanted_bytes, self.left(memory_bytes))

    def needed(self, limit_bytes: int) -> int:
        """Return the least nominal memory that leaves this limit to a job."""
        return math.ceil((limit_bytes + self._own_bytes) / (1 - self.share))

    def left_on_host(self, shown_bytes: int) -> int:
        """Return the bytes, in whole MiB, that a host leaves to a job, whose kernel shows this memory."""
        return max(0, (shown_bytes - self._own_bytes) // MIB * MIB)

    def limit_on_host(self, wanted_bytes: int, shown_bytes: int) -> int | None:
        """Return a job's limit on a host whose kernel shows this memory; ``None``: the host is too small.

        The kernel of a machine of 32 GiB shows less than that: the profile of 32 GiB is then the whole machine.
        """
        if wanted_bytes <= shown_bytes:
            return wanted_bytes
        return self.left(wanted_bytes) if shown_bytes >= wanted_bytes * (1 - self.share) else None

    def __str__(self) -> str:
        return f"{self.memory} + {self.share:.0%} of its memory"


@dataclass(frozen=True)
class Offer:
    """Instance type with its price (US$ per hour) on a date."""

    instance: Instance
    region: str
    term: str
    usd_per_hour: float
    as_of: datetime.date


@dataclass(frozen=True)
class ChosenMachine:
    """Instance type that a profile is launched on, with its price and the memory limit of a job there.

    ``asked_bytes`` is the memory that the profile asks for.  ``remark``: why it is not the type that the profile is
    priced on; ``substitutes``: the suite's own type, which the provider no longer rents.
    """

    instance: Instance
    usd_per_hour: float
    remark: str | None = None
    substitutes: str | None = None
    asked_bytes: int = 0
    limit_bytes: int = 0

    @property
    def name(self) -> str:
        """The instance type."""
        return self.instance.instance_type


@dataclass(frozen=True)
class UnfitInstance:
    """Instance type that does not fit or is never offered, and the first reason."""

    instance: Instance
    reason: str


@dataclass(frozen=True)
class Offers:
    """All types of a snapshot: those that provide an envelope, cheapest first, and the others."""

    fitting: tuple[Offer, ...]
    left_out: tuple[UnfitInstance, ...]

    @property
    def cheapest(self) -> Offer | None:
        """The cheapest type that provides the envelope, if there is one."""
        return next(iter(self.fitting), None)

    def chosen(self, choice: TypeChoice = DEFAULT_CHOICE, measured: str | None = None) -> Offer | None:
        """Return the cheapest type of the preferred architecture and generation.

        If no type has both, the generation is given up first, then the architecture.

        Args:
            choice: preferred types.
            measured: architecture of the machine that measured; ``None``: unknown, so any.
        """
        wanted = {"measured": measured, "any": None}.get(choice.architecture, choice.architecture)

        def misses(offer: Offer) -> tuple[bool, bool]:
            other = wanted not in (None, offer.instance.architecture)
            return other, choice.generation == "current" and offer.instance.previous_generation

        return min(self.fitting, key=misses, default=None)  # of equals the first, which is the cheapest


def host_reserve() -> HostReserve:
    """Read the host's reserve; raise FileError if ``defaults.toml`` is missing or wrong."""
    return instances.read_defaults(HostReserve, "reserve")


def find_offers(
    envelope: Envelope,
    snapshot: Snapshot,
    *,
    architecture: str | None = None,
    current: bool = False,
    gpu_memory_bytes: int | None = None,
) -> Offers:
    """Sort a snapshot's types by whether they provide ``envelope``.

    Burstable types and bare metal are never offered, nor, for an envelope without GPUs, types with GPUs or other
    accelerators.  At equal prices, fewer vCPUs come first, then less memory, then the name: the choice never depends on
    the file's order.

    Args:
        envelope: required hardware, with the nominal memory of its profile.
        snapshot: the prices.
        architecture: ``x86_64`` or ``arm64`` to allow only that one.
        current: leave out types of an earlier generation.
        gpu_memory_bytes: required memory of each GPU, if known; a type whose GPU memory is unknown is then left out.
    """
    fitting, left_out, reserve = [], [], host_reserve()
    for instance, price in snapshot.prices:
        reason = next(_against(instance, envelope, architecture, reserve, gpu_memory_bytes), None)
        if reason is None and current and instance.previous_generation:
            reason = "of an earlier generation"
        if reason is None:
            fitting.append(Offer(instance, snapshot.region, snapshot.term, price, snapshot.as_of))
        else:
            left_out.append(UnfitInstance(instance, reason))
    return Offers(tuple(sorted(fitting, key=_order)), tuple(left_out))


def why_left_out(instance: Instance, envelope: Envelope, architecture: str | None) -> str | None:
    """Return the first reason why a type is not offered for ``envelope``, or ``None``."""
    return next(_against(instance, envelope, architecture, host_reserve(), None), None)


def successor(instance: Instance, snapshot: Snapshot) -> Offer | None:
    """Return the cheapest other type with at least the same of everything, or ``None``.

    Architecture, burstable, bare metal, and whether there are GPUs or accelerators stay the same.  Only the size of
    local NVMe disks is known: hard disks are not compared.
    """
    fitting = (
        Offer(other, snapshot.region, snapshot.term, price, snapshot.as_of)
        for other, price in snapshot.prices
        if other.instance_type != instance.instance_type and _replaces(other, instance)
    )
    return min(fitting, key=_order, default=None)


def _replaces(other: Instance, instance: Instance) -> bool:
    same = all(
        getattr(other, name) == getattr(instance, name) for name in ("architecture", "burstable", "bare_metal")
    ) and all(bool(getattr(other, name)) == bool(getattr(instance, name)) for name in ("gpus", "accelerators"))
    amounts = ("vcpus", "memory_bytes", "gpus", "gpu_memory_bytes", "accelerators", "local_nvme_bytes")
    return same and all((getattr(other, name) or 0) >= (getattr(instance, name) or 0) for name in amounts)


def _order(offer: Offer) -> tuple[float, int, int, str]:
    instance = offer.instance
    return offer.usd_per_hour, instance.vcpus, instance.memory_bytes, instance.instance_type


def _against(
    instance: Instance,
    envelope: Envelope,
    architecture: str | None,
    reserve: HostReserve,
    gpu_memory_bytes: int | None,
) -> Iterator[str]:
    """Yield reasons not to offer a type, the plainest first."""
    yield from find_shortages(instance, envelope, architecture, reserve)
    if not envelope.gpus and (instance.gpus or instance.accelerators):
        yield "has accelerators that the price includes and no system uses"
    if envelope.gpus and gpu_memory_bytes is not None:
        if instance.gpu_memory_bytes is None:
            yield "the memory of its GPUs is not known"
        elif instance.gpu_memory_bytes < gpu_memory_bytes:
            yield f"GPUs with less than {gpu_memory_bytes / GIB:.4g} GiB of memory"
    if instance.burstable:
        yield "burstable: its price buys a share of the CPU time"
    if instance.bare_metal:
        yield "bare metal: its prices cannot be trusted"


def find_shortages(
    instance: Instance, envelope: Envelope, architecture: str | None, reserve: HostReserve
) -> Iterator[str]:
    """Yield the reasons why a type does not provide a profile's hardware; memory is compared by its nominal size."""
    if architecture not in (None, instance.architecture):
        yield f"{instance.architecture}, asked for {architecture}"
    if instance.vcpus < envelope.cpus:
        yield f"fewer than {envelope.cpus} vCPUs"
    if instance.memory_bytes < envelope.memory_bytes:
        yield f"less than {envelope.memory_bytes / GIB:g} GiB of memory"
    if not reserve.left(instance.memory_bytes):
        yield "its host needs all of its memory"
    if instance.gpus < envelope.gpus:
        yield f"fewer than {envelope.gpus} NVIDIA GPUs"
