"""Judgements of a dataset that others are added to, and the documents to judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harness.datasets.dataset import Dataset
from harness.errors import UsageError
from harness.evaluation.evaluate_runs import count_and_ids
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


def check_known(given: Sequence[GradedPair], holder: Dataset) -> None:
    """Raise UsageError for judgements of queries or documents that the dataset lacks."""
    queries = {query.query_id for query in holder.queries}
    unknown = holder.corpus.unknown({judgement.doc_id for judgement in given})
    strange = [judgement for judgement in given if judgement.query_id not in queries or judgement.doc_id in unknown]
    if strange:
        named = "; ".join(
            f"{judgement.place}: "
            + (f"document {judgement.doc_id!r}" if judgement.query_id in queries else f"query {judgement.query_id!r}")
            for judgement in strange[:_SHOWN]
        )
        more = f" and {len(strange) - _SHOWN:,} more" if len(strange) > _SHOWN else ""
        raise UsageError(f"dataset {holder.name} lacks judged ids: {named}{more}; correct or remove the lines")


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
