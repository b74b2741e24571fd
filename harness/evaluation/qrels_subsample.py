"""Subsample qrels at random, many times, and evaluate runs by each draw.

Draws share most subsets of a query's judgements: each distinct subset is evaluated once, however many draws have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.errors import UsageError
from harness.evaluation import measure_names
from harness.evaluation.evaluate import compute_runs
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels
from harness.progress import Progress, silent
from harness.stats import Floats, Ints


@dataclass(frozen=True)
class KeepRule:
    """Judgements to keep: at most ``relevant`` relevant ones of each query, or a ``share`` of all.

    Relevant ones of the best grades are kept first, as Arabzadeh and Clarke (2024, section 5) do; with ``any_grade``
    chance alone decides.
    """

    relevant: int | None = None
    share: float | None = None
    any_grade: bool = False

    def __str__(self) -> str:
        if self.share is not None:
            return f"{100 * self.share:.3g} % of all"
        return f"at most {self.relevant} relevant a query{', of any grade' if self.any_grade else ''}"


def parse_keep(text: str) -> KeepRule:
    """Parse ``5`` (at most five relevant judgements of each query), ``0.5`` or ``50%`` (a share of all judgements).

    Raises:
        UsageError: it is neither.
    """
    if re.fullmatch(r"[1-9][0-9]{0,5}", text):
        return KeepRule(relevant=int(text))
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)(%?)", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise UsageError(f"--keep {text}: write a number of relevant judgements (1, 5) or a share of all (0.5, 50%)")
    return KeepRule(share=share)


@dataclass(frozen=True)
class QrelsDraws:
    """Draws: ``qrels`` has each distinct subset under its own name, ``query_of`` the query of each.

    ``columns``, shape (draws, queries), has the index in ``qrels`` of each query's subset; -1 where a draw left the
    query no judgement.
    """

    qrels: Qrels
    query_of: Mapping[str, str]
    columns: Ints

    @property
    def alike(self) -> bool:
        """True if all draws are the same: there was nothing to remove, or no choice."""
        return bool((self.columns == self.columns[0]).all())

    def first(self) -> QrelsDraws:
        """Return the first draw alone."""
        return QrelsDraws(self.qrels, self.query_of, self.columns[:1])


def draw_qrels(qrels: Qrels, query_ids: Sequence[str], keep: KeepRule, draws: int, seed: int) -> QrelsDraws:
    """Subsample qrels ``draws`` times.

    ``keep.relevant`` keeps relevant judgements (grade above 0) and no others, as collections with sparse labels have:
    the best grades first, equal grades at random, or any at random with ``keep.any_grade``.  ``keep.share`` keeps a
    share of all judgements of all queries at random, of any grade.  Unjudged queries of ``query_ids`` are left out.
    """
    judged = [query for query in dict.fromkeys(query_ids) if qrels.get(query)]
    subsets: Qrels = {}
    query_of: dict[str, str] = {}
    indexes: dict[tuple[str, tuple[str, ...]], int] = {}
    columns = np.full((draws, len(judged)), -1, dtype=np.int64)
    rng = np.random.default_rng(seed)
    for number in range(draws):
        for column, (query, kept) in enumerate(_draw_once(judged, qrels, keep, rng)):
            if not kept:
                continue
            index = indexes.setdefault((query, kept), len(indexes))
            if index == len(subsets):
                # No id has a tab, so the name is unique.
                name = f"{query}\t{index}"
                subsets[name] = {document: qrels[query][document] for document in kept}
                query_of[name] = query
            columns[number, column] = index
    return QrelsDraws(subsets, query_of, columns)


def _draw_once(
    judged: Sequence[str], qrels: Qrels, keep: KeepRule, rng: np.random.Generator
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each query's kept documents, in the order of its judgements."""
    if keep.relevant is not None:
        for query in judged:
            relevant = {document: grade for document, grade in qrels[query].items() if grade > 0}
            chosen = _draw_relevant(relevant, keep.relevant, rng, any_grade=keep.any_grade)
            yield query, tuple(document for document in relevant if document in chosen)
        return
    assert keep.share is not None
    total = sum(len(qrels[query]) for query in judged)
    kept = np.zeros(total, dtype=bool)
    kept[rng.choice(total, max(1, round(keep.share * total)), replace=False)] = True
    start = 0
    for query in judged:
        flags = kept[start : start + len(qrels[query])]
        start += len(flags)
        yield query, tuple(document for document, flag in zip(qrels[query], flags, strict=True) if flag)


def _draw_relevant(
    relevant: Mapping[str, int], most: int, rng: np.random.Generator, *, any_grade: bool
) -> frozenset[str]:
    """Return at most ``most`` documents: the better grades whole, and a random part of the last grade."""
    kept: list[str] = []
    grades = [None] if any_grade else sorted(set(relevant.values()), reverse=True)
    for grade in grades:
        equal = [document for document, own in relevant.items() if grade in (None, own)]
        room = most - len(kept)
        if len(equal) > room:
            equal = [equal[index] for index in rng.choice(len(equal), room, replace=False)]
        kept += equal
    return frozenset(kept)


def mean_per_draw(runs: JudgedRuns, draws: QrelsDraws, measure: Any, step: Progress = silent) -> Floats:
    """Return each run's mean over the queries that a draw still judges, shape (draws, systems); ``nan``: none.

    Args:
        runs: runs over the sample.
        draws: subsets of their qrels.
        measure: one whose aggregate is a mean.
        step: gets the numbers of evaluated subsets and of all.

    Raises:
        UsageError: the measure cannot be computed from the remaining judgements.
    """
    judged = draws.columns >= 0
    counts = judged.sum(axis=1)
    depth = None if measure.params.get("judged_only") else measure_names.cutoff(measure)
    rankings = [{query: hits[:depth] for query, hits in run.rankings.items()} for run in runs.runs.values()]
    means = []
    for computed in compute_runs((measure,), draws.qrels, rankings, draws.query_of, step):
        if str(measure) in computed.reasons:
            raise UsageError(f"{measure} {computed.reasons[str(measure)]}")
        values = np.asarray([computed.per_query[str(measure)][name] for name in draws.qrels], dtype=np.float64)
        sums = np.where(judged, values[draws.columns], 0.0).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            means.append(sums / counts)
    return np.stack(means, axis=1)
