import datetime
from pathlib import Path

import pytest

from harness import hardware, instances
from harness.errors import FileError, UsageError
from harness.records import Envelope

GIB = 2**30
FACTS = (
    "provider,instance_type,vcpus,memory_gib,architecture,gpu_count,gpu_name,gpu_manufacturer,"
    "gpu_memory_mib_each,accelerator_count,accelerator_name,source\n"
)
PRICES = "provider,region,instance_type,term,price_usd_per_hour,as_of,source\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A made-up provider: every exclusion rule has a type that is cheaper than the right answer."""
    facts = [
        "x,t3.big,8,64,x86_64,0,,,,0,,doc",
        "x,m1.metal,8,64,x86_64,0,,,,0,,doc",
        "x,m1.metal-24xl,8,64,x86_64,0,,,,0,,doc",
        "x,small.one,1,1.5,arm64,0,,,,0,,doc",
        "x,m1.two,2,4,x86_64,0,,,,0,,doc",
        "x,a.tie,2,8,arm64,0,,,,0,,doc",
        "x,b.tie,2,8,arm64,0,,,,0,,doc",
        "x,c.tie,4,8,arm64,0,,,,0,,doc",
        "x,inf.one,4,8,x86_64,0,,,,1,inferentia,doc",
        "x,radeon.one,4,16,x86_64,1,radeon,amd,8192,0,,doc",
        "x,part.gpu,4,16,x86_64,0,l4,nvidia,2861,0,,doc",
        "x,g.one,4,16,x86_64,1,t4,nvidia,16384,0,,doc",
        "x,g.four,48,192,x86_64,4,t4,nvidia,16384,0,,doc",
    ]
    prices = {
        "t3.big": "0.01",
        "m1.metal": "0.01",
        "m1.metal-24xl": "0.01",
        "small.one": "0.02",
        "m1.two": "0.05",
        "c.tie": "0.06",
        "b.tie": "0.06",
        "a.tie": "0.06",
        "inf.one": "0.07",
        "radeon.one": "0.08",
        "part.gpu": "0.09",
        "g.one": "0.5",
        "g.four": "1.9",
    }
    (tmp_path / "instances").mkdir()
    (tmp_path / "prices").mkdir()
    (tmp_path / "instances" / "x.csv").write_text(FACTS + "".join(f"{line}\n" for line in facts))
    lines = [f"x,here,{name},on_demand,{price},2024-05-01,src\n" for name, price in prices.items()]
    (tmp_path / "prices" / "x_here_2024-05-01.csv").write_text(PRICES + "".join(lines))
    return tmp_path


def offer(root: Path, cpus: int, memory_gib: float, gpus: int = 0, architecture: str | None = None) -> str | None:
    envelope = Envelope(name="p", cpus=cpus, memory_bytes=int(memory_gib * GIB), gpus=gpus)
    found = instances.cheapest(envelope, instances.latest(root=root), architecture)
    return None if found is None else found.instance_type


def test_the_cheapest_that_is_large_enough(root: Path) -> None:
    assert offer(root, 1, 1) == "small.one"
    assert offer(root, 1, 1.5) == "small.one"
    assert offer(root, 1, 1.6) == "m1.two"
    assert offer(root, 2, 1) == "m1.two"


def test_ties_go_to_fewer_cpus_then_to_the_name(root: Path) -> None:
    assert offer(root, 2, 8) == "a.tie"
    assert offer(root, 3, 8) == "c.tie"


def test_a_profile_without_gpus_may_be_priced_on_any_type(root: Path) -> None:
    assert offer(root, 4, 16) == "radeon.one"


def test_only_whole_nvidia_gpus_count(root: Path) -> None:
    assert offer(root, 1, 1, gpus=1) == "g.one"
    assert offer(root, 1, 1, gpus=2) == "g.four"
    assert offer(root, 1, 1, gpus=5) is None


def test_architecture_can_be_asked_for(root: Path) -> None:
    assert offer(root, 1, 1, architecture="x86_64") == "m1.two"
    assert offer(root, 1, 1, gpus=1, architecture="arm64") is None


def test_offer_carries_all_that_the_table_says(root: Path) -> None:
    found = instances.cheapest(Envelope("p", 2, 4 * GIB), instances.latest(root=root))
    assert found == instances.Offer(
        instance_type="m1.two",
        architecture="x86_64",
        vcpus=2,
        memory_bytes=4 * GIB,
        gpus=0,
        gpu_name=None,
        region="here",
        price_usd_per_hour=0.05,
        price_date=datetime.date(2024, 5, 1),
    )


def test_latest_takes_the_newest_not_after_the_date(root: Path) -> None:
    older = PRICES + "x,here,m1.two,on_demand,0.9,2023-01-01,old\n"
    (root / "prices" / "x_here_2023-01-01.csv").write_text(older)
    assert instances.latest(root=root).as_of == datetime.date(2024, 5, 1)
    assert instances.latest(datetime.date(2024, 5, 1), root).as_of == datetime.date(2024, 5, 1)
    assert instances.latest(datetime.date(2024, 4, 30), root).source == "old"
    with pytest.raises(UsageError, match="dated 2022-12-31 or before; known dates: 2023-01-01, 2024-05-01"):
        instances.latest(datetime.date(2022, 12, 31), root)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("prices/x_here_2024-05-01.csv", "x,here,m1.two,on_demand,0.05,2024-05-01,src", ":15: 'm1.two' has a price"),
        ("prices/x_here_2024-05-01.csv", "x,here,new.one,on_demand,1,2024-05-01,src", "'new.one' has no facts in"),
        ("prices/x_here_2024-05-01.csv", "x,here,new.one,on_demand,1,2024-05-02,src", "as_of is '2024-05-02'"),
        ("prices/x_here_2024-05-01.csv", "x,there,new.one,on_demand,1,2024-05-01,src", "region is 'there'"),
        ("prices/x_here_2024-05-01.csv", "x,here,new.one,spot,1,2024-05-01,src", "term is 'spot'"),
        ("prices/x_here_2024-05-01.csv", "x,here,new.one", ":15: 3 fields, must be 7"),
        ("instances/x.csv", "x,m1.two,2,4,x86_64,0,,,,0,,doc", ":15: 'm1.two' stands here twice"),
        ("instances/x.csv", "x,n.two,2,4,riscv,0,,,,0,,doc", "architecture 'riscv' is unknown"),
        ("instances/x.csv", "x,n.two,two,4,x86_64,0,,,,0,,doc", "vcpus is 'two'; write a whole number"),
        ("instances/x.csv", "x,n.two,2,nan,x86_64,0,,,,0,,doc", "memory_gib is 'nan'; write a number above 0"),
        ("instances/x.csv", '"x', "cannot be read"),
    ],
)
def test_wrong_line_names_file_line_and_fix(root: Path, file: str, line: str, message: str) -> None:
    path = root / file
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(FileError) as caught:
        instances.latest(root=root)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("price", ["0", "-1", "inf", "nan", "", "cheap"])
def test_a_price_is_a_number_above_zero(root: Path, price: str) -> None:
    (root / "prices" / "x_here_2024-05-01.csv").write_text(f"{PRICES}x,here,m1.two,on_demand,{price},2024-05-01,s\n")
    with pytest.raises(FileError, match=r"csv:2: price_usd_per_hour is .*; write a number above 0"):
        instances.latest(root=root)


def test_wrong_files_are_named(root: Path) -> None:
    path = root / "prices" / "x_here_2024-05-01.csv"
    path.write_text("instance,price\n")
    with pytest.raises(FileError, match=r"csv:1: the header is 'instance,price'; it must be"):
        instances.latest(root=root)
    path.write_text(PRICES)
    with pytest.raises(FileError, match="holds no price"):
        instances.latest(root=root)
    (root / "instances" / "x.csv").unlink()
    with pytest.raises(FileError, match="no such file"):
        instances.latest(root=root)
    path.rename(root / "prices" / "x_here_2024-13-01.csv")
    with pytest.raises(FileError, match="2024-13-01 is no date"):
        instances.latest(root=root)
    (root / "prices" / "x_here_2024-13-01.csv").rename(root / "prices" / "latest.csv")
    with pytest.raises(FileError, match=r"name it <provider>_<region>_<date>\.csv"):
        instances.latest(root=root)
    with pytest.raises(FileError, match="no such folder"):
        instances.latest(root=root / "nowhere")


def test_no_snapshot_at_all(root: Path) -> None:
    (root / "prices" / "x_here_2024-05-01.csv").unlink()
    with pytest.raises(UsageError, match="dated at all or before; known dates: none"):
        instances.latest(root=root)


def test_every_shipped_snapshot_reads() -> None:
    sizes = {str(file.as_of): len(instances.read(file).prices) for file in instances.snapshots()}
    assert sizes["2022-10-31"] == 561
    assert sizes["2022-12-05"] == 607
    assert sizes["2026-07-20"] == 1367


@pytest.mark.parametrize(
    ("profile", "instance_type", "price"),
    [
        # Read off the snapshot by hand.  Three of Santhanam et al.'s choices (table 3) are among them.
        ("cpu1-mem1", "a1.medium", 0.0255),
        ("cpu2-mem4", "a1.large", 0.051),
        ("cpu1-mem4", "m6g.medium", 0.0385),
        ("cpu1-mem32", "x2gd.large", 0.167),
        ("cpu1-mem64", "x2gd.xlarge", 0.334),
        ("cpu16-mem64", "m6g.4xlarge", 0.616),
        ("gpu1-cpu1-mem4", "g5g.xlarge", 0.42),
        ("gpu1-cpu1-mem32", "g4dn.2xlarge", 0.752),
    ],
)
def test_shipped_offers(profile: str, instance_type: str, price: float) -> None:
    snapshot = instances.latest(datetime.date(2022, 12, 5))
    found = instances.cheapest(hardware.profile(profile), snapshot)
    assert found is not None
    assert (found.instance_type, found.price_usd_per_hour) == (instance_type, price)
