"""Long documents of a real collection: neighbouring documents of one title, joined in their order.

Paragraphs of one article (XQuAD) or pages of one book become one document.  The judged part is the relevant passage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from harness.datasets.dataset import Dataset
from harness.datasets.generate.collection import CollectionWriter
from harness.datasets.generate.wordpieces import count_tokens
from harness.datasets.passage_positions import RelevantPosition
from harness.errors import UsageError

_LOST = "judgements of documents that the corpus lacks or that are empty"


@dataclass
class _Joined:
    """A joined text with its tokens, and each part's place: tokens and characters."""

    text: str = ""
    tokens: int = 0
    places: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def add(self, doc_id: str, text: str) -> None:
        """Append a part after a blank; a blank separates tokens, so counts add up."""
        start = len(self.text) + bool(self.text)
        (tokens,) = count_tokens([text])
        self.places[doc_id] = (self.tokens, self.tokens + tokens, start, start + len(text))
        self.text = f"{self.text} {text}" if self.text else text
        self.tokens += tokens


def write_joined(writer: CollectionWriter, dataset: Dataset) -> None:
    """Write the joined documents, the judged queries, and their judgements and positions.

    Raises:
        UsageError: no two neighbouring documents share a title.
    """
    judged: dict[str, list[tuple[str, int]]] = {}
    for query_id, doc_id, grade in dataset.graded():
        judged.setdefault(doc_id, []).append((query_id, grade))
    for query in dataset.queries:
        if query.query_id in dataset.judged:
            writer.add_query(query)
    read, found = 0, 0
    for title, parts in groupby(dataset.corpus, _key):
        joined, documents = _Joined(), list(parts)
        for document in documents:
            if document["text"].strip():
                joined.add(document["_id"], document["text"].strip())
        first = documents[0]["_id"]
        writer.add_document(first, joined.text, joined.tokens, title[0])
        found += _write_judgements(writer, first, joined, judged)
        read += len(documents)
    if writer.written.documents == read:
        raise UsageError(f"{dataset.name}: no two neighbouring documents share a title; name a dataset of parts")
    writer.written.notes[_LOST] = sum(map(len, judged.values())) - found


def _key(document: dict[str, Any]) -> tuple[str, str]:
    """Return a document's title and an empty text; without a title, an empty title and the id."""
    return document["title"], "" if document["title"] else document["_id"]


def _write_judgements(
    writer: CollectionWriter, doc_id: str, joined: _Joined, judged: dict[str, list[tuple[str, int]]]
) -> int:
    """Write each query's highest grade in a document, and its relevant parts; return the number of judgements used."""
    rows = [(*judgement, place) for part, place in joined.places.items() for judgement in judged.get(part, ())]
    grades: dict[str, int] = {}
    for query_id, grade, place in rows:
        grades[query_id] = max(grade, grades.get(query_id, grade))
        if grade > 0:
            writer.add_position(RelevantPosition(query_id, doc_id, *place, joined.tokens))
    for query_id, grade in grades.items():
        writer.add_judgement(query_id, doc_id, grade)
    return len(rows)
