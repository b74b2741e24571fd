"""After how many queries the dearer build of two systems pays back, by its cheaper queries.  Pure.

queries = US$ that the build costs more / US$ that a query costs less
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import Enum

from harness.analysis.comparison import Comparison
from harness.analysis.paired_differences import LATENCY, Difference
from harness.analysis.table import Row
from harness.estimate import Estimate


class PayBack(str, Enum):
    """Answer to whether the dearer build pays back."""

    AFTER = "after"
    NEVER = "never"
    UNCLEAR = "cannot tell"


@dataclass(frozen=True)
class BreakEven:
    """The dearer build of two (``"a"`` or ``"b"``), and what its queries cost less.

    ``build_usd`` holds the whole build of A and of B, each measured once.  ``saved_usd`` is what a query of the other
    system costs more, in US$, with the interval of the comparison's latency (negative: it costs less).
    """

    dearer: str
    build_usd: tuple[float, float]
    saved_usd: Estimate

    @property
    def more_usd(self) -> float:
        """US$ that the dearer build costs more."""
        return abs(self.build_usd[1] - self.build_usd[0])

    @property
    def queries(self) -> Estimate:
        """Queries that pay the dearer build back; without an upper end it may never be, without a value it is not."""
        value, low, high = (
            self.more_usd / usd if usd is not None and usd > 0 else None
            for usd in (self.saved_usd.value, self.saved_usd.high, self.saved_usd.low)
        )
        return Estimate(value, low, high, self.saved_usd.reason)

    @property
    def verdict(self) -> PayBack:
        """The answer that the interval supports; without an interval, the one of the value."""
        value, low, high = self.saved_usd.value or 0.0, self.saved_usd.low, self.saved_usd.high
        if low is None or high is None:
            low = high = value
        return PayBack.AFTER if low > 0 else PayBack.NEVER if high <= 0 else PayBack.UNCLEAR


def of(pair: Comparison) -> BreakEven | None:
    """Return the break-even of two stored rows; ``None``: a cost is not known, or both builds cost the same."""
    a, b, latency = pair.a.row, pair.b.row, pair.of(LATENCY)
    if a is None or b is None or latency is None or a.build_usd is None or b.build_usd is None:
        return None
    more = _more_usd(a, b, latency)
    if more is None or more.value is None or a.build_usd == b.build_usd:
        return None
    if a.build_usd < b.build_usd:
        # The dearer build is B's, whose queries save what A's cost more.
        return BreakEven("b", (a.build_usd, b.build_usd), more.map_decreasing(operator.neg))
    return BreakEven("a", (a.build_usd, b.build_usd), more)


def _more_usd(a: Row, b: Row, latency: Difference) -> Estimate | None:
    """Return what a query of B costs more than one of A, in US$: paired where both were measured query by query."""
    ours, theirs = _usd_per_million(a), _usd_per_million(b)
    if ours is None or theirs is None or a.price is None or b.price is None:
        return None
    if latency.latencies is None or not b.price.usd_per_hour:
        return Estimate((theirs - ours) / 1e6, reason=latency.over_queries.reason)
    seconds = latency.latencies.gap(a.price.usd_per_hour / b.price.usd_per_hour, latency.level)
    tokens = ((b.cost.tokens.value or 0.0) - (a.cost.tokens.value or 0.0)) / 1e6
    usd_per_s = b.price.usd_per_hour / 3600
    return seconds.map(lambda each: each * usd_per_s + tokens)


def _usd_per_million(row: Row) -> float | None:
    """Return US$ of a million queries with their tokens; ``None``: a part is not known."""
    usd, tokens = row.cost.sequential.value, row.cost.tokens.value
    if row.token_model is None:
        return usd
    return None if usd is None or tokens is None else usd + tokens
