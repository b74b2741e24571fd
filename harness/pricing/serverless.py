"""Read dated prices of serverless containers and functions, and price a million queries with them: ``metered``.

An offer sells a size (vCPUs and memory) by the second.  One that is paid by the request costs nothing between queries;
a task of Fargate is billed as long as it runs.  Pure but for reading ``instance_profiles/serverless/<date>.toml``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Self

from pydantic import Field, model_validator

from harness.config import ConfigModel
from harness.estimate import Estimate
from harness.pricing.dated_files import DatedFile, DatedFiles

GIB = 2**30
# A quotient that is whole but for its last digits needs no step more.
_WHOLE = 1e-9


class SizeRange(ConfigModel):
    """Sizes that an offer sells: vCPUs with a memory from ``least_gib`` to ``most_gib``."""

    vcpus: float | None = Field(default=None, gt=0, description="vCPUs; left out where `gib_per_vcpu` decides them")
    least_gib: float = Field(gt=0, description="smallest memory in GiB")
    most_gib: float = Field(gt=0, description="largest memory in GiB")
    step_gib: float = Field(gt=0, description="steps of the memory in GiB")

    def memory_for(self, gib: float) -> float | None:
        """Return the smallest memory of at least so many GiB; ``None``: the range ends before."""
        steps = math.ceil(max(0.0, gib - self.least_gib) / self.step_gib - _WHOLE)
        found = self.least_gib + steps * self.step_gib
        return found if found <= self.most_gib * (1 + _WHOLE) else None


class ServerlessOffer(ConfigModel):
    """``[offers."<name>"]``: what a provider charges in one region and architecture."""

    provider: str = Field(description="provider, as in the names of the price files")
    region: str = Field(description="the provider's region")
    architecture: Literal["x86_64", "arm64"] = Field(description="architecture of the CPUs")
    per_request: bool = Field(
        description="whether time without requests is free; a task of Fargate is billed all along"
    )
    bills: Literal["configured", "used"] = Field(
        default="configured", description="what is billed: the configured size, or the CPU time and memory used"
    )
    usd_per_vcpu_second: float = Field(ge=0, description="US$ per vCPU-second")
    usd_per_gib_second: float = Field(ge=0, description="US$ per GiB-second")
    usd_per_million_requests: float = Field(default=0.0, ge=0, description="US$ per million requests")
    step_s: float = Field(default=0.0, ge=0, description="seconds to whose multiples a request's time is rounded up")
    minimum_s: float = Field(default=0.0, ge=0, description="least billed seconds of each start")
    gib_per_vcpu: float | None = Field(
        default=None, gt=0, description="memory in GiB that comes with a vCPU, where fixed"
    )
    sizes: tuple[SizeRange, ...] = Field(min_length=1, description="the sizes that it sells")
    page: str = Field(description="the provider's page that the source names")

    @model_validator(mode="after")
    def _has_vcpus(self) -> Self:
        if any((each.vcpus is None) is (self.gib_per_vcpu is None) for each in self.sizes):
            raise ValueError("name `vcpus` in each of `sizes`, or `gib_per_vcpu` once, and not both")
        return self

    def size_for(self, cpus: float, memory_bytes: int) -> tuple[float, float] | None:
        """Return the vCPUs and GiB of the cheapest size that holds these CPUs and this memory; ``None``: none does."""
        fitting = []
        for each in self.sizes:
            gib = each.memory_for(max(memory_bytes / GIB, cpus * (self.gib_per_vcpu or 0.0)))
            vcpus = each.vcpus or (gib or 0.0) / (self.gib_per_vcpu or 1.0)
            if gib is not None and vcpus >= cpus * (1 - _WHOLE):
                fitting.append((vcpus, gib))
        return min(fitting, key=lambda size: (self.usd_per_second(*size), size), default=None)

    def usd_per_second(self, vcpus: float, gib: float) -> float:
        """Return US$ for a second of so many vCPUs and GiB."""
        return vcpus * self.usd_per_vcpu_second + gib * self.usd_per_gib_second

    def billed_s(self, mean_s: float) -> float:
        """Return the expected billed seconds of a query, each rounded up: half a step above the mean, at least a step.

        Only the mean is known.  Where queries fill a step to any share alike, the half step is exact, and it errs by
        half a step at most.  An offer that is billed all along rounds no query.
        """
        return max(self.step_s, mean_s + self.step_s / 2) if self.per_request else mean_s


class ServerlessPrices(DatedFile):
    """``serverless/<date>.toml``."""

    offers: dict[str, ServerlessOffer] = Field(description="offers by name")

    def __hash__(self) -> int:
        """Return the hash of what names it: sizes are remembered by it."""
        return hash((self.date, self.source))

    def __str__(self) -> str:
        """Return its name in sentences."""
        return f"the serverless prices of {self.as_of}"


FILES = DatedFiles("serverless", ServerlessPrices)


@dataclass(frozen=True, kw_only=True)
class Load:
    """Load of a measured system: the hardware that it must get, and the time and memory of a mean query.

    ``cpu_s`` and ``used_bytes`` count where an offer bills what is used; ``cold_start_s`` (``None``: not known) where a
    task is started for one query.
    """

    cpus: int
    memory_bytes: int
    mean_s: Estimate
    cpu_s: Estimate = Estimate(None)
    used_bytes: int | None = None
    cold_start_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ServerlessQuote:
    """Price of queries at an offer: its size for them, and US$ per million queries.

    ``usd_per_hour`` is the price of the size while it is billed, ``billed_s`` the expected billed seconds of a query.
    ``alone_usd`` is US$ per million queries where each query starts the service anew, with the minimum of a start;
    ``None``: not known.
    """

    offer: str
    provider: str
    region: str
    architecture: str
    per_request: bool
    bills: str
    vcpus: float
    memory_gib: float
    usd_per_hour: float
    billed_s: float | None
    usd_per_million_requests: float
    usd: Estimate
    alone_usd: float | None
    date: str
    page: str


def quotes(prices: ServerlessPrices, load: Load, architecture: str | None) -> tuple[ServerlessQuote, ...]:
    """Return a quote of each offer that holds a system, the cheapest first; one without a price comes last.

    Args:
        prices: the offers.
        load: the system's.
        architecture: of the CPUs (``None``: any).
    """
    sizes = _sizes(prices, load.cpus, load.memory_bytes, architecture)
    found = [_quote(name, prices, size, load) for name, size in sizes]
    return tuple(sorted(found, key=lambda each: (each.usd.value is None, each.usd.value or 0.0, each.offer)))


@lru_cache(maxsize=1 << 10)  # ten thousand rows ask the same few questions
def _sizes(
    prices: ServerlessPrices, cpus: int, memory_bytes: int, architecture: str | None
) -> tuple[tuple[str, tuple[float, float]], ...]:
    """Return the offers that hold the hardware, each with its vCPUs and GiB."""
    sizes = {
        name: offer.size_for(cpus, memory_bytes)
        for name, offer in prices.offers.items()
        if architecture in (None, offer.architecture)
    }
    return tuple((name, size) for name, size in sizes.items() if size is not None)


def _quote(name: str, prices: ServerlessPrices, size: tuple[float, float], load: Load) -> ServerlessQuote:
    offer = prices.offers[name]
    mean_s = load.mean_s.value
    alone = None
    if mean_s is not None and offer.bills == "configured":
        start_s = max(offer.minimum_s, offer.billed_s(mean_s + (load.cold_start_s or 0.0)))
        alone = _per_million(offer, start_s * offer.usd_per_second(*size))
    return ServerlessQuote(
        offer=name,
        provider=offer.provider,
        region=offer.region,
        architecture=offer.architecture,
        per_request=offer.per_request,
        bills=offer.bills,
        vcpus=size[0],
        memory_gib=size[1],
        usd_per_hour=3600 * offer.usd_per_second(*size),
        billed_s=None if mean_s is None else offer.billed_s(mean_s),
        usd_per_million_requests=offer.usd_per_million_requests,
        usd=_usd(offer, size, load),
        alone_usd=alone,
        date=prices.date,
        page=offer.page,
    )


def _usd(offer: ServerlessOffer, size: tuple[float, float], load: Load) -> Estimate:
    """Return US$ per million queries, with the latency's interval (and the CPU time's, where it is billed)."""
    if offer.bills == "configured":
        return load.mean_s.map(lambda mean: _per_million(offer, offer.billed_s(mean) * offer.usd_per_second(*size)))
    gib = None if load.used_bytes is None else load.used_bytes / GIB
    if load.cpu_s.value is None or gib is None:
        return Estimate(None, reason="it bills CPU time and memory as used, and they were not measured")

    def used(mean_s: float | None, cpu_s: float | None) -> float | None:
        if mean_s is None or cpu_s is None:
            return None
        seconds = cpu_s * offer.usd_per_vcpu_second + gib * offer.billed_s(mean_s) * offer.usd_per_gib_second
        return _per_million(offer, seconds)

    mean, cpu = load.mean_s, load.cpu_s
    ends = used(mean.value, cpu.value), used(mean.low, cpu.low), used(mean.high, cpu.high)
    return Estimate(*ends, reason=mean.reason)


def _per_million(offer: ServerlessOffer, usd_of_time: float) -> float:
    return usd_of_time * 1e6 + offer.usd_per_million_requests


def cheapest(quotes: tuple[ServerlessQuote, ...]) -> ServerlessQuote | None:
    """Return the cheapest quote that is paid by the request; ``None``: there is none."""
    return next((each for each in quotes if each.per_request and each.usd.value is not None), None)
