"""The searcher in this process: the parts that Anserini's own searchers are made of, asked in bulk.

Anserini's searchers hand out one Java object a hit, and each field of each costs a crossing into Java; ``ScoredDocs``
hands out all ids and all scores in one crossing each.  Equal in ids and scores (tests compare).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.driver.records import Hit
from jvm import runtime
from jvm.indexing import LUCENE

_CONTENTS = "contents"
_ID = "id"

# Which of the overloaded methods: said outright, JNI need not compare all of them with the arguments at each call.
_SEARCH = "(Lorg/apache/lucene/search/Query;ILorg/apache/lucene/search/Sort;Z)Lorg/apache/lucene/search/TopFieldDocs;"
_OF_TEXT = "(Ljava/lang/String;Lorg/apache/lucene/analysis/Analyzer;Ljava/lang/String;)Lorg/apache/lucene/search/Query;"
_OF_WEIGHTS = "(Ljava/lang/String;Ljava/util/Map;)Lorg/apache/lucene/search/Query;"
_READ = "(Ljava/lang/String;)Ljava/lang/Object;"

# A clause a term; Lucene's own 1,024 would refuse a pasted page as a query.
MOST_CLAUSES = 1 << 20


class _Searcher:
    """An open index.  ``runtime.start`` comes before."""

    def __init__(self, index_dir: Path, similarity: Any) -> None:
        from jnius import autoclass

        with runtime.java_errors():
            path = autoclass("java.nio.file.Paths").get(str(index_dir / LUCENE))
            directory = autoclass("org.apache.lucene.store.FSDirectory").open(path)
            self._reader = autoclass("org.apache.lucene.index.DirectoryReader").open(directory)
            searcher = autoclass("org.apache.lucene.search.IndexSearcher")
            searcher.setMaxClauseCount(MOST_CLAUSES)
            self._searcher = searcher(self._reader, signature="(Lorg/apache/lucene/index/IndexReader;)V")
            self._searcher.setSimilarity(similarity)
            self._generator = autoclass("io.anserini.search.query.BagOfWordsQueryGenerator")()
            self._scored_docs = autoclass("io.anserini.search.ScoredDocs")
            self._ties = autoclass("io.anserini.rerank.lib.ScoreTiesAdjusterReranker")()
            field, kind = (
                autoclass("org.apache.lucene.search.SortField"),
                autoclass("org.apache.lucene.search.SortField$Type"),
            )
            self._by_score_then_id = autoclass("org.apache.lucene.search.Sort")(
                field.FIELD_SCORE, field(_ID, kind.STRING_VAL)
            )

    def close(self) -> None:
        """Close the index."""
        self._reader.close()

    def _top(self, query: Any, k: int) -> list[Hit]:
        """Rank; ties are broken by id and their scores set apart, as Anserini does."""
        top = self._searcher.search(query, k, self._by_score_then_id, True, signature=_SEARCH)
        docs = self._ties.rerank(self._scored_docs.fromTopDocs(top, self._searcher), None)
        return [Hit(doc_id, score) for doc_id, score in zip(docs.docids, docs.scores, strict=True)]


class Words(_Searcher):
    """Asked with a text; ranks by BM25.

    Args:
        analyzer: what makes words of a text.
    """

    def __init__(self, index_dir: Path, k1: float, b: float, analyzer: Any) -> None:
        from jnius import autoclass

        super().__init__(index_dir, autoclass("org.apache.lucene.search.similarities.BM25Similarity")(k1, b))
        self._analyzer = analyzer

    def search(self, text: str, k: int) -> list[Hit]:
        """Return the ``k`` best hits."""
        with runtime.java_errors():
            try:
                query = self._generator.buildQuery(_CONTENTS, self._analyzer, text, signature=_OF_TEXT)
            except UnicodeEncodeError:
                return self.search(text.encode("utf-8", "replace").decode("utf-8"), k)
            return self._top(query, k)


class Weights(_Searcher):
    """Asked with terms and their weights; adds up products with the impacts that the index holds."""

    def __init__(self, index_dir: Path) -> None:
        from jnius import autoclass

        super().__init__(index_dir, autoclass("io.anserini.search.similarity.ImpactSimilarity")())
        of = autoclass("java.lang.Class").forName("java.lang.Float")
        self._maps = autoclass("com.fasterxml.jackson.databind.ObjectMapper")().readerForMapOf(of)

    def search(self, weights: Mapping[str, int], k: int) -> list[Hit]:
        """Return the ``k`` best hits."""
        with runtime.java_errors():
            # As JSON, which Java reads itself: one crossing, not two a term.
            terms = self._maps.readValue(json.dumps(weights), signature=_READ)
            return self._top(self._generator.buildQuery(_CONTENTS, terms, signature=_OF_WEIGHTS), k)
