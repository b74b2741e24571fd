"""Training queries that come again among those that a system is judged by, and what its measures are without them.

Two queries are near duplicates when their texts are the same but for case, white space and punctuation, or when their
vectors' cosine reaches a threshold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.errors import UsageError
from harness.evaluation import evaluate
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.query_similarity import normal
from harness.stats import Estimate

# Cosines that are looked at at once: 64 MiB of them.
_BLOCK = 1 << 24
# What float32 may take from a cosine; whatever comes so near is computed again in float64.
_SINGLE, _DOUBLE = 1e-5, 1e-9
MOST_PAIRS = 1_000_000
_SHOWN = 3


@dataclass(frozen=True)
class Leak:
    """A query of the sample and one of the training set; ``cosine`` is ``None`` where there are no vectors."""

    query_id: str
    training_id: str
    same_text: bool
    cosine: float | None = None


@dataclass(frozen=True)
class Effect:
    """A system's measure over all judged queries, without the leaked ones, and over those alone."""

    system: str
    measure: str
    all: Estimate
    without: Estimate
    leaked: Estimate
    queries: int
    queries_leaked: int


@dataclass(frozen=True)
class Leakage:
    """What leaked into one sample, and what it does to the measures of its runs.

    ``threshold`` is ``None`` where texts alone were compared; ``encoder`` names whose vectors were.  ``not_compared``
    queries have neither a word nor a vector: they are no part of the share that leaked.
    """

    dataset: str
    queries: Mapping[str, str]
    training: Mapping[str, str]
    leaks: tuple[Leak, ...]
    effects: tuple[Effect, ...]
    threshold: float | None
    encoder: str | None
    notes: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()

    @property
    def leaked(self) -> tuple[str, ...]:
        """The queries of the sample that leaked, in its order."""
        found = {leak.query_id for leak in self.leaks}
        return tuple(query for query in self.queries if query in found)


def same_texts(sample: Mapping[str, str], training: Mapping[str, str]) -> tuple[Leak, ...]:
    """Pairs of queries whose texts are the same once :func:`normal`; one without a text is like no other."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for name, text in training.items():
        by_text[normal(text)].append(name)
    return tuple(
        Leak(name, other, same_text=True)
        for name, text in sample.items()
        if (plain := normal(text))
        for other in by_text.get(plain, ())
    )


def near(
    sample: Embeddings,
    training: Embeddings,
    threshold: float,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Leak, ...]:
    """Pairs of queries whose cosine is at least ``threshold``, in the order of the sample.

    The training set's vectors are taken in blocks, so that memory holds those and a block's cosines and no more.

    Args:
        sample: vectors of the queries that systems are judged by.
        training: vectors of the training queries, by the same encoder.
        threshold: above 0, up to 1.
        progress: told how many training queries are done, and of how many.

    Raises:
        UsageError: a vector is zero, two encoders made them, or more than a million pairs are that near.
    """
    check_encoders(sample, training)
    ours, theirs = _lengths(sample), _lengths(training)
    unit = (sample.vectors / ours[:, None]).astype(np.float32)
    step = max(1, _BLOCK // max(1, len(unit)))
    found: list[tuple[int, int, float]] = []
    for start in range(0, len(training.ids), step):
        stop = min(start + step, len(training.ids))
        block = (training.vectors[start:stop] / theirs[start:stop, None]).astype(np.float32)
        rows, columns = np.nonzero(unit @ block.T >= threshold - _SINGLE)
        if len(found) + len(rows) > MOST_PAIRS:
            raise UsageError(
                f"more than {MOST_PAIRS:,} pairs of queries have a cosine of {threshold:g} or so; raise --threshold"
            )
        exact = _cosines(sample.vectors[rows], training.vectors[start + columns])
        near_enough = exact >= threshold - _DOUBLE
        found += zip(
            rows[near_enough].tolist(),
            (start + columns[near_enough]).tolist(),
            exact[near_enough].tolist(),
            strict=True,
        )
        progress(stop, len(training.ids))
    return tuple(
        Leak(sample.ids[row], training.ids[column], same_text=False, cosine=min(1.0, cosine))
        for row, column, cosine in sorted(found)
    )


def check_encoders(sample: Embeddings, training: Embeddings) -> None:
    """Refuse vectors that cannot be compared.

    Raises:
        UsageError: another checkpoint, role, way of reading texts or number of dimensions.
    """
    for what in ("checkpoint_sha256", "role", "made_with"):
        one, other = (getattr(each, what, "") for each in (sample, training))
        if one != other:
            raise UsageError(
                f"the sample's vectors are by {sample.encoder} ({what} {one[:16]}), the training set's by "
                f"{training.encoder} ({other[:16]}): their cosines mean nothing; embed both alike"
            )
    if sample.vectors.shape[1] != training.vectors.shape[1]:
        raise UsageError(
            f"vectors of {sample.vectors.shape[1]} and {training.vectors.shape[1]} dimensions; embed both alike"
        )


def _lengths(found: Embeddings) -> NDArray[np.float64]:
    """Each vector's length, none of them 0."""
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", found.vectors, found.vectors, dtype=np.float64))
    zero = np.flatnonzero(lengths == 0)
    if len(zero):
        first = found.ids[int(zero[0])]
        raise UsageError(f"{len(zero):,} vectors are zero, e.g. that of query {first!r}: it has no direction; embed it")
    return lengths


def _cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each pair of rows, shape (pairs,); a slice at a time, as float64 of all may be large."""
    made: NDArray[np.float64] = np.empty(len(one))
    for start in range(0, len(one), 1 << 14):
        a, b = (each[start : start + (1 << 14)].astype(np.float64) for each in (one, other))
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        made[start : start + (1 << 14)] = np.einsum("nd,nd->n", a, b) / lengths
    return made


def chosen(found: Embeddings, ids: Iterable[str], whose: str) -> Embeddings:
    """The vectors of these queries.

    Raises:
        UsageError: some have none.
    """
    wanted = tuple(ids)
    missing = found.missing(wanted)
    if missing:
        named = ", ".join(map(repr, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        raise UsageError(f"{len(missing):,} queries of {whose} have no vector ({named}); embed all of them")
    return replace(found, ids=wanted, vectors=found.vectors[[found.places[each] for each in wanted]])


def find(
    sample: Mapping[str, str],
    training: Mapping[str, str],
    vectors: tuple[Embeddings, Embeddings] | None,
    threshold: float,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> tuple[Leak, ...]:
    """Each leaking pair once, the nearest first.

    Args:
        sample: queries that systems are judged by.
        training: queries that one of them may have been trained with.
        vectors: of the sample's and of the training queries; ``None``: texts alone are compared.
        threshold: see :func:`near`; pairs whose texts are the same count, whatever their cosine.
        progress: see :func:`near`.

    Raises:
        UsageError: as :func:`near` and :func:`chosen`.
    """
    found: dict[tuple[str, str], Leak] = {}
    same = same_texts(sample, training)
    if vectors is not None:
        ours, theirs = chosen(vectors[0], sample, "the sample"), chosen(vectors[1], training, "the training set")
        found = {(leak.query_id, leak.training_id): leak for leak in near(ours, theirs, threshold, progress)}
        rows = [ours.places[leak.query_id] for leak in same]
        columns = [theirs.places[leak.training_id] for leak in same]
        cosines = _cosines(ours.vectors[rows], theirs.vectors[columns]).tolist()
        same = tuple(replace(leak, cosine=min(1.0, cosine)) for leak, cosine in zip(same, cosines, strict=True))
    found |= {(leak.query_id, leak.training_id): leak for leak in same}
    return tuple(
        sorted(
            found.values(),
            key=lambda leak: (-(leak.cosine or 0), not leak.same_text, leak.query_id, leak.training_id),
        )
    )


def with_effects(made: Leakage, found: JudgedRuns, measures: Sequence[Any]) -> Leakage:
    """The same, with what it does to the measures of these runs; to none, where nothing leaked."""
    return replace(made, effects=effects(found, made.leaked, measures)) if made.leaks else made


def effects(found: JudgedRuns, leaked: Sequence[str], measures: Sequence[Any]) -> tuple[Effect, ...]:
    """Each system's measures with all queries, without the leaked ones, and over those alone."""
    made = []
    gone = set(leaked)
    for system, run in found.runs.items():
        judged = evaluate.evaluate(run, found.qrels, found.query_ids, measures, hits_alone=found.hits_alone)
        leaked_and_judged = len(gone - set(judged.unjudged))
        for measure in map(str, measures):
            values = judged.per_query.get(measure, {})
            if measure not in judged.means:
                reason = judged.reasons.get(measure) or "no mean over queries"
                whole = without = alone = Estimate(None, reason=reason)
            else:
                kept = {query: value for query, value in values.items() if query not in gone}
                parts = (values, kept, {query: value for query, value in values.items() if query in gone})
                whole, without, alone = (_mean(part) for part in parts)
            made.append(Effect(system, measure, whole, without, alone, judged.queries, leaked_and_judged))
    return tuple(made)


def _mean(values: Mapping[str, float]) -> Estimate:
    if not values:
        return Estimate(None, reason="no such query is judged")
    figure = evaluate.mean(values)
    too_few = None if figure.low is not None else f"an interval needs {stats.INTERVAL_MIN_QUERIES} queries"
    return replace(figure, reason=too_few)
