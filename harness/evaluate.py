"""A stored run and its judgements -> effectiveness measures; every value is computed by ir_measures.

The ranking that is judged is the ranking that was timed.  ir_measures' providers order a run by score and break
equal scores by document id, one upwards (RR@k), one downwards (nDCG@k).  So they are given scores made from
the run's own ranks: the same values wherever scores differ, and one ranking for all measures where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.measure_names import OF_HITS_ALONE
from harness.result import JUDGED_HITS
from harness.trec_files import Qrels, Run

_UNKNOWN = "needs all relevant documents; only those retrieved were judged, by the answers in their texts"


@dataclass(frozen=True)
class Evaluation:
    """Measures over the judged queries of a sample.

    ``values`` maps each measure, as ir_measures writes it, to its aggregate over ``queries`` queries (``None`` when
    none is judged, or where ``reasons`` says why not).  ``unjudged`` queries of the sample are left out of it;
    ``without_hits`` are judged and count 0.  ``per_query`` maps each measure to the value of each judged query;
    ``means`` are the measures whose aggregate is the mean of those.
    """

    values: dict[str, float | None]
    queries: int
    unjudged: tuple[str, ...]
    without_hits: tuple[str, ...]
    tied_queries: tuple[str, ...]
    reasons: dict[str, str] = field(default_factory=dict)
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    means: frozenset[str] = frozenset()


def of_hits_alone(path: Path) -> bool:
    """Whether a file of judgements holds a run's own hits and nothing of what the run did not find."""
    return path.name == JUDGED_HITS


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
    import ir_measures

    strangers = sorted(set(run.rankings) - set(sample_ids))
    if strangers:
        raise UsageError(f"the run holds {len(strangers)} queries that are not in the sample, e.g. {strangers[0]!r}")
    judged = {query: qrels[query] for query in sorted(set(sample_ids)) if qrels.get(query)}
    if hits_alone:
        # No document has the empty id: a query without hits is judged, and has found nothing.
        judged = {query: qrels.get(query) or {"": 0} for query in sorted(set(sample_ids))}
    reasons = {str(each): _UNKNOWN for each in measures if hits_alone and each.NAME not in OF_HITS_ALONE}
    known = [each for each in measures if str(each) not in reasons]
    scores = {
        query: {document: float(-rank) for rank, document in enumerate(run.rankings[query])}
        for query in judged
        if run.rankings.get(query)
    }
    values: dict[str, float | None] = {str(measure): None for measure in measures}
    per_query: dict[str, dict[str, float]] = {}
    if judged and known:
        found: Any = ir_measures.calc(known, judged, scores)
        values |= {str(measure): float(found.aggregated[measure]) for measure in known}
        for metric in found.per_query:
            per_query.setdefault(str(metric.measure), {})[metric.query_id] = float(metric.value)
    return Evaluation(
        values=values,
        queries=len(judged),
        unjudged=tuple(sorted(set(sample_ids) - set(judged))),
        without_hits=tuple(sorted(set(judged) - set(scores))),
        tied_queries=tuple(query for query in run.tied_queries if query in judged),
        reasons=reasons,
        per_query=per_query,
        means=frozenset(str(each) for each in known if isinstance(each.aggregator(), ir_measures.measures.MeanAgg)),
    )
