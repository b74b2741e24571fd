"""A snapshot that is to be added: all of it or nothing.

Three files belong to it: the prices, their line in ``SHA256SUMS``, the facts of types that were not known.  Each is
written beside its place first and renamed when all three are whole.  Facts come first and prices last, in case the
machine dies in between: facts without a price harm nobody, and a checksum without its file is replaced next time.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from harness import config
from harness.errors import HarnessError, UsageError
from harness.pricing import instances, prices


class FetchError(HarnessError):
    """Error of a failed or malformed download."""


@dataclass(frozen=True)
class Addition:
    """Prices (US$ per hour by instance type and term) and what else comes with them.

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

    def write(self, root: Path) -> Path:
        """Add it to the ``instance_profiles/`` at ``root``; where the prices lie then.

        Raises:
            UsageError: prices of that date are here already.
            FileError: the facts or checksums that are here are wrong.
        """
        path = target(root, self.region, self.as_of, spot=self.spot)
        content = self._prices().encode()
        sums = path.parent / prices.CHECKSUMS
        files = {sums: _with_sum(sums, path.name, content), path: content}
        if self.facts:
            facts = instances.facts_path("aws", root)
            files = {facts: _with_facts(facts, self.facts), **files}
        with _beside(files) as partials:
            refuse_existing(path)
            _put(partials)
        return path

    def _prices(self) -> str:
        rows = [
            ("aws", self.region, name, term, _plain(price), str(self.as_of), self.source)
            for (name, term), price in sorted(
                self.prices.items(), key=lambda item: (item[0][0], prices.TERMS.index(item[0][1]))
            )
        ]
        return prices.PRICE_HEADER + "\n" + _lines(rows)


def target(root: Path, region: str, as_of: datetime.date, *, spot: bool = False) -> Path:
    """Return the path of a snapshot's prices."""
    return root / "prices" / f"aws_{region}{'_spot' if spot else ''}_{as_of}.csv"


def refuse_existing(path: Path) -> None:
    """Snapshots never change.

    Raises:
        UsageError: there is one.
    """
    if path.exists():
        raise UsageError(f"{path}: prices of that date are here already, and those never change; nothing was written")


def _plain(price: Decimal) -> str:
    """0.0960000000 as 0.096, never with an exponent."""
    text = f"{price:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _lines(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _with_sum(path: Path, name: str, content: bytes) -> bytes:
    """The checksums with that of ``name``, by name."""
    known = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in known if line.partition("  ")[2] != name]
    lines = sorted([*kept, f"{hashlib.sha256(content).hexdigest()}  {name}"], key=lambda line: line.partition("  ")[2])
    return ("\n".join(lines) + "\n").encode()


def _with_facts(path: Path, added: Sequence[config.CsvRow]) -> bytes:
    """The facts with the new ones, by instance type."""
    columns = instances.INSTANCE_HEADER.split(",")
    rows = [row for _, row in config.csv_rows(path, instances.INSTANCE_HEADER)]
    both = sorted([*rows, *added], key=lambda row: row["instance_type"])
    return (instances.INSTANCE_HEADER + "\n" + _lines([[row[column] for column in columns] for row in both])).encode()


def _put(partials: dict[Path, Path]) -> None:
    """Rename all; where one cannot be, those before it are as they were."""
    before = {place: place.read_bytes() if place.exists() else None for place in partials}
    try:
        for place, partial in partials.items():
            partial.replace(place)
    except BaseException:
        for place, content in before.items():
            if content is None:
                place.unlink(missing_ok=True)
            elif not partials[place].exists():
                place.write_bytes(content)
        raise


@contextmanager
def _beside(files: dict[Path, bytes]) -> Iterator[dict[Path, Path]]:
    """Each file written beside its place and on the disk; what was not renamed is removed at the end."""
    partials = {place: place.with_name(f".{place.name}.partial") for place in files}
    try:
        for place, content in files.items():
            with partials[place].open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        yield partials
    finally:
        for partial in partials.values():
            with suppress(FileNotFoundError):
                partial.unlink()
