"""Vectors of the documents that runs retrieve: of files, or kept beside results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.commands import quoted
from harness.errors import UsageError
from harness.evaluation import embeddings
from harness.evaluation.embeddings import Embeddings
from harness.evaluation.judged_runs import JudgedRuns


def read_vectors(files: Sequence[Path], samples: Sequence[JudgedRuns]) -> tuple[Embeddings, ...]:
    """Read files of vectors, each of which must be of the documents of a sample.

    Raises:
        FileError: a file cannot be read.
        UsageError: one is of other texts.
    """
    given = []
    for path in files:
        vectors = embeddings.read(path)
        if not any(_fits(sample, vectors) for sample in samples):
            try:
                check_source(samples[0], vectors)
            except UsageError as error:
                raise UsageError(f"{path}: {error}") from error
        given.append(vectors)
    return tuple(given)


def _fits(runs: JudgedRuns, vectors: Embeddings) -> bool:
    return vectors.role == "document" and runs.corpus_sha256 in (None, vectors.source)


def vectors_of(
    runs: JudgedRuns, given: Sequence[Embeddings], folder: Path | None, encoder: str | None
) -> list[Embeddings]:
    """Return vectors of the runs' documents: of the given files, else of those beside the results.

    Args:
        runs: of one sample.
        given: vectors of files.
        folder: of results, which keeps vectors; None: there is none.
        encoder: only vectors by this system count; None: all.

    Raises:
        UsageError: there are none, or none by this encoder.
    """
    kept = folder if not given and runs.corpus_sha256 else None
    paths = embeddings.find_embeddings(kept, "document", runs.corpus_sha256 or "") if kept else ()
    fitting = [*(vectors for vectors in given if _fits(runs, vectors)), *map(embeddings.read, paths)]
    if not fitting:
        if not runs.corpus_sha256:
            raise UsageError(
                "run files need vectors of their documents; name a file of harness embed with --embeddings"
            )
        where = "among the files" if given else f"kept{f' in {folder}/embeddings' if folder else ''}"
        raise UsageError(
            f"{runs.dataset}: no vectors of its documents are {where}; make"
            f" them with {quoted('embed', encoder or 'minilm', runs.dataset, results=folder if folder else None)},"
            " or name a file with --embeddings"
        )
    chosen = [vectors for vectors in fitting if encoder in (None, vectors.encoder)]
    if not chosen:
        embed = quoted("embed", encoder, runs.dataset)
        raise UsageError(f"no vectors by {encoder!r} among the files; make them with {embed}")
    return chosen


def check_source(runs: JudgedRuns, vectors: Embeddings) -> None:
    """Raise UsageError if the vectors are of queries, or of another corpus than the runs'."""
    if vectors.role != "document":
        raise UsageError(f"vectors of {vectors.role} texts, not of documents; make those with harness embed")
    if runs.corpus_sha256 not in (None, vectors.source):
        raise UsageError(f"vectors of other texts than {runs.dataset}'s documents; make those with harness embed")
