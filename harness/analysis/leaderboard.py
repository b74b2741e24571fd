"""A priced table -> a leaderboard: which rows are compared, by what they are ranked, and how far the ranks hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.analysis import axes, dynascore, pareto_front, rank_stability
from harness.analysis.axes import ACCURACY, Axis, Place
from harness.analysis.dynascore import Entry, Rate, Weighing
from harness.analysis.pareto import State
from harness.analysis.rank_stability import Span
from harness.analysis.resampling import Resampled
from harness.analysis.table import Row, Table, per_query_key
from harness.errors import UnknownName, UsageError
from harness.evaluation.per_query import PerQuery
from harness.records import Outcome
from harness.stats import Estimate

NO_QUERIES = "no samples by query"


@dataclass(frozen=True)
class Preset:
    """Weights that have a name."""

    name: str
    weights: Mapping[str, float]


# The first are those of Table 4 of Santhanam et al. 2023; the others put most of it on one side.
PRESETS = (
    Preset("balanced", {"accuracy": 0.5, "cost": 0.25, "latency": 0.25}),
    Preset("accuracy first", {"accuracy": 0.9, "cost": 0.05, "latency": 0.05}),
    Preset("cost first", {"accuracy": 0.1, "cost": 0.8, "latency": 0.1}),
    Preset("latency first", {"accuracy": 0.1, "cost": 0.1, "latency": 0.8}),
)


@dataclass(frozen=True)
class Bound:
    """A threshold on an axis: rows above ``at_most`` or below ``at_least`` are left out."""

    axis: str
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True)
class Asked:
    """What a leaderboard is to show.

    ``rank_by`` names the axis that ranks the rows which keep the ``bounds``; ``None``: the Dynascore by ``weights``.
    ``amrs`` fixes rates, ``cutoff`` (points of accuracy) replaces the one from the sample's uncertainty.  ``suite`` and
    ``scenario`` narrow the rows.  ``front`` are the axes of the Pareto front.
    """

    dataset: str
    measure: str
    weights: Mapping[str, float] = field(default_factory=lambda: PRESETS[0].weights)
    mode: str = "reference"
    amrs: Mapping[str, float] = field(default_factory=dict)
    cutoff: float | None = None
    bounds: tuple[Bound, ...] = ()
    rank_by: str | None = None
    suite: str | None = None
    scenario: str | None = None
    front: tuple[str, ...] = pareto_front.AXES


@dataclass(frozen=True)
class Standing:
    """A ranked row: its figures by axis, its score (``None`` where it has none), and the spans of its rank.

    ``by_queries``: over resampled queries; ``by_systems``: without each other system; ``by_weights``: under other
    weights.  ``state``: where it stands to the Pareto front; ``None`` where an axis of it is missing.
    """

    row: Row
    figures: Mapping[str, Estimate]
    score: float | None
    rank: int | None
    by_queries: Span
    by_systems: Span
    by_weights: Span
    state: State | None


@dataclass(frozen=True)
class LeftOut:
    """A row of the dataset that is not ranked, and why."""

    row: Row
    reason: str


@dataclass(frozen=True)
class Leaderboard:
    """Ranked rows in their order, the rows left out, and everything that the ranks depend on.

    ``rates`` are those of all ranked rows; none where the ranking is by one axis.  ``table`` is what it was made of.
    """

    asked: Asked
    place: Place
    shown: tuple[Axis, ...]
    rates: Mapping[str, Rate]
    cutoff: float
    standings: tuple[Standing, ...]
    left_out: tuple[LeftOut, ...]
    table: Table

    @property
    def has_origins(self) -> bool:
        """Whether it is of merged results."""
        return any(row.origin is not None for row in self.table.rows)

    @property
    def systems(self) -> tuple[str, ...]:
        """The set of systems that the scores depend on."""
        return tuple(sorted({each.row.system for each in self.standings}))


def build(table: Table, found: Mapping[str, PerQuery], asked: Asked) -> Leaderboard:
    """Rank the rows of a dataset.

    Args:
        table: priced rows of any datasets.
        found: what rows are made of, by :func:`harness.evaluation.per_query.per_query_key`; may be empty.
        asked: what is wanted.

    Raises:
        UnknownName: there is no such dataset, axis or mode.
        UsageError: nothing of it can be ranked.
    """
    where, rows, others = _compared(table, asked)
    shown = _axes(asked)
    needed = [axis for axis in shown if axis.name in _needed(asked)]
    ranked, left_out = _sorted_out(rows, needed, asked)
    if not ranked:
        first = f"; {left_out[0].row.system}: {left_out[0].reason}" if left_out else ""
        raise UsageError(f"no row of {asked.dataset} can be ranked{first}; harness report shows what is stored")
    known = pareto_front.uncertainty(ranked, found, asked.measure, table.rounded_to)
    weighing = _weighing(asked, known.cutoff if asked.cutoff is None else asked.cutoff)
    entries = [_entry(row, needed) for row in ranked]
    rates = {} if asked.rank_by else dynascore.rates(entries, weighing)
    scorer = rank_stability.dynascores(weighing)
    if asked.rank_by:
        scorer = rank_stability.single(asked.rank_by, axes.axis(asked.rank_by, asked.measure).higher)
    scores = scorer(entries)
    spans = _spans(entries, scorer, known.resampled, where.scenario)
    by_weights = [Span(None, None, "ranked by one axis")] * len(entries)
    if not asked.rank_by:
        by_weights = rank_stability.under_other_weights(entries, weighing, rates)
    states = pareto_front.states(ranked, [axes.axis(name, asked.measure) for name in asked.front], known.relations)
    made = [
        Standing(
            row=row,
            figures={axis.name: axis.read(row) for axis in shown},
            score=score,
            rank=rank,
            by_queries=spans[0][number],
            by_systems=spans[1][number],
            by_weights=by_weights[number],
            state=states.get(per_query_key(row)),
        )
        for number, (row, score, rank) in enumerate(zip(ranked, scores, dynascore.ranks(scores), strict=True))
    ]
    made.sort(key=lambda each: (each.rank is None, each.rank or 0, _entry(each.row, ()).name))
    return Leaderboard(asked, where, shown, rates, weighing.cutoff, tuple(made), (*left_out, *others), table)


def _needed(asked: Asked) -> set[str]:
    if asked.rank_by:
        return {ACCURACY, asked.rank_by, *(bound.axis for bound in asked.bounds)}
    return {ACCURACY, *(name for name, weight in asked.weights.items() if weight), *(b.axis for b in asked.bounds)}


def _axes(asked: Asked) -> tuple[Axis, ...]:
    """The columns: what is weighed or bounded, and what the front is over."""
    names = dict.fromkeys((ACCURACY, *asked.weights, *sorted(_needed(asked)), *asked.front))
    return tuple(axes.axis(name, asked.measure) for name in names)


def _weighing(asked: Asked, cutoff: float) -> Weighing:
    higher = frozenset(name for name in asked.weights if axes.axis(name, asked.measure).higher)
    return Weighing(asked.weights, higher, asked.mode, cutoff, asked.amrs)


def _entry(row: Row, needed: Sequence[Axis]) -> Entry:
    values = {axis.name: axis.read(row).value for axis in needed}
    known = {name: value for name, value in values.items() if value is not None}
    return Entry(row.system, row.profile, per_query_key(row), known.pop(ACCURACY, 0.0), known)


def _spans(
    entries: Sequence[Entry], scorer: rank_stability.Scorer, resampled: Resampled | None, scenario: str
) -> tuple[list[Span], list[Span]]:
    by_systems = rank_stability.without_each_system(entries, scorer)
    if resampled is None:
        return [Span(None, None, NO_QUERIES)] * len(entries), by_systems
    # Elsewhere cost is made of a throughput, which no resample of queries tells anew.
    timed = ("latency", "cost") if scenario == "single_stream" else ("latency",)
    return rank_stability.by_queries(entries, scorer, resampled, timed), by_systems


def _compared(table: Table, asked: Asked) -> tuple[Place, list[Row], list[LeftOut]]:
    """The largest set of rows that may be compared; and the dataset's other rows."""
    if asked.measure not in table.measures:
        raise UnknownName("measure", asked.measure, table.measures)
    datasets = {row.dataset for row in table.rows}
    if asked.dataset not in datasets:
        raise UnknownName("dataset", asked.dataset, datasets)
    wanted = [
        row
        for row in table.rows
        if row.dataset == asked.dataset and asked.suite in (None, row.suite) and asked.scenario in (None, row.scenario)
    ]
    if not wanted:
        raise UsageError(f"no row of {asked.dataset} is of that suite and scenario; harness report shows what is there")
    by_place: dict[Place, list[Row]] = defaultdict(list)
    for row in wanted:
        by_place[axes.of(row)].append(row)
    where = max(by_place, key=lambda each: sum(row.outcome is Outcome.OK for row in by_place[each]))
    others = [
        LeftOut(row, f"not to be compared with the others: another {_differs(of, where)}")
        for of, rows in by_place.items()
        if of != where
        for row in rows
    ]
    return where, by_place[where], others


def _differs(one: Place, other: Place) -> str:
    words = {
        "suite": "suite of published rows",
        "k": "number of hits asked for",
        "latency_target_s": "latency target",
        "latency_percentile": "latency target",
        "sample_sha256": "query sample",
        "corpus_sha256": "corpus",
    }
    names = [name for name in Place._fields if getattr(one, name) != getattr(other, name)]
    return " and ".join(dict.fromkeys(words.get(name, name) for name in names))


def _sorted_out(rows: Sequence[Row], needed: Sequence[Axis], asked: Asked) -> tuple[list[Row], list[LeftOut]]:
    ranked, left_out = [], []
    for row in rows:
        why = pareto_front.rankable(row, needed) or _beyond(row, asked)
        if why is None:
            ranked.append(row)
        else:
            left_out.append(LeftOut(row, why))
    return ranked, left_out


def _beyond(row: Row, asked: Asked) -> str | None:
    """Which threshold a row does not keep, and whether its interval leaves that open."""
    for bound in asked.bounds:
        axis = axes.axis(bound.axis, asked.measure)
        figure = axis.read(row)
        assert figure.value is not None  # rows without it were left out before
        for limit, beyond, word in ((bound.at_most, 1, "above"), (bound.at_least, -1, "below")):
            if limit is None or beyond * figure.value <= beyond * limit:
                continue
            end = figure.low if beyond > 0 else figure.high
            open_ = " (its interval reaches it)" if end is not None and beyond * end <= beyond * limit else ""
            return f"{axis.label} {figure.value:.4g} {axis.unit} is {word} {limit:g}{open_}"
    return None
