"""Find the instance types that provide an envelope, cheapest first, and say why the others do not."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import Field

from harness.config import ConfigModel
from harness.pricing import cost, instances
from harness.pricing.instances import DEFAULT_CHOICE, Instance, TypeChoice
from harness.pricing.prices import Snapshot
from harness.records import Envelope

GIB = cost.GIB


class HostReserve(ConfigModel):
    """``[reserve]`` of ``defaults.toml``: the host's own need beside the job."""

    memory: str = Field(description='operating system and container engine, e.g. "512MiB"')
    share: float = Field(ge=0, lt=1, description="the kernel's own share of the machine's memory")

    def of(self, memory_bytes: int) -> int:
        """Return the bytes that a host of this memory needs itself."""
        return instances.parse_memory(self.memory) + round(self.share * memory_bytes)

    def left(self, memory_bytes: int) -> int:
        """Return the bytes that a host of this memory leaves to a job."""
        return max(0, memory_bytes - self.of(memory_bytes))

    def __str__(self) -> str:
        return f"{self.memory} + {self.share:.2%} of its memory"


@dataclass(frozen=True)
class Offer:
    """Instance type with its price (US$ per hour) on a date."""

    instance: Instance
    region: str
    term: str
    usd_per_hour: float
    as_of: datetime.date


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
    reserve: HostReserve | None = None,
    gpu_memory_bytes: int | None = None,
) -> Offers:
    """Sort a snapshot's types by whether they provide ``envelope``.

    Burstable types and bare metal are never offered, nor, for an envelope without GPUs, types with GPUs or other
    accelerators.  At equal prices, fewer vCPUs come first, then less memory, then the name: the choice never depends on
    the file's order.

    Args:
        envelope: required hardware.
        snapshot: the prices.
        architecture: ``x86_64`` or ``arm64`` to allow only that one.
        current: leave out types of an earlier generation.
        reserve: the host's own need, if the envelope must fit beside it.
        gpu_memory_bytes: required memory of each GPU, if known; a type whose GPU memory is unknown is then left out.
    """
    fitting, left_out = [], []
    for instance, price in snapshot.prices:
        reason = next(_against(instance, envelope, architecture, reserve, gpu_memory_bytes), None)
        if reason is None and current and instance.previous_generation:
            reason = "of an earlier generation"
        if reason is None:
            fitting.append(Offer(instance, snapshot.region, snapshot.term, price, snapshot.as_of))
        else:
            left_out.append(UnfitInstance(instance, reason))
    return Offers(tuple(sorted(fitting, key=_order)), tuple(left_out))


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
    reserve: HostReserve | None,
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
    instance: Instance, envelope: Envelope, architecture: str | None, reserve: HostReserve | None
) -> Iterator[str]:
    """Yield reasons why a type cannot run an envelope at all."""
    if architecture not in (None, instance.architecture):
        yield f"{instance.architecture}, asked for {architecture}"
    if instance.vcpus < envelope.cpus:
        yield f"fewer than {envelope.cpus} vCPUs"
    if (reserve.left(instance.memory_bytes) if reserve else instance.memory_bytes) < envelope.memory_bytes:
        beside = f" beside the host's own {reserve}" if reserve else ""
        yield f"less than {envelope.memory_bytes / GIB:g} GiB of memory{beside}"
    if instance.gpus < envelope.gpus:
        yield f"fewer than {envelope.gpus} NVIDIA GPUs"
