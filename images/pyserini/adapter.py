"""BM25 as users of Pyserini call it: ``LuceneSearcher.search``, then the id and the score of each hit."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jvm import indexing, languages, runtime, searching
from jvm.bm25 import Bm25

from harness.driver.records import Hit


class Pyserini(Bm25):
    """BM25 through Pyserini's own searcher.  Parameters: those of :class:`Bm25`.

    Index, JVM and its options are those of the engine ``lucene``; only the Python above them differs.
    """

    engine = "pyserini"

    def open(self, index_dir: Path) -> Any:
        """See :class:`Bm25`."""
        from jnius import autoclass
        from pyserini.search.lucene import LuceneSearcher

        with runtime.java_errors():
            # A pasted page is a query here, as it is for `lucene`; with Lucene's own limit it is an error.
            autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(searching.MOST_CLAUSES)
            searcher = LuceneSearcher(str(index_dir / indexing.LUCENE))
            searcher.set_bm25(float(self.params["k1"]), float(self.params["b"]))
            if self.language != languages.ENGLISH:
                searcher.set_language(self.language)
        return searcher

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank, then read the hits: each is an object of Java's, and each of its fields a crossing into Java."""
        clock = time.perf_counter
        start = clock()
        with runtime.java_errors():
            found = self._searcher.search(_encodable(query), k=k)
            retrieved = clock()
            hits = _read(found)
        self._stages_s = {"retrieve": retrieved - start, "read": clock() - retrieved}
        return hits

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Rank all queries with ``batch_search``, on as many threads as CPUs, then read their hits."""
        clock = time.perf_counter
        start = clock()
        names = [str(number) for number in range(len(queries))]
        with runtime.java_errors():
            texts = [_encodable(query) for query in queries]
            found = self._searcher.batch_search(texts, names, k=k, threads=self.envelope.cpus)
            retrieved = clock()
            answers = [_read(found[name]) for name in names]
        self._stages_s = {"retrieve": retrieved - start, "read": clock() - retrieved}
        return answers

    def libraries(self) -> dict[str, str]:
        """Versions and JVM options."""
        return {**super().libraries(), "pyserini": version("pyserini")}


def _read(hits: Iterable[Any]) -> list[Hit]:
    return [Hit(hit.docid, hit.score) for hit in hits]


def _encodable(query: str) -> str:
    """Return the query with half characters (lone surrogates) replaced: Java's strings cannot be made of them."""
    try:
        query.encode()
    except UnicodeEncodeError:
        return query.encode("utf-8", "replace").decode("utf-8")
    return query


ENGINE = Pyserini
