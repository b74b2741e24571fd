"""Dynascore: accuracy and its costs in one number.

Sources: Ma et al. 2021; Santhanam et al. 2023, equations 1 and 2.

A score is the sum over metrics of weight x value / AMRS; metrics that are better when smaller are negated.  The AMRS
(average marginal rate of substitution) is the amount of a metric that one point of accuracy is worth, so that
milliseconds and dollars become points.  Accuracy itself has the rate 1.

Two modes compute the rates:

- ``reference``, as Dynaboard computes it: the mean of |d metric| / |d accuracy| over neighbouring rows by accuracy,
  without pairs whose accuracies differ by no more than 1e-4 of the largest.  If many rows share an accuracy (one system
  on several machines), their order decides which are neighbours.  Dynaboard leaves it to an unstable sort; here it is
  accuracy, then system, profile and key.  One near-tied pair can still decide the whole mean.
- ``robust``: for each metric, rows whose accuracies lie within a cut-off of one another form one group, represented by
  its best row in that metric; the rate is the median over neighbouring groups.  It does not depend on the order of the
  rows, and a row that is near-tied with a representative, and no better, changes nothing.

No rate that depends on accuracy could ignore every near-tied row with any other metrics: by adding such rows and
removing others, in steps smaller than any cut-off, each set of rows could be turned into each other one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from harness import stats
from harness.errors import UnknownName

MODES = ("reference", "robust")
# Of Dynaboard: neighbours whose accuracies differ by no more than this share of the largest are left out.
LEAST_SHARE = 1e-4


class RateStatus(str, Enum):
    """Origin of a rate, or the reason why it is missing."""

    OK = "ok"
    GIVEN = "given"
    # Fewer than two rows or groups differ in accuracy.
    NO_PAIR = "no pair"
    # The metric is equal wherever accuracy differs, so accuracy has no exchange rate.
    NO_DIFFERENCE = "no difference"

    def why(self, metric: str) -> str:
        """Return why the rate of a metric is missing; the page says the same."""
        if self is RateStatus.NO_PAIR:
            return "no two rows differ enough in accuracy"
        return f"rows that differ in accuracy have the same {metric}"


@dataclass(frozen=True)
class Rate:
    """AMRS of a metric, in the metric's unit per point of accuracy; ``None``: see the status.

    ``pairs`` counts the pairs of neighbouring rows or groups behind it.
    """

    value: float | None
    status: RateStatus
    pairs: int = 0


@dataclass(frozen=True)
class Entry:
    """Input of a score: the accuracy (points), other metrics by name, and the names that break ties."""

    system: str
    profile: str
    key: str
    accuracy: float
    values: Mapping[str, float]

    @property
    def name(self) -> tuple[str, str, str]:
        """Key that breaks ties."""
        return self.system, self.profile, self.key


@dataclass(frozen=True)
class DynascoreOptions:
    """Options of a Dynascore.

    ``weights`` by metric sum to 1; ``higher`` names the metrics that are better when larger.  ``mode`` is one of
    ``MODES``; only ``robust`` uses ``cutoff`` (points of accuracy).  ``given`` holds fixed rates.
    """

    weights: Mapping[str, float]
    higher: frozenset[str]
    mode: str = "reference"
    cutoff: float = 0.0
    given: Mapping[str, float] | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """Metrics other than accuracy that have a weight."""
        return tuple(name for name, weight in self.weights.items() if weight and name != "accuracy")


def rates(entries: Sequence[Entry], weighing: DynascoreOptions) -> dict[str, Rate]:
    """Compute the AMRS of every metric with a weight, except accuracy.

    Args:
        entries: rows that may be compared, each with all those metrics, in any order.
        weighing: the weights and options.

    Raises:
        UnknownName: there is no such mode.
    """
    if weighing.mode not in MODES:
        raise UnknownName("mode", weighing.mode, MODES)
    find = _reference if weighing.mode == "reference" else _robust
    given = weighing.given or {}
    return {
        metric: Rate(given[metric], RateStatus.GIVEN) if metric in given else find(entries, metric, weighing)
        for metric in weighing.others
    }


def _reference(entries: Sequence[Entry], metric: str, _weighing: DynascoreOptions) -> Rate:
    ordered = sorted(entries, key=lambda entry: (entry.accuracy, entry.name))
    least = LEAST_SHARE * max((entry.accuracy for entry in ordered), default=0.0)
    rates = [
        abs(after.values[metric] - before.values[metric]) / (after.accuracy - before.accuracy)
        for before, after in pairwise(ordered)
        if after.accuracy - before.accuracy > least
    ]
    return _rate(sum(rates) / len(rates) if rates else None, len(rates))


def _robust(entries: Sequence[Entry], metric: str, weighing: DynascoreOptions) -> Rate:
    sign = -1 if metric in weighing.higher else 1
    # Representatives of the groups by ascending accuracy.  Best rows come first, so that a near-tied row that is not
    # better meets its representative.
    groups: list[tuple[float, float]] = []
    for value, accuracy in sorted((sign * entry.values[metric], -entry.accuracy) for entry in entries):
        index = bisect_left(groups, (-accuracy, value))
        near = groups[max(0, index - 1) : index + 1]
        if all(abs(-accuracy - other) > weighing.cutoff for other, _ in near):
            insort(groups, (-accuracy, value))
    rates = [abs(after - before) / (high - low) for (low, before), (high, after) in pairwise(groups)]
    return _rate(stats.median(rates) if rates else None, len(rates))


def _rate(value: float | None, pairs: int) -> Rate:
    if value is None:
        return Rate(None, RateStatus.NO_PAIR)
    return Rate(value, RateStatus.OK, pairs) if value > 0 else Rate(None, RateStatus.NO_DIFFERENCE, pairs)


def score(entry: Entry, weighing: DynascoreOptions, rates: Mapping[str, Rate]) -> float | None:
    """Return a row's Dynascore in points; ``None`` if a weighted metric has no rate (see its status)."""
    total = weighing.weights.get("accuracy", 0.0) * entry.accuracy
    for metric in weighing.others:
        rate = rates[metric].value
        if rate is None:
            return None
        sign = 1 if metric in weighing.higher else -1
        total += sign * weighing.weights[metric] * entry.values[metric] / rate
    return total
