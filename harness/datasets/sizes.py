"""A dataset at another number of documents, ``NAME@100000``, to see how cost grows with size.

A smaller size is a sample of the corpus, a larger one the corpus among generated distractors.  Sizes are nested: all
documents of one are in each larger one.  Queries and judgements are the dataset's own, with all judged documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.datasets.corpus import CORPUS, corpus_folder, id_hash, prepare_corpus
from harness.datasets.dataset import Dataset, filter_fields
from harness.datasets.generate.enlarging import check_source, enlarged
from harness.datasets.generate.passages import PassageCut, PassageSource
from harness.datasets.ir_datasets import IrDataset
from harness.datasets.source import DocumentStream, SourceDocument
from harness.errors import UsageError
from harness.progress import Progress, silent
from harness.results.schema import sized_name

# What ``harness generate larger`` takes if nothing else is said.
_SENTENCES, _MOST_TOKENS, _SEED = PassageCut("sentences", 5, 100), 512, 0


@dataclass(frozen=True)
class SizedDataset:
    """Location of a dataset at another number of documents."""

    of: Path | IrDataset
    documents: int


def resized(dataset: Dataset, documents: int, cache: Path, progress: Progress = silent) -> Dataset:
    """Return a dataset at another number of documents.

    Args:
        dataset: with its whole corpus.
        documents: how many the new corpus has.
        cache: holds prepared corpora.
        progress: as :func:`harness.datasets.load` calls it.

    Raises:
        UsageError: more documents are judged, or the corpus has too few sentences for distractors.
    """
    name = sized_name(dataset.name, documents)
    if documents == dataset.corpus.size:
        return replace(dataset, name=name)
    corpus = prepare_corpus(_stream(dataset, documents), cache, progress, filter_fields(dataset.queries))
    return replace(dataset, name=name, corpus=corpus)


def is_made(dataset: Dataset, documents: int, cache: Path) -> bool:
    """Return whether the corpus of this many documents is in the cache.

    Raises:
        UsageError: it is not, and cannot be made.
    """
    if documents == dataset.corpus.size:
        return True
    if corpus_folder(_stream(dataset, documents), cache, filter_fields(dataset.queries)).is_dir():
        return True
    _check(dataset, documents)
    return False


def _judged(dataset: Dataset) -> set[str]:
    return {document for _, document, _ in dataset.graded()}


def _stream(dataset: Dataset, documents: int) -> DocumentStream:
    """Return the documents of another size, which are checked and read when they are asked for."""

    def read() -> Iterator[SourceDocument]:
        _check(dataset, documents)
        return make(dataset, documents)

    what, make = ("nested sample", _sampled) if documents < dataset.corpus.size else ("among distractors", _among)
    kind, files = f"{what} with {dataset.qrels_sha256} {documents}", (dataset.corpus.folder / CORPUS,)
    return DocumentStream(sized_name(dataset.name, documents), kind, files, read, lambda: documents)


def _check(dataset: Dataset, documents: int) -> None:
    name, corpus = sized_name(dataset.name, documents), dataset.corpus
    if documents < corpus.size:
        judged = _judged(dataset)
        if documents < (kept := len(judged - corpus.unknown(judged))):
            raise UsageError(f"{name}: {dataset.name} has {kept:,} judged documents, which stay; name a larger size")
    else:
        if dataset.answers:
            raise UsageError(f"{name}: {dataset.name} has answers, which distractors could hold; name a smaller size")
        check_source(_source_of(dataset), documents, _MOST_TOKENS)


def _source_of(dataset: Dataset) -> PassageSource:
    return PassageSource(dataset, _SENTENCES, _SEED, hold_out=False)


def _sampled(dataset: Dataset, documents: int) -> Iterator[SourceDocument]:
    """Yield the judged documents and those others whose ids have the smallest hashes, in the corpus's order."""
    corpus, judged = dataset.corpus, _judged(dataset)
    hashes = np.array(sorted(map(id_hash, judged - corpus.unknown(judged))), dtype=np.uint64)
    wanted = documents - len(hashes)
    # The hashes ascend, so the wanted ones are among the first so many.
    others = np.setdiff1d(corpus.id_hashes[:documents], hashes)
    limit = int(others[wanted - 1]) if wanted else -1
    for document in corpus:
        if document["_id"] in judged or id_hash(document["_id"]) <= limit:
            yield _source(document)


def _among(dataset: Dataset, documents: int) -> Iterator[SourceDocument]:
    for document, _ in enlarged(_source_of(dataset), documents, _MOST_TOKENS):
        yield _source(document)


def _source(document: dict[str, object]) -> SourceDocument:
    doc_id, title, text = (str(document.get(key, "")) for key in ("_id", "title", "text"))
    return SourceDocument(doc_id, doc_id, title, text, document.get("metadata"))
