"""What ir_measures says of rankings and judgements, by query, where its own ways would lose a query or never end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import SubprocessError
from typing import Any

from harness.evaluation.measure_names import MOST_GDEVAL_GRADE, F1AtCutoff, SetAtCutoff
from harness.evaluation.trec import Qrels

# Hits and judgements that are handed to ir_measures at a time, some 300 bytes each while they are there.
_AT_ONCE = 1_000_000

# What a provider may raise on measures, judgements or runs that it cannot take: Accuracy divides by 0 where there are
# no pairs, gdeval's process fails, pytrec_eval refuses a type.  None of it says anything of the other measures.
_THEIRS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    SubprocessError,
)

Rankings = Mapping[str, tuple[str, ...]]


@dataclass
class Computed:
    """By a measure's name: its aggregate, its value of each query, or why it has none."""

    values: dict[str, float] = field(default_factory=dict)
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def compute(measures: Sequence[Any], judged: Qrels, rankings: Rankings) -> Computed:
    """Have ir_measures compute measures over all judged queries.

    Args:
        measures: its own, and those that :mod:`harness.evaluation.measure_names` makes of them.
        judged: at least one query, each with at least one judgement.
        rankings: document ids, best first; a query that is not there has no results.
    """
    (found,) = compute_each(measures, judged, (rankings,))
    return found


def compute_each(
    measures: Sequence[Any],
    judged: Qrels,
    runs: Sequence[Rankings],
    query_of: Mapping[str, str] | None = None,
    step: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Computed]:
    """Compute measures of several runs; providers read the judgements once for all of them.

    Args:
        measures: as of :func:`compute`.
        judged: as of :func:`compute`.
        runs: each run's rankings.
        query_of: the query whose ranking an entry of ``judged`` is held against; by default the one of its name.
        step: is told how many of how many rankings are scored.
    """
    reasons = {str(each): why for each in measures if (why := _beyond(each, judged)) is not None}
    able = [each for each in measures if str(each) not in reasons]
    asked = _Asked(judged, query_of, step)
    try:
        computed = _compute(able, asked, runs)
    except _THEIRS:  # of one measure, of one run
        computed = [_one_by_one(able, asked, rankings) for rankings in runs]
    for found in computed:
        found.reasons |= reasons
    return computed


@dataclass(frozen=True)
class _Asked:
    judged: Qrels
    query_of: Mapping[str, str] | None
    step: Callable[[int, int], None]

    def query(self, name: str) -> str:
        return name if self.query_of is None else self.query_of[name]


def _one_by_one(measures: Sequence[Any], asked: _Asked, rankings: Rankings) -> Computed:
    """Compute each measure alone, so that one provider's failure costs one measure."""
    found = Computed()
    for measure in measures:
        try:
            (one,) = _compute([measure], asked, (rankings,))
        except _THEIRS as error:
            why = " ".join(str(error).split()) or type(error).__name__
            found.reasons[str(measure)] = f"cannot be computed for every query: {why}"
        else:
            found.values |= one.values
            found.per_query |= one.per_query
    return found


def _beyond(measure: Any, judged: Qrels) -> str | None:
    """Why a measure's provider would refuse these judgements, where it would."""
    if isinstance(measure, (F1AtCutoff, SetAtCutoff)) or _provider(measure) != "gdeval":
        return None
    for query, grades in judged.items():
        document = max(grades, key=lambda each: grades[each])
        if grades[document] > MOST_GDEVAL_GRADE:
            return (
                f"knows grades up to {MOST_GDEVAL_GRADE} (gdeval computes it); document {document!r} of query "
                f"{query!r} has grade {grades[document]}"
            )
    return None


def _compute(measures: Sequence[Any], asked: _Asked, runs: Sequence[Rankings]) -> list[Computed]:
    """Compute measures of each run; raises what a provider raises."""
    # By depth that rankings are cut at: ir_measures' own measures.
    cuts: dict[int | None, dict[str, Any]] = defaultdict(dict)
    for measure in measures:
        if isinstance(measure, F1AtCutoff):
            cuts[None] |= {str(each): each for each in (measure.precision, measure.recall)}
        elif isinstance(measure, SetAtCutoff):
            cuts[measure.depth][str(measure)] = measure.whole
        else:
            cuts[None][str(measure)] = measure
    values: list[dict[str, dict[str, float]]] = [defaultdict(dict) for _ in runs]
    done, total = 0, len(asked.judged) * len(cuts) * len(runs)
    for part in _parts(asked, runs):
        for depth, named in cuts.items():
            for _ in _score(part, depth, named, asked, runs, values):
                asked.step(done, total)
                done += len(part)
    return [_aggregated(measures, of_run) for of_run in values]


def _aggregated(measures: Sequence[Any], values: Mapping[str, dict[str, float]]) -> Computed:
    found = Computed()
    for measure in measures:
        name = str(measure)
        if isinstance(measure, F1AtCutoff):
            precision, recall = values[str(measure.precision)], values[str(measure.recall)]
            found.per_query[name] = {query: _harmonic(precision[query], recall[query]) for query in precision}
        else:
            found.per_query[name] = dict(values[name])
        aggregator = measure.aggregator()
        for value in found.per_query[name].values():
            aggregator.add(value)
        found.values[name] = float(aggregator.result())
    return found


def _harmonic(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other else 0.0


def _score(
    part: Sequence[str],
    depth: int | None,
    named: Mapping[str, Any],
    asked: _Asked,
    runs: Sequence[Rankings],
    values: Sequence[dict[str, dict[str, float]]],
) -> Iterator[None]:
    """Add to each run's values those of some judged queries, of rankings cut at a depth; yield before each run."""
    import ir_measures

    numbered = {name: each for name, each in named.items() if _provider(each) == "gdeval"}
    others = {name: each for name, each in named.items() if name not in numbered}
    # gdeval takes numbers alone for ids of queries.
    numbers = {name: str(place) for place, name in enumerate(part, start=1)}
    evaluators = [
        (measures, ids, ir_measures.evaluator(list(measures.values()), _with_ids(part, ids, asked)))
        for measures, ids in ((others, {name: name for name in part}), (numbered, numbers))
        if measures
    ]
    for rankings, found in zip(runs, values, strict=True):
        yield
        # Judged names of one query share its scores.
        scores = {
            query: {document: float(-rank) for rank, document in enumerate(ranking[:depth])}
            for query in dict.fromkeys(map(asked.query, part))
            if (ranking := rankings.get(query))
        }
        for measures, ids, evaluator in evaluators:
            scored = {ids[name]: scores[query] for name in part if (query := asked.query(name)) in scores}
            of_measure: dict[Any, dict[str, float]] = defaultdict(dict)
            last, by_id = None, {}
            for metric in evaluator.iter_calc(scored):
                if metric.measure is not last:  # its hash is made of its text: a third of the time
                    last, by_id = metric.measure, of_measure[metric.measure]
                by_id[metric.query_id] = float(metric.value)
            for name, measure in measures.items():
                by_id = of_measure[measure]
                for query in part:
                    counted = _counted(measure, asked.judged[query])
                    # Accuracy, asked for alone, leaves out queries.
                    found[name][query] = by_id.get(ids[query], float(measure.DEFAULT)) if counted is None else counted


def _with_ids(part: Sequence[str], ids: Mapping[str, str], asked: _Asked) -> Qrels:
    return {ids[name]: _harmless(asked.judged[name]) for name in part}


def _counted(measure: Any, judged: dict[str, int]) -> float | None:
    """What counts judgements alone: ir_measures would leave out those of queries without results."""
    if measure.NAME == "NumQ":
        return 1.0
    return float(sum(grade >= measure["rel"] for grade in judged.values())) if measure.NAME == "NumRel" else None


def _provider(measure: Any) -> str:
    """Which of ir_measures' providers computes a measure."""
    import ir_measures

    known = ir_measures.DefaultPipeline.providers
    return next((each.NAME for each in known if each.is_available() and each.supports(measure)), "")


def _harmless(judged: dict[str, int]) -> dict[str, int]:
    """Judgements with a grade of 0 or more among them.

    pytrec_eval 0.5 reads memory that is not its own for a query that has none, and then may never return.  No document
    has the empty id, so this one is neither relevant nor retrieved.
    """
    return judged if max(judged.values()) >= 0 else {**judged, "": 0}


def _parts(asked: _Asked, runs: Sequence[Rankings]) -> Iterator[list[str]]:
    """The judged queries, as many at a time as are handed on at once."""
    part: list[str] = []
    size = 0
    for name, documents in asked.judged.items():
        query = asked.query(name)
        part.append(name)
        size += len(documents) + max((len(rankings.get(query, ())) for rankings in runs), default=0)
        if size >= _AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part
