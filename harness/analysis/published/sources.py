"""``published.toml``: where a folder's tables are from, and how they are to be read."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from pydantic import Field

from harness.config import ConfigModel, read_toml, validate

NAME = "published.toml"


class Prices(ConfigModel):
    """The price list that the paper's costs follow."""

    provider: str
    region: str
    term: str
    as_of: datetime.date


class Protocol(ConfigModel):
    """How the latencies of Table 3 were measured."""

    warmup_queries: int = Field(ge=0)
    queries: int = Field(gt=0)
    trials: int = Field(gt=0)
    scenario: str
    k: int = Field(gt=0)


class Files(ConfigModel):
    """The tables that hold for all datasets."""

    table1: str
    table2: str
    table3c: str


class Dataset(ConfigModel):
    """One dataset: its name here, its name in the paper, its part of Tables 3 and 4.

    ``amrs``: the exchange rates that its scores were made with (units of each metric for a point of accuracy).
    """

    name: str
    label: str
    table3: str
    table3_file: str
    table4: str
    table4_file: str
    amrs: dict[str, float] = Field(default_factory=dict)


class Source(ConfigModel):
    """Which row of Table 1 gives a row of Table 2 its latency, and which system of Table 3 it is (if known)."""

    system: str
    of: str
    reference: str
    table3: str | None = None


class About(ConfigModel):
    """The whole file."""

    name: str
    title: str
    authors: tuple[str, ...] = Field(min_length=1)
    venue: str
    year: int
    pages: str
    doi: str
    url: str
    licence: str
    licence_remark: str
    prices: Prices
    protocol: Protocol
    decimals: dict[str, int]
    units: dict[str, str]
    files: Files
    datasets: tuple[Dataset, ...] = Field(min_length=1)
    table2: tuple[Source, ...]

    def citation(self) -> str:
        """One line that names the paper."""
        who = f"{self.authors[0]} et al." if len(self.authors) > 2 else " and ".join(self.authors)
        return f"{who} {self.year}. {self.title}. {self.venue}, pages {self.pages}. {self.url}"


def is_in(folder: Path) -> bool:
    """Return whether a folder holds published tables; whatever has the name must be read as such."""
    return os.path.lexists(folder / NAME)


def read(folder: Path) -> About:
    """Read and check ``published.toml``.

    Raises:
        FileError: it is missing or wrong; names the key.
    """
    path = folder / NAME
    return validate(About, read_toml(path, untrusted=True), path)
