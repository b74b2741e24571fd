"""The searcher in this process: the parts that Anserini's own searchers are made of, asked in bulk.

Anserini's searchers hand out one Java object a hit, and each field of each costs a crossing into Java; ``ScoredDocs``
hands out all ids and all scores in one crossing each.  Equal in ids and scores (tests compare).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.records import Hit
from jvm import runtime
from jvm.indexing import LUCENE

_CONTENTS = "contents"
_ID = "id"

# Which of the overloaded methods: said outright, JNI need not compare all of them with the arguments at each call.
_SEARCH = "(Lorg/apache/lucene/search/Query;ILorg/apache/lucene/search/Sort;Z)Lorg/apache/lucene/search/TopFieldDocs;"
_OF_TEXT = "(Ljava/lang/String;Lorg/apache/lucene/analysis/Analyzer;Ljava/lang/String;)Lorg/apache/lucene/search/Query;"
_OF_WEIGHTS = "(Ljava/lang/String;Ljava/util/Map;)Lorg/apache/lucene/search/Query;"
_READ = "(Ljava/lang/String;Lcom/fasterxml/jackson/databind/JavaType;)Ljava/lang/Object;"

# A clause a term; Lucene's own 1,024 would refuse a pasted page as a query.
_MOST_CLAUSES = 1 << 20


def bm25(k1: float, b: float) -> Any:
    """Lucene's BM25; needs the JVM."""
    from jnius import autoclass

    return autoclass("org.apache.lucene.search.similarities.BM25Similarity")(k1, b)


def impact() -> Any:
    """Anserini's sum of products of the query's weights and the stored impacts; needs the JVM."""
    from jnius import autoclass

    return autoclass("io.anserini.search.similarity.ImpactSimilarity")()


class Searcher:
    """An open index.  ``runtime.start`` comes before."""

    def __init__(self, index_dir: Path, similarity: Any) -> None:
        from jnius import autoclass

        with runtime.java_errors():
            path = autoclass("java.nio.file.Paths").get(str(index_dir / LUCENE))
            directory = autoclass("org.apache.lucene.store.FSDirectory").open(path)
            self._reader = autoclass("org.apache.lucene.index.DirectoryReader").open(directory)
            searcher = autoclass("org.apache.lucene.search.IndexSearcher")
            searcher.setMaxClauseCount(_MOST_CLAUSES)
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

    def by_words(self, text: str, analyzer: Any, k: int) -> list[Hit]:
        """The best ``k`` for a text, as a bag of the words that the analyser makes of it."""
        with runtime.java_errors():
            query = self._generator.buildQuery(_CONTENTS, analyzer, text, signature=_OF_TEXT)
            return self._top(query, k)

    def by_weights(self, weights: Mapping[str, int], k: int) -> list[Hit]:
        """The best ``k`` for terms with weights."""
        with runtime.java_errors():
            return self._top(self._generator.buildQuery(_CONTENTS, self._java_map(weights), signature=_OF_WEIGHTS), k)

    def close(self) -> None:
        """Close the index."""
        self._reader.close()

    def _top(self, query: Any, k: int) -> list[Hit]:
        """Rank; ties are broken by id and their scores set apart, as Anserini does."""
        top = self._searcher.search(query, k, self._by_score_then_id, True, signature=_SEARCH)
        docs = self._ties.rerank(self._scored_docs.fromTopDocs(top, self._searcher), None)
        return [Hit(doc_id, score) for doc_id, score in zip(docs.docids, docs.scores, strict=True)]

    def _java_map(self, weights: Mapping[str, int]) -> Any:
        """Terms and weights as a Java map of floats, over in one crossing: as JSON, which Java reads itself."""
        from jnius import autoclass

        if not hasattr(self, "_json"):
            self._json = autoclass("com.fasterxml.jackson.databind.ObjectMapper")()
            find = autoclass("java.lang.Class").forName
            self._kind = self._json.getTypeFactory().constructMapType(
                find("java.util.HashMap"), find("java.lang.String"), find("java.lang.Float")
            )
        return self._json.readValue(json.dumps(weights), self._kind, signature=_READ)
