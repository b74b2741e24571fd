"""Spot prices of this moment, from EC2's DescribeSpotPriceHistory.

A type has one price in each availability zone.  The snapshot holds the cheapest zone's: one chooses the zone, and it
is a price that somebody is charged, where a mean over zones is not.  Zones are not named: ``us-east-1a`` is another
place in each account.  Credentials are found by boto3 as by all of AWS's tools; they are neither read nor written here.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from harness.errors import UnknownName, UsageError
from harness.pricing import instances
from instance_profiles.fetching.addition import Addition, FetchError, refuse_existing, target

SYSTEM = "Linux/UNIX"
SOURCE = "EC2 DescribeSpotPriceHistory (cheapest zone)"


def fetch(region: str, root: Path, now: datetime.datetime, endpoint: str | None = None) -> Addition:
    """The region's spot prices; nothing is written.

    Raises:
        UsageError: unknown region, no credentials, prices of today are here, a package is missing.
        FetchError: the API does not answer, or not as it should.
    """
    refuse_existing(target(root, region, now.date(), spot=True))
    known = instances.read_instances("aws", root)
    cheapest = _cheapest(_history(region, now, endpoint))
    if not cheapest:
        raise FetchError(f"EC2 {region}: no spot price came; does this account see spot machines there?")
    left_out = {
        name: "no facts in instances/aws.csv; `fetch_prices list` adds those of new types"
        for name in cheapest
        if name not in known
    }
    found = {(name, "spot"): price for name, price in cheapest.items() if name not in left_out}
    if not found:
        raise FetchError(f"EC2 {region}: none of the {len(left_out)} types that came is in instances/aws.csv")
    return Addition(region, now.date(), SOURCE, found, spot=True, left_out=left_out)


def _cheapest(history: Iterable[dict[str, Any]]) -> dict[str, Decimal]:
    """The newest price of each type and zone, then the lowest of each type."""
    newest: dict[tuple[str, str], tuple[datetime.datetime, Decimal]] = {}
    for item in history:
        try:
            key, moment = (item["InstanceType"], item["AvailabilityZone"]), item["Timestamp"]
            price = Decimal(item["SpotPrice"])
        except (KeyError, InvalidOperation):
            raise FetchError(f"EC2: an entry of the spot history is not as AWS writes it: {item!r:.120}") from None
        if not (price.is_finite() and price > 0):
            raise FetchError(f"EC2: the spot price of {key[0]} is {item['SpotPrice']!r}")
        if key not in newest or newest[key][0] < moment:
            newest[key] = (moment, price)
    found: dict[str, Decimal] = {}
    for (name, _), (_, price) in newest.items():
        found[name] = min(found.get(name, price), price)
    return found


def _history(region: str, now: datetime.datetime, endpoint: str | None) -> Iterator[dict[str, Any]]:
    """Each type's and zone's last price change before ``now``, page by page."""
    try:
        import boto3
        from botocore import exceptions
        from botocore.config import Config
        from botocore.parsers import ResponseParserError
    except ImportError:
        raise UsageError("boto3 is not installed, which speaks EC2's API; pip install boto3") from None
    limits = Config(connect_timeout=20, read_timeout=60, retries={"total_max_attempts": 3})
    try:
        session = boto3.Session()
        regions = [name for partition in session.get_available_partitions() for name in _regions(session, partition)]
        if region not in regions:
            raise UnknownName("region", region, regions)
        client = session.client("ec2", region_name=region, endpoint_url=endpoint, config=limits)
        pages = client.get_paginator("describe_spot_price_history").paginate(
            ProductDescriptions=[SYSTEM], StartTime=now, EndTime=now
        )
        for page in pages:
            yield from page.get("SpotPriceHistory", [])
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError):
        raise UsageError(
            "no AWS credentials were found; set AWS_ACCESS_KEY_ID and its secret, or AWS_PROFILE"
        ) from None
    except exceptions.ProfileNotFound:
        raise UsageError("AWS_PROFILE names a profile that there is not; see `aws configure list-profiles`") from None
    except exceptions.ClientError as error:
        # The text may name the account; its code says enough.
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise FetchError(f"EC2 {region}: refused ({code}); may this account call DescribeSpotPriceHistory?") from None
    except (exceptions.BotoCoreError, ResponseParserError, ValueError) as error:
        reason = type(error).__name__
        raise FetchError(f"EC2 {region}: no usable answer ({reason}); nothing was written, try again") from None


def _regions(session: Any, partition: str) -> list[str]:
    """The regions that this version of boto3 knows; a new one needs a new boto3."""
    return list(session.get_available_regions("ec2", partition_name=partition))
