"""Which documents stand for "relevant", and which for "retrieved"."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.trec_files import Qrels, Run

# A document is relevant from this grade on.
RELEVANT = 1


@dataclass(frozen=True)
class Chosen:
    """Documents of each query, in the order of the queries; one that several queries have counts once for each."""

    documents: tuple[tuple[str, ...], ...]

    @property
    def size(self) -> int:
        """Documents in all."""
        return sum(map(len, self.documents))

    def fewer_than(self, k: int) -> int:
        """Queries that have fewer documents than that."""
        return sum(len(each) < k for each in self.documents)

    def names(self) -> Iterator[str]:
        """Every document, as often as it counts."""
        return (name for each in self.documents for name in each)


def with_relevant(qrels: Qrels, queries: Sequence[str]) -> tuple[str, ...]:
    """Those queries that have a relevant document; others say nothing of where relevant ones lie."""
    return tuple(query for query in queries if any(grade >= RELEVANT for grade in qrels.get(query, {}).values()))


def judged(qrels: Qrels, queries: Sequence[str], most: int | None, seed: int) -> Chosen:
    """The relevant documents of each query, balanced: at most so many of one query.

    Args:
        qrels: judgements.
        queries: whose.
        most: ``None``: all.  The best grades come first; among equal grades, chance decides by ``seed``, for each query
            alone, so that other queries or another order of the file change nothing.
        seed: of that chance.
    """
    return Chosen(tuple(_best(qrels.get(query, {}), query, most, seed) for query in queries))


def _best(grades: Mapping[str, int], query: str, most: int | None, seed: int) -> tuple[str, ...]:
    def drawn(document: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{query}\n{document}".encode("utf-8", "surrogatepass")).digest()

    relevant = [document for document, grade in grades.items() if grade >= RELEVANT]
    return tuple(sorted(relevant, key=lambda document: (-grades[document], drawn(document), document))[:most])


def retrieved(run: Run, qrels: Qrels, queries: Sequence[str], k: int, *, unlabelled: bool) -> Chosen:
    """The first ``k`` documents that a system retrieved for each query, as many as there are.

    Args:
        run: what it retrieved.
        qrels: judgements.
        queries: whose.
        k: how many.
        unlabelled: the paper's URR: every judged document of the query, of whatever grade, is skipped before ``k``
            are taken.
    """
    found = []
    for query in queries:
        skipped = qrels.get(query, {}) if unlabelled else {}
        found.append(tuple(each for each in run.rankings.get(query, ()) if each not in skipped)[:k])
    return Chosen(tuple(found))
