"""Dated prices of serverless offers, and what a million queries cost at them, reckoned on paper."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import FileError
from harness.estimate import Estimate
from harness.pricing import serverless
from harness.pricing.serverless import GIB, Load, ServerlessOffer, ServerlessPrices, ServerlessQuote

HEAD = 'date = 2025-01-01\nsource = "a list"\n'
OFFER = """
[offers."mine"]
provider = "me"
region = "here"
architecture = "x86_64"
per_request = true
usd_per_vcpu_second = 0.00002
usd_per_gib_second = 0.000004
sizes = [{ vcpus = 4, least_gib = 1, most_gib = 8, step_gib = 1 }]
page = "p"
"""


def shipped() -> ServerlessPrices:
    found = serverless.FILES.newest(datetime.date(2026, 11, 29))
    assert found is not None
    return found


def load(cpus: int, gib: float, mean_s: float, **more: Any) -> Load:
    return Load(cpus=cpus, memory_bytes=round(gib * GIB), mean_s=Estimate(mean_s), **more)


def quote(offer: str, asked: Load) -> ServerlessQuote:
    (found,) = (each for each in serverless.quotes(shipped(), asked, None) if each.offer == offer)
    return found


@pytest.mark.parametrize(
    ("offer", "cpus", "gib", "mean_s", "size", "usd"),
    [
        # 1,769 MiB for one vCPU: 1.7275390625 GiB x 0.0000166667 = 0.0000287924 US$ a second.  10 ms are 10.5 billed on
        # average: 0.302320 for a million, and 0.20 for the requests.
        ("AWS Lambda x86_64", 1, 1, 0.010, (1, 1.7275390625), 0.502320),
        # The memory decides: 4 GiB x 0.0000133334 x 0.0045 s x 1e6 = 0.240001.
        ("AWS Lambda arm64", 1, 4, 0.004, (2.31543, 4), 0.440001),
        # A query of 0.1 ms is billed as 1 ms: 0.0287924 + 0.20.
        ("AWS Lambda x86_64", 1, 1, 0.0001, (1, 1.7275390625), 0.228792),
        # A task that is always busy, no rounding: (0.04048 + 2 x 0.004445) / 3600 x 0.010 s x 1e6.
        ("AWS Fargate x86_64", 1, 1, 0.010, (1, 2), 0.137139),
        # 8 vCPUs have 16, 20, 24 ... GiB: 33 need 36: (8 x 0.03238 + 36 x 0.00356) / 3600 x 1e6.
        ("AWS Fargate arm64", 8, 33, 1.0, (8, 36), 107.555556),
        # 100 ms at least: (0.000024 + 0.0000025) x 0.1 x 1e6 = 2.65, and 0.40 for the requests.
        ("Google Cloud Run", 1, 1, 0.010, (1, 1), 3.05),
        # 6 GiB need 2 vCPUs; 250 ms are 300 on average: (0.000048 + 6 x 0.0000025) x 0.3 x 1e6 + 0.40.
        ("Google Cloud Run", 1, 6, 0.250, (2, 6), 19.3),
        # 2 GiB with each vCPU: 3 GiB are 1.5 vCPUs.  1 s at least: (0.000036 + 0.000009) x 1e6 + 0.40.
        ("Azure Container Apps", 1, 3, 0.010, (1.5, 3), 45.4),
    ],
)
def test_a_million_queries_cost_what_is_reckoned_by_hand(
    offer: str, cpus: int, gib: float, mean_s: float, size: tuple[float, float], usd: float
) -> None:
    found = quote(offer, load(cpus, gib, mean_s))
    assert (found.vcpus, found.memory_gib) == pytest.approx(size, rel=1e-5)
    assert found.usd.value == pytest.approx(usd, rel=1e-5)


def test_task_that_is_started_for_one_query_pays_a_minute() -> None:
    # 60 s x (0.04048 + 2 x 0.004445) / 3600 x 1e6; a start of 90 s is longer.
    assert quote("AWS Fargate x86_64", load(1, 1, 0.010)).alone_usd == pytest.approx(822.8333)
    slow = quote("AWS Fargate x86_64", load(1, 1, 0.010, cold_start_s=90.0)).alone_usd
    assert slow == pytest.approx(90.010 * 0.04937 / 3600 * 1e6)


def test_cheapest_is_paid_by_the_request_and_has_the_architecture_and_the_interval_of_the_latency() -> None:
    asked = replace(load(1, 1, 0.010), mean_s=Estimate(0.010, 0.008, 0.012))
    best = serverless.cheapest(serverless.quotes(shipped(), asked, "arm64"))
    assert best is not None and best.offer == "AWS Lambda arm64", "a busy task of Fargate costs less"
    second = 1.7275390625 * 0.0000133334
    ends = [0.2 + billed_s * second * 1e6 for billed_s in (0.0085, 0.0105, 0.0125)]
    assert [best.usd.low, best.usd.value, best.usd.high] == pytest.approx(ends)
    assert [each.offer for each in serverless.quotes(shipped(), load(16, 64, 1), None)] == [
        "AWS Fargate arm64",
        "AWS Fargate x86_64",
    ]
    assert serverless.quotes(shipped(), load(17, 64, 1), None) == ()


def test_offer_may_bill_what_is_used() -> None:
    # 3 ms of CPU x 0.00002 + 0.5 GiB x 10 ms x 0.000004 = 0.00000008 US$ a query; configured: 4 vCPUs and 1 GiB.
    fields = {"provider": "me", "region": "here", "architecture": "x86_64", "per_request": True, "page": "p"}
    sizes = [{"vcpus": 4, "least_gib": 1, "most_gib": 8, "step_gib": 1}]
    offer = ServerlessOffer.model_validate(
        {**fields, "sizes": sizes, "usd_per_vcpu_second": 2e-5, "usd_per_gib_second": 4e-6, "bills": "used"}
    )
    prices = ServerlessPrices(date="2025-01-01", source="a list", offers={"mine": offer})
    asked = load(2, 1, 0.010, cpu_s=Estimate(0.003), used_bytes=GIB // 2)
    (found,) = serverless.quotes(prices, asked, None)
    assert found.usd.value == pytest.approx(0.08)
    (unknown,) = serverless.quotes(prices, replace(asked, cpu_s=Estimate(None)), None)
    assert unknown.usd.value is None and "were not measured" in str(unknown.usd.reason)


def test_every_shipped_offer_names_its_page_and_no_price_is_older_than_the_first_file() -> None:
    assert [str(each.as_of) for each in serverless.FILES.read()] == ["2026-11-29"]
    assert all(offer.page.startswith("https://") for offer in shipped().offers.values())
    assert serverless.FILES.newest(datetime.date(2026, 11, 28)) is None


def add(root: Path, text: str) -> Path:
    folder = root / "serverless"
    folder.mkdir()
    path = folder / "2025-01-01.toml"
    path.write_text(text)
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + OFFER.replace("0.00002", "-1"), "offers.mine.usd_per_vcpu_second"),
        (HEAD + OFFER.replace("vcpus = 4, ", ""), "name `vcpus` in each of `sizes`, or `gib_per_vcpu` once"),
        (HEAD + OFFER + "step = 1\n", "step"),
        (HEAD.replace("-01-01", "-01-02") + OFFER, "date is '2025-01-02'"),
    ],
)
def test_a_wrong_file_names_itself_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    path = add(tmp_path, text)
    with pytest.raises(FileError) as caught:
        serverless.FILES.newest(root=tmp_path)
    assert str(caught.value).startswith(str(path)) and message in str(caught.value)


def test_a_file_of_the_users_own_is_read(tmp_path: Path) -> None:
    add(tmp_path, HEAD + OFFER)
    found = serverless.FILES.newest(root=tmp_path)
    assert found is not None and found.offers["mine"].size_for(3, GIB) == (4, 1)
