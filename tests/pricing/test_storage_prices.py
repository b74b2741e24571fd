import datetime
from pathlib import Path

import pytest

from harness.errors import FileError
from harness.pricing import prices

DAY = datetime.date


def write(root: Path, *lines: str) -> Path:
    (root / "storage.csv").write_text("\n".join([prices.STORAGE_HEADER, *lines]) + "\n")
    return root


def test_storage_price_is_the_newest_up_to_the_date_of_the_first_volume_type(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        "x,here,ssd,0.08,2022-01-01,doc",
        "x,here,disk,0.02,2022-01-01,doc",
        "x,here,ssd,0.07,2024-01-01,doc",
        "x,there,disk,0.03,2022-01-01,doc",
    )
    known = prices.read_storage_prices(root)

    def usd(region: str, year: int) -> float | None:
        found = prices.storage_price(known, "x", region, DAY(year, 6, 1))
        return None if found is None else found.usd_per_gib_month

    assert [usd("here", year) for year in (2021, 2022, 2023, 2024)] == [None, 0.08, 0.08, 0.07]
    assert (usd("there", 2022), usd("nowhere", 2022)) == (0.03, None)


def test_storage_price_is_unknown_without_a_file(tmp_path: Path) -> None:
    assert prices.read_storage_prices(tmp_path) == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x,here,ssd,0,2022-01-01,doc", "storage.csv:2: price_usd_per_gib_month is '0'"),
        ("x,here,ssd,0.1,spring,doc", "storage.csv:2: as_of 'spring' is not a date"),
        ("x,here,ssd,0.1,2022-01-01", "storage.csv:2: 5 fields, must be 6"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(FileError, match=message):
        prices.read_storage_prices(write(tmp_path, line))
