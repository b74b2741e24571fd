"""Read dated prices of instances and block storage from ``instance_profiles/``.

Price snapshots are append-only, each with its checksum.  `harness prices fetch` adds new ones to a folder of the
user's, which is read before the shipped one (``docs/reference/prices.md``).
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

from pydantic import Field

from harness import config
from harness.commands import quoted
from harness.config import ConfigModel, page
from harness.errors import FileError, UnknownName, UsageError, listed
from harness.pricing import instances
from harness.pricing.instances import DEFAULT_CHOICE, FactsFile, Instance, TypeChoice
from harness.untrusted import one_line

log = logging.getLogger(__name__)

_AWS_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
PRICE_HEADER = "provider,region,instance_type,term,price_usd_per_hour,as_of,source"
STORAGE_HEADER = "provider,region,volume_type,price_usd_per_gib_month,as_of,source"
TERMS = ("on-demand", "reserved-1y", "reserved-3y", "spot")
CHECKSUMS = "SHA256SUMS"
# Reports warn about older prices.
OLD_DAYS = 90
_NAME = re.compile(
    r"(?P<provider>[a-z][a-z0-9]*)_(?P<region>[a-z0-9-]+)(?P<spot>_spot)?_(?P<as_of>\d{4}-\d{2}-\d{2})\.csv"
)


class DefaultMarket(ConfigModel):
    """``[market]`` of ``defaults.toml``: the prices to use if the user names no others."""

    provider: str = Field(description="provider, as in the names of the price files")
    region: str = Field(description="the provider's region")
    term: str = Field(description=f"one of {', '.join(TERMS)}")


@dataclass(frozen=True)
class SnapshotFile:
    """Price snapshot on disk, not read yet.  ``spot``: it has spot prices only."""

    path: Path
    provider: str
    region: str
    as_of: datetime.date
    spot: bool


@dataclass(frozen=True)
class Snapshot:
    """Prices (US$ per hour) of one provider, region and term on one date, each with its instance type.

    ``gone`` are types of the price list that the provider no longer rented on that date.
    """

    provider: str
    region: str
    term: str
    as_of: datetime.date
    source: str
    prices: tuple[tuple[Instance, float], ...]
    gone: tuple[Instance, ...] = ()

    def why_unpriced(self, instance_type: str) -> str:
        """Return why a type has no price here: it has none, or it is in the price list and no longer rented."""
        for instance in self.gone:
            if instance.instance_type == instance_type:
                lists = f"the {self.provider} list of types of {instance.gone_by} lacks it"
                return f"{instance_type} is no longer rented: {lists} (its facts are of {instance.facts_of})"
        return f"{instance_type} has no price in {self}"

    def price_of(self, instance_type: str) -> float | None:
        """Return the US$ per hour of a type; ``None``: it has no price here."""
        return self.by_type[instance_type][1] if instance_type in self.by_type else None

    @cached_property
    def by_type(self) -> dict[str, tuple[Instance, float]]:
        """Map each type that has a price to its facts and its US$ per hour."""
        return {instance.instance_type: (instance, price) for instance, price in self.prices}

    def __str__(self) -> str:
        """Return its name in sentences."""
        return f"{self.provider} {self.region} {self.term} of {self.as_of}"


@dataclass(frozen=True)
class PriceSelection:
    """The prices that a person chose; ``None``: the default."""

    as_of: datetime.date | None = None
    region: str | None = None
    term: str | None = None
    architecture: str = DEFAULT_CHOICE.architecture
    generation: str = DEFAULT_CHOICE.generation
    token_prices: datetime.date | None = None
    cheapest_machine: bool = False
    grid: str | None = None
    carbon_factors: datetime.date | None = None

    @property
    def choice(self) -> TypeChoice:
        """The preferred instance types."""
        return TypeChoice(self.architecture, self.generation, self.cheapest_machine)

    def snapshot(self) -> Snapshot:
        """Read the prices of instances; errors as of :func:`snapshot`."""
        return snapshot(self.as_of, region=self.region, term=self.term)


DEFAULT_PRICES = PriceSelection()


def default_market(root: Path | None = None) -> DefaultMarket:
    """Read the default market; raise FileError if ``defaults.toml`` is missing or wrong."""
    return instances.read_defaults(DefaultMarket, "market", root)


def snapshot_files(root: Path | None = None) -> tuple[SnapshotFile, ...]:
    """List all price snapshots, oldest first, without reading them; a file of another name is named and ignored.

    Raises:
        FileError: the folder is missing.
    """
    places = [folder / "prices" for folder in instances.folders(root)]
    if not places[-1].is_dir():
        raise FileError(
            f"{places[-1]}: this folder does not exist; restore it with its price snapshots,"
            " <provider>_<region>_<date>.csv"
        )
    files: dict[str, SnapshotFile] = {}
    for path in itertools.chain.from_iterable(sorted(place.glob("*.csv")) for place in places):
        match = _NAME.fullmatch(path.name)
        as_of = date_or_none(match["as_of"]) if match else None
        if match is None or as_of is None:
            ignore(path, "<provider>_<region>_<date>.csv or <provider>_<region>_spot_<date>.csv")
            continue
        file = SnapshotFile(path, match["provider"], match["region"], as_of, bool(match["spot"]))
        files.setdefault(path.name, file)
    return tuple(sorted(files.values(), key=lambda file: (file.as_of, file.provider, file.region, file.spot)))


def snapshot(
    as_of: datetime.date | None = None,
    *,
    region: str | None = None,
    term: str | None = None,
    root: Path | None = None,
) -> Snapshot:
    """Return the newest prices, or the newest up to ``as_of``.

    Args:
        as_of: a date.
        region: as a provider names it; by default the region in ``defaults.toml``.
        term: one of ``TERMS``; by default the term in ``defaults.toml``.
        root: another ``instance_profiles/``.

    Raises:
        UsageError: the region is unknown, or there are no prices of that age or term.
        FileError: a file is missing or wrong; names file, line and fix.
    """
    usual = default_market(root)
    term = term or usual.term
    if term not in TERMS:
        raise UnknownName("term", term, TERMS)
    files = _of_region(snapshot_files(root), region, usual)
    region = files[0].region
    fitting = [file for file in files if as_of is None or file.as_of <= as_of]
    if not fitting:
        dates = listed(dict.fromkeys(str(file.as_of) for file in files))
        raise UsageError(f"{region} has no prices from {as_of} or before; choose one of these dates: {dates}")
    for file in reversed(fitting):
        if file.spot == (term == "spot") and (prices := read_snapshots(file, root).get(term)):
            return prices
    raise UsageError(
        f"no {term} prices of {region}{f' until {as_of}' if as_of else ''} are here; "
        f"{how_to_add(files[0].provider, region, term)}, or choose another --term"
    )


def how_to_add(provider: str, region: str, term: str) -> str:
    """Return what to do for newer prices of a region: the command that fetches them, if it can."""
    if provider != "aws":
        return f"add some ({page('docs/reference/prices.md')})"
    return f"fetch some: {quoted('prices fetch', region=region, spot=term == 'spot')}"


def _of_region(files: tuple[SnapshotFile, ...], region: str | None, usual: DefaultMarket) -> list[SnapshotFile]:
    """Return the files of a region, in the provider's name or as ``<provider>/<region>``."""
    name = region or f"{usual.provider}/{usual.region}"
    matching = [file for file in files if name in (file.region, f"{file.provider}/{file.region}")]
    if not matching:
        fetch = f"No prices of it are stored; {how_to_add('aws', name, '')}" if _AWS_REGION.fullmatch(name) else ""
        raise UnknownName("region", name, {file.region for file in files}, besides=fetch)
    providers = sorted({file.provider for file in matching})
    if len(providers) > 1:
        named = " or ".join(f"{provider}/{name}" for provider in providers)
        raise UsageError(f"region {name!r} is a name that {len(providers)} providers use; write {named}")
    return matching


def read_snapshots(file: SnapshotFile, root: Path | None = None) -> dict[str, Snapshot]:
    """Read all prices of a file by term.

    Raises:
        FileError: the file or its instance types are missing or wrong, or its checksum differs.
    """
    return dict(_parsed(file, read_checked(file.path), instances.facts_files(file.provider, root)))


@lru_cache(maxsize=16)
def _parsed(file: SnapshotFile, content: bytes, facts_files: tuple[FactsFile, ...]) -> Mapping[str, Snapshot]:
    """Parse a file's prices by term, with instance types from other files; equal content is parsed once."""
    facts = instances.joined_instances(file.provider, facts_files)
    prices: dict[str, dict[str, tuple[Instance, float]]] = {term: {} for term in TERMS}
    sources: dict[str, set[str]] = {term: set() for term in TERMS}
    expected = {"provider": file.provider, "region": file.region, "as_of": str(file.as_of)}
    for place, row in config.csv_rows(file.path, PRICE_HEADER, content):
        name, price = row["instance_type"], config.csv_number(place, row, "price_usd_per_hour")
        for column, value in expected.items():
            if row[column] != value:
                raise FileError(f"{place}: {column} is {row[column]!r}, but this file is for {value!r}; move the row")
        if row["term"] not in TERMS or (row["term"] == "spot") != file.spot:
            where = "a _spot_ file has spot prices only" if file.spot else f"write one of {', '.join(TERMS[:-1])}"
            raise FileError(f"{place}: term is {row['term']!r}; {where}")
        if name in prices[row["term"]]:
            raise FileError(f"{place}: {name!r} has a price already; remove one of the two rows")
        if name not in facts:
            raise FileError(f"{place}: {name!r} has no facts in instances/{file.provider}.csv; add a row for it there")
        prices[row["term"]][name] = (facts[name], price)
        sources[row["term"]].add(row["source"])
    if not any(prices.values()):
        raise FileError(f"{file.path}: has no price; add rows or remove the file")
    market = file.provider, file.region
    snapshots = {}
    for term, by_type in prices.items():
        rented = tuple(offer for offer in by_type.values() if not offer[0].gone(file.as_of))
        gone = tuple(instance for instance, _ in by_type.values() if instance.gone(file.as_of))
        if rented:
            source = "; ".join(sorted(sources[term]))
            snapshots[term] = Snapshot(*market, term, file.as_of, source, rented, gone)
    return snapshots


def read_checked(path: Path) -> bytes:
    """Return a snapshot's content; raise FileError if its checksum differs from the folder's list."""
    content = config.read_shipped(path)
    sums = config.read_shipped(path.parent / CHECKSUMS).decode("utf-8", "replace")
    # "<hash>  <name>", or "<hash> *<name>" where sha256sum read it as binary.
    checksums = {line[66:]: line[:64].lower() for line in sums.splitlines() if line[64:66] in ("  ", " *")}
    if path.name not in checksums:
        raise FileError(f"{path}: has no line in {CHECKSUMS}; add one with `sha256sum {path.name} >> {CHECKSUMS}`")
    if hashlib.sha256(content).hexdigest() != checksums[path.name]:
        raise FileError(
            f"{path}: its checksum differs from {CHECKSUMS}; restore the file, or store new prices under a new date"
        )
    return content


@cache
def ignore(path: Path, form: str) -> None:
    """Log, once in a process, that a file is ignored; ``form`` says how snapshots are named."""
    log.warning("%s is ignored, because a snapshot is named %s", one_line(str(path)), form)


def date_or_none(text: str) -> datetime.date | None:
    """Parse YYYY-MM-DD; ``None``: it is another text."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _as_of(place: str, row: config.CsvRow) -> datetime.date:
    as_of = config.csv_date(place, row, "as_of")
    if as_of is None:
        raise FileError(f"{place}: as_of is empty; write YYYY-MM-DD")
    return as_of


@dataclass(frozen=True)
class StoragePrice:
    """US$ per GiB and month of one volume type on a date."""

    provider: str
    region: str
    volume_type: str
    usd_per_gib_month: float
    as_of: datetime.date
    source: str


def storage_price(provider: str, region: str, as_of: datetime.date, root: Path | None = None) -> StoragePrice | None:
    """Return a region's newest price up to a date, of the volume type that its file names first, if there is one.

    Raises:
        FileError: a row is wrong.
    """
    prices = [
        StoragePrice(
            provider=row["provider"],
            region=row["region"],
            volume_type=row["volume_type"],
            usd_per_gib_month=config.csv_number(place, row, "price_usd_per_gib_month"),
            as_of=_as_of(place, row),
            source=row["source"],
        )
        for path in (folder / "storage.csv" for folder in instances.folders(root))
        if path.exists()
        for place, row in config.csv_rows(path, STORAGE_HEADER)
    ]
    local = [price for price in prices if (price.provider, price.region) == (provider, region)]
    dated = [price for price in local if price.volume_type == local[0].volume_type and price.as_of <= as_of]
    return max(dated, key=lambda price: price.as_of, default=None)
