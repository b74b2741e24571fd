"""Currencies of a summary, for a million queries: US$, or grams of CO2e."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.analysis import row_carbon
from harness.analysis.table import Row
from harness.estimate import best_of
from harness.report.row_figures import CARBON, CARBON_HEADER, COST, COST_HEADER, carbon_cell, cost_cell

# A smaller factor prints as 1x.
_SAME = 1.05


@dataclass(frozen=True)
class Currency:
    """Currency of a summary.

    ``column``, ``header`` and ``cell`` show it; ``word`` marks the row with the least.  ``amount`` is a row's;
    ``spent`` may stand in where no row has an amount.  ``least`` returns the rows with the least, as far as that is
    certain.  ``gap`` says how much less the first row takes than the other.
    """

    column: str
    header: str
    cell: Callable[[Row], str]
    word: str
    amount: Callable[[Row], float | None]
    spent: Callable[[Row], float | None]
    least: Callable[[Sequence[Row]], Sequence[Row]]
    gap: Callable[[Row, Row], str]

    def order(self, row: Row) -> float:
        """Return what a row costs or takes, for sorting; rows without either are last."""
        value = self.spent(row)
        return math.inf if value is None else value


def _usd(row: Row) -> float | None:
    return row.usd_per_million.value


def spent(row: Row) -> float | None:
    """Return a row's cost, or its mean latency in seconds where it has no cost."""
    value = _usd(row)
    return row.latency.mean_s.value if value is None else value


def _cheaper(first: Row, other: Row) -> str:
    verb, much = ("costs", "much") if _usd(first) is not None else ("takes", "long")
    mine, its = spent(first) or 0.0, spent(other) or 0.0
    if its < _SAME * mine or not its:
        return f"{verb} about as {much} as"
    return f"{verb} {_times(its / mine)} less than" if mine else f"{verb} nothing, unlike"


def _grams(row: Row) -> float | None:
    return row.carbon.grams.value


def _cleaner(first: Row, other: Row) -> str:
    low, high = row_carbon.ratio(first, other)
    if low < 1:
        return f"may emit more or less CO2e than ({_times(1 / low)} more to {_times(high)} less)"
    if high < _SAME:
        return "emits about as much CO2e as"
    shown = list(dict.fromkeys(map(_times, (low, high))))
    return f"emits {' to '.join(shown)} less CO2e than"


def _least_grams(rows: Sequence[Row]) -> Sequence[Row]:
    row = row_carbon.least(rows)
    return [] if row is None else [row]


def _times(factor: float) -> str:
    return f"{factor:.0f}x" if factor >= 9.95 else f"{factor:.2g}x"  # .2g writes 9.95 and more as 1e+01


USD = Currency(
    COST, COST_HEADER, cost_cell, "cheapest", _usd, spent, lambda rows: best_of(rows, spent, least=True), _cheaper
)
GCO2E = Currency(CARBON, CARBON_HEADER, carbon_cell, "least CO2e", _grams, _grams, _least_grams, _cleaner)
CURRENCIES = {"usd": USD, "gCO2e": GCO2E}
