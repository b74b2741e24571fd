"""The smallest memory limit at a number of documents that was not searched, by the law of those that were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from harness.analysis import scaling
from harness.analysis.scaling import ExaminedLaw, MeasuredSize
from harness.driver.records import Envelope
from harness.errors import UsageError
from harness.estimate import Estimate
from harness.experiments.viability.minimum import Minimum
from harness.pricing import offers
from harness.pricing.instances import DEFAULT_CHOICE, TypeChoice
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot
from harness.results.schema import split_size


@dataclass(frozen=True)
class LimitAtSize:
    """The smallest limit of a system on some CPUs at a number of documents, and the type that holds its high end.

    ``limit_bytes`` is missing with a reason.
    """

    system: str
    dataset: str
    cpus: int
    gpus: int
    documents: int
    law: ExaminedLaw
    limit_bytes: Estimate
    offer: Offer | None


def limits_at(
    minima: Iterable[Minimum], documents: int, snapshot: Snapshot, choice: TypeChoice = DEFAULT_CHOICE
) -> list[LimitAtSize]:
    """Predict the smallest limit of each system at a number of documents.

    Args:
        minima: of the datasets at several sizes.
        documents: the size to predict.
        snapshot: the prices of types to rent.
        choice: preferred types.

    Raises:
        UsageError: no limit was found, or the size is below the searched ones.
    """
    searched: dict[tuple[str, str, int, int], dict[int, float]] = defaultdict(dict)
    architectures = {}
    for minimum in minima:
        dataset, size = split_size(minimum.dataset)
        for verdict in minimum.verdicts if size is not None else ():
            key = (minimum.system, dataset, verdict.cpus, minimum.gpus)
            architectures[key] = verdict.architecture
            if verdict.limit_bytes is not None and size is not None:
                searched[key][size] = verdict.limit_bytes
    if not searched:
        raise UsageError(
            "no limit was found at a size of the suite's [sizes], so --at has nothing to go by; --wide has the probes"
        )
    least = min(size for sizes in searched.values() for size in sizes)
    if documents < least:
        raise UsageError(
            f"--at {documents:,} is below the smallest size that was searched, {least:,}; name a larger one"
        )
    found = []
    for (system, dataset, cpus, gpus), limits in searched.items():
        sizes = [MeasuredSize(size, (limit,)) for size, limit in limits.items()]
        law = scaling.examined(sizes, steepest=scaling.STORED_STEEPEST)
        limit = law.predict(documents)
        architecture = architectures[system, dataset, cpus, gpus]
        offer = cheapest_with(limit.high, cpus, gpus, architecture, snapshot, choice)
        found.append(LimitAtSize(system, dataset, cpus, gpus, documents, law, limit, offer))
    return found


def cheapest_with(
    limit_bytes: float | None,
    cpus: int,
    gpus: int,
    architecture: str,
    snapshot: Snapshot,
    choice: TypeChoice,
    gpu_memory_bytes: int | None = None,
) -> Offer | None:
    """Return the cheapest type whose host leaves a limit to a job; ``None`` without a limit or such a type."""
    if limit_bytes is None:
        return None
    hardware = Envelope("limit", cpus, offers.host_reserve().needed(round(limit_bytes)), gpus)
    return offers.find_offers(hardware, snapshot, gpu_memory_bytes=gpu_memory_bytes).chosen(choice, architecture)
