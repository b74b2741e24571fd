"""Robustness of a leaderboard: how often two systems swap with other queries, judgements and measures.

The reference order is by one measure over all queries and all judgements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np

from harness import stats
from harness.analysis import resampling
from harness.errors import UsageError
from harness.estimate import CONFIDENCE, INTERVAL_MIN_QUERIES, Estimate
from harness.evaluation import evaluate_runs, measure_names, qrels_subsample
from harness.evaluation.evaluate_runs import EvaluatedRuns
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.qrels_subsample import KeepRule
from harness.progress import Progress, part_of, silent
from harness.stats import Floats, kendall_tau

# Means that differ by less are equal: the same values summed in another order.
EQUAL = 1e-12


RESAMPLES, DRAWS, SEED = 1000, 100, 2023
NO_MEAN = "it is not a mean over queries"
_RESAMPLED = "resampled"


class ConditionKind(str, Enum):
    """The kind of difference between a condition and the leaderboard."""

    QUERIES = "other queries"
    JUDGEMENTS = "fewer judgements"
    MEASURE = "another measure"


@dataclass(frozen=True)
class RobustnessOptions:
    """Options of a robustness check: main measure, other measures, judgements to keep, numbers of draws."""

    measure: str
    against: tuple[str, ...] = ()
    keeps: tuple[KeepRule, ...] = ()
    resamples: int = RESAMPLES
    draws: int = DRAWS
    seed: int = SEED


@dataclass(frozen=True)
class RankedSystem:
    """A system with its value and rank; ``low``, ``high`` and ``first`` are over resampled queries.

    ``low`` and ``high`` are the 95 % interval of its rank, ``first`` the share of draws in which it is first.
    """

    system: str
    value: float
    rank: float
    low: float | None
    high: float | None
    first: float | None


@dataclass(frozen=True)
class Condition:
    """``draws`` orders under one changed condition.

    ``flips`` holds the share of draws in which two systems swap, by the systems in leaderboard order; a tie counts
    half.  ``None``: the two tie on the leaderboard, or are the same system.  ``tau`` is Kendall's tau with the
    leaderboard: mean over draws, least and largest.  ``tau_whole`` is tau for another measure over all queries.
    ``reason`` explains missing draws.
    """

    cause: ConditionKind
    name: str
    draws: int
    flips: tuple[tuple[float | None, ...], ...]
    tau: Estimate
    tau_whole: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Robustness:
    """One leaderboard, best system first, and the conditions that change it."""

    dataset: str
    measure: str
    queries: int
    standings: tuple[RankedSystem, ...]
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems, best first."""
        return tuple(ranked.system for ranked in self.standings)


@dataclass(frozen=True)
class QueryScores:
    """Values of systems by measure, each of shape (queries, systems), over the same queries.

    ``unfit`` maps every other measure to the reason why it cannot order systems query by query.
    """

    systems: tuple[str, ...]
    columns: Mapping[str, Floats]
    unfit: Mapping[str, str] = field(default_factory=dict)


def examine(runs: JudgedRuns, options: RobustnessOptions, step: Progress = silent) -> Robustness:
    """Make the leaderboard of some runs and examine its robustness.

    Args:
        runs: of two systems or more.
        options: the options.
        step: called with the number of finished parts and of all parts.

    Raises:
        UsageError: there are fewer than two systems, a measure is unknown, or the main measure cannot rank the runs.
    """
    if len(runs.runs) < 2:
        raise UsageError(
            f"{runs.dataset}: an order needs two systems, but only {', '.join(runs.runs)} is here; name another"
        )
    main, *others = measure_names.parse((options.measure, *options.against))
    options = replace(options, measure=str(main), against=tuple(map(str, others)))
    turns = 1 + len(options.keeps)
    judged = evaluate_runs.evaluate_runs(runs, (main, *others), part_of(step, 0, turns))
    values = _values(judged)
    if options.measure in values.unfit:
        reason = values.unfit[options.measure]
        raise UsageError(f"{runs.dataset}: {main} makes no leaderboard: {reason}; name another first in --measures")
    board = _board(values, options.measure)
    fewer = [
        _fewer_judgements(runs, board, main, keep, options, part_of(step, turn, turns))
        for turn, keep in enumerate(options.keeps, start=1)
    ]
    return replace(of_values(runs.dataset, values, options, fewer), notes=judged.notes)


def of_values(
    dataset: str, values: QueryScores, options: RobustnessOptions, fewer: Sequence[Condition] = ()
) -> Robustness:
    """Make the leaderboard of some values and examine it with other queries and other measures.

    Args:
        dataset: its name.
        values: of two systems or more, by all measures of the options.
        options: the options; judgements are not drawn here.
        fewer: the conditions of fewer judgements.
    """
    board = _board(values, options.measure)
    resampled = _resample(board.columns, options)
    if resampled is None:
        reason = f"resampling needs {INTERVAL_MIN_QUERIES} queries, there are {len(board.columns)}"
        queries = _none(ConditionKind.QUERIES, _RESAMPLED, reason)
    else:
        queries = _condition(ConditionKind.QUERIES, _RESAMPLED, board, resampled)
    others = [_other_measure(values, board, measure, options) for measure in options.against]
    return Robustness(
        dataset=dataset,
        measure=options.measure,
        queries=len(board.columns),
        standings=tuple(_standings(board, resampled)),
        conditions=(queries, *fewer, *others),
        notes=(),
    )


@dataclass(frozen=True)
class _Board:
    """Systems, best first, ties by name; values of shape (systems,), by query (queries, systems).

    ``order`` holds each system's column in the values.
    """

    systems: tuple[str, ...]
    order: tuple[int, ...]
    values: Floats
    columns: Floats


def _board(values: QueryScores, measure: str) -> _Board:
    names, columns = values.systems, values.columns[measure]
    means = columns.mean(axis=0)
    order = tuple(sorted(range(len(names)), key=lambda index: (-means[index], names[index])))
    return _Board(tuple(names[index] for index in order), order, means[list(order)], columns[:, list(order)])


def _values(judged: EvaluatedRuns) -> QueryScores:
    unfit = {measure: reason for measure in judged.measures if (reason := _unfit(judged, measure))}
    columns = {
        measure: np.stack([values.measures[measure] for values in judged.by_query.values()], axis=1)
        for measure in judged.measures
        if measure not in unfit
    }
    return QueryScores(tuple(judged.by_query), columns, unfit)


def _unfit(judged: EvaluatedRuns, measure: str) -> str | None:
    """Return the reason why a measure cannot order systems query by query; ``None``: it can."""
    runs = judged.evaluations.values()  # some measures exist for one run and not for another
    reason = next((run.reasons[measure] for run in runs if measure in run.reasons), None)
    if reason is not None:
        return f"it {reason}"
    return None if all(measure in run.means for run in runs) else NO_MEAN


def _resample(columns: Floats, options: RobustnessOptions) -> Floats | None:
    """Return means of shape (resamples, systems); ``None``: too few queries to resample."""
    if len(columns) < INTERVAL_MIN_QUERIES:
        return None
    return resampling.resample(columns, np.empty((len(columns), 0)), options.seed, options.resamples).accuracy


def _fewer_judgements(
    runs: JudgedRuns, board: _Board, measure: Any, keep: KeepRule, options: RobustnessOptions, step: Progress
) -> Condition:
    if runs.hits_alone:
        reason = "documents were judged by the answers in their texts: there are no judgements to take away"
        return _none(ConditionKind.JUDGEMENTS, str(keep), reason)
    drawn = qrels_subsample.draw_qrels(runs.qrels, runs.query_ids, keep, options.draws, options.seed)
    if not (drawn.columns >= 0).any():
        return _none(ConditionKind.JUDGEMENTS, str(keep), "no relevant document is judged")
    drawn = drawn.first() if drawn.alike else drawn
    try:
        means = qrels_subsample.mean_per_draw(runs, drawn, measure, step)
    except UsageError as error:
        return _none(ConditionKind.JUDGEMENTS, str(keep), str(error))
    return _condition(ConditionKind.JUDGEMENTS, str(keep), board, means[:, list(board.order)])


def _other_measure(values: QueryScores, board: _Board, measure: str, options: RobustnessOptions) -> Condition:
    if measure in values.unfit:
        return _none(ConditionKind.MEASURE, measure, values.unfit[measure])
    columns = values.columns[measure][:, list(board.order)]
    whole = columns.mean(axis=0)
    tau = kendall_tau(_by_name(board, board.values), _by_name(board, whole))
    resampled = _resample(columns, options)
    drawn = whole[np.newaxis, :] if resampled is None else resampled
    return _condition(ConditionKind.MEASURE, measure, board, drawn, tau)


def _none(cause: ConditionKind, name: str, reason: str) -> Condition:
    return Condition(cause, name, 0, (), Estimate(None, reason=reason), reason=reason)


def _condition(cause: ConditionKind, name: str, board: _Board, drawn: Floats, tau: float | None = None) -> Condition:
    """Compare drawn values, shape (draws, systems), with the leaderboard."""
    finite = drawn[np.isfinite(drawn).all(axis=1)]
    flips = []
    # A draw with the opposite sign is a flip, a tie is half a flip.
    for one in range(len(board.systems)):
        ours, theirs = _leads(board.values[np.newaxis], one)[0], _leads(finite, one)
        flips.append(np.where(ours == 0, np.nan, ((1 - ours * theirs) / 2).mean(axis=0)))
    orders = [kendall_tau(_by_name(board, board.values), _by_name(board, draw)) for draw in finite]
    taus = [value for value in orders if value is not None]
    none = Estimate(None, reason="all systems are equal")
    return Condition(
        cause=cause,
        name=name,
        draws=len(finite),
        flips=tuple(tuple(None if np.isnan(share) else float(share) for share in line) for line in flips),
        tau=Estimate(float(np.mean(taus)), min(taus), max(taus)) if taus else none,
        tau_whole=tau,
    )


def _by_name(board: _Board, values: Floats) -> dict[str, float]:
    return {name: round(float(value), 12) for name, value in zip(board.systems, values, strict=True)}


def _standings(board: _Board, resampled: Floats | None) -> Iterator[RankedSystem]:
    ranks = stats.ranks(board.values, ties="mean", descending=True, equal_within=EQUAL)
    bounds: Sequence[tuple[float | None, ...]] = [(None, None, None)] * len(ranks)
    if resampled is not None:
        moved = stats.ranks(resampled, ties="mean", descending=True, equal_within=EQUAL)
        best = moved == moved.min(axis=1, keepdims=True)
        first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(moved, (tail, 1 - tail), axis=0, method="closest_observation")
        bounds = list(zip(low.tolist(), high.tolist(), first.tolist(), strict=True))
    for system, value, rank, ends in zip(board.systems, board.values, ranks, bounds, strict=True):
        yield RankedSystem(system, float(value), float(rank), *ends)


def _leads(values: Floats, one: int) -> Floats:
    """Return the sign of one system's lead over each system, shape (draws, systems)."""
    apart = values[:, [one]] - values
    return np.where(np.abs(apart) <= EQUAL, 0.0, np.sign(apart))
