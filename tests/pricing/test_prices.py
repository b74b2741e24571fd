import datetime
from pathlib import Path

import pytest

from harness.errors import FileError, UnknownName, UsageError
from harness.pricing import instances, prices
from tests.support import price_fixtures

DAY = datetime.date(2024, 5, 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return price_fixtures.write(tmp_path)


def test_prices_are_reread_after_a_same_size_change_and_callers_cannot_change_them(root: Path) -> None:
    (file,) = prices.snapshot_files(root)
    prices.read_snapshots(file, root).clear()
    assert prices.snapshot(root=root).price_of("m1.two") == 0.05
    file.path.write_text(file.path.read_text().replace(",0.05,", ",0.04,"))
    with pytest.raises(FileError, match="its checksum differs from"):
        prices.snapshot(root=root)
    price_fixtures.seal(file.path.parent)
    assert prices.snapshot(root=root).price_of("m1.two") == 0.04
    facts = instances.facts_path("x", root)
    facts.write_text(facts.read_text().replace("m1.two,2,", "m1.two,3,"))
    instance, _ = prices.snapshot(root=root).by_type["m1.two"]
    assert instance.vcpus == 3


def test_snapshot_is_the_newest_up_to_the_date(root: Path) -> None:
    price_fixtures.add_prices(root, "x_here_2023-01-01.csv", {"on-demand": {"m1.two": "0.9"}})
    assert prices.snapshot(root=root).as_of == DAY
    assert prices.snapshot(DAY, root=root).as_of == DAY
    old = prices.snapshot(datetime.date(2024, 4, 30), root=root)
    assert (old.as_of, old.source, old.price_of("m1.two")) == (datetime.date(2023, 1, 1), "2023-01-01 list", 0.9)
    assert old.price_of("a.tie") is None, "it had no price then"
    with pytest.raises(UsageError, match=r"here has no prices from 2022-12-31 or before; .* 2023-01-01, 2024-05-01"):
        prices.snapshot(datetime.date(2022, 12, 31), root=root)


def test_snapshot_has_a_name(root: Path) -> None:
    assert str(prices.snapshot(root=root)) == "x here on-demand of 2024-05-01"


def test_each_term_has_its_own_prices(root: Path) -> None:
    terms = {"on-demand": {"m1.two": "0.05"}, "reserved-1y": {"m1.two": "0.03"}}
    price_fixtures.add_prices(root, "x_here_2024-06-01.csv", terms)
    price_fixtures.add_prices(root, "x_here_spot_2024-06-02.csv", {"spot": {"m1.two": "0.01"}})
    found = {term: prices.snapshot(root=root, term=term).price_of("m1.two") for term in ("on-demand", "reserved-1y")}
    assert found == {"on-demand": 0.05, "reserved-1y": 0.03}
    spot = prices.snapshot(root=root, term="spot")
    assert (spot.price_of("m1.two"), spot.as_of.day) == (0.01, 2)
    assert prices.snapshot(DAY, root=root).price_of("m1.two") == 0.05


def test_unknown_term_and_term_without_prices_are_refused(root: Path) -> None:
    with pytest.raises(UsageError, match=r"no reserved-1y prices of here are here; add some .* another --term"):
        prices.snapshot(root=root, term="reserved-1y")
    with pytest.raises(UsageError, match="no spot prices of here until 2024-05-01"):
        prices.snapshot(DAY, root=root, term="spot")
    with pytest.raises(UnknownName, match=r"unknown term 'on_demand'. Did you mean 'on-demand'\?"):
        prices.snapshot(root=root, term="on_demand")


def test_a_newer_file_without_the_term_does_not_hide_an_older_one_with_it(root: Path) -> None:
    price_fixtures.add_prices(root, "x_here_2024-06-01.csv", {"reserved-1y": {"m1.two": "0.03"}})
    assert prices.snapshot(root=root).as_of == DAY


def test_a_snapshot_of_another_region_is_chosen_by_name(root: Path) -> None:
    price_fixtures.add_prices(root, "x_there_2024-07-01.csv", {"on-demand": {"m1.two": "0.07"}})
    assert prices.snapshot(root=root).region == "here", "a newer one of another region does not become the usual one"
    assert prices.snapshot(root=root, region="there").price_of("m1.two") == 0.07
    assert prices.snapshot(root=root, region="x/there").price_of("m1.two") == 0.07
    with pytest.raises(UnknownName, match=r"unknown region 'ther'. Did you mean 'there'\?$"):
        prices.snapshot(root=root, region="ther")


def test_region_name_shared_by_two_providers_needs_the_provider(root: Path) -> None:
    facts = (root / "instances" / "x.csv").read_text()
    (root / "instances" / "y.csv").write_text(facts.replace("\nx,", "\ny,"))
    price_fixtures.add_prices(root, "y_here_2024-05-01.csv", {"on-demand": {"m1.two": "0.5"}})
    assert prices.snapshot(root=root).provider == "x"
    assert prices.snapshot(root=root, region="y/here").price_of("m1.two") == 0.5
    with pytest.raises(UsageError, match="write x/here or y/here"):
        prices.snapshot(root=root, region="here")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x,here,m1.two,on-demand,0.05,2024-05-01,src", ":15: 'm1.two' has a price already"),
        ("x,here,new.one,on-demand,1,2024-05-01,src", "'new.one' has no facts in"),
        ("x,here,m1.two,reserved-1y,1,2024-05-02,src", "as_of is '2024-05-02'"),
        ("x,there,m1.two,reserved-1y,1,2024-05-01,src", "region is 'there'"),
        ("y,here,m1.two,reserved-1y,1,2024-05-01,src", "provider is 'y'"),
        ("x,here,m1.two,spot,1,2024-05-01,src", "term is 'spot'; write one of on-demand"),
        ("x,here,m1.two", ":15: 3 fields, must be 7"),
        ("x,here,m1.two,reserved-1y,0,2024-05-01,src", "price_usd_per_hour is '0'; write a number above 0"),
        ("x,here,m1.two,reserved-1y,inf,2024-05-01,src", "price_usd_per_hour is 'inf'"),
        ("x,here,m1.two,reserved-1y,cheap,2024-05-01,src", "price_usd_per_hour is 'cheap'"),
    ],
)
def test_a_wrong_line_names_file_line_and_fix(root: Path, line: str, message: str) -> None:
    path = root / "prices" / "x_here_2024-05-01.csv"
    path.write_text(path.read_text() + line + "\n")
    price_fixtures.seal(path.parent)
    with pytest.raises(FileError) as caught:
        prices.snapshot(root=root)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_spot_file_holds_only_spot_prices(root: Path) -> None:
    price_fixtures.add_prices(root, "x_here_spot_2024-06-01.csv", {"on-demand": {"m1.two": "0.01"}})
    with pytest.raises(FileError, match="a _spot_ file has spot prices only"):
        prices.snapshot(root=root, term="spot")


def test_checksums_may_be_of_binary_files(root: Path) -> None:
    """``sha256sum -b`` writes a star before the name."""
    sums = root / "prices" / "SHA256SUMS"
    expected = prices.snapshot(root=root)
    sums.write_text(sums.read_text().replace("  ", " *"))
    assert prices.snapshot(root=root) == expected


def test_edited_prices_are_refused(root: Path) -> None:
    path = root / "prices" / "x_here_2024-05-01.csv"
    path.write_text(path.read_text().replace("0.05,", "0.06,"))
    with pytest.raises(FileError, match=r"x_here_2024-05-01\.csv: its checksum differs from SHA256SUMS"):
        prices.snapshot(root=root)
    (path.parent / "SHA256SUMS").write_text("")
    with pytest.raises(FileError, match=r"has no line in SHA256SUMS; add one with `sha256sum x_here_2024-05-01\.csv"):
        prices.snapshot(root=root)
    (path.parent / "SHA256SUMS").unlink()
    with pytest.raises(FileError, match="SHA256SUMS: this file does not exist"):
        prices.snapshot(root=root)


def test_wrong_files_are_named(root: Path) -> None:
    path = root / "prices" / "x_here_2024-05-01.csv"
    path.write_text("instance,price\n")
    price_fixtures.seal(path.parent)
    with pytest.raises(FileError, match=r"csv:1: the header is 'instance,price'; it must be"):
        prices.snapshot(root=root)
    path.write_text(f"{prices.PRICE_HEADER}\n")
    price_fixtures.seal(path.parent)
    with pytest.raises(FileError, match="has no price"):
        prices.snapshot(root=root)
    path.unlink()
    with pytest.raises(UnknownName, match="unknown region 'x/here'; known: none"):
        prices.snapshot(root=root)
    with pytest.raises(FileError, match="this folder does not exist"):
        prices.snapshot_files(root / "nowhere")


@pytest.mark.parametrize(
    "name",
    ["latest.csv", "._x_here_2024-05-01.csv", "x_here_2024-05-01 (1).csv", "x_here_2024-13-01.csv"],
)
def test_foreign_file_is_named_once_and_ignored(root: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    before = prices.snapshot_files(root)
    (root / "prices" / name).write_text("anything\n")
    assert prices.snapshot_files(root) == prices.snapshot_files(root) == before
    assert [record.message.count(f"{name} is ignored") for record in caplog.records] == [1]


def test_provider_may_have_digits(root: Path) -> None:
    facts = (root / "instances" / "x.csv").read_text().replace("\nx,", "\novh2,")
    (root / "instances" / "ovh2.csv").write_text(facts)
    price_fixtures.add_prices(root, "ovh2_eu1_2024-05-01.csv", {"on-demand": {"small.one": "0.1"}})
    assert prices.snapshot(region="ovh2/eu1", root=root).price_of("small.one") == 0.1


def test_unknown_default_terms_are_refused(root: Path) -> None:
    (root / "defaults.toml").write_text('[market]\nprovider = "x"\nregion = "here"\nterms = "spot"\n')
    with pytest.raises(FileError, match=r"defaults\.toml: .*market\.ter"):
        prices.snapshot(root=root)


def test_type_that_is_no_longer_rented_has_no_price_from_its_date_on(root: Path) -> None:
    path = root / "instances" / "x.csv"
    path.write_text(path.read_text().replace("true,,,doc", "true,2024-04-01,2024-05-01,doc", 1))
    snapshot = prices.snapshot(root=root)
    assert snapshot.price_of("t3.big") is None and [each.instance_type for each in snapshot.gone] == ["t3.big"]
    assert snapshot.why_unpriced("t3.big") == (
        "t3.big is no longer rented: the x list of types of 2024-05-01 lacks it (its facts are of 2024-04-01)"
    )
    assert snapshot.why_unpriced("none.one") == "none.one has no price in x here on-demand of 2024-05-01"
    path.write_text(path.read_text().replace("2024-05-01", "2024-05-02"))
    assert prices.snapshot(root=root).price_of("t3.big") == 0.01


def write_storage(root: Path, *lines: str) -> Path:
    (root / "storage.csv").write_text("\n".join([prices.STORAGE_HEADER, *lines]) + "\n")
    return root


def test_storage_price_is_the_newest_up_to_the_date_of_the_first_volume_type(tmp_path: Path) -> None:
    root = write_storage(
        tmp_path,
        "x,here,ssd,0.08,2022-01-01,doc",
        "x,here,disk,0.02,2022-01-01,doc",
        "x,here,ssd,0.07,2024-01-01,doc",
        "x,there,disk,0.03,2022-01-01,doc",
    )

    def usd(region: str, year: int) -> float | None:
        price = prices.storage_price("x", region, datetime.date(year, 6, 1), root)
        return None if price is None else price.usd_per_gib_month

    assert [usd("here", year) for year in (2021, 2022, 2023, 2024)] == [None, 0.08, 0.08, 0.07]
    assert (usd("there", 2022), usd("nowhere", 2022)) == (0.03, None)


def test_storage_price_is_unknown_without_a_file(tmp_path: Path) -> None:
    assert prices.storage_price("x", "here", DAY, tmp_path) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x,here,ssd,0,2022-01-01,doc", "storage.csv:2: price_usd_per_gib_month is '0'"),
        ("x,here,ssd,0.1,spring,doc", "storage.csv:2: as_of is 'spring'; write YYYY-MM-DD"),
        ("x,here,ssd,0.1,2022-01-01", "storage.csv:2: 5 fields, must be 6"),
    ],
)
def test_wrong_storage_file_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        prices.storage_price("x", "here", DAY, write_storage(tmp_path, line))
