"""Evaluate a run against qrels; ir_measures computes every measure but R@2kt.

The evaluated ranking is the ranking that was timed.  ir_measures' providers order a run by score and break ties by
document id, some upwards (RR@k), some downwards (nDCG@k).  So harness gives them scores made from the run's own ranks:
the same values wherever scores differ, and one ranking for all measures where they do not.  This module also avoids
three traps of the providers: a lost query, an endless loop, and one failure that costs every measure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from subprocess import SubprocessError
from typing import Any

import numpy as np

from harness import stats
from harness.errors import UsageError
from harness.estimate import INTERVAL_MIN_QUERIES, Estimate
from harness.evaluation.answer_recall import AnswerRecall, TruncatedHits
from harness.evaluation.gdeval import GdevalEvaluator
from harness.evaluation.measure_names import MAX_GDEVAL_GRADE, OF_HITS_ALONE, F1AtCutoff, SetAtCutoff
from harness.evaluation.trec import Qrels, Run
from harness.progress import Progress, silent

INTERVAL_METHOD = (
    "95 % over queries, corrected for skew (Hall 1992); of values that are 0 or 1, or nearly all the same, Clopper and "
    "Pearson's"
)
# With fewer values that differ from the most frequent one, the spread of a sample says too little.
_MIN_OTHERS = 5
_NEEDS_ALL_RELEVANT = "needs all relevant documents; only those retrieved were judged, by the answers in their texts"
_NO_ANSWERS = "needs a dataset with answers; this one has judgements of documents"
_NO_LANGUAGES = "needs each question's language, which was not stored with this job; run its suite again with --fresh"
_NO_DEPTHS = "the depth of answers was not stored when this was measured; run its suite again with --fresh"
# Hits and judgements that ir_measures gets at a time, some 300 bytes each.
_MAX_ROWS = 1_000_000
# Errors of providers on input that they cannot take: Accuracy divides by 0 without pairs, gdeval's process fails,
# pytrec_eval refuses a type.  The other measures are not affected.
_PROVIDER_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError),
    SubprocessError,
)

Rankings = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Evaluation:
    """Measures over the judged queries of a sample.

    ``values`` maps each measure's name to its aggregate over ``queries`` queries (``None`` if none is judged, or for
    one of ``reasons``).  ``unjudged`` queries of the sample are left out; ``without_hits`` are judged and count 0.
    ``per_query`` maps each measure to the value of each judged query; ``means`` are the measures whose aggregate is the
    mean of those.  ``truncated``: see :meth:`harness.evaluation.answer_recall.AnswerRecall.truncated`.
    """

    values: dict[str, float | None]
    queries: int
    unjudged: tuple[str, ...]
    without_hits: tuple[str, ...]
    tied_queries: tuple[str, ...]
    reasons: dict[str, str] = field(default_factory=dict)
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    means: frozenset[str] = frozenset()
    truncated: dict[str, TruncatedHits] = field(default_factory=dict)


def evaluate(
    run: Run, qrels: Qrels, sample_ids: Sequence[str], measures: Sequence[Any], *, hits_alone: bool = False
) -> Evaluation:
    """Evaluate a run over a sample of queries.

    Args:
        run: a query of the sample that it lacks has no hits and counts 0.
        qrels: judgements; queries outside the sample are ignored.
        sample_ids: queries that were timed.
        measures: from :func:`harness.evaluation.measure_names.parse`.
        hits_alone: only hits are judged (:func:`harness.results.reader.judges_hits_alone`).  All queries are judged
            then, and measures that need all relevant documents (nDCG, R, AP ...) have no value.

    Raises:
        UsageError: the run has a query that is not in the sample.
    """
    unknown = sorted(set(run.rankings) - set(sample_ids))
    if unknown:
        raise UsageError(f"the run has {len(unknown)} queries that are not in the sample, e.g. {unknown[0]!r}")
    judged = {query: qrels[query] for query in sorted(set(sample_ids)) if qrels.get(query)}
    if hits_alone:
        # A query without hits is judged too: no document has the empty id.
        judged = {query: qrels.get(query) or {"": 0} for query in sorted(set(sample_ids))}
    reasons = {
        str(measure): reason
        for measure in measures
        if (reason := _missing_reason(measure, run, judged, hits_alone=hits_alone))
    }
    able = [measure for measure in measures if str(measure) not in reasons]
    recalls = [measure for measure in able if isinstance(measure, AnswerRecall)]
    others = [measure for measure in able if not isinstance(measure, AnswerRecall)]
    (computed,) = compute_runs(others, judged, (run.rankings,)) if judged and others else (ProviderValues(),)
    depths = run.depths or {}
    for measure in recalls if judged else ():
        values = measure.values(depths, judged)
        computed.per_query[str(measure)] = values
        computed.values[str(measure)] = sum(values.values()) / len(values)
    return Evaluation(
        values={str(measure): computed.values.get(str(measure)) for measure in measures},
        queries=len(judged),
        unjudged=tuple(sorted(set(sample_ids) - set(judged))),
        without_hits=tuple(query for query in judged if not run.rankings.get(query)),
        tied_queries=tuple(query for query in run.tied_queries if query in judged),
        reasons=reasons | computed.reasons,
        per_query=computed.per_query,
        means=frozenset(str(measure) for measure in able if is_mean(measure)),
        truncated={
            str(measure): truncated
            for measure in recalls
            if (truncated := measure.truncated(depths, run.rankings, judged)) is not None
        },
    )


def _missing_reason(measure: Any, run: Run, judged: Qrels, *, hits_alone: bool) -> str | None:
    """Return why a measure has no value for this run, if so."""
    if isinstance(measure, AnswerRecall):
        if not hits_alone:
            return _NO_ANSWERS
        if run.depths is None or not run.depths.keys() >= run.rankings.keys():
            return _NO_DEPTHS
        languages = all(query in run.depths and run.depths[query].language for query in judged)
        return _NO_LANGUAGES if measure.by_language and not languages else None
    return _NEEDS_ALL_RELEVANT if hits_alone and measure.NAME not in OF_HITS_ALONE else None


def is_mean(measure: Any) -> bool:
    """Return whether a measure's aggregate is the mean over queries."""
    from ir_measures.measures import MeanAgg

    if isinstance(measure, AnswerRecall):
        return not measure.by_language
    return isinstance(measure.aggregator(), MeanAgg)


def estimate(evaluation: Evaluation, name: str) -> Estimate:
    """Return a measure's value with its 95 % interval over queries, or with the reason why one is missing."""
    value = evaluation.values[name]
    if value is None:
        unjudged = None if evaluation.queries else "no query of the sample has judgements"
        return Estimate(None, reason=unjudged or evaluation.reasons.get(name))
    if name not in evaluation.means:
        return Estimate(value, reason="no interval: it is not a mean over queries")
    return replace(mean_estimate(evaluation.per_query[name]), value=value)


def mean_estimate(values: Mapping[str, float]) -> Estimate:
    """Return the mean of one or more queries' values with its 95 % interval; sum them in the order of query ids."""
    ordered = np.asarray([values[query] for query in sorted(values)], dtype=np.float64)
    bounded = bool(ordered.min() >= 0 and ordered.max() <= 1)
    others = len(ordered) - int(np.unique(ordered, return_counts=True)[1].max())
    if not bounded and not others:
        return Estimate(float(ordered[0]), reason="every query has the same value: no interval")
    if not bounded or len(ordered) < INTERVAL_MIN_QUERIES:
        return stats.mean(ordered)
    if others < _MIN_OTHERS or np.isin(ordered, (0, 1)).all():
        return stats.proportion(float(ordered.sum()), len(ordered))
    return stats.mean(ordered, floor=0.0, ceiling=1.0)


@dataclass
class ProviderValues:
    """Results of ir_measures by measure: the aggregate, each query's value, or why there is none."""

    values: dict[str, float] = field(default_factory=dict)
    per_query: dict[str, dict[str, float]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def compute_runs(
    measures: Sequence[Any],
    judged: Qrels,
    runs: Sequence[Rankings],
    query_of: Mapping[str, str] | None = None,
    step: Progress = silent,
) -> list[ProviderValues]:
    """Have ir_measures compute measures of several runs; providers read the judgements once for all of them.

    Args:
        measures: of ir_measures, and measures that :mod:`harness.evaluation.measure_names` derives.
        judged: at least one query, each with at least one judgement.
        runs: each run's document ids by query, best first; a missing query has no results.
        query_of: the query whose ranking an entry of ``judged`` is for; by default the one of its name.
        step: gets the numbers of scored rankings and of all.
    """
    reasons = {str(measure): reason for measure in measures if (reason := _provider_limit(measure, judged)) is not None}
    able = [measure for measure in measures if str(measure) not in reasons]
    scorer = _Scorer(judged, query_of or {name: name for name in judged}, step)
    try:
        computed = scorer.compute(able, runs)
    except _PROVIDER_ERRORS:  # of one measure, of one run
        computed = [scorer.compute_apart(able, rankings) for rankings in runs]
    for values in computed:
        values.reasons |= reasons
    return computed


def _provider_limit(measure: Any, judged: Qrels) -> str | None:
    """Return why a measure's provider would refuse these judgements, if it would."""
    if isinstance(measure, (F1AtCutoff, SetAtCutoff)) or _provider(measure) != "gdeval":
        return None
    rows = ((grade, query, document) for query, grades in judged.items() for document, grade in grades.items())
    grade, query, document = max(rows)
    named = f"document {document!r} of query {query!r} has grade {grade}"
    return f"knows grades up to {MAX_GDEVAL_GRADE} (gdeval computes it); {named}" if grade > MAX_GDEVAL_GRADE else None


def _provider(measure: Any) -> str:
    """Return the name of the ir_measures provider that computes a measure."""
    import ir_measures

    providers = ir_measures.DefaultPipeline.providers
    return next((item.NAME for item in providers if item.is_available() and item.supports(measure)), "")


# Measures by name, and the evaluator that computes them.
_Evaluator = tuple[Mapping[str, Any], Any]


@dataclass(frozen=True)
class _Scorer:
    """Judged entries, the query of each, and a callback for progress."""

    judged: Qrels
    query_of: Mapping[str, str]
    step: Progress

    def compute_apart(self, measures: Sequence[Any], rankings: Rankings) -> ProviderValues:
        """Compute each measure alone, so that a provider's failure costs one measure only."""
        computed = ProviderValues()
        for measure in measures:
            try:
                (alone,) = self.compute([measure], (rankings,))
            except _PROVIDER_ERRORS as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                computed.reasons[str(measure)] = f"cannot be computed for every query: {reason}"
            else:
                computed.values |= alone.values
                computed.per_query |= alone.per_query
        return computed

    def compute(self, measures: Sequence[Any], runs: Sequence[Rankings]) -> list[ProviderValues]:
        """Compute measures of each run; a provider's errors pass through."""
        # ir_measures' own measures, by the depth at which rankings are cut.
        cuts: dict[int | None, dict[str, Any]] = defaultdict(dict)
        for measure in measures:
            if isinstance(measure, F1AtCutoff):
                cuts[None] |= {str(part): part for part in (measure.precision, measure.recall)}
            elif isinstance(measure, SetAtCutoff):
                cuts[measure.depth][str(measure)] = measure.whole
            else:
                cuts[None][str(measure)] = measure
        values: list[dict[str, dict[str, float]]] = [defaultdict(dict) for _ in runs]
        done, total = 0, len(self.judged) * len(cuts) * len(runs)
        for part in self._parts(runs):
            for depth, named in cuts.items():
                evaluators = self._evaluators(part, named)
                for rankings, of_run in zip(runs, values, strict=True):
                    self.step(done, total)
                    self._score(part, depth, evaluators, rankings, of_run)
                    done += len(part)
        return [_aggregate(measures, of_run) for of_run in values]

    def _parts(self, runs: Sequence[Rankings]) -> Iterator[list[str]]:
        """Yield the judged entries in parts of limited size."""
        part: list[str] = []
        size = 0
        for name, documents in self.judged.items():
            part.append(name)
            size += len(documents) + max(len(rankings.get(self.query_of[name], ())) for rankings in runs)
            if size >= _MAX_ROWS:
                yield part
                part, size = [], 0
        if part:
            yield part

    def _evaluators(self, part: Sequence[str], named: Mapping[str, Any]) -> list[_Evaluator]:
        """Return an evaluator of gdeval's measures, and one of all others.

        Each entry of the others gets a grade of 0 or more: pytrec_eval 0.5 reads foreign memory for a query without
        one, and may never return.  No document has the empty id, so the added one is neither relevant nor retrieved.
        """
        import ir_measures

        of_gdeval = {name: measure for name, measure in named.items() if _provider(measure) == "gdeval"}
        others = {name: measure for name, measure in named.items() if name not in of_gdeval}
        judged = {name: self.judged[name] for name in part}
        evaluators: list[_Evaluator] = []
        if others:
            qrels = {name: own if max(own.values()) >= 0 else {**own, "": 0} for name, own in judged.items()}
            evaluators.append((others, ir_measures.evaluator(list(others.values()), qrels)))
        if of_gdeval:
            evaluators.append((of_gdeval, GdevalEvaluator(list(of_gdeval.values()), judged)))
        return evaluators

    def _score(
        self,
        part: Sequence[str],
        depth: int | None,
        evaluators: Sequence[_Evaluator],
        rankings: Rankings,
        values: Mapping[str, dict[str, float]],
    ) -> None:
        """Add the values of a part of the entries, with rankings cut at a depth."""
        # Entries of one query share its scores.
        scores = {
            query: {document: float(-rank) for rank, document in enumerate(ranking[:depth])}
            for query in dict.fromkeys(self.query_of[name] for name in part)
            if (ranking := rankings.get(query))
        }
        scored = {name: scores[query] for name in part if (query := self.query_of[name]) in scores}
        for measures, evaluator in evaluators:
            by_measure: dict[Any, dict[str, float]] = defaultdict(dict)
            last, by_id = None, {}
            for metric in evaluator.iter_calc(scored):
                if metric.measure is not last:  # hashing it takes a third of the time: its text is made once
                    last, by_id = metric.measure, by_measure[metric.measure]
                by_id[metric.query_id] = float(metric.value)
            for name, measure in measures.items():
                by_id = by_measure[measure]
                for query in part:
                    count = _judgement_count(measure, self.judged[query])
                    # Accuracy, computed alone, leaves out queries.
                    values[name][query] = by_id.get(query, float(measure.DEFAULT)) if count is None else count


def _judgement_count(measure: Any, judged: dict[str, int]) -> float | None:
    """Return NumQ and NumRel of a query: ir_measures leaves out queries without results."""
    if measure.NAME == "NumQ":
        return 1.0
    return float(sum(grade >= measure["rel"] for grade in judged.values())) if measure.NAME == "NumRel" else None


def _aggregate(measures: Sequence[Any], values: Mapping[str, dict[str, float]]) -> ProviderValues:
    computed = ProviderValues()
    for measure in measures:
        name = str(measure)
        if isinstance(measure, F1AtCutoff):
            precision, recall = values[str(measure.precision)], values[str(measure.recall)]
            computed.per_query[name] = {query: _harmonic(precision[query], recall[query]) for query in precision}
        else:
            computed.per_query[name] = dict(values[name])
        aggregator = measure.aggregator()
        for value in computed.per_query[name].values():
            aggregator.add(value)
        computed.values[name] = float(aggregator.result())
    return computed


def _harmonic(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one + other else 0.0
