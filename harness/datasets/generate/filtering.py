"""A collection whose queries filter: fields of known selectivities on a source's documents, and a filter on each query.

The fields ``of_100``, ``of_10`` and ``of_2`` deal the documents, in random order, into 100, 10 and 2 equal groups, so
that a filter on a group lets 1, 10 or 50 % of them through.  A query filters on a group of one of its relevant
documents; judgements of documents in other groups are left out.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

from harness.datasets.dataset import Dataset
from harness.datasets.generate.collection import CollectionWriter
from harness.errors import UsageError

GROUPS = {"of_100": 100, "of_10": 10, "of_2": 2}


def write_filtered(writer: CollectionWriter, dataset: Dataset, seed: int) -> None:
    """Write the source's documents with fields, and its queries with filters.

    Args:
        writer: of the collection.
        dataset: the source; documents have no fields yet.
        seed: of the groups and of the documents whose groups are asked for.

    Raises:
        UsageError: the source has filters, or too few documents for the smallest groups.
    """
    writer.total = size = dataset.corpus.size
    if any(query.filter for query in dataset.queries):
        raise UsageError(f"{dataset.name}: its queries have filters already; name the dataset that it was made from")
    if size < max(GROUPS.values()):
        raise UsageError(f"{dataset.name}: {size} documents are too few for {max(GROUPS.values())} groups; name more")
    dealt = list(range(size))
    random.Random(f"groups:{seed}").shuffle(dealt)
    place_of = {}
    for document, place in zip(dataset.corpus, dealt, strict=True):
        place_of[document["_id"]] = place
        writer.add_document(document["_id"], document["text"], 0, document["title"], _fields(place))
    relevant: dict[str, list[str]] = defaultdict(list)
    judged: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for query_id, doc_id, grade in dataset.graded():
        judged[query_id].append((doc_id, grade))
        if grade > 0 and doc_id in place_of:
            relevant[query_id].append(doc_id)
    names = list(GROUPS)
    for number, query in enumerate(sorted(dataset.queries, key=lambda query: query.query_id)):
        rng = random.Random(f"filter:{seed}:{query.query_id}")
        around = place_of[rng.choice(found)] if (found := sorted(relevant[query.query_id])) else rng.randrange(size)
        name = names[number % len(names)]
        group = _fields(around)[name]
        writer.add_query(replace(query, filter=((name, group),)))
        for doc_id, grade in judged[query.query_id]:
            if doc_id in place_of and _fields(place_of[doc_id])[name] == group:
                writer.add_judgement(query.query_id, doc_id, grade)


def _fields(place: int) -> dict[str, int]:
    return {name: place % count for name, count in GROUPS.items()}
