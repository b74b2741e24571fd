"""AWS's public price files: the index of offers, the index of EC2's regions, one offer file for each region.

A region's file has hundreds of MB.  It goes to a temporary file and is read in passes by ijson, which holds one product
at a time: ``json.load`` would need several GB.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import tempfile
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any

from harness import config, extras
from harness.aws.prices import attributes, download
from harness.aws.prices.addition import Addition, new_path
from harness.errors import RemoteError, UnknownName
from harness.pricing import instances

INDEX = "/offers/v1.0/aws/index.json"
OFFER = "AmazonEC2"
# What one rents without choosing anything: Linux without added software, on machines shared with others.
_WANTED = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "licenseModel": "No License required",
    "capacitystatus": "Used",
    "operation": "RunInstances",
    "locationType": "AWS Region",
}
_RESERVED = {"1yr": "reserved-1y", "3yr": "reserved-3y"}
_VERSION = re.compile(r"/(\d{4})(\d{2})(\d{2})\d{6}/")


def fetch(endpoint: str, region: str, root: Path | None = None) -> Addition:
    """Return a region's list prices, and write nothing.

    Args:
        endpoint: URL of AWS's price files.
        region: as AWS names it.
        root: another ``instance_profiles/`` than the user's own.

    Raises:
        UsageError: the region is unknown, prices of that date exist, or a package is missing.
        RemoteError: a file cannot be fetched or is wrong.
    """
    extras.require("ijson")  # before hundreds of MB are fetched
    url = _region_url(endpoint.rstrip("/"), region)
    # The date in the address saves a long download; the file's own date decides.
    with contextlib.suppress(ValueError):
        if version := _VERSION.search(url):
            new_path(region, datetime.date(*map(int, version.groups())), root)
    with tempfile.TemporaryFile() as stream:
        download.large(url, stream, f"the prices of {region}")
        return OfferFile(url, stream).read(region, root)


def _region_url(endpoint: str, region: str) -> str:
    """Return the URL of the region's file, found through both indexes."""
    place = endpoint + INDEX
    offer = _entry(place, download.small_json(place), "offers").get(OFFER)
    path = offer.get("currentRegionIndexUrl") if isinstance(offer, dict) else None
    if not isinstance(path, str):
        raise RemoteError(f"{place}: has no region index of {OFFER}; check that this is AWS's price list")
    place = endpoint + path
    regions = _entry(place, download.small_json(place), "regions")
    if region not in regions:
        raise UnknownName("region", region, regions)
    path = regions[region].get("currentVersionUrl") if isinstance(regions[region], dict) else None
    if not isinstance(path, str):
        raise RemoteError(f"{place}: does not name the file of {region}; try again later")
    return endpoint + path


def _entry(place: str, index: dict[str, Any], name: str) -> dict[str, Any]:
    found = index.get(name)
    if not isinstance(found, dict):
        raise RemoteError(f"{place}: has no {name!r}; check that this is AWS's price list")
    return found


class OfferFile:
    """The prices of one region."""

    def __init__(self, url: str, stream: IO[bytes]) -> None:
        import ijson  # late: an extra

        self._ijson = ijson
        self._url = url
        self._stream = stream

    def read(self, region: str, root: Path | None = None) -> Addition:
        """Return the needed prices, and the facts of unknown types; errors as in :func:`fetch`."""
        try:
            as_of = self._published()
            new_path(region, as_of, root)
            products = self._products(region)
            found = self._prices(products)
        except (self._ijson.JSONError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())[:80]
            raise self._wrong(f"is not whole JSON ({reason}); nothing was written, try again") from None
        except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise self._wrong(f"is not an offer file of AWS ({type(error).__name__}: {error})") from None
        return self._addition(region, as_of, root, products, found)

    def _addition(
        self,
        region: str,
        as_of: datetime.date,
        root: Path | None,
        products: dict[str, dict[str, str]],
        found: dict[tuple[str, str], Decimal],
    ) -> Addition:
        source = f"AWS price list published {as_of}"
        known = {
            row["instance_type"]: row
            for path, content in instances.facts_files("aws", root)
            for _, row in config.csv_rows(path, instances.INSTANCE_HEADER, content)
        }
        added, left_out = [], {}
        for product in sorted(products.values(), key=lambda product: product["instanceType"]):
            name = product["instanceType"]
            if (name, "on-demand") not in found:
                left_out[name] = "it has no price on demand"
            elif name not in known:
                try:
                    added.append(attributes.facts(product, source, known.values()))
                except attributes.NoFacts as error:
                    left_out[name] = f"{error}; add a row to instances/aws.csv of that folder, then fetch again"
        kept = {key: price for key, price in found.items() if key[0] not in left_out}
        if not kept:
            raise self._wrong(f"has no price of Linux on demand for {region}")
        return Addition(region, as_of, source, kept, facts=added, left_out=left_out)

    def _published(self) -> datetime.date:
        """Return the date of publication, from the head of the file."""
        head: dict[str, str] = {}
        for prefix, event, value in self._ijson.parse(self._start()):
            if event == "string" and "." not in prefix:
                head[prefix] = value
            if prefix in ("products", "terms"):
                break
        if head.get("offerCode") != OFFER:
            raise self._wrong(f"has prices of {head.get('offerCode')!r}, not of {OFFER}")
        try:
            return datetime.date.fromisoformat(head.get("publicationDate", "")[:10])
        except ValueError:
            raise self._wrong(f"publicationDate is {head.get('publicationDate')!r}") from None

    def _products(self, region: str) -> dict[str, dict[str, str]]:
        """Return the attributes of the products to price, by SKU."""
        found = {}
        for sku, product in self._ijson.kvitems(self._start(), "products"):
            about = product.get("attributes", {})
            if not str(product.get("productFamily", "")).startswith("Compute Instance"):
                continue
            # A capacity block shares every other attribute with what is rented on demand; old files have no such word.
            if about.get("marketoption", "OnDemand") != "OnDemand" or about.get("regionCode", region) != region:
                continue
            usage = about.get("usagetype", "").partition(":")[0]
            if usage.endswith("BoxUsage") and all(about.get(name) == value for name, value in _WANTED.items()):
                found[sku] = about
        return found

    def _prices(self, products: dict[str, dict[str, str]]) -> dict[tuple[str, str], Decimal]:
        """Return the prices on demand, and the reserved ones of the types that have these.

        Of reserved offers the standard class with nothing upfront counts: its price per hour is the whole price.
        """
        found: dict[tuple[str, str], Decimal] = {}
        for name, offer in self._offers("OnDemand", products):
            self._put(found, (name, "on-demand"), offer)
        rented = {name for name, _ in found}
        for name, offer in self._offers("Reserved", products):
            about = offer["termAttributes"]
            term = _RESERVED.get(about.get("LeaseContractLength"))
            plain = (about.get("OfferingClass"), about.get("PurchaseOption")) == ("standard", "No Upfront")
            if term and plain and name in rented:
                self._put(found, (name, term), offer)
        return found

    def _offers(self, kind: str, products: dict[str, dict[str, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each offer of the products, with its instance type."""
        for sku, offers in self._ijson.kvitems(self._start(), f"terms.{kind}"):
            for offer in offers.values() if sku in products else ():
                yield products[sku]["instanceType"], offer

    def _put(self, found: dict[tuple[str, str], Decimal], key: tuple[str, str], offer: dict[str, Any]) -> None:
        """Add the price of an hour; a price of 0 means that there is none."""
        hourly = [item for item in offer["priceDimensions"].values() if item["unit"] == "Hrs"]
        for item in hourly:
            if "USD" not in item["pricePerUnit"]:
                named = ", ".join(item["pricePerUnit"]) or "no currency"
                raise self._wrong(f"its prices are in {named}, but harness needs US$")
            try:
                price = Decimal(item["pricePerUnit"]["USD"])
            except (InvalidOperation, ValueError):
                price = Decimal("NaN")
            if not (price.is_finite() and price >= 0):
                raise self._wrong(f"the {key[1]} price of {key[0]} is {item['pricePerUnit']['USD']!r}")
            if found.get(key, price) != price:
                raise self._wrong(f"{key[0]} has two {key[1]} prices, {found[key]} and {price}")
            if price:
                found[key] = price

    def _start(self) -> IO[bytes]:
        self._stream.seek(0)
        return self._stream

    def _wrong(self, what: str) -> RemoteError:
        return RemoteError(f"{self._url}: {what}")
