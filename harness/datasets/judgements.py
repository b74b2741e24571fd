"""Judgements of a dataset that others are added to, and the documents to judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from harness.datasets import Dataset, load_named
from harness.errors import UnknownName, UsageError, listed
from harness.evaluation import qrels_merge, trec_lines
from harness.evaluation.evaluate_runs import count_and_ids
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.pool import GradedPair
from harness.evaluation.qrels_merge import BaseQrels

_SHOWN = 3


def judgements_of_dataset(dataset: Dataset) -> BaseQrels:
    """Return the judgements of a dataset, to add others to.

    Raises:
        UsageError: it is judged by answers in texts.
    """
    if dataset.answers:
        raise UsageError(f"dataset {dataset.name}: answers in texts judge its hits; there are no judgements to add to")
    place = f"{dataset.name}'s judgements"
    lines = tuple(GradedPair(place, *judgement, iteration="0") for judgement in dataset.graded())
    return BaseQrels(lines, dataset.qrels_sha256)


def read_base(named: str, cache: Path) -> BaseQrels:
    """Return the judgements of a file, or of a dataset.

    Raises:
        UsageError: the name is neither, or the dataset is judged by answers in texts.
        FileError: the file is damaged.
    """
    path = Path(named)
    trec_lines.refuse_pipe(path)
    if path.is_file():
        return qrels_merge.read_base(path)
    try:
        dataset = load_named(named, Path.cwd(), cache)
    except UnknownName as error:
        raise UsageError(f"{named}: is neither a file nor a dataset; {error}") from error
    return judgements_of_dataset(dataset)


def check_known(given: Sequence[GradedPair], holder: Dataset) -> None:
    """Raise UsageError for judgements of queries or documents that the dataset lacks."""
    queries = {query.query_id for query in holder.queries}
    unknown = holder.corpus.unknown({judgement.doc_id for judgement in given})
    strange = [judgement for judgement in given if judgement.query_id not in queries or judgement.doc_id in unknown]
    if strange:
        named = [
            f"{judgement.place}: "
            + (f"document {judgement.doc_id!r}" if judgement.query_id in queries else f"query {judgement.query_id!r}")
            for judgement in strange
        ]
        first = listed(named, _SHOWN, separator="; ")
        raise UsageError(f"dataset {holder.name} lacks judged ids: {first}; correct or remove the lines")


def documents_of(pairs: Iterable[tuple[str, str]], holder: Dataset) -> dict[str, dict[str, str]]:
    """Return the documents of pairs of a query and a document, by id.

    Raises:
        UsageError: the dataset lacks some of them.
    """
    needed = {document for _, document in pairs}
    documents = {document["_id"]: document for document in holder.corpus.documents(needed)}
    missing = sorted(map(repr, needed - documents.keys()))
    if missing:
        raise UsageError(
            f"{holder.name} lacks documents of the runs: {count_and_ids(missing)}; name theirs with --dataset"
        )
    return documents


def dataset_of_runs(named: str | None, samples: Sequence[JudgedRuns], cache: Path) -> Dataset:
    """Load the dataset of the retrieved documents: the named one, or the stored results' own.

    Raises:
        UsageError: no dataset is known, or it holds other documents than the runs retrieved.
    """
    corpus_sha256 = samples[0].corpus_sha256
    if named is None and corpus_sha256 is None:
        raise UsageError("run files have no documents; name their --dataset, or say --no-texts")
    try:
        holder = load_named(named or samples[0].dataset, Path.cwd(), cache)
    except UnknownName as error:
        raise UsageError(f"{error}; name it with --dataset, or say --no-texts") from error
    if corpus_sha256 not in (None, holder.corpus.sha256):
        raise UsageError(
            f"dataset {holder.name} holds other documents ({holder.corpus.sha256[:12]}) than the results "
            f"({str(corpus_sha256)[:12]}); name the right one with --dataset"
        )
    return holder
