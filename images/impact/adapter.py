"""Learned sparse retrieval: neural encoders, and Lucene's inverted index through Anserini."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jvm import indexing, languages, runtime, searching
from jvm.java import Java
from term_weights.engine import TermWeights

from harness.driver.adapter import Corpus
from harness.driver.records import Envelope, Hit, Scalar


class Impact(TermWeights):
    """SPLADE and uniCOIL (impacts of terms), DeepCT and docT5query (text made for BM25).

    Parameters: those of :class:`TermWeights`, ``language``, ``build_heap_mib``, ``force_merge``; ``heap_mib``, and
    ``k1`` and ``b`` where BM25 ranks.
    """

    name = "impact"
    own = runtime.PARAMETERS
    texts = True

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._language = languages.check(str(params.get("language", languages.ENGLISH)))
        self._java = Java(params, envelope, assets)
        self._left_out = 0

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Encode the documents in shards that outlive an interruption, then hand them to Anserini's own indexer."""
        self._java.builds = True
        super().build(corpus, index_dir, progress)

    def index(self, files: Sequence[Path], index_dir: Path, staged: Path) -> None:
        """Hand the files to Anserini's indexer."""
        self._left_out = self._indexer().build_files(files, index_dir, staged)

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents: Anserini ends well whatever failed in its threads."""
        self._indexer().verify(index_dir, len(corpus) - self._left_out)

    def open(self, index_dir: Path) -> None:
        """Start the JVM in this process and open the index."""
        self._java.start()
        self._searcher: searching.Weights | searching.Words
        if self._method.impact:
            self._searcher = searching.Weights(index_dir)
        else:
            analyzer = languages.analyzer(self._language)
            k1, b = float(self.params["k1"]), float(self.params["b"])
            self._searcher = searching.Words(index_dir, k1, b, analyzer)

    def find(self, query: Any, k: int) -> list[Hit]:
        """Add up products of impacts, or rank a text's words with BM25."""
        return self._searcher.search(query, k)

    def threads(self) -> dict[str, int]:
        """Return the thread counts of the JVM and the encoder's backend."""
        return {**runtime.threads(), **super().threads()}

    def index_libraries(self) -> Mapping[str, str]:
        """Return the versions of Anserini, Lucene and Java, and JVM options."""
        return self._java.libraries()

    def index_version(self) -> Mapping[str, Scalar]:
        """Return Anserini's version."""
        return {"anserini": runtime.anserini_version(self.assets)}

    def close(self) -> None:
        """Close the index and let go of the encoder."""
        self._searcher.close()
        super().close()

    def _indexer(self) -> indexing.Indexer:
        if self._method.impact:
            return self._java.indexer("JsonVectorCollection", ["-impact", "-pretokenized"])
        return self._java.indexer("JsonCollection", languages.index_options(self._language))


ENGINE = Impact
