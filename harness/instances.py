"""Instance types (facts) and dated price snapshots, read from ``instance_profiles/``.

Facts and money are separate files: a machine has one description and one price for each date.  Which
instance type prices a hardware profile, and why some are left out: ``instance_profiles/README.md``.
"""

from __future__ import annotations

import csv
import datetime
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.catalog import data_root
from harness.errors import FileError, UsageError
from harness.records import Envelope

# Their price buys a share of the CPU time, not the CPU: no measured latency belongs to it.
BURSTABLE_FAMILIES = frozenset({"t1", "t2", "t3", "t3a", "t4g"})

_FACT_HEADER = (
    "provider,instance_type,vcpus,memory_gib,architecture,gpu_count,gpu_name,gpu_manufacturer,"
    "gpu_memory_mib_each,accelerator_count,accelerator_name,source"
)
_PRICE_HEADER = "provider,region,instance_type,term,price_usd_per_hour,as_of,source"
_SNAPSHOT_NAME = re.compile(r"(?P<provider>[a-z]+)_(?P<region>[a-z0-9-]+)_(?P<as_of>\d{4}-\d{2}-\d{2})\.csv")


@dataclass(frozen=True)
class Instance:
    """Facts about a provider's machine.  ``gpus`` counts whole NVIDIA GPUs only."""

    instance_type: str
    vcpus: int
    memory_bytes: int
    architecture: str
    gpus: int
    gpu_name: str | None


@dataclass(frozen=True)
class SnapshotFile:
    """A price snapshot on disk, not read yet."""

    path: Path
    provider: str
    region: str
    as_of: datetime.date


@dataclass(frozen=True)
class Snapshot:
    """The prices of one provider and region on one date, each with its machine's facts."""

    provider: str
    region: str
    as_of: datetime.date
    source: str
    prices: tuple[tuple[Instance, float], ...]


@dataclass(frozen=True)
class Offer:
    """The instance type that prices a hardware profile."""

    instance_type: str
    architecture: str
    vcpus: int
    memory_bytes: int
    gpus: int
    gpu_name: str | None
    region: str
    price_usd_per_hour: float
    price_date: datetime.date


def folder() -> Path:
    """The shipped ``instance_profiles/``."""
    return data_root() / "instance_profiles"


def snapshots(root: Path | None = None) -> tuple[SnapshotFile, ...]:
    """All price snapshots under ``root``/prices, oldest first; nothing is read yet.

    Raises:
        FileError: the folder is missing, or a file is not named ``<provider>_<region>_<date>.csv``.
    """
    prices = (root or folder()) / "prices"
    if not prices.is_dir():
        raise FileError(f"{prices}: no such folder; it holds the price snapshots, <provider>_<region>_<date>.csv")
    found = []
    for path in sorted(prices.glob("*.csv")):
        match = _SNAPSHOT_NAME.fullmatch(path.name)
        if match is None:
            raise FileError(f"{path}: name it <provider>_<region>_<date>.csv, e.g. aws_us-east-1_2026-07-20.csv")
        found.append(SnapshotFile(path, match["provider"], match["region"], _name_date(path, match["as_of"])))
    return tuple(sorted(found, key=lambda item: (item.as_of, item.provider, item.region)))


def latest(as_of: datetime.date | None = None, root: Path | None = None) -> Snapshot:
    """The newest snapshot, or the newest that is not younger than ``as_of``.

    Raises:
        UsageError: there is none of that age.
        FileError: a file is missing or wrong; names file, line and fix.
    """
    known = snapshots(root)
    fitting = [item for item in known if as_of is None or item.as_of <= as_of]
    if not fitting:
        dates = ", ".join(str(item.as_of) for item in known) or "none"
        raise UsageError(f"no price snapshot dated {as_of or 'at all'} or before; known dates: {dates}")
    return read(fitting[-1], root)


def read(file: SnapshotFile, root: Path | None = None) -> Snapshot:
    """Read one price snapshot and the facts of its machines.

    Raises:
        FileError: one of the two files is missing or wrong; names file, line and fix.
    """
    facts_path = (root or folder()) / "instances" / f"{file.provider}.csv"
    facts = _facts(facts_path)
    prices: dict[str, tuple[Instance, float]] = {}
    sources = set()
    for place, row in _rows(file.path, _PRICE_HEADER):
        name = row["instance_type"]
        expected = {"provider": file.provider, "region": file.region, "term": "on_demand", "as_of": str(file.as_of)}
        for column, value in expected.items():
            if row[column] != value:
                raise FileError(f"{place}: {column} is {row[column]!r}, but this file is for {value!r}; move the row")
        if name in prices:
            raise FileError(f"{place}: {name!r} has a price already; remove one of the two rows")
        if name not in facts:
            raise FileError(f"{place}: {name!r} has no facts in {facts_path}; add a row for it there")
        prices[name] = (facts[name], _number(place, row, "price_usd_per_hour"))
        sources.add(row["source"])
    if not prices:
        raise FileError(f"{file.path}: holds no price; add rows or remove the file")
    return Snapshot(
        provider=file.provider,
        region=file.region,
        as_of=file.as_of,
        source="; ".join(sorted(sources)),
        prices=tuple(prices.values()),
    )


def cheapest(envelope: Envelope, snapshot: Snapshot, architecture: str | None = None) -> Offer | None:
    """The cheapest instance type that provides ``envelope``, or ``None`` if none does.

    Burstable families and ``.metal`` sizes are left out.  Equal prices: fewer vCPUs, then less memory,
    then the name, so that the choice never depends on the file's order.

    Args:
        envelope: what is asked for; ``gpus = 0`` allows any type, and price decides.
        snapshot: the prices.
        architecture: ``x86_64`` or ``arm64`` to allow only that one.
    """
    fitting = [
        (price, instance.vcpus, instance.memory_bytes, instance.instance_type, instance)
        for instance, price in snapshot.prices
        if _offered(instance.instance_type)
        and instance.vcpus >= envelope.cpus
        and instance.memory_bytes >= envelope.memory_bytes
        and instance.gpus >= envelope.gpus
        and architecture in (None, instance.architecture)
    ]
    if not fitting:
        return None
    price, *_, best = min(fitting, key=lambda item: item[:4])
    return Offer(
        instance_type=best.instance_type,
        architecture=best.architecture,
        vcpus=best.vcpus,
        memory_bytes=best.memory_bytes,
        gpus=best.gpus,
        gpu_name=best.gpu_name,
        region=snapshot.region,
        price_usd_per_hour=price,
        price_date=snapshot.as_of,
    )


def _offered(instance_type: str) -> bool:
    """Neither burstable nor bare metal (``x.metal``, ``x.metal-24xl``)."""
    family, _, size = instance_type.partition(".")
    return family not in BURSTABLE_FAMILIES and not size.startswith("metal")


def _name_date(path: Path, text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise FileError(f"{path}: {text} is no date; rename the file") from error


def _facts(path: Path) -> dict[str, Instance]:
    found: dict[str, Instance] = {}
    for place, row in _rows(path, _FACT_HEADER):
        name = row["instance_type"]
        if name in found:
            raise FileError(f"{place}: {name!r} stands here twice; remove one of the two rows")
        if row["architecture"] not in ("x86_64", "arm64"):
            raise FileError(f"{place}: architecture {row['architecture']!r} is unknown; write x86_64 or arm64")
        # Other makers' cards are no GPUs to us: the measured systems speak CUDA.
        nvidia = row["gpu_manufacturer"] == "nvidia"
        found[name] = Instance(
            instance_type=name,
            vcpus=_count(place, row, "vcpus"),
            memory_bytes=round(_number(place, row, "memory_gib") * 2**30),
            architecture=row["architecture"],
            gpus=_count(place, row, "gpu_count") if nvidia else 0,
            gpu_name=row["gpu_name"] if nvidia else None,
        )
    return found


def _number(place: str, row: dict[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise FileError(f"{place}: {column} is {row[column]!r}; write a number above 0")
    return value


def _count(place: str, row: dict[str, str], column: str) -> int:
    if not re.fullmatch("[0-9]+", row[column]):
        raise FileError(f"{place}: {column} is {row[column]!r}; write a whole number")
    return int(row[column])


def _rows(path: Path, header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row as a dict with its place, ``<file>:<line>``."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            found = ",".join(next(reader, []))
            if found != header:
                raise FileError(f"{path}:1: the header is {found!r}; it must be {header!r}")
            columns = header.split(",")
            for values in reader:
                place = f"{path}:{reader.line_num}"
                if len(values) != len(columns):
                    raise FileError(f"{place}: {len(values)} fields, must be {len(columns)}; mend the row")
                yield place, dict(zip(columns, values, strict=True))
    except FileNotFoundError:
        raise FileError(f"{path}: no such file; it belongs beside the price snapshots") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
