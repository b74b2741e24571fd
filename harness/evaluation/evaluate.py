"""A run and its judgements -> effectiveness measures; every value but that of R@2kt is computed by ir_measures.

The ranking that is judged is the ranking that was timed.  ir_measures' providers order a run by score and break
equal scores by document id, one upwards (RR@k), one downwards (nDCG@k).  So they are given scores made from
the run's own ranks: the same values wherever scores differ, and one ranking for all measures where they do not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness import stats
from harness.errors import UsageError
from harness.evaluation import providers
from harness.evaluation.measure_names import OF_HITS_ALONE, AnswerRecall
from harness.evaluation.providers import Computed
from harness.evaluation.trec import Qrels, Run
from harness.stats import Estimate

_UNKNOWN = "needs all relevant documents; only those retrieved were judged, by the answers in their texts"
_NO_ANSWERS = "needs a dataset that has answers; this one has judgements of documents"
_NO_LANGUAGES = "needs each question's language, which was not stored with this job; run its suite again with --fresh"
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


def evaluate(
    run: Run, qrels: Qrels, sample_ids: Sequence[str], measures: Sequence[Any], *, hits_alone: bool = False
) -> Evaluation:
    """Judge a run over a query sample.

    Args:
        run: rankings; a query of the sample that it lacks got no hits and counts 0.
        qrels: judgements; those of queries outside the sample play no part.
        sample_ids: the sample that was timed.
        measures: as :func:`harness.evaluation.measure_names.parse` gives them.
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
    reasons = {str(each): why for each in measures if (why := _why_not(each, run, judged, hits_alone=hits_alone))}
    known = [each for each in measures if str(each) not in reasons]
    theirs = [each for each in known if not isinstance(each, AnswerRecall)]
    found = providers.compute(theirs, judged, run.rankings) if judged and theirs else Computed()
    for measure in known if judged else ():
        if isinstance(measure, AnswerRecall):
            of_queries = _answers_found(measure, run, judged)
            of_queries = _weighted(of_queries, run) if measure.by_language else of_queries
            found.per_query[str(measure)] = of_queries
            found.values[str(measure)] = sum(of_queries.values()) / len(of_queries)
    return Evaluation(
        values={str(each): found.values.get(str(each)) for each in measures},
        queries=len(judged),
        unjudged=tuple(sorted(set(sample_ids) - set(judged))),
        without_hits=tuple(query for query in judged if not run.rankings.get(query)),
        tied_queries=tuple(query for query in run.tied_queries if query in judged),
        reasons=reasons | found.reasons,
        per_query=found.per_query,
        means=frozenset(str(each) for each in known if is_mean(each)),
        cut_short={str(each): short for each in known if (short := _cut_short(each, run, judged)) is not None},
    )


def _why_not(measure: Any, run: Run, judged: Qrels, *, hits_alone: bool) -> str | None:
    """Why a measure has no value here, where it has none."""
    if isinstance(measure, AnswerRecall):
        if not hits_alone:
            return _NO_ANSWERS
        if run.depths is None or not run.depths.keys() >= run.rankings.keys():
            return _NO_DEPTHS
        known = all(query in run.depths and run.depths[query].language for query in judged)
        return _NO_LANGUAGES if measure.by_language and not known else None
    return _UNKNOWN if hits_alone and measure.NAME not in OF_HITS_ALONE else None


def is_mean(measure: Any) -> bool:
    """Whether a measure's aggregate is the mean of its values by query."""
    from ir_measures.measures import MeanAgg

    if isinstance(measure, AnswerRecall):
        return not measure.by_language
    return isinstance(measure.aggregator(), MeanAgg)


def _answers_found(measure: AnswerRecall, run: Run, judged: Qrels) -> dict[str, float]:
    """1 for each query that has an answer within the measure's tokens, 0 for each other one."""
    depths = run.depths or {}
    found = {query: depths[query].found if query in depths else None for query in judged}
    return {query: float(depth is not None and depth <= measure.tokens) for query, depth in found.items()}


def _weighted(values: dict[str, float], run: Run) -> dict[str, float]:
    """Weigh queries so that their mean is the mean over languages of each language's mean."""
    languages = {query: depth.language for query, depth in (run.depths or {}).items() if query in values}
    counts = Counter(languages.values())
    return {query: value * len(values) / (len(counts) * counts[languages[query]]) for query, value in values.items()}


def _cut_short(measure: Any, run: Run, judged: Qrels) -> CutShort | None:
    """Queries that count 0 though not all of the measure's tokens were looked at."""
    if not isinstance(measure, AnswerRecall):
        return None
    seen = {
        query: depth.tokens
        for query, depth in (run.depths or {}).items()
        if depth.found is None and run.rankings.get(query)
    }
    short = {query: seen[query] for query in judged if seen.get(query, measure.tokens) < measure.tokens}
    if not short:
        return None
    hits = {query: len(run.rankings.get(query, ())) for query in short}
    return CutShort(
        tuple(short), max(math.ceil(hits[query] * measure.tokens / max(short[query], 1)) for query in short)
    )


# MERGED harness.evaluation.evaluate: A measure as a figure: its value with the interval for queries like these, or the
# reason why there is none.


METHOD = (
    "95 % over queries, corrected for skew (Hall 1992); of values that are 0 or 1, or nearly all the same, Clopper and "
    "Pearson's"
)
# With fewer values beside the most frequent one, the spread of a sample says too little.
_FEWEST_OTHERS = 5


def figure(judged: Evaluation, name: str) -> Estimate:
    """A measure with its 95 % interval over queries, where it is a mean over them."""
    value = judged.values[name]
    if value is None:
        none = None if judged.queries else "no query of the sample has judgements"
        return Estimate(None, reason=none or judged.reasons.get(name))
    if name not in judged.means:
        return Estimate(value, reason="no interval: it is no mean over queries")
    return replace(mean(judged.per_query[name]), value=value)


def mean(values: Mapping[str, float]) -> Estimate:
    """The mean of a measure over some queries with that interval.

    Args:
        values: by query, at least one; they are added in the order of their ids.
    """
    ordered = np.asarray([values[query] for query in sorted(values)], dtype=np.float64)
    bounded = bool(ordered.min() >= 0 and ordered.max() <= 1)
    others = len(ordered) - int(np.unique(ordered, return_counts=True)[1].max())
    if not bounded and not others:
        return Estimate(float(ordered[0]), reason="every query has the same value: no interval")
    if not bounded or len(ordered) < stats.INTERVAL_MIN_QUERIES:
        return stats.mean(ordered)
    if others < _FEWEST_OTHERS or np.isin(ordered, (0, 1)).all():
        return stats.proportion(float(ordered.sum()), len(ordered))
    return stats.mean(ordered, floor=0.0, ceiling=1.0)
