"""What was found, as the commands print it: Markdown or JSON, with the price put beside it as it is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from harness.experiments.viability import text
from harness.experiments.viability.curve import Curve
from harness.experiments.viability.probe import envelope
from harness.experiments.viability.text import Rent
from harness.experiments.viability.validation import Claim
from harness.experiments.viability.verdict import Verdict
from harness.pricing import offers
from harness.pricing.offers import Offer
from harness.pricing.prices import Snapshot


def rent(found: Verdict, snapshot: Snapshot) -> Rent | None:
    """The cheapest types that provide a verdict's limit beside their host's own need; ``None`` without a limit."""
    if found.limit_bytes is None:
        return None
    reserve, wanted = offers.host_reserve(), envelope(found.cpus, found.limit_bytes, found.gpus)
    peak = found.unconstrained.peak_gpu_bytes
    memory = None if peak is None or not found.gpus else -(-peak // found.gpus)  # of each GPU, as far as it is known
    same = offers.find_offers(
        wanted, snapshot, architecture=found.architecture, reserve=reserve, gpu_memory_bytes=memory
    ).fitting
    return Rent(
        snapshot,
        reserve,
        measured=next(iter(same), None),
        current=next((each for each in same if each.instance.current_generation), None),
        anywhere=offers.cheapest_offer(wanted, snapshot, None, reserve, gpu_memory_bytes=memory),
    )


def verdicts(found: Sequence[Verdict], snapshot: Snapshot, form: str) -> str:
    """All verdicts with what to rent for them."""
    if form == "json":
        return _json(
            [{**asdict(each), "rent": _rent(rented) if (rented := rent(each, snapshot)) else None} for each in found]
        )
    return "\n".join(text.verdict(each, rent(each, snapshot)) for each in found)


def claim(found: Claim, form: str) -> str:
    """Whether a type is enough."""
    return _json(asdict(found)) if form == "json" else text.claim(found)


def curve(found: Curve, form: str) -> str:
    """The curve."""
    return _json(asdict(found)) if form == "json" else text.curve(found)


def _rent(rented: Rent) -> dict[str, Any]:
    snapshot = rented.snapshot
    return {
        "region": snapshot.region,
        "term": snapshot.term,
        "as_of": str(snapshot.as_of),
        "reserve": str(rented.reserve),
        "same_architecture": _offer(rented.measured),
        "current_generation": _offer(rented.current),
        "any_architecture": _offer(rented.anywhere),
    }


def _offer(offer: Offer | None) -> dict[str, Any] | None:
    if offer is None:
        return None
    return {
        "instance_type": offer.instance.instance_type,
        "architecture": offer.instance.architecture,
        "vcpus": offer.instance.vcpus,
        "memory_bytes": offer.instance.memory_bytes,
        "usd_per_hour": offer.usd_per_hour,
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
