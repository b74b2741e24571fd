"""List prices from a server that speaks as AWS's does, and from some that do not."""

import datetime
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.pricing import instances, prices, token_prices
from tests.aws.prices import price_server as aws
from tests.aws.prices.conftest import Fetch, content
from tests.aws.prices.price_server import Answer, Offers
from tests.support.command_line import call

RESERVED = {
    ("1yr", "standard", "No Upfront"): ("0.0610000000", None),
    ("3yr", "standard", "No Upfront"): ("0.0410000000", None),
    ("1yr", "convertible", "No Upfront"): ("0.0700000000", None),
    ("1yr", "standard", "Partial Upfront"): ("0.0290000000", "254"),
    ("3yr", "standard", "All Upfront"): ("0.0000000000", "1000"),
}


def offers(currency: str = "USD") -> Offers:
    """Return one type in every form of the list, and rows of other products."""
    return (
        Offers(currency)
        .add("m5.large", "0.0970000000", reserved=RESERVED)
        .add("m5.large", "0.1270000000", operatingSystem="RHEL", operation="RunInstances:0010")
        .add("m5.large", "0.1880000000", operatingSystem="Windows", operation="RunInstances:0002")
        .add("m5.large", "0.1030000000", tenancy="Dedicated", usagetype="DedicatedUsage:m5.large")
        .add(
            "m5.large", "0.0000000000", capacitystatus="AllocatedCapacityReservation", usagetype="Reservation:m5.large"
        )
        .add("m5.large", "0.0980000000", capacitystatus="UnusedCapacityReservation", usagetype="UnusedBox:m5.large")
        .add("m5.large", "0.5770000000", preInstalledSw="SQL Std", operation="RunInstances:0004")
        .add("m5.large", "0.1200000000", locationType="AWS Local Zone", usagetype="BOS1-BoxUsage:m5.large")
        .add("m5.large", "0.0500000000", marketoption="CapacityBlock")
        .add("gp3", "0.0800000000", family="Storage")
    )


def served(body: bytes | None = None, version: str = aws.VERSION) -> dict[str, Answer | Callable[[str], Answer]]:
    return {**aws.indexes(version), version: Answer(offers().written() if body is None else body)}


@pytest.mark.slow
def test_prices_become_a_snapshot_that_harness_reads(root: Path, fetch: Fetch) -> None:
    before = content(root)
    with aws.serve(served()) as server:
        result = fetch("--endpoint", server.url)
    assert (result.exit_code, result.stderr) == (0, "")
    path = root / "prices" / f"aws_us-east-1_{aws.DATE}.csv"
    assert result.stdout == (
        f"{path}: 1 on-demand, 1 reserved-1y, 1 reserved-3y; source: AWS price list published {aws.DATE}\n"
    )
    assert path.read_text() == (
        prices.PRICE_HEADER + "\n"
        f"aws,us-east-1,m5.large,on-demand,0.097,{aws.DATE},AWS price list published {aws.DATE}\n"
        f"aws,us-east-1,m5.large,reserved-1y,0.061,{aws.DATE},AWS price list published {aws.DATE}\n"
        f"aws,us-east-1,m5.large,reserved-3y,0.041,{aws.DATE},AWS price list published {aws.DATE}\n"
    )
    after = content(root)
    assert set(after) - set(before) == {f"prices/{path.name}"}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"prices/SHA256SUMS"}
    found = prices.snapshot(root=root)
    assert (found.as_of, found.price_of("m5.large")) == (datetime.date(2026, 11, 20), 0.097)
    assert prices.snapshot(root=root, term="reserved-3y").price_of("m5.large") == 0.041
    assert prices.snapshot(datetime.date(2026, 11, 19), root=root).price_of("m5.large") == 0.096


def test_fetched_snapshot_has_a_checksum(root: Path, fetch: Fetch) -> None:
    with aws.serve(served()) as server:
        fetch("--endpoint", server.url)
    lines = (root / "prices" / "SHA256SUMS").read_text().splitlines()
    assert dict(line.split("  ")[::-1] for line in lines) == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (root / "prices").glob("*.csv")
    }


@pytest.mark.slow
def test_facts_of_new_types_are_added(root: Path, fetch: Fetch) -> None:
    known = instances.read_instances("aws", root)
    graviton = {"physicalProcessor": "AWS Graviton9 Processor", "vcpu": "1", "memory": "1,952 GiB"}
    listed = (
        offers()
        .add("m99g.medium", "0.5", storage="2 x 950 NVMe SSD", currentGeneration="No", **graviton)
        .add("t99.nano", "0.0042", memory="0.5 GiB", storage="24 x 2000 HDD", physicalProcessor="AMD EPYC 9R99")
        .add("m99.metal-24xl", "4.6", family="Compute Instance (bare metal)", storage="1 x 1.9 NVMe SSD")
        .add("g5.96xlarge", "33", gpu="16", gpuMemory="24 GB", instanceFamily="GPU instance")
    )
    with aws.serve(served(listed.written())) as server:
        result = fetch("--endpoint", server.url)
    assert result.exit_code == 0
    assert "new types, with facts: g5.96xlarge, m99.metal-24xl, m99g.medium, t99.nano\n" in result.stdout
    types = instances.read_instances("aws", root)
    assert {name: types[name] for name in known} == known
    assert set(types) - set(known) == {"m99g.medium", "t99.nano", "m99.metal-24xl", "g5.96xlarge"}
    arm, small, metal, cards = (types[name] for name in ("m99g.medium", "t99.nano", "m99.metal-24xl", "g5.96xlarge"))
    assert (arm.vcpus, arm.memory_bytes, arm.architecture) == (1, 1952 * 2**30, "arm64")
    assert (arm.physical_cores, arm.local_nvme_bytes, arm.current_generation) == (None, 1900 * 10**9, False)
    assert (small.architecture, small.memory_bytes, small.burstable) == ("x86_64", 2**29, True)
    assert (metal.bare_metal, metal.local_nvme_bytes, metal.current_generation) == (True, None, True)
    assert (cards.gpus, cards.gpu_name, cards.gpu_memory_bytes) == (16, "a10g", known["g5.xlarge"].gpu_memory_bytes)
    names = [line.split(",")[1] for line in (root / "instances" / "aws.csv").read_text().splitlines()[1:]]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"gpu": "1", "instanceFamily": "GPU instance"},
            "it has cards (GPU instance) that the price list does not name",
        ),
        ({"instanceFamily": "FPGA Instances"}, "it has cards (FPGA Instances) that the price list does not name"),
        ({"physicalProcessor": "Variable"}, "its processor is 'Variable'"),
        ({"memory": "NA"}, "its memory is 'NA'"),
        ({"vcpu": "NA"}, "its vcpu is 'NA'"),
    ],
)
def test_type_with_missing_facts_is_left_out_and_named(
    root: Path, fetch: Fetch, changed: dict[str, str], reason: str
) -> None:
    with aws.serve(served(offers().add("z99.large", "1", **changed).written())) as server:
        result = fetch("--endpoint", server.url)
    assert result.exit_code == 0
    assert (
        f"left out: z99.large: {reason}; add a row to instances/aws.csv of that folder, then fetch again\n"
        in result.stdout
    )
    assert prices.snapshot(root=root).price_of("z99.large") is None
    assert "z99.large" not in instances.read_instances("aws", root)


def test_price_of_zero_is_ignored(root: Path, fetch: Fetch) -> None:
    with aws.serve(served(offers().add("c5.large", "0.0000000000", reserved=RESERVED).written())) as server:
        result = fetch("--endpoint", server.url)
    assert "left out: c5.large: it has no price on demand\n" in result.stdout
    assert prices.snapshot(root=root).price_of("c5.large") is None


def refused_line(root: Path, fetch: Fetch, answers: dict[str, Answer | Callable[[str], Answer]], *more: str) -> str:
    """Fetch, check that no file changed, and return the one line of the error."""
    before = content(root)
    with aws.serve(answers) as server:
        result = fetch("--endpoint", server.url, *more)
        place = server.url
    assert content(root) == before
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr
    assert result.exit_code == (2 if more else 1)
    return result.stderr.replace(place, "")


HTML = b"<!DOCTYPE html><html><body>Please sign in to the guest network</body></html>"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, f"harness: {aws.INDEX}: HTTP 404; try again, or name another --endpoint"),
        ({aws.INDEX: Answer(HTML, kind="text/html")}, f"harness: {aws.INDEX}: is not JSON"),
        ({aws.INDEX: Answer(b"[" * 200_000)}, f"harness: {aws.INDEX}: is not JSON"),
        ({aws.INDEX: Answer(b"[]")}, f"harness: {aws.INDEX}: is not a JSON object"),
        ({aws.INDEX: Answer(b"{}")}, f"harness: {aws.INDEX}: has no 'offers'"),
        ({aws.INDEX: Answer(b'{"offers": {}}')}, f"harness: {aws.INDEX}: has no region index of AmazonEC2"),
        ({**aws.indexes(), aws.REGIONS: Answer(HTML)}, f"harness: {aws.REGIONS}: is not JSON"),
        ({**aws.indexes(), aws.REGIONS: Answer(b"{", 500)}, f"harness: {aws.REGIONS}: HTTP 500"),
        (aws.indexes(), f"harness: {aws.VERSION}: HTTP 404"),
        (served(HTML), f"harness: {aws.VERSION}: is not whole JSON"),
        (served(b'{"offerCode": \x1b[2J}'), f"harness: {aws.VERSION}: is not whole JSON"),
        (
            served(offers().add("c5.large", [1, 2]).written()),
            f"harness: {aws.VERSION}: the on-demand price of c5.large is [1, 2]",
        ),
        (served(b""), f"harness: {aws.VERSION}: is not whole JSON"),
        (served(offers().written()[:-200]), f"harness: {aws.VERSION}: is not whole JSON"),
        (served(offers().written()[:3000]), f"harness: {aws.VERSION}: is not whole JSON"),
        (served(offers().written().replace(b"m5.large", b"m5\xff.large")), f"harness: {aws.VERSION}: is not whole"),
        (served(offers("CNY").written()), f"harness: {aws.VERSION}: its prices are in CNY, but harness needs US$"),
        (served(offers().written(offerCode="AmazonRDS")), f"harness: {aws.VERSION}: has prices of 'AmazonRDS', not of"),
        (served(offers().written(publicationDate="soon")), f"harness: {aws.VERSION}: publicationDate is 'soon'"),
        (served(offers().written(products={})), f"harness: {aws.VERSION}: has no price of Linux on demand"),
        (served(offers().written(products={"A": 1})), f"harness: {aws.VERSION}: is not an offer file of AWS"),
        (
            served(offers().add("m5.large", "0.2").written()),
            f"harness: {aws.VERSION}: m5.large has two on-demand prices, 0.0970000000 and 0.2",
        ),
        (
            served(offers().add("c5.large", "-1").written()),
            f"harness: {aws.VERSION}: the on-demand price of c5.large is '-1'",
        ),
        (
            served(offers().add("c5.large", "much").written()),
            f"harness: {aws.VERSION}: the on-demand price of c5.large is 'much'",
        ),
        (
            {**aws.indexes(), aws.VERSION: Answer(offers().written(), cut=5000)},
            f"harness: {aws.VERSION}: broke off (",
        ),
    ],
)
def test_wrong_files_change_nothing_and_are_one_line(
    root: Path, fetch: Fetch, answers: dict[str, Answer | Callable[[str], Answer]], said: str
) -> None:
    line = refused_line(root, fetch, answers)
    assert line.startswith(said), line


def test_unknown_region_is_refused_with_the_nearest(root: Path, fetch: Fetch) -> None:
    said = refused_line(root, fetch, served(), "--region", "us-east-11")
    assert said == "harness: unknown region 'us-east-11'. Did you mean 'us-east-1'?\n"


def test_prices_of_an_existing_date_are_refused_before_the_download(root: Path, fetch: Fetch) -> None:
    with aws.serve(served()) as server:
        fetch("--endpoint", server.url)
        before = content(root)
        result = fetch("--endpoint", server.url)
        assert server.asked.count(aws.VERSION) == 1
    path = root / "prices" / f"aws_us-east-1_{aws.DATE}.csv"
    message = f"{path}: prices of {aws.DATE} exist already and never change; nothing was written"
    assert (result.exit_code, result.stderr) == (2, f"harness: {message}\n")
    assert content(root) == before


def test_date_in_the_file_counts_if_its_address_has_none(root: Path, fetch: Fetch) -> None:
    current = "/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.json"
    answers = served(offers().written(publicationDate="2026-07-20T00:00:00Z"), version=current)
    said = refused_line(root, fetch, answers, "--region", "us-east-1")
    assert "aws_us-east-1_2026-07-20.csv: prices of 2026-07-20 exist already" in said


def test_unreachable_server_is_one_line(root: Path, fetch: Fetch) -> None:
    with aws.serve({}) as server:
        gone = server.url
    before = content(root)
    result = fetch("--endpoint", gone)
    message = f"harness: {gone}{aws.INDEX}: cannot be reached (ConnectionError); check the network\n"
    assert (result.exit_code, result.stderr) == (1, message)
    assert content(root) == before


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_late_disk_failure_changes_nothing(
    root: Path, fetch: Fetch, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    before = content(root)
    rename, calls = Path.replace, []

    def replace(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == failing:
            raise OSError(5, "Input/output error", str(target))
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    with aws.serve(served(offers().add("m99.large", "1").written())) as server:
        result = fetch("--endpoint", server.url)
    assert (result.exit_code, len(calls)) == (1, failing)
    assert result.stderr.endswith("Input/output error; no prices were added\n")
    assert content(root) == before


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of fetched prices, which does not exist yet."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HARNESS_PRICES", str(tmp_path / "own"))
    return tmp_path / "own"


def test_fetched_prices_come_before_the_shipped_ones(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = content(instances.data_folder())
    with aws.serve(served(offers().add("m99.large", "1").written())) as server:
        monkeypatch.setenv("HARNESS_PRICE_LIST", server.url)
        done = call("prices", "fetch")
        again = call("prices", "fetch")
        assert server.asked.count(aws.VERSION) == 1
    path = own / "prices" / f"aws_us-east-1_{aws.DATE}.csv"
    assert done.stdout.splitlines()[0].startswith(f"{path}: 2 on-demand") and done.exit_code == 0, done.output
    assert (again.exit_code, again.stderr) == (
        2,
        f"harness: {path}: prices of {aws.DATE} exist already and never change; nothing was written\n",
    )
    assert content(instances.data_folder()) == shipped
    assert set(content(own)) == {f"prices/{path.name}", "prices/SHA256SUMS", "instances/aws.csv"}
    newest = prices.snapshot()
    assert (newest.as_of, newest.price_of("m5.large"), newest.price_of("m99.large")) == (
        datetime.date(2026, 11, 20),
        0.097,
        1.0,
    )
    assert prices.snapshot(datetime.date(2026, 11, 19)).as_of == datetime.date(2026, 7, 20)
    types = instances.read_instances("aws")
    assert "m99.large" in types and types["m5.large"].physical_cores == 1, "shipped facts are still there"
    listed = call("prices").stdout
    assert aws.DATE in listed and "2022-10-31" in listed


def test_prices_of_a_date_that_ships_are_not_fetched(own: Path) -> None:
    version = aws.VERSION.replace("20261120", "20260720")
    with aws.serve(served(version=version)) as server:
        done = call("prices", "fetch", "--endpoint", server.url)
    assert done.exit_code == 2 and "aws_us-east-1_2026-07-20.csv: prices of 2026-07-20 exist already" in done.stderr
    assert not own.exists()


def test_fetched_file_of_a_shipped_name_comes_first(own: Path) -> None:
    name = "gcp_us-central1_2025-03-06.csv"
    text = (instances.data_folder() / "prices" / name).read_text()
    (own / "prices").mkdir(parents=True)
    first = text.splitlines()[1].split(",")
    changed = text.replace(",".join(first), ",".join([*first[:4], "9.5", *first[5:]]))
    (own / "prices" / name).write_text(changed)
    (own / "prices" / "SHA256SUMS").write_text(f"{hashlib.sha256(changed.encode()).hexdigest()}  {name}\n")
    assert prices.snapshot(region="us-central1").price_of(first[2]) == 9.5
    assert [file.path.name for file in prices.snapshot_files()].count(name) == 1


def test_other_providers_storage_and_tokens_may_be_added_there(own: Path) -> None:
    shipped = instances.data_folder()
    (own / "instances").mkdir(parents=True)
    (own / "prices").mkdir()
    (own / "tokens").mkdir()
    facts = (shipped / "instances" / "gcp.csv").read_text().replace("\ngcp,", "\novh,")
    (own / "instances" / "ovh.csv").write_text(facts)
    rows = (shipped / "prices" / "gcp_us-central1_2025-03-06.csv").read_text().replace("\ngcp,us-central1", "\novh,eu")
    (own / "prices" / "ovh_eu_2025-03-06.csv").write_text(rows)
    digest = hashlib.sha256(rows.encode()).hexdigest()
    (own / "prices" / "SHA256SUMS").write_text(f"{digest}  ovh_eu_2025-03-06.csv\n")
    (own / "storage.csv").write_text(f"{prices.STORAGE_HEADER}\novh,eu,disk,0.05,2025-01-01,doc\n")
    day = datetime.date(2025, 3, 6)
    assert prices.snapshot(region="ovh/eu").as_of == day and "ovh" in instances.providers()
    storage = [prices.storage_price(*place, day) for place in (("ovh", "eu"), ("aws", "us-east-1"))]
    assert [price and price.usd_per_gib_month for price in storage] == [0.05, 0.08]
    tokens = (shipped / "tokens" / "2026-03-13.toml").read_text().replace("2026-03-13", "2026-11-28", 1)
    (own / "tokens" / "2026-11-28.toml").write_text(tokens)
    digest = hashlib.sha256(tokens.encode()).hexdigest()
    (own / "tokens" / "SHA256SUMS").write_text(f"{digest}  2026-11-28.toml\n")
    assert [str(each.as_of) for each in token_prices.FILES.read()] == ["2026-03-13", "2026-11-09", "2026-11-28"]
