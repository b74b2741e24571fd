"""Measure systems by Frechet distance, for sparse labels: from the relevant to the retrieved documents' vectors.

Arabzadeh and Clarke, *Frechet Distance for Offline Evaluation of Information Retrieval Systems with Sparse Labels*
(EACL 2024).  See docs/method/frechet.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from harness.commands import quoted
from harness.errors import UnknownName, UsageError
from harness.estimate import CONFIDENCE, INTERVAL_MIN_QUERIES, Estimate
from harness.evaluation import embeddings as vector_files
from harness.evaluation import frechet_distance
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.frechet_distance import VectorRows
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Qrels, Run
from harness.progress import Progress, part_of, silent
from harness.stats import Floats, draw_weights

# The documents of each query, in the order of the queries; a document of several queries counts for each.
DocumentSets = tuple[tuple[str, ...], ...]
RESAMPLES = 1000
# Fourth powers of numbers up to this, and sums of millions of squares in single precision, are finite.
_LARGEST = 1e12


@dataclass(frozen=True)
class Settings:
    """Options of a measurement.

    ``most_judged``: the most judged documents of a query, ``None``: all.  ``unlabelled``: judged documents are skipped
    before ``k`` are taken (the paper's URR).  No ``resamples``: no intervals.  ``relevant_from``: the lowest grade of a
    relevant document.  ``against``: the system that is subtracted from the others, ``None``: the nearest.
    """

    most_judged: int | None = 10
    unlabelled: bool = False
    resamples: int = RESAMPLES
    seed: int = 2024
    relevant_from: int = 1
    against: str | None = None


@dataclass(frozen=True)
class Distance:
    """One system's distance at one cutoff, over the queries for which every compared system retrieved a document.

    ``queries`` counts these queries, ``judged`` their relevant documents.  For each query, every system counts with as
    many documents as the system with the fewest, ``retrieved`` in all: a smaller cloud is farther by itself.  Of all
    queries with a relevant document, ``short`` ones have fewer than ``k`` documents of this system, ``without`` ones
    none.  ``difference`` is the distance minus the distance of the system ``against``, by the same resamples.
    """

    k: int
    unlabelled: bool
    figure: Estimate
    queries: int
    judged: int
    retrieved: int
    short: int
    without: int
    against: str | None = None
    difference: Estimate = field(default_factory=lambda: Estimate(None))


@dataclass(frozen=True)
class Distances:
    """Distances of all systems of one sample under one encoder.

    ``queries`` have a relevant document, ``judged`` such documents stand for relevance; ``left_out`` queries have none.
    ``source`` is the hash of the vectors' texts; ``source_checked``: they are the documents of these runs.  ``notes``:
    sentences about the files.
    """

    dataset: str
    encoder: str
    checkpoint_sha256: str
    dimensions: int
    settings: Settings
    queries: int
    left_out: tuple[str, ...]
    judged: int
    systems: Mapping[str, tuple[Distance, ...]]
    notes: tuple[str, ...] = ()
    source: str = ""
    source_checked: bool = False


def read_vectors(files: Sequence[Path], samples: Sequence[JudgedRuns]) -> tuple[Embeddings, ...]:
    """Read files of vectors, each of which must encode the documents of a sample.

    Raises:
        FileError: a file cannot be read.
        UsageError: a file encodes other texts.
    """
    given = tuple(map(vector_files.read, files))
    for path, vectors in zip(files, given, strict=True):
        faults = [_source_fault(sample, vectors) for sample in samples]
        if all(faults):
            raise UsageError(f"{path}: {faults[0]}")
    return given


def vectors_of(
    runs: JudgedRuns, given: Sequence[Embeddings], folder: Path | None, encoder: str | None
) -> list[Embeddings]:
    """Return vectors of the runs' documents: from the given files, else from the results folder.

    Args:
        runs: of one sample.
        given: vectors of files.
        folder: of results, which stores vectors; ``None`` without one.
        encoder: use only vectors by this system; ``None``: by all.

    Raises:
        UsageError: there are no vectors, or none by this encoder.
    """
    if not runs.corpus_sha256 and not given:
        raise UsageError("run files need vectors of their documents; name a file of harness embed with --embeddings")
    stored = (
        () if given or folder is None else vector_files.find_embeddings(folder, "document", runs.corpus_sha256 or "")
    )
    vectors = [*(one for one in given if not _source_fault(runs, one)), *map(vector_files.read, stored)]
    if not vectors:
        where = "among the files" if given else f"stored{f' in {folder}/embeddings' if folder else ''}"
        command = quoted("embed", encoder or "minilm", runs.dataset, results=folder)
        raise UsageError(
            f"{runs.dataset}: no vectors of its documents are {where}; run {command} or name a file with --embeddings"
        )
    if chosen := [one for one in vectors if encoder in (None, one.encoder)]:
        return chosen
    raise UsageError(f"no file has vectors by {encoder!r}; make them with {quoted('embed', encoder, runs.dataset)}")


def _source_fault(runs: JudgedRuns, vectors: Embeddings) -> str | None:
    """Return why vectors do not belong to the documents of the runs, if so."""
    if vectors.role != "document":
        return f"vectors of {vectors.role} texts, not of documents; make those with harness embed"
    if runs.corpus_sha256 not in (None, vectors.source):
        return f"vectors of other texts than {runs.dataset}'s documents; make those with harness embed"
    return None


def queries_with_relevant(qrels: Qrels, queries: Sequence[str], relevant_from: int) -> tuple[str, ...]:
    """Return the queries with a document of at least that grade."""
    return tuple(query for query in queries if max(qrels.get(query, {}).values(), default=0) >= relevant_from)


def relevant_documents(qrels: Qrels, queries: Sequence[str], settings: Settings) -> DocumentSets:
    """Return the relevant documents of each query, at most ``settings.most_judged``.

    The best grades come first; among equal grades, chance decides by ``settings.seed``, for each query alone: other
    queries or another order of the file change nothing.
    """

    def best(query: str) -> tuple[str, ...]:
        def order(document: str) -> tuple[int, bytes, str]:
            text = f"{settings.seed}\n{query}\n{document}"
            return -grades[document], hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), document

        grades = qrels.get(query, {})
        relevant = [document for document, grade in grades.items() if grade >= settings.relevant_from]
        return tuple(sorted(relevant, key=order)[: settings.most_judged])

    return tuple(map(best, queries))


def retrieved_documents(run: Run, qrels: Qrels, queries: Sequence[str], k: int, *, unlabelled: bool) -> DocumentSets:
    """Return the first ``k`` retrieved documents of each query.

    ``unlabelled``: skip every judged document of the query before ``k`` are taken (the paper's URR).
    """
    sets = []
    for query in queries:
        skipped = qrels.get(query, {}) if unlabelled else {}
        sets.append(tuple(name for name in run.rankings.get(query, ()) if name not in skipped)[:k])
    return tuple(sets)


def distances(
    runs: JudgedRuns, embeddings: Embeddings, cutoffs: Sequence[int], settings: Settings, progress: Progress = silent
) -> Distances:
    """Return the distances of all systems at each cutoff; with ``settings.unlabelled`` also by the URR.

    Args:
        runs: runs over one sample, and its judgements.
        embeddings: vectors of the documents, by one encoder.
        cutoffs: each ``k``.
        settings: options.
        progress: gets the amounts of finished work and of all.

    Raises:
        UsageError: a document has no vector, the vectors encode other texts, or only hits are judged.
    """
    if runs.hits_alone:
        raise UsageError(f"{runs.dataset}: only hits are judged; a distance needs judgements that no system chose")
    if fault := _source_fault(runs, embeddings):
        raise UsageError(fault)
    if settings.against is not None and settings.against not in runs.runs:
        raise UnknownName("system", settings.against, runs.runs, place=runs.dataset)
    queries = queries_with_relevant(runs.qrels, runs.query_ids, settings.relevant_from)
    reference = relevant_documents(runs.qrels, queries, settings)
    kinds = [(k, unlabelled) for unlabelled in (False, True)[: 1 + settings.unlabelled] for k in cutoffs]
    sets = {
        (k, unlabelled): {
            name: retrieved_documents(run, runs.qrels, queries, k, unlabelled=unlabelled)
            for name, run in runs.runs.items()
        }
        for k, unlabelled in kinds
    }
    retrieved = (documents for of_kind in sets.values() for documents in of_kind.values())
    used = {name for documents in (reference, *retrieved) for name in chain.from_iterable(documents)}
    _check_vectors(embeddings, used, runs.dataset if runs.corpus_sha256 else "DATASET")
    by_system: dict[str, list[Distance]] = {name: [] for name in runs.runs}
    for number, (kind, of_kind) in enumerate(sets.items()):
        step = part_of(progress, number, len(kinds))
        for name, distance in _compared(embeddings, reference, kind, of_kind, settings, step).items():
            by_system[name].append(distance)
    return Distances(
        dataset=runs.dataset,
        encoder=embeddings.encoder,
        checkpoint_sha256=embeddings.checkpoint_sha256,
        dimensions=embeddings.vectors.shape[1],
        settings=settings,
        queries=len(queries),
        left_out=tuple(sorted(set(runs.query_ids) - set(queries))),
        judged=sum(map(len, reference)),
        systems={name: tuple(of_system) for name, of_system in by_system.items()},
        notes=runs.notes,
        source=embeddings.source,
        source_checked=runs.corpus_sha256 is not None,
    )


def _check_vectors(embeddings: Embeddings, documents: Collection[str], dataset: str) -> None:
    missing = embeddings.missing(documents)
    if missing:
        example = f"{len(missing)} documents have no vector of {embeddings.encoder}, e.g. {missing[0]!r}"
        raise UsageError(f"{example}; add them with {quoted('embed', embeddings.encoder, dataset)}")
    # abs() would take as much memory again.
    largest = max(float(embeddings.vectors.max(initial=0.0)), -float(embeddings.vectors.min(initial=0.0)))
    if largest > _LARGEST:
        raise UsageError(f"vectors of {embeddings.encoder} reach {largest:.3g}, which is too large; embed them again")


def _compared(
    embeddings: Embeddings,
    reference: DocumentSets,
    kind: tuple[int, bool],
    sets: Mapping[str, DocumentSets],
    settings: Settings,
    progress: Progress,
) -> dict[str, Distance]:
    """Return the distances of all systems at one cutoff, over common queries at common depths."""
    depths = [min(map(len, documents)) for documents in zip(*sets.values(), strict=True)]
    relevant = tuple(documents for documents, depth in zip(reference, depths, strict=True) if depth)
    common = {
        name: tuple(documents[:depth] for documents, depth in zip(of_system, depths, strict=True) if depth)
        for name, of_system in sets.items()
    }
    estimates, drawn = _estimates(embeddings, relevant, common, settings, progress)
    values = {name: estimate.value for name, estimate in estimates.items() if estimate.value is not None}
    against = settings.against or min(values, key=lambda name: (values[name], name), default=None)
    results = {}
    for name, documents in sets.items():
        difference = Estimate(None)
        if against in values and name in values and name != against:
            resamples = drawn[name] - drawn[against] if drawn else None
            difference = _shifted(values[name] - values[against], resamples)
        results[name] = Distance(
            *kind,
            figure=estimates[name],
            queries=len(relevant),
            judged=sum(map(len, relevant)),
            retrieved=sum(map(len, common[name])),
            short=sum(len(of_query) < kind[0] for of_query in documents),
            without=sum(not of_query for of_query in documents),
            against=None if name == against else against,
            difference=difference,
        )
    return results


def _estimates(
    embeddings: Embeddings,
    reference: DocumentSets,
    sets: Mapping[str, DocumentSets],
    settings: Settings,
    progress: Progress,
) -> tuple[dict[str, Estimate], dict[str, Floats]]:
    """Return the estimate of each set, and its resampled distances, if any."""
    one = _vector_rows(embeddings, reference)
    others = {name: _vector_rows(embeddings, documents) for name, documents in sets.items()}
    if min(len(rows.rows) for rows in (one, *others.values())) < 2:
        # Sets have common depths: one of too few documents means that all have.
        return dict.fromkeys(sets, Estimate(None, reason="a covariance takes two documents on each side")), {}
    values = {
        name: frechet_distance.distance_of_points(embeddings.vectors[one.rows], embeddings.vectors[other.rows])
        for name, other in others.items()
    }
    queries = len(reference)
    if queries < INTERVAL_MIN_QUERIES or not settings.resamples:
        few = f"no interval: {queries} queries, it takes {INTERVAL_MIN_QUERIES}" if settings.resamples else None
        return {name: Estimate(value, reason=few) for name, value in values.items()}, {}
    # Other processes get only the vectors that they need.
    used = np.unique(np.concatenate([rows.rows for rows in (one, *others.values())]))
    first, *moved = (VectorRows(np.searchsorted(used, rows.rows), rows.query) for rows in (one, *others.values()))
    weights = draw_weights(queries, settings.resamples, settings.seed)
    pairs = [(first, other) for other in moved]
    resampled = frechet_distance.resample_distances(embeddings.vectors[used], pairs, weights, progress)
    drawn = dict(zip(sets, resampled, strict=True))
    return {name: _shifted(value, drawn[name], 0.0) for name, value in values.items()}, drawn


def _shifted(value: float, drawn: Floats | None, least: float = -np.inf) -> Estimate:
    """Return the value with the spread of its resamples, shifted so that their mean is the value.

    A distance falls with the number of different vectors, and a resample has fewer: all of its distances are above the
    value.  So neither the resamples' own quantiles nor those reflected at the value (the "basic" interval) say
    anything of samples of this size; docs/method/frechet.md has the coverage of all three.
    """
    if drawn is None:
        return Estimate(value)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail)) - drawn.mean()
    return Estimate(value, max(value + float(low), least), value + float(high))


def _vector_rows(embeddings: Embeddings, sets: DocumentSets) -> VectorRows:
    rows = np.asarray([embeddings.rows[name] for name in chain.from_iterable(sets)], dtype=np.int64)
    sizes = list(map(len, sets))
    return VectorRows(rows, np.repeat(np.arange(len(sizes), dtype=np.int64), sizes))
