"""A run and its judgements -> effectiveness measures; every value but that of R@2kt is computed by ir_measures.

The ranking that is judged is the ranking that was timed.  ir_measures' providers order a run by score and break
equal scores by document id, one upwards (RR@k), one downwards (nDCG@k).  So they are given scores made from
the run's own ranks: the same values wherever scores differ, and one ranking for all measures where they do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import answer_depths, trec_files
from harness.errors import UsageError
from harness.measure_names import OF_HITS_ALONE, AnswerRecall
from harness.result import ANSWER_DEPTHS, JUDGED_HITS
from harness.trec_files import Qrels, Run

# Hits and judgements that are handed to ir_measures at a time, some 300 bytes each while they are there.
_AT_ONCE = 1_000_000
_UNKNOWN = "needs all relevant documents; only those retrieved were judged, by the answers in their texts"
_NO_ANSWERS = "needs a dataset that has answers; this one has judgements of documents"
_NO_DEPTHS = "how deep answers stand was not stored when this was measured; run its suite again with --fresh"


@dataclass(frozen=True)
class CutShort:
    """Queries whose hits end before a measure's tokens do, with no answer in them; ``k`` hits would mostly reach."""

    queries: tuple[str, ...]
    k: int


@dataclass(frozen=True)
class Evaluation:
    """Measures over the judged queries of a sample.

    ``values`` maps each measure, as ir_measures writes it, to its aggregate over ``queries`` queries (``None`` when
    none is judged, or where ``reasons`` says why not).  ``unjudged`` queries of the sample are left out of it;
    ``without_hits`` are judged and count 0.  ``per_query`` maps each measure to the value of each judged query;
    ``means`` are the measures whose aggregate is the mean of those.  ``cut_short`` is of R@2kt and its like.
    """

    values: dict[str, float | None]
    queries: int
    unjudged: tuple[str, ...]
    without_hits: tuple[str, ...]
    tied_queries: tuple[str, ...]
    reasons: dict[str, str] = field(default_factory=dict)
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    means: frozenset[str] = frozenset()
    cut_short: dict[str, CutShort] = field(default_factory=dict)


def of_hits_alone(path: Path) -> bool:
    """Whether a file of judgements holds a run's own hits and nothing of what the run did not find."""
    return path.name == JUDGED_HITS


def run_of_job(path: Path) -> Run:
    """A stored job's run, with what was stored beside it.

    Args:
        path: of the run in the job's folder.

    Raises:
        FileError: a file is missing or damaged.
    """
    run, depths = trec_files.read_run(path), path.with_name(ANSWER_DEPTHS)
    return replace(run, depths=answer_depths.read(depths)) if depths.exists() else run


def evaluate(
    run: Run, qrels: Qrels, sample_ids: Sequence[str], measures: Sequence[Any], *, hits_alone: bool = False
) -> Evaluation:
    """Judge a run over a query sample.

    Args:
        run: rankings; a query of the sample that it lacks got no hits and counts 0.
        qrels: judgements; those of queries outside the sample play no part.
        sample_ids: the sample that was timed.
        measures: as :func:`harness.measure_names.parse` gives them.
        hits_alone: see :func:`of_hits_alone`.  All queries are judged then, and measures that need all relevant
            documents (nDCG, R, AP ...) have no value.

    Raises:
        UsageError: the run holds a query that is not in the sample.
    """
    strangers = sorted(set(run.rankings) - set(sample_ids))
    if strangers:
        raise UsageError(f"the run holds {len(strangers)} queries that are not in the sample, e.g. {strangers[0]!r}")
    judged = {query: qrels[query] for query in sorted(set(sample_ids)) if qrels.get(query)}
    if hits_alone:
        # No document has the empty id: a query without hits is judged, and has found nothing.
        judged = {query: qrels.get(query) or {"": 0} for query in sorted(set(sample_ids))}
    reasons = {str(each): why for each in measures if (why := _why_not(each, run, hits_alone=hits_alone))}
    known = [each for each in measures if str(each) not in reasons]
    per_query: dict[str, dict[str, float]] = {}
    values: dict[str, float | None] = {str(measure): None for measure in measures}
    for measure in known if judged else ():
        if isinstance(measure, AnswerRecall):
            of_queries = per_query[str(measure)] = _answers_found(measure, run, judged)
            values[str(measure)] = sum(of_queries.values()) / len(of_queries)
    theirs = [each for each in known if not isinstance(each, AnswerRecall)]
    if judged and theirs:
        try:
            _compute(theirs, judged, run.rankings, values, per_query)
        except ArithmeticError:  # of one of them: ir_measures divides by nothing where Accuracy has no pairs
            reasons |= _one_by_one(theirs, judged, run.rankings, values, per_query)
    return Evaluation(
        values=values,
        queries=len(judged),
        unjudged=tuple(sorted(set(sample_ids) - set(judged))),
        without_hits=tuple(query for query in judged if not run.rankings.get(query)),
        tied_queries=tuple(query for query in run.tied_queries if query in judged),
        reasons=reasons,
        per_query=per_query,
        means=frozenset(str(each) for each in known if _is_mean(each)),
        cut_short={str(each): short for each in known if (short := _cut_short(each, run, judged)) is not None},
    )


def _why_not(measure: Any, run: Run, *, hits_alone: bool) -> str | None:
    """Why a measure has no value here, where it has none."""
    if isinstance(measure, AnswerRecall):
        if not hits_alone:
            return _NO_ANSWERS
        return None if run.depths is not None and run.depths.keys() >= run.rankings.keys() else _NO_DEPTHS
    return _UNKNOWN if hits_alone and measure.NAME not in OF_HITS_ALONE else None


def _is_mean(measure: Any) -> bool:
    from ir_measures.measures import MeanAgg

    return isinstance(measure, AnswerRecall) or isinstance(measure.aggregator(), MeanAgg)


def _answers_found(measure: AnswerRecall, run: Run, judged: Qrels) -> dict[str, float]:
    """1 for each query that has an answer within the measure's tokens, 0 for each other one."""
    depths = run.depths or {}
    found = {query: depths[query].found if query in depths else None for query in judged}
    return {query: float(depth is not None and depth <= measure.tokens) for query, depth in found.items()}


def _cut_short(measure: Any, run: Run, judged: Qrels) -> CutShort | None:
    """Queries that count 0 though not all of the measure's tokens were looked at."""
    if not isinstance(measure, AnswerRecall):
        return None
    seen = {query: depth.tokens for query, depth in (run.depths or {}).items() if depth.found is None}
    short = {query: seen[query] for query in judged if seen.get(query, measure.tokens) < measure.tokens}
    if not short:
        return None
    hits = {query: len(run.rankings.get(query, ())) for query in short}
    return CutShort(
        tuple(short), max(math.ceil(hits[query] * measure.tokens / max(short[query], 1)) for query in short)
    )


def _compute(
    measures: Sequence[Any],
    judged: Qrels,
    rankings: Mapping[str, tuple[str, ...]],
    values: dict[str, float | None],
    per_query: dict[str, dict[str, float]],
) -> None:
    """Have ir_measures compute measures, a part of the queries at a time, and add what it says."""
    aggregators = {measure: measure.aggregator() for measure in measures}
    for metric in _metrics(measures, judged, rankings):
        value = _counted(metric.measure, judged[metric.query_id])
        value = float(metric.value) if value is None else value
        aggregators[metric.measure].add(value)
        per_query.setdefault(str(metric.measure), {})[metric.query_id] = value
    for measure, aggregator in aggregators.items():
        found = per_query.setdefault(str(measure), {})
        for query in judged.keys() - found.keys():  # Accuracy, asked for alone, leaves out queries
            aggregator.add(measure.DEFAULT)
            found[query] = float(measure.DEFAULT)
        values[str(measure)] = float(aggregator.result())


def _counted(measure: Any, judged: dict[str, int]) -> float | None:
    """What counts judgements alone: ir_measures would leave out those of queries without results."""
    if measure.NAME == "NumQ":
        return 1.0
    return float(sum(grade >= measure["rel"] for grade in judged.values())) if measure.NAME == "NumRel" else None


def _one_by_one(
    measures: Sequence[Any],
    judged: Qrels,
    rankings: Mapping[str, tuple[str, ...]],
    values: dict[str, float | None],
    per_query: dict[str, dict[str, float]],
) -> dict[str, str]:
    """As :func:`_compute`, each measure on its own; the reasons of those that cannot be computed."""
    reasons = {}
    for measure in measures:
        per_query.pop(str(measure), None)
        try:
            _compute([measure], judged, rankings, values, per_query)
        except ArithmeticError as error:
            per_query.pop(str(measure), None)
            reasons[str(measure)] = f"ir_measures cannot compute it for every query: {error}"
    return reasons


def _metrics(measures: Sequence[Any], judged: Qrels, rankings: Mapping[str, tuple[str, ...]]) -> Iterator[Any]:
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


def _parts(judged: Qrels, rankings: Mapping[str, tuple[str, ...]]) -> Iterator[list[str]]:
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
