"""How robust a leaderboard is: how often two systems change places with other queries, judgements and measures.

The order that is held against others is that of one measure over all queries and all judgements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.analysis import rank_correlation, resampling
from harness.errors import UsageError
from harness.evaluation import evaluate_runs, measure_names, qrels_subsample, run_notes
from harness.evaluation.evaluate_runs import JudgedValues
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.qrels_subsample import Keep
from harness.stats import CONFIDENCE, INTERVAL_MIN_QUERIES, Estimate

Floats = NDArray[np.float64]
Step = Callable[[int, int], None]

RESAMPLES, DRAWS, SEED = 1000, 100, 2023
NO_MEAN = "it is no mean over queries"
_RESAMPLED = "resampled"


class ConditionKind(str, Enum):
    """What is other than on the leaderboard."""

    QUERIES = "other queries"
    JUDGEMENTS = "fewer judgements"
    MEASURE = "another measure"


@dataclass(frozen=True)
class RobustnessOptions:
    """The measure that makes the leaderboard, the measures that it is held against, and how often what is drawn."""

    measure: str
    against: tuple[str, ...] = ()
    keeps: tuple[Keep, ...] = ()
    resamples: int = RESAMPLES
    draws: int = DRAWS
    seed: int = SEED


@dataclass(frozen=True)
class RankedSystem:
    """A system: its value and rank, and over resampled queries its rank's 95 % interval and how often it is first."""

    system: str
    value: float
    rank: float
    low: float | None
    high: float | None
    first: float | None


@dataclass(frozen=True)
class Condition:
    """One way of asking again, ``draws`` times.

    ``flips`` has the share of draws in which two systems stand the other way round, by the systems in their order; a
    tie in a draw counts half.  ``None``: the two are equal on the leaderboard, or one and the same.  ``tau`` is
    Kendall's with the leaderboard, its mean over draws with the least and the largest; ``tau_whole`` that of another
    measure over all queries.  Where nothing could be asked, there are no flips and ``reason`` says why.
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
    """One leaderboard, best system first, and what moves it."""

    dataset: str
    measure: str
    queries: int
    standings: tuple[RankedSystem, ...]
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """Their names, best first."""
        return tuple(each.system for each in self.standings)


@dataclass(frozen=True)
class QueryScores:
    """What systems are worth query by query: by measure, of shape (queries, systems), the same queries in each.

    ``unfit`` says of each other measure why systems cannot be ordered query by query by it.
    """

    systems: tuple[str, ...]
    columns: Mapping[str, Floats]
    unfit: Mapping[str, str] = field(default_factory=dict)


def examine(runs: JudgedRuns, asked: RobustnessOptions, step: Step = lambda _done, _total: None) -> Robustness:
    """Make the leaderboard of some runs and move it.

    Args:
        runs: of two systems or more.
        asked: how.
        step: is told how much of how much is done.

    Raises:
        UsageError: there are fewer than two systems, a measure is unknown, or the first one makes no leaderboard here.
    """
    if len(runs.runs) < 2:
        raise UsageError(
            f"{runs.dataset}: an order needs two systems, there is {', '.join(runs.runs)} alone; name more"
        )
    main, *others = measure_names.parse((asked.measure, *asked.against))
    asked = replace(asked, measure=str(main), against=tuple(map(str, others)))
    turns = 1 + len(asked.keeps)
    judged = evaluate_runs.query_values(runs, (main, *others), _turn(step, 0, turns))
    values = _values(judged)
    if asked.measure in values.unfit:
        why = values.unfit[asked.measure]
        raise UsageError(f"{runs.dataset}: {main} makes no leaderboard: {why}; choose another with --measure")
    board = _board(values, asked.measure)
    fewer = [
        _fewer_judgements(runs, board, main, keep, asked, _turn(step, turn, turns))
        for turn, keep in enumerate(asked.keeps, start=1)
    ]
    return replace(
        of_values(runs.dataset, values, asked, fewer), notes=run_notes.every(runs, judged.evaluations, (main, *others))
    )


def of_values(
    dataset: str, values: QueryScores, asked: RobustnessOptions, fewer: Sequence[Condition] = ()
) -> Robustness:
    """Make the leaderboard of some values and move it by other queries and other measures.

    Args:
        dataset: what it is called.
        values: of two systems or more, by the measure that is asked and by all that it is held against, or why not.
        asked: how; nothing here draws judgements.
        fewer: what fewer judgements made of it.
    """
    board = _board(values, asked.measure)
    resampled = _resample(board.columns, asked)
    others = [_other_measure(values, board, measure, asked) for measure in asked.against]
    return Robustness(
        dataset=dataset,
        measure=asked.measure,
        queries=len(board.columns),
        standings=tuple(_standings(board, resampled)),
        conditions=(_other_queries(board, resampled), *fewer, *others),
        notes=(),
    )


@dataclass(frozen=True)
class _Board:
    """Systems, best first, those that are equal by name; their values of shape (systems,), (queries, systems) by query.

    ``order``: where each of them is among the values' systems.
    """

    systems: tuple[str, ...]
    order: tuple[int, ...]
    values: Floats
    columns: Floats


def _board(values: QueryScores, measure: str) -> _Board:
    names, columns = values.systems, values.columns[measure]
    found = columns.mean(axis=0)
    order = tuple(sorted(range(len(names)), key=lambda number: (-found[number], names[number])))
    return _Board(tuple(names[number] for number in order), order, found[list(order)], columns[:, list(order)])


def _turn(step: Step, turn: int, turns: int) -> Step:
    """Tells one turn's steps as steps of the whole."""
    return lambda done, total: step(turn * total + done, turns * total)


def _values(judged: JudgedValues) -> QueryScores:
    unfit = {measure: why for measure in judged.measures if (why := _unfit(judged, measure))}
    columns = {
        measure: np.stack([each.measures[measure] for each in judged.by_query.values()], axis=1)
        for measure in judged.measures
        if measure not in unfit
    }
    return QueryScores(tuple(judged.by_query), columns, unfit)


def _unfit(judged: JudgedValues, measure: str) -> str | None:
    """Why systems cannot be ordered query by query by a measure."""
    each = judged.evaluations.values()  # of one run a measure may be computed, of another not
    if (why := next((of.reasons[measure] for of in each if measure in of.reasons), None)) is not None:
        return f"it {why}"
    return None if all(measure in of.means for of in each) else NO_MEAN


def _resample(columns: Floats, asked: RobustnessOptions) -> Floats | None:
    """Means of shape (resamples, systems) over resampled queries; ``None``: too few to resample."""
    if len(columns) < INTERVAL_MIN_QUERIES:
        return None
    return resampling.resample(columns, np.empty((len(columns), 0)), asked.seed, asked.resamples).accuracy


def _other_queries(board: _Board, resampled: Floats | None) -> Condition:
    if resampled is None:
        return _none(ConditionKind.QUERIES, _RESAMPLED, _too_few(board))
    return _condition(ConditionKind.QUERIES, _RESAMPLED, board, resampled)


def _fewer_judgements(
    runs: JudgedRuns, board: _Board, measure: Any, keep: Keep, asked: RobustnessOptions, step: Step
) -> Condition:
    if runs.hits_alone:
        said = "documents were judged by the answers in their texts: there are no judgements to take away"
        return _none(ConditionKind.JUDGEMENTS, str(keep), said)
    drawn = qrels_subsample.draw(runs.qrels, runs.query_ids, keep, asked.draws, asked.seed)
    if not (drawn.columns >= 0).any():
        return _none(ConditionKind.JUDGEMENTS, str(keep), "no relevant document is judged")
    drawn = drawn.first() if drawn.alike else drawn
    try:
        found = qrels_subsample.means(runs, drawn, measure, step)
    except UsageError as error:
        return _none(ConditionKind.JUDGEMENTS, str(keep), str(error))
    return _condition(ConditionKind.JUDGEMENTS, str(keep), board, found[:, list(board.order)])


def _other_measure(values: QueryScores, board: _Board, measure: str, asked: RobustnessOptions) -> Condition:
    if measure in values.unfit:
        return _none(ConditionKind.MEASURE, measure, values.unfit[measure])
    columns = values.columns[measure][:, list(board.order)]
    whole = columns.mean(axis=0)
    tau = rank_correlation.kendall_tau(_by_name(board, board.values), _by_name(board, whole))
    resampled = _resample(columns, asked)
    if resampled is None:
        return _condition(ConditionKind.MEASURE, measure, board, whole[np.newaxis, :], tau)
    return _condition(ConditionKind.MEASURE, measure, board, resampled, tau)


def _none(cause: ConditionKind, name: str, why: str) -> Condition:
    return Condition(cause, name, 0, (), Estimate(None, reason=why), reason=why)


def _too_few(board: _Board) -> str:
    return f"resampling needs {INTERVAL_MIN_QUERIES} queries, there are {len(board.columns)}"


def _condition(cause: ConditionKind, name: str, board: _Board, found: Floats, tau: float | None = None) -> Condition:
    """What so many other orders, of shape (draws, systems), make of the leaderboard's."""
    known = found[np.isfinite(found).all(axis=1)]
    ours = rank_correlation.signs(board.values[np.newaxis, :])[0]
    flips = np.full(ours.shape, np.nan)
    # A draw of opposite sign is a flip, a tie half of one.
    for one in range(len(board.systems)):
        theirs = rank_correlation.signs(known, one)
        flips[one] = np.where(ours[one] == 0, np.nan, ((1 - ours[one] * theirs) / 2).mean(axis=0))
    taus = [rank_correlation.kendall_tau(_by_name(board, board.values), _by_name(board, each)) for each in known]
    told = [each for each in taus if each is not None]
    return Condition(
        cause=cause,
        name=name,
        draws=len(known),
        flips=tuple(tuple(None if np.isnan(each) else float(each) for each in line) for line in flips),
        tau=_range(told),
        tau_whole=tau,
    )


def _range(taus: Sequence[float]) -> Estimate:
    if not taus:
        return Estimate(None, reason="all systems are equal")
    return Estimate(float(np.mean(taus)), min(taus), max(taus))


def _by_name(board: _Board, values: Floats) -> dict[str, float]:
    return {name: round(float(value), 12) for name, value in zip(board.systems, values, strict=True)}


def _standings(board: _Board, resampled: Floats | None) -> Iterator[RankedSystem]:
    ranks = rank_correlation.ranks(board.values[np.newaxis, :])[0]
    if resampled is None:
        for system, value, rank in zip(board.systems, board.values, ranks, strict=True):
            yield RankedSystem(system, float(value), float(rank), None, None, None)
        return
    moved = rank_correlation.ranks(resampled)
    best = moved == moved.min(axis=1, keepdims=True)
    first = (best / best.sum(axis=1, keepdims=True)).mean(axis=0)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(moved, (tail, 1 - tail), axis=0, method="closest_observation")
    for number, system in enumerate(board.systems):
        bounds = (float(low[number]), float(high[number]), float(first[number]))
        yield RankedSystem(system, float(board.values[number]), float(ranks[number]), *bounds)
