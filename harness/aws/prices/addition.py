"""A new snapshot, which is added whole or not at all.

It has three files: the prices, their line in ``SHA256SUMS``, and the facts of types that were not known.  Each is
written next to its place first and renamed when all three are whole.  Facts come first and prices last, in case the
machine dies in between: facts without a price do no harm, and a checksum without its file is replaced next time.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from harness import config
from harness.errors import StoreError, UsageError
from harness.pricing import instances, prices
from harness.untrusted import reason_of


@dataclass(frozen=True)
class Addition:
    """Prices (US$ per hour by instance type and term) of one date.

    ``facts`` are rows of types that were not known; ``left_out`` says why a type has no price here.
    """

    region: str
    as_of: datetime.date
    source: str
    prices: dict[tuple[str, str], Decimal]
    spot: bool = False
    facts: Sequence[config.CsvRow] = ()
    left_out: dict[str, str] = field(default_factory=dict)

    def counts(self) -> dict[str, int]:
        """Return the number of prices of each term."""
        found = Counter(term for _, term in self.prices)
        return {term: found[term] for term in prices.TERMS if found[term]}

    def write(self, root: Path | None = None) -> Path:
        """Write the files and return the path of the prices.

        Args:
            root: another ``instance_profiles/`` than the user's own.

        Raises:
            UsageError: prices of that date exist already.
            FileError: the facts or checksums in that folder are wrong.
            StoreError: a file cannot be written; none has changed.
        """
        path = new_path(self.region, self.as_of, root, spot=self.spot)
        content = self._prices().encode()
        sums = path.parent / prices.CHECKSUMS
        files = {sums: _with_sum(sums, path.name, content), path: content}
        if self.facts:
            facts = instances.facts_path("aws", path.parents[1])
            files = {facts: _with_facts(facts, self.facts), **files}
        try:
            _replace_all(files, lambda: new_path(self.region, self.as_of, root, spot=self.spot))
        except OSError as error:
            place = error.filename or path
            raise StoreError(f"{place}: cannot be written: {reason_of(error)}; no prices were added") from error
        return path

    def _prices(self) -> str:
        rows = [
            ("aws", self.region, name, term, _plain(price), str(self.as_of), self.source)
            for (name, term), price in sorted(
                self.prices.items(), key=lambda item: (item[0][0], prices.TERMS.index(item[0][1]))
            )
        ]
        return prices.PRICE_HEADER + "\n" + _lines(rows)


def new_path(region: str, as_of: datetime.date, root: Path | None = None, *, spot: bool = False) -> Path:
    """Return the path for the prices of a date.

    Raises:
        UsageError: prices of that date exist already; snapshots never change.
    """
    name = f"aws_{region}{'_spot' if spot else ''}_{as_of}.csv"
    for folder in instances.folders(root):
        if (path := folder / "prices" / name).exists():
            raise UsageError(f"{path}: prices of {as_of} exist already and never change; nothing was written")
    return (root or instances.fetched_folder()) / "prices" / name


def _plain(price: Decimal) -> str:
    """Return ``0.096`` for 0.0960000000, never with an exponent."""
    text = f"{price:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _lines(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _with_sum(path: Path, name: str, content: bytes) -> bytes:
    """Return the checksums, sorted by name, with a new one for ``name``."""
    known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in known if line.partition("  ")[2] != name]
    lines = sorted([*kept, f"{hashlib.sha256(content).hexdigest()}  {name}"], key=lambda line: line.partition("  ")[2])
    return ("\n".join(lines) + "\n").encode()


def _with_facts(path: Path, added: Sequence[config.CsvRow]) -> bytes:
    """Return the facts of a file with the new ones, sorted by instance type."""
    columns = instances.INSTANCE_HEADER.split(",")
    rows = [row for _, row in config.csv_rows(path, instances.INSTANCE_HEADER)] if path.exists() else []
    both = sorted([*rows, *added], key=lambda row: row["instance_type"])
    return (instances.INSTANCE_HEADER + "\n" + _lines([[row[column] for column in columns] for row in both])).encode()


def _replace_all(files: dict[Path, bytes], check: Callable[[], object]) -> None:
    """Replace all files or none: write each next to its place, check, and rename them in their order."""
    partials = {place: place.with_name(f".{place.name}.partial") for place in files}
    before: dict[Path, bytes | None] = {}
    try:
        for place, content in files.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            with partials[place].open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        check()
        before = {place: place.read_bytes() if place.exists() else None for place in files}
        for place, partial in partials.items():
            partial.replace(place)
    except BaseException:
        for place, earlier in before.items():
            if earlier is None:
                place.unlink(missing_ok=True)
            elif not partials[place].exists():
                place.write_bytes(earlier)
        raise
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
