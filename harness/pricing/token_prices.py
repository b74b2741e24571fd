"""Read dated prices of language models' tokens from ``instance_profiles/tokens/``, and price queries with them.

Snapshots are append-only, each with its checksum.  A system names its model by the parameter ``token_prices``.
"""

from __future__ import annotations

from pydantic import Field

from harness.config import ConfigModel
from harness.pricing.dated_files import DatedFile, DatedFiles

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


class TokenSnapshot(DatedFile):
    """``tokens/<date>.toml``: prices of tokens on one date, by the model's name."""

    licence: str = Field(description="SPDX id of the collection's licence")
    models: dict[str, ModelPrice] = Field(description="prices by the model's name")

    def __str__(self) -> str:
        """Return its name in sentences."""
        return f"the token prices of {self.as_of}"


FILES = DatedFiles("tokens", TokenSnapshot, "tokens have no prices")


def usd_per_million_queries(price: ModelPrice, prompt_tokens: float, completion_tokens: float) -> float:
    """Return US$ for the tokens of a million queries at list price: no cache, no batch.

    Args:
        price: of the model.
        prompt_tokens: of a mean query.
        completion_tokens: of a mean query.
    """
    return prompt_tokens * price.usd_in + completion_tokens * price.usd_out
