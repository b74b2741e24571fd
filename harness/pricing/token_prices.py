"""Read dated prices of language models' tokens from ``instance_profiles/tokens/``, and price queries with them.

Snapshots are append-only, each with its checksum.  A system names its model by the parameter ``token_prices``.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from harness.config import ConfigModel, read_toml, validate
from harness.errors import FileError, UsageError, listed
from harness.pricing import instances, prices

FORMULA = (
    "US$ per million queries = prompt tokens x US$ per million in + completion tokens x US$ per million out, of a mean "
    "query"
)


class ModelPrice(ConfigModel):
    """``[models."<name>"]``: US$ per million tokens of one language model."""

    usd_in: float = Field(alias="in", ge=0, description="US$ per million prompt tokens")
    usd_out: float = Field(alias="out", ge=0, description="US$ per million completion tokens")
    cached_in: float | None = Field(default=None, ge=0, description="US$ per million prompt tokens that are cached")
    batch_discount: float | None = Field(default=None, ge=0, le=1, description="share of the price that a batch saves")
    page: str = Field(description="the provider's page that the source names")


class TokenPriceFile(ConfigModel):
    """``tokens/<date>.toml``."""

    date: str = Field(description="the date of the prices, as in the file's name")
    source: str = Field(description="who collected the prices")
    licence: str = Field(description="SPDX id of the collection's licence")
    models: dict[str, ModelPrice] = Field(description="prices by the model's name")


@dataclass(frozen=True)
class TokenSnapshot:
    """Prices of tokens on one date, by the model's name."""

    as_of: datetime.date
    source: str
    licence: str
    models: Mapping[str, ModelPrice]

    def __str__(self) -> str:
        """Return its name in sentences."""
        return f"the token prices of {self.as_of}"


def read_snapshots(root: Path | None = None) -> tuple[TokenSnapshot, ...]:
    """Read all snapshots of token prices, the oldest first; none where the folder is missing.

    A file whose name is not a date is named and ignored.

    Raises:
        FileError: a file is wrong, or its checksum differs.
    """
    snapshots: dict[datetime.date, TokenSnapshot] = {}
    for path in (path for folder in instances.folders(root) for path in sorted((folder / "tokens").glob("*.toml"))):
        as_of = prices.date_or_none(path.stem)
        if as_of is None:
            prices.ignore(path, "<date>.toml")
        elif as_of not in snapshots:
            snapshots[as_of] = _read(path, as_of)
    return tuple(snapshots[as_of] for as_of in sorted(snapshots))


def _read(path: Path, as_of: datetime.date) -> TokenSnapshot:
    prices.read_checked(path)
    listed = validate(TokenPriceFile, read_toml(path), path)
    if listed.date != path.stem:
        raise FileError(f"{path}: date is {listed.date!r}, the file is named {path.name!r}; correct one")
    return TokenSnapshot(as_of, listed.source, listed.licence, listed.models)


def snapshot(as_of: datetime.date | None = None, root: Path | None = None) -> TokenSnapshot | None:
    """Return the newest token prices, or the newest up to ``as_of``; ``None``: no snapshot is stored at all.

    Raises:
        UsageError: all snapshots are younger than ``as_of``.
        FileError: a file is wrong.
    """
    known = read_snapshots(root)
    fitting = [each for each in known if as_of is None or each.as_of <= as_of]
    if known and not fitting:
        dates = listed([str(each.as_of) for each in known])
        raise UsageError(f"tokens have no prices from {as_of} or before; choose one of these dates: {dates}")
    return fitting[-1] if fitting else None


def other_snapshot(
    now: TokenSnapshot | None, against: datetime.date | None = None, root: Path | None = None
) -> TokenSnapshot | None:
    """Choose the token prices to compare with: of a date, else the newest, else the ones before; ``None``: no others.

    Raises:
        FileError: a file is wrong.
    """
    others = [each for each in read_snapshots(root) if now is None or each.as_of != now.as_of]
    if against is not None:
        return next((each for each in reversed(read_snapshots(root)) if each.as_of <= against), None)
    return others[-1] if others else None


def usd_per_million_queries(price: ModelPrice, prompt_tokens: float, completion_tokens: float) -> float:
    """Return US$ for the tokens of a million queries at list price: no cache, no batch.

    Args:
        price: of the model.
        prompt_tokens: of a mean query.
        completion_tokens: of a mean query.

    Raises:
        ValueError: a number of tokens is negative or NaN.
    """
    if not (prompt_tokens >= 0 and completion_tokens >= 0):
        raise ValueError(f"{prompt_tokens} prompt and {completion_tokens} completion tokens must not be negative")
    return prompt_tokens * price.usd_in + completion_tokens * price.usd_out
