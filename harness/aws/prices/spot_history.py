"""Spot prices of this moment, from EC2's DescribeSpotPriceHistory.

A type has one price in each availability zone.  The snapshot holds the price of the cheapest zone: one chooses the
zone, and somebody is charged that price, while a mean over zones is never charged.  Zones are not named:
``us-east-1a`` is another place in each account.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from harness.aws.clients import Connections
from harness.aws.errors import aws_errors
from harness.aws.prices.addition import Addition, new_path
from harness.errors import RemoteError, UnknownName
from harness.pricing import instances

SYSTEM = "Linux/UNIX"
SOURCE = "EC2 DescribeSpotPriceHistory (cheapest zone)"
_ATTEMPTS = 3


def fetch(region: str, now: datetime.datetime, root: Path | None = None) -> Addition:
    """Return a region's spot prices, and write nothing.

    Args:
        region: as AWS names it.
        now: the moment.
        root: another ``instance_profiles/`` than the user's own.

    Raises:
        UsageError: the region is unknown, prices of today exist, or a package is missing.
        RemoteError: no credentials, or the API does not answer, or not as it should.
    """
    new_path(region, now.date(), root, spot=True)
    known = instances.read_instances("aws", root)
    cheapest = _cheapest(_history(region, now))
    if not cheapest:
        raise RemoteError(f"EC2 {region} returned no spot price; check that this account may use spot machines there")
    left_out = {
        name: "no facts in instances/aws.csv; `harness prices fetch` adds facts of new types"
        for name in cheapest
        if name not in known
    }
    found = {(name, "spot"): price for name, price in cheapest.items() if name not in left_out}
    if not found:
        raise RemoteError(f"EC2 {region} returned {len(left_out)} types, and instances/aws.csv has none of them")
    return Addition(region, now.date(), SOURCE, found, spot=True, left_out=left_out)


def _cheapest(history: Iterable[dict[str, Any]]) -> dict[str, Decimal]:
    """Return the lowest price of each type among the newest prices of its zones."""
    newest: dict[tuple[str, str], tuple[datetime.datetime, Decimal]] = {}
    for item in history:
        try:
            key, moment = (item["InstanceType"], item["AvailabilityZone"]), item["Timestamp"]
            price = Decimal(item["SpotPrice"])
        except (KeyError, InvalidOperation):
            raise RemoteError(f"EC2: an entry of the spot history cannot be read: {item!r:.120}") from None
        if not (price.is_finite() and price > 0):
            raise RemoteError(f"EC2: the spot price of {key[0]} is {item['SpotPrice']!r}, not a number above 0")
        if key not in newest or newest[key][0] < moment:
            newest[key] = (moment, price)
    found: dict[str, Decimal] = {}
    for (name, _), (_, price) in newest.items():
        found[name] = min(found.get(name, price), price)
    return found


def _history(region: str, now: datetime.datetime) -> Iterator[dict[str, Any]]:
    """Yield the last price change of each type and zone before ``now``, page by page."""
    connections = Connections(region)
    if region not in (regions := connections.regions("ec2")):
        raise UnknownName("region", region, regions)
    doing = f"reading the spot prices of {region}"
    client = connections.client("ec2", attempts=_ATTEMPTS)
    pages = client.get_paginator("describe_spot_price_history").paginate(
        ProductDescriptions=[SYSTEM], StartTime=now, EndTime=now
    )
    with aws_errors(doing):
        try:
            for page in pages:
                yield from page.get("SpotPriceHistory", [])
        except ValueError as error:  # a time that is none
            raise RemoteError(f"{doing}: AWS gave no answer that can be read; try again later", "Busy") from error
