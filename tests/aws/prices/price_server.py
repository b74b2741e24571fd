"""AWS, small: its price files in their own format, EC2's spot history, and a server for both on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

INDEX = "/offers/v1.0/aws/index.json"
REGIONS = "/offers/v1.0/aws/AmazonEC2/current/region_index.json"
VERSION = "/offers/v1.0/aws/AmazonEC2/20261120182150/us-east-1/index.json"
PUBLISHED = "2026-11-20T18:21:50Z"
DATE = "2026-11-20"
ON_DEMAND, HOURLY, UPFRONT = "JRTCKXETXF", "6YS6EN2CT7", "2TG2D8R56U"


@dataclass
class Answer:
    """One HTTP answer.  ``cut``: the connection ends after so many bytes, though all were announced."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    cut: int | None = None


@dataclass
class Server:
    """Answers of a fake AWS server, and the requests it received."""

    url: str
    answers: dict[str, Answer | Callable[[str], Answer]]
    asked: list[str] = field(default_factory=list)


@contextmanager
def serve(answers: dict[str, Answer | Callable[[str], Answer]]) -> Iterator[Server]:
    """A real HTTP server; a callable answers by the request's body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            known = server.answers.get(self.path, Answer(b"<html>Not found</html>", 404, "text/html"))
            answer = known(body) if callable(known) else known
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body[: answer.cut])
            self.close_connection = True

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}", answers)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def written(value: object) -> bytes:
    """JSON with AWS's spacing."""
    return json.dumps(value, indent=2, separators=(",", " : ")).encode()


def indexes(version: str = VERSION) -> dict[str, Answer | Callable[[str], Answer]]:
    """Both indexes, as AWS writes them."""
    head = {"formatVersion": "v1.0", "disclaimer": "This pricing list is for informational purposes only."}
    offer = {
        "offerCode": "AmazonEC2",
        "versionIndexUrl": "/offers/v1.0/aws/AmazonEC2/index.json",
        "currentVersionUrl": "/offers/v1.0/aws/AmazonEC2/current/index.json",
        "currentRegionIndexUrl": REGIONS,
    }
    regions = {
        "us-east-1": {"regionCode": "us-east-1", "currentVersionUrl": version},
        "eu-west-1": {"regionCode": "eu-west-1", "currentVersionUrl": version.replace("us-east-1", "eu-west-1")},
    }
    return {
        INDEX: Answer(written({**head, "publicationDate": PUBLISHED, "offers": {"AmazonEC2": offer}})),
        REGIONS: Answer(written({**head, "publicationDate": PUBLISHED, "regions": regions})),
    }


def attributes(instance_type: str, **changed: str) -> dict[str, str]:
    """A product's attributes as the list of late 2026 has them."""
    return {
        "servicecode": "AmazonEC2",
        "location": "US East (N. Virginia)",
        "locationType": "AWS Region",
        "instanceType": instance_type,
        "currentGeneration": "Yes",
        "instanceFamily": "General purpose",
        "vcpu": "2",
        "physicalProcessor": "Intel Xeon Platinum 8175",
        "memory": "8 GiB",
        "storage": "EBS only",
        "networkPerformance": "Up to 10 Gigabit",
        "processorArchitecture": "64-bit",
        "tenancy": "Shared",
        "operatingSystem": "Linux",
        "licenseModel": "No License required",
        "usagetype": f"BoxUsage:{instance_type}",
        "operation": "RunInstances",
        "availabilityzone": "NA",
        "capacitystatus": "Used",
        "gpuMemory": "NA",
        "marketoption": "OnDemand",
        "normalizationSizeFactor": "4",
        "preInstalledSw": "NA",
        "regionCode": "us-east-1",
        "servicename": "Amazon Elastic Compute Cloud",
        **changed,
    }


class Offers:
    """A region's file, product by product."""

    def __init__(self, currency: str = "USD") -> None:
        self._currency = currency
        self._products: dict[str, Any] = {}
        self._terms: dict[str, Any] = {"OnDemand": {}, "Reserved": {}}

    def add(
        self,
        instance_type: str,
        price: str,
        family: str = "Compute Instance",
        reserved: dict[tuple[str, str, str], tuple[str, str | None]] | None = None,
        **changed: str,
    ) -> Offers:
        """A product with its price on demand and its reserved ones: (lease, class, option) -> (hour, upfront)."""
        sku = f"SKU{len(self._products):013d}"
        self._products[sku] = {
            "sku": sku,
            "productFamily": family,
            "attributes": attributes(instance_type, **changed),
        }
        self._terms["OnDemand"][sku] = {f"{sku}.{ON_DEMAND}": self._offer(sku, ON_DEMAND, {}, price, None)}
        for number, ((lease, kind, option), (hour, upfront)) in enumerate((reserved or {}).items()):
            about = {"LeaseContractLength": lease, "OfferingClass": kind, "PurchaseOption": option}
            code = f"4NA7Y494T{number}"
            self._terms["Reserved"].setdefault(sku, {})[f"{sku}.{code}"] = self._offer(sku, code, about, hour, upfront)
        return self

    def written(self, **changed: object) -> bytes:
        """The file."""
        return written(
            {
                "formatVersion": "v1.0",
                "disclaimer": "This pricing list is for informational purposes only.",
                "offerCode": "AmazonEC2",
                "version": "20261120182150",
                "publicationDate": PUBLISHED,
                "products": self._products,
                "terms": self._terms,
                "attributesList": {},
                **changed,
            }
        )

    def _offer(self, sku: str, code: str, about: dict[str, str], hour: str, upfront: str | None) -> dict[str, Any]:
        dimensions = {HOURLY: self._dimension(sku, code, HOURLY, "Hrs", hour)}
        if upfront is not None:
            dimensions[UPFRONT] = self._dimension(sku, code, UPFRONT, "Quantity", upfront)
        return {
            "offerTermCode": code,
            "sku": sku,
            "effectiveDate": "2026-11-01T00:00:00Z",
            "priceDimensions": {f"{sku}.{code}.{rate}": found for rate, found in dimensions.items()},
            "termAttributes": about,
        }

    def _dimension(self, sku: str, code: str, rate: str, unit: str, price: str) -> dict[str, Any]:
        return {
            "rateCode": f"{sku}.{code}.{rate}",
            "description": f"{price} {self._currency} per {unit}",
            "beginRange": "0",
            "endRange": "Inf",
            "unit": unit,
            "pricePerUnit": {self._currency: price},
            "appliesTo": [],
        }


def spot_item(instance_type: str, zone: str, price: str, moment: str = "2026-11-21T03:04:05.000Z") -> str:
    """One entry of the spot history."""
    return (
        f"<item><instanceType>{instance_type}</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{price}</spotPrice><timestamp>{moment}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
    )


def spot_page(items: list[str], token: str = "") -> Answer:
    """One answer of DescribeSpotPriceHistory, in EC2's XML."""
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        "<requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId>"
        f"<spotPriceHistorySet>{''.join(items)}</spotPriceHistorySet><nextToken>{token}</nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    )
    return Answer(text.encode(), kind="text/xml;charset=UTF-8")
