"""What it costs to keep an index on disk: dated prices of block storage, ``instance_profiles/storage.csv``."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from harness import config
from harness.errors import FileError
from harness.pricing import instances

HEADER = "provider,region,volume_type,price_usd_per_gib_month,as_of,source"


@dataclass(frozen=True)
class StoragePrice:
    """US$ per GiB and month of one kind of volume on a date."""

    provider: str
    region: str
    volume_type: str
    usd_per_gib_month: float
    as_of: datetime.date
    source: str


def read(root: Path | None = None) -> tuple[StoragePrice, ...]:
    """All known prices of storage, in the file's order; none where there is no such file.

    Raises:
        FileError: the file is wrong; names file, line and fix.
    """
    path = (root or instances.folder()) / "storage.csv"
    if not path.exists():
        return ()
    return tuple(
        StoragePrice(
            provider=row["provider"],
            region=row["region"],
            volume_type=row["volume_type"],
            usd_per_gib_month=config.csv_number(place, row, "price_usd_per_gib_month"),
            as_of=_date(place, row["as_of"]),
            source=row["source"],
        )
        for place, row in config.csv_rows(path, HEADER)
    )


def price(known: tuple[StoragePrice, ...], provider: str, region: str, as_of: datetime.date) -> StoragePrice | None:
    """The newest price there that is not younger than a date, of the volume type that the file names first for it."""
    there = [each for each in known if (each.provider, each.region) == (provider, region)]
    usual = [each for each in there if each.volume_type == there[0].volume_type and each.as_of <= as_of]
    return max(usual, key=lambda each: each.as_of, default=None)


def _date(place: str, text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise FileError(f"{place}: as_of {text!r} is no date; write YYYY-MM-DD") from None
