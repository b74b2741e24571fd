"""The leaderboard of a dataset: comparable rows, their scores and ranks, and how stable the ranks are.

Each rank has an interval under three changes: resampled queries, one system less, other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness import stats
from harness.analysis import axes, dynascore, pareto_front
from harness.analysis.axes import ACCURACY, Axis, ComparisonGroup
from harness.analysis.dynascore import DynascoreOptions, Entry, Rate
from harness.analysis.pareto_front import FrontState
from harness.analysis.resampling import Resampled
from harness.analysis.table import PublishedRates, Row, Table
from harness.driver.records import Outcome
from harness.errors import UnknownName, UsageError
from harness.estimate import CONFIDENCE, Estimate
from harness.evaluation.per_query import PerQuery
from harness.stats import Floats

# A function from entries, in any order, to their scores: the highest ranks first, ``None`` has no rank.
Scorer = Callable[[Sequence[Entry]], Sequence[float | None]]

NO_QUERIES = "no samples by query"
# Largest shift of each weight, and the number of shifted sets.
PERTURBATION = 0.1
PERTURBED = 1000
_SEED = 20230710


@dataclass(frozen=True)
class Preset:
    """Named weights; ``word`` is the name on the command line."""

    word: str
    name: str
    weights: Mapping[str, float]


# The weightings of Santhanam et al. 2023 by the paper's names: Tables 4 and 7a, 7b, 7c, 7d (8 for XOR-TyDi).
PRESETS = (
    Preset("default", "default", {"accuracy": 0.5, "cost": 0.25, "latency": 0.25}),
    Preset("quality", "heavy emphasis on quality", {"accuracy": 0.9, "cost": 0.05, "latency": 0.05}),
    Preset("low-latency", "low latency is key", {"accuracy": 0.75, "cost": 0.01, "latency": 0.24}),
    Preset("cost-sensitive", "cost is a very significant concern", {"accuracy": 0.4, "cost": 0.4, "latency": 0.2}),
)


@dataclass(frozen=True)
class Bound:
    """A threshold on an axis: rows above ``at_most`` or below ``at_least`` are left out."""

    axis: str
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class LeaderboardQuery:
    """Options of a leaderboard.

    ``rank_by`` names the axis that ranks the rows within the ``bounds``; ``None``: the Dynascore by ``weights``.
    ``mode`` is one of ``dynascore.MODES``; ``None``: the rates published with the rows, else ``reference``.
    ``amrs`` fixes rates, ``cutoff`` (points of accuracy) replaces the one from the sample's uncertainty.  ``suite`` and
    ``scenario`` narrow the rows.  ``front`` lists the axes of the Pareto front.
    """

    dataset: str
    measure: str = ""
    weights: Mapping[str, float] = field(default_factory=lambda: PRESETS[0].weights)
    mode: str | None = None
    amrs: Mapping[str, float] = field(default_factory=dict)
    cutoff: float | None = None
    bounds: tuple[Bound, ...] = ()
    rank_by: str | None = None
    suite: str | None = None
    scenario: str | None = None
    front: tuple[str, ...] = pareto_front.AXES


@dataclass(frozen=True)
class RankInterval:
    """Best and worst rank of a row, or the reason why they are missing."""

    best: int | None
    worst: int | None
    reason: str | None = None


@dataclass(frozen=True)
class RankedRow:
    """A row with its figures by axis, score, rank and rank intervals.

    ``by_queries``: over resampled queries; ``by_systems``: when one other system is removed; ``by_weights``: under
    other weights.  ``state``: its position on the Pareto front; ``None``: a figure for one of the front's axes is
    missing.
    """

    row: Row
    figures: Mapping[str, Estimate]
    score: float | None
    rank: int | None
    by_queries: RankInterval
    by_systems: RankInterval
    by_weights: RankInterval
    state: FrontState | None


@dataclass(frozen=True)
class Leaderboard:
    """Ranked rows in their order, the rows left out with the reason, and everything that the ranks depend on.

    ``rates`` follow from all ranked rows; a leaderboard by one axis has none.  ``table`` holds all rows.
    ``rates_source`` names the paper's table that the rates are from; ``None``: they are computed or given.
    """

    query: LeaderboardQuery
    place: ComparisonGroup
    shown: tuple[Axis, ...]
    rates: Mapping[str, Rate]
    cutoff: float
    ranked_rows: tuple[RankedRow, ...]
    left_out: tuple[tuple[Row, str], ...]
    table: Table
    rates_source: str | None = None

    @property
    def mode(self) -> str:
        """Return the mode in which rates are computed."""
        return self.query.mode or dynascore.MODES[0]

    @property
    def has_origins(self) -> bool:
        """Return whether the results were merged."""
        return any(row.origin is not None for row in self.table.rows)

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of the systems that the scores depend on."""
        return tuple(sorted({ranked.row.system for ranked in self.ranked_rows}))


def build(table: Table, by_query: Mapping[str, PerQuery], query: LeaderboardQuery) -> Leaderboard:
    """Rank the rows of a dataset.

    Args:
        table: priced rows of any datasets.
        by_query: values by query, by :attr:`harness.analysis.table.Row.per_query_key`; may be empty.
        query: the options.

    Raises:
        UnknownName: the dataset, axis or mode does not exist.
        UsageError: not a single row can be ranked.
    """
    group, rows, others = _comparable(table, query)
    shown = _axes(query)
    needed = [axis for axis in shown if axis.name in _needed(query)]
    ranked, left_out = pareto_front.sort_out(
        rows, lambda row: pareto_front.reason_not_ranked(row, needed) or _beyond(row, query)
    )
    if not ranked:
        first = next((f"; {row.system}: {reason}" for row, reason in left_out), "")
        raise UsageError(f"no row of {query.dataset} can be ranked{first}; harness report shows what is stored")
    uncertainty = pareto_front.uncertainty(ranked, by_query, query.measure, table.rounded_to)
    cutoff = uncertainty.cutoff if query.cutoff is None else query.cutoff
    published = _published_rates(table, group, query)
    weighing = _weighing(query, cutoff, query.amrs if published is None else published.values)
    entries = [_entry(row, needed) for row in ranked]
    if query.rank_by:
        rates: Mapping[str, Rate] = {}
        scorer = axis_scorer(query.rank_by, axes.axis(query.rank_by, query.measure).higher)
        by_weights = [RankInterval(None, None, "ranked by one axis")] * len(entries)
    else:
        rates = dynascore.rates(entries, weighing)
        scorer = dynascore_scorer(weighing)
        by_weights = intervals_by_weights(entries, weighing, rates)
    by_queries = [RankInterval(None, None, NO_QUERIES)] * len(entries)
    if uncertainty.resampled is not None:
        # In other scenarios cost follows from a throughput, which resampling does not change.
        timed = ("latency", "cost") if group.scenario == "single_stream" else ("latency",)
        by_queries = intervals_by_queries(entries, scorer, uncertainty.resampled, timed)
    by_systems = intervals_by_systems(entries, scorer)
    front_axes = [axes.axis(name, query.measure) for name in query.front]
    states = pareto_front.front_states(ranked, front_axes, uncertainty.relations)
    scores = scorer(entries)
    ranks = stats.competition_ranks(scores, descending=True)
    ranked_rows = [
        RankedRow(
            row=row,
            figures={axis.name: axis.read(row) for axis in shown},
            score=scores[number],
            rank=ranks[number],
            by_queries=by_queries[number],
            by_systems=by_systems[number],
            by_weights=by_weights[number],
            state=states.get(row.per_query_key),
        )
        for number, row in enumerate(ranked)
    ]
    ranked_rows.sort(key=lambda item: (item.rank is None, item.rank or 0, _entry(item.row, ()).name))
    source = None if published is None else published.source
    return Leaderboard(query, group, shown, rates, cutoff, tuple(ranked_rows), (*left_out, *others), table, source)


def _weighing(query: LeaderboardQuery, cutoff: float, rates: Mapping[str, float]) -> DynascoreOptions:
    higher = frozenset(name for name in query.weights if axes.axis(name, query.measure).higher)
    return DynascoreOptions(query.weights, higher, query.mode or dynascore.MODES[0], cutoff, rates)


def _published_rates(table: Table, group: ComparisonGroup, query: LeaderboardQuery) -> PublishedRates | None:
    """Return the published rates of a group, if the query gives none and weights the same metrics."""
    if query.amrs or query.mode or query.rank_by:
        return None
    of_group = (group.dataset, group.suite, query.measure)
    found = (rates for rates in table.rates if (rates.dataset, rates.suite, rates.measure) == of_group)
    return next((rates for rates in found if any(query.weights.get(name) for name in rates.values)), None)


def _needed(query: LeaderboardQuery) -> set[str]:
    bounded = {bound.axis for bound in query.bounds}
    if query.rank_by:
        return {ACCURACY, query.rank_by, *bounded}
    return {ACCURACY, *(name for name, weight in query.weights.items() if weight), *bounded}


def _axes(query: LeaderboardQuery) -> tuple[Axis, ...]:
    """List the axes to show: weighted axes, bounded axes, then the axes of the front."""
    names = dict.fromkeys((ACCURACY, *query.weights, *sorted(_needed(query)), *query.front))
    return tuple(axes.axis(name, query.measure) for name in names)


def _entry(row: Row, needed: Sequence[Axis]) -> Entry:
    figures = {axis.name: axis.read(row).value for axis in needed}
    values = {name: value for name, value in figures.items() if value is not None}
    return Entry(row.system, row.profile, row.per_query_key, values.pop(ACCURACY, 0.0), values)


def _comparable(table: Table, query: LeaderboardQuery) -> tuple[ComparisonGroup, list[Row], list[tuple[Row, str]]]:
    """Return the largest group of comparable rows, and the dataset's other rows."""
    if query.measure not in table.measures:
        raise UnknownName("measure", query.measure, table.measures)
    datasets = {row.dataset for row in table.rows}
    if query.dataset not in datasets:
        raise UnknownName("dataset", query.dataset, datasets)
    candidates = [
        row
        for row in table.rows
        if row.dataset == query.dataset and query.suite in (None, row.suite) and query.scenario in (None, row.scenario)
    ]
    if not candidates:
        raise UsageError(f"no row of {query.dataset} has that suite and scenario; harness report lists the rows")
    groups = axes.group_rows(candidates)
    largest = max(groups, key=lambda group: sum(row.outcome is Outcome.OK for row in groups[group]))
    others = [
        (row, f"not to be compared with the others: another {_differs(group, largest)}")
        for group, rows in groups.items()
        if group != largest
        for row in rows
    ]
    return largest, groups[largest], others


def _differs(one: ComparisonGroup, other: ComparisonGroup) -> str:
    words = {
        "suite": "suite of published rows",
        "k": "number of hits asked for",
        "latency_target_s": "latency target",
        "latency_percentile": "latency target",
        "sample_sha256": "query sample",
        "corpus_sha256": "corpus",
    }
    names = [name for name in ComparisonGroup._fields if getattr(one, name) != getattr(other, name)]
    return " and ".join(dict.fromkeys(words.get(name, name) for name in names))


def _beyond(row: Row, query: LeaderboardQuery) -> str | None:
    """Name the threshold that a row exceeds."""
    for bound in query.bounds:
        axis = axes.axis(bound.axis, query.measure)
        figure = axis.read(row)
        assert figure.value is not None  # rows without the figure were left out before
        for limit, beyond, word in ((bound.at_most, 1, "above"), (bound.at_least, -1, "below")):
            if limit is None or beyond * figure.value <= beyond * limit:
                continue
            return f"{axis.label} {figure.value:.4g} {axis.unit} is {word} {limit:g}"
    return None


def dynascore_scorer(weighing: DynascoreOptions) -> Scorer:
    """Return a function that scores by Dynascore; each set of rows has its own rates."""

    def score(entries: Sequence[Entry]) -> Sequence[float | None]:
        rates = dynascore.rates(entries, weighing)
        return [dynascore.score(entry, weighing, rates) for entry in entries]

    return score


def axis_scorer(metric: str, higher: bool) -> Scorer:
    """Return a function that scores by one metric."""
    sign = 1 if higher else -1

    def score(entries: Sequence[Entry]) -> Sequence[float | None]:
        return [sign * (entry.accuracy if metric == "accuracy" else entry.values[metric]) for entry in entries]

    return score


def intervals_by_queries(
    entries: Sequence[Entry], scorer: Scorer, resampled: Resampled, timed: Collection[str] = ("latency", "cost")
) -> list[RankInterval]:
    """Return the 95 % interval of each rank over resampled queries; accuracy, latency and cost move together.

    Args:
        entries: the rows.
        scorer: scores them.
        resampled: means of the same rows, in their order.
        timed: the metrics that are proportional to latency.
    """
    scores = []
    for accuracy, factors in zip(resampled.accuracy.tolist(), latency_factors(resampled).tolist(), strict=True):
        drawn = [
            replace(
                entry,
                accuracy=points,
                values={name: value * factor if name in timed else value for name, value in entry.values.items()},
            )
            for entry, points, factor in zip(entries, accuracy, factors, strict=True)
        ]
        scores.append(scorer(drawn))
    return _intervals(_ranks(scores), (1 - CONFIDENCE) / 2)


def latency_factors(resampled: Resampled) -> Floats:
    """Return each row's resampled latency over its mean, shape (resamples, rows); 1 without latencies by query."""
    finite = np.isfinite(resampled.latency_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(finite, resampled.latency_s, 0.0).sum(axis=0) / finite.sum(axis=0)
        factors = resampled.latency_s / means
    return np.where(np.isfinite(factors), factors, 1.0)


def intervals_by_systems(entries: Sequence[Entry], scorer: Scorer) -> list[RankInterval]:
    """Return best and worst rank of each row when one other system is removed.

    Each rank is compared with the rank among the same remaining rows, so that removing a better row changes nothing.
    """
    scores = scorer(entries)
    full = _ranks(scores)
    rankings = [full]
    for removed in sorted({entry.system for entry in entries}):
        rest = [index for index, entry in enumerate(entries) if entry.system != removed]
        before, after = _ranks([scores[index] for index in rest]), _ranks(scorer([entries[index] for index in rest]))
        moved = full.copy()
        moved[rest] += after - before
        rankings.append(moved)
    return _intervals(np.asarray(rankings), 0.0)


def intervals_by_weights(
    entries: Sequence[Entry], weighing: DynascoreOptions, rates: Mapping[str, Rate]
) -> list[RankInterval]:
    """Return the 95 % interval of each rank when weights move at random by up to 0.1 (their sum stays 1)."""
    names = [name for name, weight in weighing.weights.items() if weight]
    base = np.asarray([weighing.weights[name] for name in names])
    drawn = np.clip(base + weight_shifts(len(names)), 1e-9, None)
    drawn /= drawn.sum(axis=1, keepdims=True)
    alone = [replace(weighing, weights={name: 1.0}) for name in names]
    scores = [[dynascore.score(entry, options, rates) for entry in entries] for options in alone]
    # Without a rate for a metric no row has a score or a rank.
    return _intervals(_ranks(drawn @ np.asarray(scores, dtype=np.float64)), (1 - CONFIDENCE) / 2)


def weight_shifts(names: int) -> Floats:
    """Draw the shift of each weight in each of 1,000 sets, shape (sets, weights)."""
    return np.random.default_rng(_SEED).uniform(-PERTURBATION, PERTURBATION, (PERTURBED, names))


def _ranks(scores: Sequence[object] | Floats) -> Floats:
    """Rank scores along the last axis, the highest first; equal scores share the better rank."""
    return stats.ranks(np.asarray(scores, dtype=np.float64), ties="min", descending=True)


def _intervals(ranks: Floats, tail: float) -> list[RankInterval]:
    """Return the interval of each column's ranks.

    Args:
        ranks: shape (rankings, rows).
        tail: the share left out on either side.
    """
    missing = np.asarray(np.isnan(ranks).any(axis=0))
    low, high = np.quantile(np.where(missing, 0.0, ranks), (tail, 1 - tail), axis=0, method="nearest")
    return [
        RankInterval(None, None, "no scores") if none else RankInterval(int(best), int(worst))
        for none, best, worst in zip(missing, low, high, strict=True)
    ]
