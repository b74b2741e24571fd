"""What instances cost, and how long each may live so that all together never cost more than the cap.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.ec2.estimates import Estimate

# EC2 bills by the second, at least these.
LEAST_BILLED_S = 60.0
HOURS_A_MONTH = 730.0
# A public IPv4 address (aws.amazon.com/vpc/pricing, since 2024-02-01, all regions); in a default VPC each has one.
ADDRESS_USD_PER_HOUR = 0.005
# From the launch until the time limit on the box counts, and from its end until EC2 bills no more.
BEYOND_LIMIT_S = 300.0
# An estimate from measurements may be off by so much before a box is taken to be stuck; an assumed one by more.
_SLACK_MEASURED, _SLACK_ASSUMED = 3.0, 8.0
_LEAST_LIMIT_S = 3600.0
# A box is not launched for less than its estimate and this share of it.
_NEED = 1.25


@dataclass(frozen=True)
class Rate:
    """US$ per hour of one instance with all that belongs to it."""

    instance_usd: float
    disk_gib: int
    usd_per_gib_month: float
    address_usd: float = ADDRESS_USD_PER_HOUR

    @property
    def usd_per_hour(self) -> float:
        """All together."""
        return self.instance_usd + self.disk_gib * self.usd_per_gib_month / HOURS_A_MONTH + self.address_usd

    def usd(self, seconds: float) -> float:
        """What so many seconds cost."""
        return self.usd_per_hour * max(seconds, LEAST_BILLED_S) / 3600


def usual_limit_s(estimate: Estimate) -> float:
    """How long a box may live where no cap says less."""
    slack = _SLACK_MEASURED if estimate.measured else _SLACK_ASSUMED
    return min(max(slack * estimate.seconds, _LEAST_LIMIT_S), max(estimate.worst_s, _LEAST_LIMIT_S))


def need_s(estimate: Estimate) -> float:
    """The least time that a box is launched for."""
    return min(_NEED * estimate.seconds, usual_limit_s(estimate))


def committed_usd(usd_per_hour: float, limit_s: float) -> float:
    """The most that an instance with that time limit on the box can cost, whoever dies."""
    return usd_per_hour * (limit_s + BEYOND_LIMIT_S) / 3600


@dataclass(frozen=True)
class Ask:
    """What a part that waits to be launched would have."""

    usd_per_hour: float
    need_s: float
    usual_s: float


def limits(asks: Sequence[Ask], available_usd: float | None) -> list[float | None]:
    """The time limit of each, in their order; ``None``: the money does not reach for it now.

    Those that are sure of what they need share what is left in proportion, up to the usual.

    Args:
        asks: what waits, the most urgent first.
        available_usd: what is neither spent nor promised; ``None``: there is no cap.
    """
    if available_usd is None:
        return [ask.usual_s for ask in asks]
    left, granted = available_usd, [False] * len(asks)
    for number, ask in enumerate(asks):
        cost = committed_usd(ask.usd_per_hour, ask.need_s)
        if cost > left + 1e-9:
            break  # a smaller one behind it would keep it waiting for ever
        left -= cost
        granted[number] = True
    wished = sum(
        ask.usd_per_hour * (ask.usual_s - ask.need_s) / 3600 for ask, sure in zip(asks, granted, strict=True) if sure
    )
    share = min(1.0, max(0.0, left) / wished) if wished else 1.0
    return [
        # Whole seconds, so that sums of them stay below what they were cut from.
        float(int(ask.need_s + share * (ask.usual_s - ask.need_s))) if sure else None
        for ask, sure in zip(asks, granted, strict=True)
    ]
