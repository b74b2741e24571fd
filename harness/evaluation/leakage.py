"""Find training queries that are near duplicates of evaluation queries, and measure systems without them.

Two queries are near duplicates if their texts are the same but for case, white space and punctuation, or if the cosine
of their vectors reaches a threshold.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import UsageError, counted, listed
from harness.estimate import INTERVAL_MIN_QUERIES, Estimate
from harness.evaluation.embeddings import Embeddings, sha256_of_texts
from harness.evaluation.evaluate import evaluate, mean_estimate
from harness.evaluation.evaluate_runs import unknown_query_notes
from harness.evaluation.judged_runs import JudgedRuns
from harness.progress import Progress, bar, silent

MOST_PAIRS = 1_000_000
# A bar is shown from this number of cosines on.
_MANY = 10**8
# Cosines computed at once: 64 MiB.
_BLOCK = 1 << 24
# Rounding errors of a cosine: pairs within the float32 error of the threshold are computed again in float64.
_SINGLE, _DOUBLE = 1e-5, 1e-9
_MAX_NAMED = 3


@dataclass(frozen=True)
class Leak:
    """Query of the sample and its near duplicate in the training set; ``cosine`` is ``None`` without vectors."""

    query_id: str
    training_id: str
    same_text: bool
    cosine: float | None = None


@dataclass(frozen=True)
class Effect:
    """One system's measure over all judged queries, without the leaked ones, and over those alone."""

    system: str
    measure: str
    all: Estimate
    without: Estimate
    leaked: Estimate
    queries: int
    queries_leaked: int


@dataclass(frozen=True)
class Leakage:
    """Leaks into one sample, and their effects on the measures of its runs.

    ``threshold`` is ``None`` if only texts were compared; ``encoder`` made the vectors.  ``not_compared`` queries have
    neither a word nor a vector: they do not count in the share of leaked queries.
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
        """Leaked queries of the sample, in its order."""
        leaked = {leak.query_id for leak in self.leaks}
        return tuple(query for query in self.queries if query in leaked)


def find_leaks(
    sample: Mapping[str, str],
    training: Mapping[str, str],
    vectors: tuple[Embeddings, Embeddings] | None,
    threshold: float,
    progress: Progress = silent,
) -> tuple[Leak, ...]:
    """Return each leaking pair once, the nearest first.

    Args:
        sample: texts of the evaluation queries by id.
        training: texts of the training queries by id.
        vectors: of the sample's and of the training queries; ``None``: compare texts only.
        threshold: see :func:`near_pairs`; pairs of the same text always count.
        progress: see :func:`near_pairs`.

    Raises:
        UsageError: as :func:`near_pairs` and :func:`select_vectors`.
    """
    leaks: dict[tuple[str, str], Leak] = {}
    same = same_texts(sample, training)
    if vectors is not None:
        own = select_vectors(vectors[0], sample, "the sample")
        other = select_vectors(vectors[1], training, "the training set")
        leaks = {(leak.query_id, leak.training_id): leak for leak in near_pairs(own, other, threshold, progress)}
        rows = [own.rows[leak.query_id] for leak in same]
        columns = [other.rows[leak.training_id] for leak in same]
        cosines = _cosines(own.vectors[rows], other.vectors[columns]).tolist()
        same = tuple(replace(leak, cosine=min(1.0, cosine)) for leak, cosine in zip(same, cosines, strict=True))
    leaks |= {(leak.query_id, leak.training_id): leak for leak in same}

    def order(leak: Leak) -> tuple[float, bool, str, str]:
        return -(leak.cosine or 0), not leak.same_text, leak.query_id, leak.training_id

    return tuple(sorted(leaks.values(), key=order))


def examine(
    sample: JudgedRuns,
    training: dict[str, str],
    vectors: tuple[Embeddings, Embeddings] | None,
    threshold: float,
    measures: Sequence[Any],
) -> Leakage:
    """Return the training queries that recur in a sample, and their effects on its measures.

    Args:
        sample: its queries and runs.
        training: texts of the training queries by id.
        vectors: of both sets of queries by one encoder; None: texts are compared.
        threshold: the least cosine of near duplicates.
        measures: as ir_measures parses them.
    """
    remedy = "name a file of their texts with --queries, or vectors with --embeddings"
    blank = () if vectors else queries_without_words(sample.queries, sample.dataset, remedy)
    sets = ((vectors[0], sample.queries, "the sample"), (vectors[1], training, "the training set")) if vectors else ()
    unchecked = [note for checked in sets if (note := check_vector_texts(*checked)) is not None]
    cosines = len(sample.queries) * len(training)
    with bar("near duplicates", "comparing") as step:
        leaks = find_leaks(sample.queries, training, vectors, threshold, step if cosines >= _MANY else silent)
    return Leakage(
        dataset=sample.dataset,
        queries=sample.queries,
        training=training,
        leaks=leaks,
        effects=measure_effects(sample, {leak.query_id for leak in leaks}, measures),
        threshold=None if vectors is None else threshold,
        encoder=None if vectors is None else vectors[0].encoder,
        notes=(*unchecked, *unknown_query_notes(sample), *sample.notes),
        not_compared=blank,
    )


def same_texts(sample: Mapping[str, str], training: Mapping[str, str]) -> tuple[Leak, ...]:
    """Return pairs of queries with the same normalised text; a query without a word has no pair."""
    by_text: dict[str, list[str]] = defaultdict(list)
    for name, text in training.items():
        by_text[normalise(text)].append(name)
    return tuple(
        Leak(name, other, same_text=True)
        for name, text in sample.items()
        if (normalised := normalise(text))
        for other in by_text.get(normalised, ())
    )


def normalise(text: str) -> str:
    """Return a text without case, punctuation, and differences of white space and of Unicode forms."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = (" " if unicodedata.category(character)[0] in "PZC" else character for character in folded)
    return " ".join("".join(kept).split())


def queries_without_words(queries: Mapping[str, str], name: str, remedy: str) -> tuple[str, ...]:
    """Return the queries without a word, which only vectors can compare.

    Args:
        queries: texts by id, at least one.
        name: of the queries, for the error.
        remedy: advice for the error.

    Raises:
        UsageError: no query has a word.
    """
    wordless = tuple(query for query, text in queries.items() if not normalise(text))
    if len(wordless) == len(queries):
        raise UsageError(f"{name}: all {len(wordless):,} queries lack a text, so they cannot be compared; {remedy}")
    return wordless


def check_vector_texts(embeddings: Embeddings, texts: Mapping[str, str], name: str) -> str | None:
    """Check that vectors encode these texts; return a note if the check is impossible.

    Args:
        embeddings: vectors of at least these queries.
        texts: by id.
        name: the queries' name, for notes and errors.

    Raises:
        UsageError: the vectors encode other texts.
    """
    if not any(texts.values()):
        return f"Cannot check that the vectors of {name} belong to its queries, because the queries have no texts."
    if embeddings.rows.keys() != texts.keys():
        return (
            f"Cannot check that the vectors of {name} belong to these texts, because the file has"
            f" {len(embeddings.ids):,} queries and {len(texts):,} are compared."
        )
    # In the order of the file, or of an index.
    orders = (texts, {query: texts[query] for query in embeddings.ids})
    hashes = [sha256_of_texts(order) for order in orders]
    if embeddings.source not in hashes:
        raise UsageError(f"the vectors of {name} belong to other texts; embed its queries with --texts FILE")
    return None


def near_pairs(
    sample: Embeddings,
    training: Embeddings,
    threshold: float,
    progress: Progress = silent,
) -> tuple[Leak, ...]:
    """Return pairs of queries whose cosine is at least ``threshold``, in the order of the sample.

    The training set is compared in blocks, so that memory holds its vectors and one block's cosines.

    Args:
        sample: vectors of the evaluation queries.
        training: vectors of the training queries, by the same encoder.
        threshold: above 0, up to 1.
        progress: gets the numbers of compared training queries and of all.

    Raises:
        UsageError: a vector is zero, two encoders made them, or more than a million pairs are near.
    """
    check_encoders(sample, training)
    sample_lengths, training_lengths = _lengths(sample), _lengths(training)
    unit = (sample.vectors / sample_lengths[:, None]).astype(np.float32)
    step = max(1, _BLOCK // max(1, len(unit)))
    pairs: list[tuple[int, int, float]] = []
    for start in range(0, len(training.ids), step):
        stop = min(start + step, len(training.ids))
        block = (training.vectors[start:stop] / training_lengths[start:stop, None]).astype(np.float32)
        rows, columns = np.nonzero(unit @ block.T >= threshold - _SINGLE)
        if len(pairs) + len(rows) > MOST_PAIRS:
            raise UsageError(f"more than {MOST_PAIRS:,} pairs have a cosine of {threshold:g} or so; raise --threshold")
        exact = _cosines(sample.vectors[rows], training.vectors[start + columns])
        near = exact >= threshold - _DOUBLE
        pairs += zip(rows[near].tolist(), (start + columns[near]).tolist(), exact[near].tolist(), strict=True)
        progress(stop, len(training.ids))
    return tuple(
        Leak(sample.ids[row], training.ids[column], same_text=False, cosine=min(1.0, cosine))
        for row, column, cosine in sorted(pairs)
    )


def check_encoders(sample: Embeddings, training: Embeddings) -> None:
    """Raise UsageError if vectors differ in checkpoint, role, reading of texts or dimensions."""
    for fact in ("checkpoint_sha256", "role", "made_with"):
        one, other = (getattr(embeddings, fact, "") for embeddings in (sample, training))
        if one != other:
            makers = f"{sample.encoder} ({fact} {one[:16]}) and {training.encoder} ({other[:16]})"
            raise UsageError(f"cannot compare vectors by {makers}; embed both alike")
    if sample.vectors.shape[1] != training.vectors.shape[1]:
        sizes = f"{sample.vectors.shape[1]} and {training.vectors.shape[1]}"
        raise UsageError(f"cannot compare vectors of {sizes} dimensions; embed both alike")


def select_vectors(embeddings: Embeddings, ids: Iterable[str], name: str) -> Embeddings:
    """Return the vectors of these queries; raise UsageError if some have none."""
    selected = tuple(ids)
    missing = embeddings.missing(selected)
    if missing:
        named = listed(list(map(repr, missing)), _MAX_NAMED)
        raise UsageError(f"{len(missing):,} queries of {name} have no vector ({named}); embed all queries")
    rows = [embeddings.rows[query] for query in selected]
    return replace(embeddings, ids=selected, vectors=embeddings.vectors[rows])


def _lengths(embeddings: Embeddings) -> NDArray[np.float64]:
    """Return each vector's length; raise UsageError if one is 0."""
    squares = np.einsum("nd,nd->n", embeddings.vectors, embeddings.vectors, dtype=np.float64)
    lengths: NDArray[np.float64] = np.sqrt(squares)
    zero = np.flatnonzero(lengths == 0)
    if len(zero):
        first = embeddings.ids[int(zero[0])]
        raise UsageError(f"cannot compare {counted(len(zero), 'vector')} of length 0 (query {first!r}); embed it again")
    return lengths


def _cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosine of each pair of rows, shape (pairs,); in slices, as float64 of all may be large."""
    cosines: NDArray[np.float64] = np.empty(len(one))
    for start in range(0, len(one), 1 << 14):
        a, b = (vectors[start : start + (1 << 14)].astype(np.float64) for vectors in (one, other))
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines[start : start + (1 << 14)] = np.einsum("nd,nd->n", a, b) / lengths
    return cosines


def measure_effects(runs: JudgedRuns, leaked: Collection[str], measures: Sequence[Any]) -> tuple[Effect, ...]:
    """Evaluate each system with all queries, without the leaked queries, and over these alone, if there are any."""
    effects = []
    for system, run in runs.runs.items() if leaked else ():
        evaluation = evaluate(run, runs.qrels, runs.query_ids, measures, hits_alone=runs.hits_alone)
        counts = evaluation.queries, len(set(leaked) - set(evaluation.unjudged))
        for measure in map(str, measures):
            values = evaluation.per_query.get(measure, {})
            without = {query: value for query, value in values.items() if query not in leaked}
            alone = {query: value for query, value in values.items() if query in leaked}
            reason = evaluation.reasons.get(measure) or "no mean over queries"
            missing = None if measure in evaluation.means else Estimate(None, reason=reason)
            whole, rest, part = (missing or _mean(some) for some in (values, without, alone))
            effects.append(Effect(system, measure, whole, rest, part, *counts))
    return tuple(effects)


def _mean(values: Mapping[str, float]) -> Estimate:
    if not values:
        return Estimate(None, reason="the judgements cover no such query")
    estimate = mean_estimate(values)
    too_few = None if estimate.low is not None else f"an interval needs {INTERVAL_MIN_QUERIES} queries"
    return replace(estimate, reason=too_few)
