"""The instance facts and prices that are shipped: whole, unchanged, and as published elsewhere."""

import csv
import datetime
import hashlib
import re

import pytest

from harness.pricing import instances, prices
from harness.pricing.instances import Instance

GIB = 2**30
ROOT = instances.data_folder()
PROVIDERS = ("aws", "azure", "gcp")
# As they were the day they came: a snapshot that changes changes every table that was ever priced with it.
SUMS = {
    "aws_us-east-1_2022-10-31.csv": "a67f3f7e9ad3ac32ca0be3f7ddd2dcfa8c01b48551d27bf24590190d99f5cdb5",
    "aws_us-east-1_2022-12-05.csv": "56dc5c5cd28d4fdf97518475157729d38462e1abc3e0fc5907952165e9e53805",
    "aws_us-east-1_2026-07-20.csv": "dbbc360bf92514f9207385844a2d617c228e11cf3700911ab4f0671918009189",
    "azure_eastus_2023-12-18.csv": "4d094cc77c6ec99f0ffa9085242b43608baa4918c3e18be26b83341dc530f5cd",
    "gcp_us-central1_2025-03-06.csv": "f05d9d944d9ce83b80764c5008885a760f5bb978c6047c0af34cb226fd715736",
}


def of_day(day: str, region: str = "us-east-1") -> prices.Snapshot:
    return prices.snapshot(datetime.date.fromisoformat(day), region=region)


@pytest.fixture(scope="module")
def aws() -> dict[str, Instance]:
    return instances.read_instances("aws")


def test_every_snapshot_is_whole_and_every_price_has_facts() -> None:
    files = prices.snapshot_files()
    assert {file.path.name for file in files} >= set(SUMS)
    for file in files:
        snapshots = prices.read_snapshots(file)
        assert snapshots, file.path
        assert all(price > 0 and instance.vcpus for one in snapshots.values() for instance, price in one.prices)


def test_every_snapshot_has_its_checksum_and_none_is_missing() -> None:
    lines = (ROOT / "prices" / "SHA256SUMS").read_text().splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{64}  [a-z0-9_.-]+\.csv", line) for line in lines)
    known = dict(line.split("  ")[::-1] for line in lines)
    assert known == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (ROOT / "prices").glob("*.csv")
    }


@pytest.mark.parametrize("name", SUMS)
def test_a_snapshot_never_changes(name: str) -> None:
    assert hashlib.sha256((ROOT / "prices" / name).read_bytes()).hexdigest() == SUMS[name]


@pytest.mark.parametrize(("day", "types"), [("2022-10-31", 561), ("2022-12-05", 607), ("2026-07-20", 1367)])
def test_snapshot_has_as_many_prices_as_its_source(day: str, types: int) -> None:
    found = of_day(day)
    assert (str(found.as_of), found.provider, len(found.prices) + len(found.gone)) == (day, "aws", types)


@pytest.mark.parametrize(
    ("instance_type", "price"),
    [
        ("m6g.medium", 0.0385),
        ("m6gd.medium", 0.0452),
        ("x2gd.medium", 0.0835),
        ("a1.medium", 0.0255),
        ("p3.8xlarge", 12.24),
        ("c7g.4xlarge", 0.58),
        ("cc2.8xlarge", 2.0),
    ],
)
def test_prices_of_2022_are_as_published(instance_type: str, price: float) -> None:
    assert of_day("2022-10-31").price_of(instance_type) == price


def test_price_changes_until_2026_are_the_known_ones() -> None:
    before, after = of_day("2022-12-05"), of_day("2026-07-20")
    names = {instance.instance_type for instance, _ in before.prices}
    gone = {instance.instance_type for instance in after.gone}
    assert {name for name in names if after.price_of(name) is None} - gone == {"cc2.8xlarge", "hs1.8xlarge"}
    assert len(gone) == 22 and {"p3.2xlarge", "p3.8xlarge", "p2.xlarge", "g3.4xlarge", "f1.2xlarge"} < gone
    assert not before.gone and "p3dn.24xlarge" not in gone
    changed = {name for name in names if after.price_of(name) not in (None, before.price_of(name))}
    assert {name: (before.price_of(name), after.price_of(name)) for name in changed} == {
        "p4d.24xlarge": (32.7726, 21.957642),
        "p4de.24xlarge": (40.96575, 27.44705),
    }


def test_facts_of_known_machines_are_correct(aws: dict[str, Instance]) -> None:
    small = aws["m6g.medium"]
    assert (small.vcpus, small.physical_cores, small.memory_bytes, small.architecture) == (1, 1, 4 * GIB, "arm64")
    assert (small.gpus, small.accelerators, small.local_nvme_bytes, small.burstable) == (0, 0, 0, False)
    cards = aws["p3.8xlarge"]
    assert (cards.vcpus, cards.physical_cores, cards.memory_bytes) == (32, 16, 244 * GIB)
    assert (cards.gpus, cards.gpu_name, cards.gpu_memory_bytes) == (4, "v100", 16 * GIB)
    assert (aws["c5d.large"].local_nvme_bytes, aws["c5d.large"].physical_cores) == (50 * 10**9, 1)
    assert (aws["m7a.medium"].vcpus, aws["m7a.medium"].physical_cores) == (1, 1)
    assert (aws["m5.metal"].bare_metal, aws["m5.large"].bare_metal) == (True, False)
    assert aws["m1.small"].physical_cores is None


def test_graviton_has_one_core_per_vcpu_and_no_type_more_than_two_threads(aws: dict[str, Instance]) -> None:
    known = [found for found in aws.values() if found.physical_cores is not None]
    assert len(known) == len(aws) - 13
    assert all(found.physical_cores == found.vcpus for found in known if found.architecture == "arm64")
    assert {found.vcpus / found.physical_cores for found in known} == {1, 2}


def test_burstable_and_bare_metal_types_have_the_known_names(aws: dict[str, Instance]) -> None:
    burstable = {name.partition(".")[0] for name, found in aws.items() if found.burstable}
    flex = {name.partition(".")[0] for name in aws if name.partition(".")[0].endswith("-flex")}
    assert burstable == {"t1", "t2", "t3", "t3a", "t4g"} | flex and len(flex) >= 4
    assert all(found.burstable == (name.partition(".")[0] in burstable) for name, found in aws.items())
    assert all(found.bare_metal == (".metal" in name) for name, found in aws.items())


@pytest.mark.parametrize(
    ("instance_type", "gpus", "accelerators"),
    [
        ("g5.xlarge", 1, 0),
        ("p4d.24xlarge", 8, 0),
        ("g6f.large", 0, 1),
        ("g4ad.xlarge", 0, 1),
        ("dl1.24xlarge", 0, 8),
        ("inf1.24xlarge", 0, 16),
        ("f1.2xlarge", 0, 1),
        ("vt1.3xlarge", 0, 1),
    ],
)
def test_only_whole_nvidia_gpus_count_as_gpus(
    aws: dict[str, Instance], instance_type: str, gpus: int, accelerators: int
) -> None:
    assert (aws[instance_type].gpus, aws[instance_type].accelerators) == (gpus, accelerators)


@pytest.mark.parametrize(
    ("region", "day", "instance_type", "price", "gpu"),
    [
        ("us-central1", "2025-03-06", "n2-standard-16", 0.776944, None),
        ("us-central1", "2025-03-06", "a2-highgpu-1g", 3.673385, "a100"),
        ("eastus", "2023-12-18", "Standard_D4s_v3", 0.192, None),
        ("eastus", "2023-12-18", "Standard_NC16as_T4_v3", 1.204, "t4"),
    ],
)
def test_other_providers_are_read_by_the_same_code(
    region: str, day: str, instance_type: str, price: float, gpu: str | None
) -> None:
    found = prices.snapshot(region=region)
    assert (str(found.as_of), found.price_of(instance_type)) == (day, price)
    assert found.by_type[instance_type][0].gpu_name == gpu


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_fact_has_a_source_and_facts_are_sorted(provider: str) -> None:
    with instances.facts_path(provider).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert all(row["source"] for row in rows)
    names = [row["instance_type"] for row in rows]
    assert names == sorted(names)


def test_storage_price_has_a_date_and_a_source() -> None:
    with (ROOT / "storage.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["provider"], row["region"], row["volume_type"]): row["price_usd_per_gib_month"] for row in rows} == {
        ("aws", "us-east-1", "gp3"): "0.08",
        ("gcp", "us-central1", "pd-ssd"): "0.17",
    }
    assert all(datetime.date.fromisoformat(row["as_of"]) and row["source"] for row in rows)
