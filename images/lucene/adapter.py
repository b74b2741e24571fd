"""BM25: Lucene through Anserini, whose parts are called in bulk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from jvm import languages, searching
from jvm.bm25 import Bm25

from harness.driver.records import Hit


class Lucene(Bm25):
    """BM25 whose ids and scores cross from Java in one call each.  Parameters: those of :class:`Bm25`."""

    engine = "lucene"

    def open(self, index_dir: Path) -> searching.Words:
        """See :class:`Bm25`."""
        analyzer = languages.analyzer(self.language)
        return searching.Words(index_dir, float(self.params["k1"]), float(self.params["b"]), analyzer)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank with BM25; ties are broken by id and their scores set apart, as Anserini does."""
        start = time.perf_counter()
        hits: Sequence[Hit] = self._searcher.search(query, k)
        self._stages_s = {"retrieve": time.perf_counter() - start}
        return hits


ENGINE = Lucene
