"""The choice of prices: their date, region and term, the preferred instance types, tokens and carbon."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from harness.pricing import carbon, prices, serverless, token_prices
from harness.pricing.carbon import CarbonRates
from harness.pricing.instances import ARCHITECTURE_CHOICES, GENERATION_CHOICES, TypeChoice
from harness.pricing.prices import Snapshot
from harness.pricing.serverless import ServerlessPrices
from harness.pricing.token_prices import TokenSnapshot


@dataclass(frozen=True)
class PriceSelection:
    """The prices that a person chose; ``None``: the default."""

    as_of: datetime.date | None = None
    region: str | None = None
    term: str | None = None
    architecture: str = ARCHITECTURE_CHOICES[0]
    generation: str = GENERATION_CHOICES[0]
    token_prices: datetime.date | None = None
    cheapest_machine: bool = False
    grid: str | None = None
    carbon_factors: datetime.date | None = None

    @property
    def choice(self) -> TypeChoice:
        """The preferred instance types."""
        return TypeChoice(self.architecture, self.generation, self.cheapest_machine)

    def snapshot(self) -> Snapshot:
        """Read the prices.

        Raises:
            UsageError: prices of this region, term or date do not exist.
            FileError: a file is missing or wrong.
        """
        return prices.snapshot(self.as_of, region=self.region, term=self.term)

    def tokens(self) -> TokenSnapshot | None:
        """Read the prices of language models' tokens, if stored; errors as in :meth:`snapshot`."""
        return token_prices.snapshot(self.token_prices)

    def serverless(self) -> ServerlessPrices | None:
        """Read the prices of serverless offers, if some are that old; raise FileError for a wrong file."""
        return serverless.snapshot(self.as_of)

    def carbon(self, snapshot: Snapshot) -> CarbonRates | None:
        """Read the factors of carbon, if stored, at the chosen grid or at the grid of the prices' region.

        Raises:
            UsageError: the grid is not known, or factors of this date do not exist.
            FileError: a file is wrong.
        """
        return carbon.rates(f"{snapshot.provider}/{snapshot.region}", self.grid, self.carbon_factors)


DEFAULT_PRICES = PriceSelection()
