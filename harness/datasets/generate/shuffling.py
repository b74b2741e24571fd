"""Copies of a collection whose documents were cut at random word borders and put together in another order.

In a copy the position of a passage carries no information, so a system trained on it cannot learn to read beginnings
only (section on de-biasing of the study, arXiv 2207.01262).  ``train`` and ``test`` have different queries and
different shuffles of every document; with one segment they are the original.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from harness.datasets.dataset import Dataset
from harness.datasets.generate.collection import CollectionWriter
from harness.datasets.generate.passages import PassageCut, best_overlap
from harness.datasets.generate.wordpieces import count_tokens, cut_at_word
from harness.datasets.passage_positions import RelevantPosition, find_positions, read_positions
from harness.driver.records import Query
from harness.errors import FileError, UsageError

COPIES = ("train", "test")
_WORD = re.compile(r"\S+")

# A query, and the characters of a text that are relevant for it.
_Place = tuple[str, int, int]
Places = Mapping[str, list[_Place]]  # by document


@dataclass(frozen=True)
class Shuffling:
    """Number of segments, the most tokens of a document (the rest is cut off), and the share of training queries."""

    segments: tuple[int, int]
    max_tokens: int
    train_share: float

    def split(self, dataset: Dataset, seed: int) -> dict[str, list[Query]]:
        """Return the judged queries of each copy that has some.

        Raises:
            UsageError: the dataset has no judged query.
        """
        judged = dataset.judged
        queries = sorted((query for query in dataset.queries if query.query_id in judged), key=lambda q: q.query_id)
        if not queries:
            raise UsageError(f"{dataset.name}: no query is judged; add judgements")
        random.Random(f"split:{seed}").shuffle(queries)
        border = round(self.train_share * len(queries))
        parts = dict(zip(COPIES, (queries[:border], queries[border:]), strict=True))
        return {name: part for name, part in parts.items() if part}


def known_places(folder: Path) -> Places | None:
    """Return the places of relevant passages by document, from a folder's positions; ``None``: it has none."""
    path = find_positions(folder)
    if path is None:
        return None
    places: dict[str, list[_Place]] = {}
    for position in read_positions(path):
        places.setdefault(position.doc, []).append((position.query, position.start_char, position.end_char))
    return places


def write_shuffled(
    writer: CollectionWriter,
    dataset: Dataset,
    queries: list[Query],
    shuffling: Shuffling,
    places: Places | None,
    cut: PassageCut,
    seed: str,
) -> None:
    """Write a shuffled copy of all documents, with these queries and their judgements.

    Args:
        places: of relevant passages, if they are known; else a passage of each relevant document is chosen by ``cut``.
        seed: of the order of segments.
    """
    asked = {query.query_id: query.text for query in queries}
    relevant: dict[str, list[str]] = {}
    for query in queries:
        writer.add_query(query)
    for query_id, doc_id, grade in dataset.graded():
        if query_id in asked:
            writer.add_judgement(query_id, doc_id, grade)
            if grade > 0:
                relevant.setdefault(doc_id, []).append(query_id)
    writer.total = dataset.corpus.size
    for document in dataset.corpus:
        doc_id, whole = document["_id"], document["text"]
        text = cut_at_word(whole, shuffling.max_tokens)
        segments = _segments(text, shuffling.segments, random.Random(f"shuffled:{seed}:{doc_id}"))
        mine: list[_Place] = []
        if doc_id in relevant:
            known = _chosen_places(text, asked, relevant[doc_id], cut) if places is None else places.get(doc_id, [])
            mine = [place for place in known if place[0] in asked]
            if any(end > len(whole) for _, _, end in mine):
                raise FileError(f"{dataset.name}: positions.jsonl does not fit document {doc_id!r}; generate it again")
        positions = list(_moved(doc_id, text, segments, mine)) if mine else []
        shuffled = " ".join(text[start:end] for start, end in segments)
        writer.add_document(doc_id, shuffled, 0, document["title"])
        for position in positions:
            writer.add_position(position)
        lost = len({place[0] for place in mine} - {position.query for position in positions})
        writer.written.notes[f"relevant passages beyond {shuffling.max_tokens:,} tokens"] += lost


def _segments(text: str, numbers: tuple[int, int], rng: random.Random) -> list[tuple[int, int]]:
    """Cut a text at random word borders; return start and end of the segments in random order."""
    words = [match.span() for match in _WORD.finditer(text)]
    number = min(rng.randint(*numbers), len(words))
    if number < 2:
        return [(words[0][0], words[-1][1])] if words else []
    borders = [0, *sorted(rng.sample(range(1, len(words)), number - 1)), len(words)]
    segments = [(words[first][0], words[after - 1][1]) for first, after in pairwise(borders)]
    rng.shuffle(segments)
    return segments


def _chosen_places(text: str, asked: Mapping[str, str], queries: list[str], cut: PassageCut) -> Iterator[_Place]:
    spans = cut.spans(text)
    passages = [text[start:end] for start, end in spans]
    for query_id in queries:
        if spans:
            yield query_id, *spans[best_overlap(asked[query_id], passages)]


def _moved(doc_id: str, text: str, segments: list[tuple[int, int]], places: list[_Place]) -> Iterator[RelevantPosition]:
    """Yield the pieces of each place in the order of the shuffled document; a border may cut one in two."""
    counts = count_tokens([text[start:end] for start, end in segments])
    length = sum(counts)
    for query_id, begin, stop in places:
        char, token = 0, 0
        for (start, end), tokens in zip(segments, counts, strict=True):
            first, last = max(start, begin), min(end, stop)
            piece = text[first:last]
            if first < last and piece.strip():
                first += len(piece) - len(piece.lstrip())
                last = first + len(piece.strip())
                before, inside = count_tokens([text[start:first], text[first:last]])
                tokens_in, chars_in = token + before, char + first - start
                ends = tokens_in + inside, chars_in + last - first
                yield RelevantPosition(query_id, doc_id, tokens_in, ends[0], chars_in, ends[1], length)
            char, token = char + end - start + 1, token + tokens
