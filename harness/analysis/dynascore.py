"""Dynascores: accuracy and what it costs in one number (Ma et al. 2021; Santhanam et al. 2023, equations 1 and 2).

A score is the sum over metrics of weight x value / AMRS, with everything that is better when smaller negated.  The AMRS
(average marginal rate of substitution) says how much of a metric one point of accuracy is worth, so that milliseconds
and dollars become points.  Accuracy itself has the rate 1.

Two ways to find the rates:

- ``reference``, as Dynaboard computes it: the mean of |d metric| / |d accuracy| over neighbouring rows by accuracy,
  those left out whose accuracies differ by no more than 1e-4 of the largest.  Where many rows share an accuracy (one
  system on several machines), which of them are neighbours hangs on their order.  Dynaboard leaves it to an unstable
  sort; here it is accuracy, then system, profile and key.  One near-tied pair can still decide the whole mean.
- ``robust``: for each metric, rows whose accuracies lie within a cut-off of one another count as one group, which its
  best row in that metric stands for; the rate is the median over neighbouring groups.  It does not depend on the order
  of the rows, and a row that is near-tied with one that stands for a group, and no better, changes nothing.

No rate that depends on accuracy at all could ignore every near-tied row whatever its other metrics: by adding such rows
and taking others away, in steps smaller than any cut-off, each set of rows could be turned into each other one.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from harness.errors import UnknownName

MODES = ("reference", "robust")
# Dynaboard's: neighbours whose accuracies differ by no more than this share of the largest accuracy are left out.
LEAST_SHARE = 1e-4


class RateStatus(str, Enum):
    """Why a rate is what it is."""

    OK = "ok"
    GIVEN = "given"
    # Fewer than two rows, or groups of them, differ in accuracy.
    NO_PAIR = "no pair"
    # The metric is the same wherever accuracy differs: nothing can be said of what a point of accuracy is worth.
    NO_DIFFERENCE = "no difference"


@dataclass(frozen=True)
class Rate:
    """An AMRS: units of the metric for a point of accuracy; ``None`` under a status that says why.

    ``pairs``: how many neighbouring rows or groups it was made of.
    """

    value: float | None
    status: RateStatus
    pairs: int = 0


@dataclass(frozen=True)
class Entry:
    """A row as scores see it: what breaks ties, its accuracy (points), and its other metrics by name."""

    system: str
    profile: str
    key: str
    accuracy: float
    values: Mapping[str, float]

    @property
    def name(self) -> tuple[str, str, str]:
        """Breaks ties."""
        return self.system, self.profile, self.key


@dataclass(frozen=True)
class Weighing:
    """What counts, and how much: ``weights`` by metric (they sum to 1), ``higher`` those that are better when larger.

    ``mode`` is one of ``MODES``; ``cutoff`` (points of accuracy) is of use to ``robust`` alone.  ``given`` are rates
    that are taken as they are.
    """

    weights: Mapping[str, float]
    higher: frozenset[str]
    mode: str = "reference"
    cutoff: float = 0.0
    given: Mapping[str, float] | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """The metrics beside accuracy that have a weight."""
        return tuple(name for name, weight in self.weights.items() if weight and name != "accuracy")


def rates(entries: Sequence[Entry], weighing: Weighing) -> dict[str, Rate]:
    """The AMRS of every metric that has a weight, but for accuracy.

    Args:
        entries: rows that may be compared, each with all those metrics, in any order.
        weighing: what counts.

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


def _reference(entries: Sequence[Entry], metric: str, _weighing: Weighing) -> Rate:
    ordered = sorted(entries, key=lambda entry: (entry.accuracy, entry.name))
    least = LEAST_SHARE * max((entry.accuracy for entry in ordered), default=0.0)
    found = [
        abs(after.values[metric] - before.values[metric]) / (after.accuracy - before.accuracy)
        for before, after in pairwise(ordered)
        if after.accuracy - before.accuracy > least
    ]
    return _rate(sum(found) / len(found) if found else None, len(found))


def _robust(entries: Sequence[Entry], metric: str, weighing: Weighing) -> Rate:
    sign = -1 if metric in weighing.higher else 1
    # By accuracy, ascending: the rows that stand for their groups.  Best rows come first, so that whoever is near-tied
    # with one of them and no better finds it there.
    groups: list[tuple[float, float]] = []
    for value, accuracy in sorted((sign * entry.values[metric], -entry.accuracy) for entry in entries):
        place = bisect_left(groups, (-accuracy, value))
        near = groups[max(0, place - 1) : place + 1]
        if all(abs(-accuracy - other) > weighing.cutoff for other, _ in near):
            insort(groups, (-accuracy, value))
    found = [abs(after - before) / (high - low) for (low, before), (high, after) in pairwise(groups)]
    return _rate(statistics.median(found) if found else None, len(found))


def _rate(value: float | None, pairs: int) -> Rate:
    if value is None:
        return Rate(None, RateStatus.NO_PAIR)
    return Rate(value, RateStatus.OK, pairs) if value > 0 else Rate(None, RateStatus.NO_DIFFERENCE, pairs)


def score(entry: Entry, weighing: Weighing, found: Mapping[str, Rate]) -> float | None:
    """A row's Dynascore in points; ``None`` where the rate of a weighed metric is not known (see its status)."""
    total = weighing.weights.get("accuracy", 0.0) * entry.accuracy
    for metric in weighing.others:
        rate = found[metric].value
        if rate is None:
            return None
        sign = 1 if metric in weighing.higher else -1
        total += sign * weighing.weights[metric] * entry.values[metric] / rate
    return total


def ranks(scores: Sequence[float | None]) -> list[int | None]:
    """Ranks from 1, the highest score first; equal scores share the better rank, and no score has none."""
    known = sorted(value for value in scores if value is not None)
    return [None if value is None else len(known) - bisect_right(known, value) + 1 for value in scores]
