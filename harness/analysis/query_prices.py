"""The three prices of a query, of each system on each hardware: sequential, saturated and metered.

A row has the scenario of one measurement; here a system's rows of several scenarios meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.analysis.table import Row
from harness.driver.records import Outcome
from harness.estimate import Estimate

_NOT_MEASURED = Estimate(None, reason="no throughput was measured; measure scenario server")
_NO_LATENCY = Estimate(None, reason="no latency of single queries was measured; measure scenario single_stream")


@dataclass(frozen=True)
class QueryPrices:
    """A system on one hardware: its row of single queries, and its row under load (``server``, else ``offline``)."""

    single: Row | None
    loaded: Row | None

    @property
    def row(self) -> Row:
        """Return the row that names the system and its hardware."""
        row = self.single or self.loaded
        assert row is not None, "a system has a row of some scenario"
        return row

    @property
    def sequential(self) -> Estimate:
        """Return US$ per million queries, one after the other."""
        return _NO_LATENCY if self.single is None else self.single.cost.sequential

    @property
    def saturated(self) -> Estimate:
        """Return US$ per million queries on a busy machine."""
        return _NOT_MEASURED if self.loaded is None else self.loaded.cost.saturated

    @property
    def metered(self) -> Estimate:
        """Return US$ per million queries that are paid one by one."""
        return _NO_LATENCY if self.single is None else self.single.cost.metered

    @property
    def metered_over_saturated(self) -> float | None:
        """Return how many times as much metered costs as saturated; ``None``: one of the two is not known."""
        metered, saturated = self.metered.value, self.saturated.value
        return metered / saturated if metered is not None and saturated else None


def of_rows(rows: Iterable[Row]) -> tuple[QueryPrices, ...]:
    """Return the prices of each system on each hardware, in the order of the rows; failed rows are left out."""
    found: dict[tuple[object, ...], dict[str, Row]] = {}
    for row in rows:
        if row.outcome is Outcome.OK:
            key = (row.dataset, row.isolation, row.suite, row.system, row.profile, row.published_type, row.origin)
            by_scenario = found.setdefault((*key, row.memory_bytes), {})
            # Of two rates, the one with the lower price counts.
            known = by_scenario.get(row.scenario)
            if known is None or _usd(row) < _usd(known):
                by_scenario[row.scenario] = row
    return tuple(
        QueryPrices(by_scenario.get("single_stream"), by_scenario.get("server") or by_scenario.get("offline"))
        for by_scenario in found.values()
    )


def _usd(row: Row) -> float:
    value = row.usd_per_million.value
    return float("inf") if value is None else value
