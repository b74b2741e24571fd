"""Rows that may be compared -> scores, ranks, and how far the ranks hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.analysis import dynascore
from harness.analysis.dynascore import Entry, Rate, Weighing
from harness.analysis.resampling import CONFIDENCE, Resampled

Floats = NDArray[np.float64]

# How far each weight is moved, and how often.
PERTURBATION = 0.1
PERTURBED = 1000
_SEED = 20230710


@dataclass(frozen=True)
class Span:
    """The best and the worst rank of a row; or, without them, why there are none."""

    best: int | None
    worst: int | None
    reason: str | None = None


# What a ranking is made by: entries in any order -> their scores, the highest first in rank; ``None`` has no rank.
Scorer = Callable[[Sequence[Entry]], Sequence[float | None]]


def dynascores(weighing: Weighing) -> Scorer:
    """Scores by Dynascore, whose rates are found anew for each set of rows."""

    def score(entries: Sequence[Entry]) -> Sequence[float | None]:
        rates = dynascore.rates(entries, weighing)
        return [dynascore.score(entry, weighing, rates) for entry in entries]

    return score


def single(metric: str, higher: bool) -> Scorer:
    """Scores by one metric."""
    sign = 1 if higher else -1

    def score(entries: Sequence[Entry]) -> Sequence[float | None]:
        return [sign * (entry.accuracy if metric == "accuracy" else entry.values[metric]) for entry in entries]

    return score


def by_queries(
    entries: Sequence[Entry], scorer: Scorer, resampled: Resampled, timed: Collection[str] = ("latency", "cost")
) -> list[Span]:
    """95 % of the ranks over resampled queries: accuracy, latency, and what follows from latency, move together.

    Args:
        entries: the rows.
        scorer: makes their scores.
        resampled: of the same rows, in their order.
        timed: the metrics that are in proportion to latency.
    """
    found = []
    for accuracy, factor in zip(resampled.accuracy, slower(resampled), strict=True):
        drawn = [
            replace(entry, accuracy=float(points), values=_moved(entry.values, float(times), timed))
            for entry, points, times in zip(entries, accuracy, factor, strict=True)
        ]
        found.append(_numbers(dynascore.ranks(scorer(drawn))))
    return _spans(np.asarray(found), (1 - CONFIDENCE) / 2)


def slower(resampled: Resampled) -> Floats:
    """How many times its mean each row's latency is, shape (resamples, rows); 1 where no query says."""
    known = np.isfinite(resampled.latency_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = resampled.latency_s / (np.where(known, resampled.latency_s, 0.0).sum(axis=0) / known.sum(axis=0))
    return np.where(np.isfinite(found), found, 1.0)


def moves(names: int) -> Floats:
    """How far each weight is moved in each of 1,000 sets, shape (sets, weights)."""
    return np.random.default_rng(_SEED).uniform(-PERTURBATION, PERTURBATION, (PERTURBED, names))


def _moved(values: Mapping[str, float], factor: float, timed: Collection[str]) -> dict[str, float]:
    return {name: value * factor if name in timed else value for name, value in values.items()}


def without_each_system(entries: Sequence[Entry], scorer: Scorer) -> list[Span]:
    """How far each row moves among the others when one other system is taken out, all of its rows with it.

    That better rows are gone moves nobody: each row's place is compared with its place among the same rest before.
    """
    scores = scorer(entries)
    full = dynascore.ranks(scores)
    found = [full]
    for gone in sorted({entry.system for entry in entries}):
        kept = [place for place, entry in enumerate(entries) if entry.system != gone]
        before = dynascore.ranks([scores[place] for place in kept])
        after = dynascore.ranks(scorer([entries[place] for place in kept]))
        moved = list(full)
        for place, was, now in zip(kept, before, after, strict=True):
            here = full[place]
            moved[place] = None if here is None or was is None or now is None else here + now - was
        found.append(moved)
    return _spans(np.asarray([_numbers(each) for each in found]), 0.0)


def under_other_weights(entries: Sequence[Entry], weighing: Weighing, rates: Mapping[str, Rate]) -> list[Span]:
    """95 % of the ranks when each weight is moved by up to 0.1 to either side, at random, and they sum to 1 again."""
    names = [name for name, weight in weighing.weights.items() if weight]
    base = np.asarray([weighing.weights[name] for name in names])
    drawn = np.clip(base + moves(len(names)), 1e-9, None)
    drawn /= drawn.sum(axis=1, keepdims=True)
    alone = [_contributions(entries, replace(weighing, weights={name: 1.0}), rates) for name in names]
    if any(each is None for each in alone):
        return [Span(None, None, "no scores") for _ in entries]
    scores = drawn @ np.stack([each for each in alone if each is not None])
    return _spans(np.asarray([_numbers(dynascore.ranks(line)) for line in scores.tolist()]), (1 - CONFIDENCE) / 2)


def _contributions(entries: Sequence[Entry], weighing: Weighing, rates: Mapping[str, Rate]) -> Floats | None:
    """What one metric with the weight 1 adds to each row's score."""
    found = [dynascore.score(entry, weighing, rates) for entry in entries]
    return None if None in found else np.asarray(found, dtype=np.float64)


def _numbers(ranks: Sequence[int | None]) -> list[float]:
    return [float("nan") if rank is None else float(rank) for rank in ranks]


def _spans(ranks: Floats, tail: float) -> list[Span]:
    """The inner share of each column's ranks.

    Args:
        ranks: shape (rankings, rows).
        tail: the share that is left out on either side.
    """
    missing = np.asarray(np.isnan(ranks).any(axis=0), dtype=np.bool_)
    known = np.where(missing, 0.0, ranks)
    low, high = (np.quantile(known, share, axis=0, method="nearest") for share in (tail, 1 - tail))
    return [
        Span(None, None, "no scores") if none else Span(int(best), int(worst))
        for none, best, worst in zip(missing, low, high, strict=True)
    ]
