"""What ir_measures says of rankings and judgements, by query, where its own ways would lose a query or never end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import SubprocessError
from typing import Any

from harness.measure_limits import MOST_GDEVAL_GRADE
from harness.measure_names import SetAtCutoff
from harness.trec_files import Qrels

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
        measures: its own, and those that :class:`harness.measure_names.SetAtCutoff` makes of them.
        judged: at least one query, each with at least one judgement.
        rankings: document ids, best first; a query that is not there has no results.
    """
    reasons = {str(each): why for each in measures if (why := _beyond(each, judged)) is not None}
    able = [each for each in measures if str(each) not in reasons]
    found = Computed()
    try:
        _compute(able, judged, rankings, found)
    except _THEIRS:  # of one of them
        found = Computed()
        for measure in able:
            try:
                _compute([measure], judged, rankings, found)
            except _THEIRS as error:
                why = " ".join(str(error).split()) or type(error).__name__
                found.reasons[str(measure)] = f"cannot be computed for every query: {why}"
    found.reasons |= reasons
    return found


def _beyond(measure: Any, judged: Qrels) -> str | None:
    """Why a measure's provider would refuse these judgements, where it would."""
    if isinstance(measure, SetAtCutoff) or _provider(measure) != "gdeval":
        return None
    for query, grades in judged.items():
        document = max(grades, key=lambda each: grades[each])
        if grades[document] > MOST_GDEVAL_GRADE:
            return (
                f"knows grades up to {MOST_GDEVAL_GRADE} (gdeval computes it); document {document!r} of query "
                f"{query!r} has grade {grades[document]}"
            )
    return None


def _compute(measures: Sequence[Any], judged: Qrels, rankings: Rankings, found: Computed) -> None:
    whole = {each: str(each) for each in measures if not isinstance(each, SetAtCutoff)}
    if whole:
        _named(whole, judged, rankings, found)
    of_sets = [each for each in measures if isinstance(each, SetAtCutoff)]
    for depth in sorted({each.depth for each in of_sets}):
        cut = {query: ranking[:depth] for query, ranking in rankings.items()}
        _named({each.whole: str(each) for each in of_sets if each.depth == depth}, judged, cut, found)


def _named(named: Mapping[Any, str], judged: Qrels, rankings: Rankings, found: Computed) -> None:
    """ir_measures' own measures, each with the name that it has here."""
    aggregators = {measure: measure.aggregator() for measure in named}
    values: dict[Any, dict[str, float]] = {measure: {} for measure in named}
    for metric in _metrics(tuple(named), judged, rankings):
        counted = _counted(metric.measure, judged[metric.query_id])
        value = values[metric.measure][metric.query_id] = float(metric.value) if counted is None else counted
        aggregators[metric.measure].add(value)
    for measure, name in named.items():
        for query in sorted(judged.keys() - values[measure].keys()):  # Accuracy, asked for alone, leaves out queries
            values[measure][query] = float(measure.DEFAULT)
            aggregators[measure].add(measure.DEFAULT)
        found.values[name], found.per_query[name] = float(aggregators[measure].result()), values[measure]


def _counted(measure: Any, judged: dict[str, int]) -> float | None:
    """What counts judgements alone: ir_measures would leave out those of queries without results."""
    if measure.NAME == "NumQ":
        return 1.0
    return float(sum(grade >= measure["rel"] for grade in judged.values())) if measure.NAME == "NumRel" else None


def _metrics(measures: Sequence[Any], judged: Qrels, rankings: Rankings) -> Iterator[Any]:
    import ir_measures

    numbered = [each for each in measures if _provider(each) == "gdeval"]
    named = [each for each in measures if each not in numbered]
    for part in _parts(judged, rankings):
        scores = {
            query: {document: float(-rank) for rank, document in enumerate(rankings[query])}
            for query in part
            if rankings.get(query)
        }
        if named:
            yield from ir_measures.iter_calc(named, {query: _harmless(judged[query]) for query in part}, scores)
        if numbered:
            # gdeval takes numbers alone for ids of queries.
            number = {query: str(place) for place, query in enumerate(part, start=1)}
            query_of = {place: query for query, place in number.items()}
            graded = {number[query]: judged[query] for query in part}
            ranked = {number[query]: scored for query, scored in scores.items()}
            for metric in ir_measures.iter_calc(numbered, graded, ranked):
                yield metric._replace(query_id=query_of[metric.query_id])


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


def _parts(judged: Qrels, rankings: Rankings) -> Iterator[list[str]]:
    """The judged queries, as many at a time as are handed on at once."""
    part: list[str] = []
    size = 0
    for query, documents in judged.items():
        part.append(query)
        size += len(documents) + len(rankings.get(query, ()))
        if size >= _AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part
