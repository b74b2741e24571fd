"""Judgements thinned out at random, many times over, and what runs are worth by each of the draws.

Draws share most of what they keep of a query: each distinct remainder is judged once, however many draws have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.evaluation import measure_names, providers
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Keep:
    """What is left of judgements: at most so many relevant ones of each query, or a share of all; one of the two."""

    relevant: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        if self.share is not None:
            return f"{100 * self.share:.3g} % of all"
        return f"at most {self.relevant} relevant a query"


def parse(text: str) -> Keep:
    """``5``: at most five relevant judgements of each query; ``0.5`` or ``50%``: a share of all judgements.

    Raises:
        UsageError: it is neither.
    """
    if re.fullmatch(r"[1-9][0-9]{0,5}", text):
        return Keep(relevant=int(text))
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)(%?)", text)
    share = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    if not 0 < share < 1:
        raise UsageError(
            f"--keep {text}: neither a number of relevant judgements a query (1, 5) nor a share of all (0.5, 50%)"
        )
    return Keep(share=share)


@dataclass(frozen=True)
class Drawn:
    """``qrels`` holds each distinct remainder under a name of its own, ``query_of`` whose it is.

    ``columns`` has shape (draws, queries): where in ``qrels`` the remainder of each query is, -1 where a draw has left
    the query without any judgement.
    """

    qrels: Qrels
    query_of: Mapping[str, str]
    columns: Ints

    @property
    def alike(self) -> bool:
        """Whether all draws are one: there was nothing to take away, or nothing to choose."""
        return bool((self.columns == self.columns[0]).all())

    def first(self) -> Drawn:
        """The first draw alone."""
        return Drawn(self.qrels, self.query_of, self.columns[:1])


def draw(qrels: Qrels, query_ids: Sequence[str], keep: Keep, draws: int, seed: int) -> Drawn:
    """Thin judgements out.

    ``Keep.relevant`` keeps relevant judgements (grade above 0) at random and none of the others, as collections with
    sparse labels do; ``Keep.share`` keeps a share of all judgements of all queries at random, whatever their grade.

    Args:
        qrels: all judgements.
        query_ids: the queries that count; those that are not judged stay out.
        keep: how many.
        draws: how often.
        seed: of the draws.
    """
    judged = [query for query in dict.fromkeys(query_ids) if qrels.get(query)]
    found: Qrels = {}
    query_of: dict[str, str] = {}
    places: dict[tuple[str, tuple[str, ...]], int] = {}
    columns = np.full((draws, len(judged)), -1, dtype=np.int64)
    rng = np.random.default_rng(seed)
    for number in range(draws):
        for column, (query, kept) in enumerate(_one(judged, qrels, keep, rng)):
            if not kept:
                continue
            place = places.setdefault((query, kept), len(places))
            if place == len(found):
                # Ids are no more than names here; a tab stands in none.
                name = f"{query}\t{place}"
                found[name] = {document: qrels[query][document] for document in kept}
                query_of[name] = query
            columns[number, column] = place
    return Drawn(found, query_of, columns)


def _one(
    judged: Sequence[str], qrels: Qrels, keep: Keep, rng: np.random.Generator
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """One draw: what each query keeps, in the order of its judgements."""
    if keep.relevant is not None:
        for query in judged:
            relevant = [document for document, grade in qrels[query].items() if grade > 0]
            if len(relevant) > keep.relevant:
                chosen = np.sort(rng.choice(len(relevant), keep.relevant, replace=False))
                relevant = [relevant[place] for place in chosen]
            yield query, tuple(relevant)
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


def means(
    runs: JudgedRuns, drawn: Drawn, measure: Any, step: Callable[[int, int], None] = lambda _done, _total: None
) -> Floats:
    """Each run's mean over the queries that are still judged, of shape (draws, systems); ``nan``: none is.

    Args:
        runs: which.
        drawn: of their judgements.
        measure: whose aggregate is a mean.
        step: is told how many of how many remainders are judged.

    Raises:
        UsageError: the measure cannot be computed by what is left.
    """
    known = drawn.columns >= 0
    counts = known.sum(axis=1)
    depth = None if measure.params.get("judged_only") else measure_names.cutoff(measure)
    rankings = [{query: hits[:depth] for query, hits in run.rankings.items()} for run in runs.runs.values()]
    found = []
    for judged in providers.compute_each((measure,), drawn.qrels, rankings, drawn.query_of, step):
        if str(measure) in judged.reasons:
            raise UsageError(f"{measure} {judged.reasons[str(measure)]}")
        values = np.asarray([judged.per_query[str(measure)][name] for name in drawn.qrels], dtype=np.float64)
        sums = np.where(known, values[drawn.columns], 0.0).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(sums / counts)
    return np.stack(found, axis=1)
