"""Which documents stand for "relevant", and which for "retrieved"."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.trec_files import Qrels, Run


@dataclass(frozen=True)
class Chosen:
    """Documents of each query, in the order of the queries; one that several queries have counts once for each."""

    documents: tuple[tuple[str, ...], ...]

    def cut(self, depths: Sequence[int]) -> Chosen:
        """Return the first documents of each query, as many as its depth says; queries of depth 0 are left out."""
        pairs = zip(self.documents, depths, strict=True)
        return Chosen(tuple(documents[:depth] for documents, depth in pairs if depth))

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


def with_relevant(qrels: Qrels, queries: Sequence[str], relevant_from: int) -> tuple[str, ...]:
    """Return the queries that have a document of that grade or a better one."""
    return tuple(query for query in queries if any(grade >= relevant_from for grade in qrels.get(query, {}).values()))


def judged(qrels: Qrels, queries: Sequence[str], most: int | None, seed: int, relevant_from: int) -> Chosen:
    """Return the relevant documents of each query, at most ``most`` of one query.

    Args:
        qrels: judgements.
        queries: whose.
        most: ``None``: all.  The best grades come first; among equal grades, chance decides by ``seed``, for each query
            alone, so that other queries or another order of the file change nothing.
        seed: of that chance.
        relevant_from: the least grade of a relevant document.
    """
    return Chosen(tuple(_best(qrels.get(query, {}), query, most, seed, relevant_from) for query in queries))


def _best(grades: Mapping[str, int], query: str, most: int | None, seed: int, relevant_from: int) -> tuple[str, ...]:
    def drawn(document: str) -> bytes:
        return hashlib.sha256(f"{seed}\n{query}\n{document}".encode("utf-8", "surrogatepass")).digest()

    relevant = [document for document, grade in grades.items() if grade >= relevant_from]
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
