"""BM25 over an index of Anserini's: everything but the searcher, in which engines differ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import parameter_names
from index_files import built_with

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope, Scalar
from jvm import indexing, languages, runtime
from jvm.java import Java


def facts(engine: str, assets: Path, language: str) -> dict[str, Scalar]:
    """Return what an index of an engine remembers of how it was built."""
    return {"engine": engine, "anserini": runtime.anserini_version(assets), "language": language}


class Bm25Index(Adapter):
    """Builds an index of one field that holds title and text; something else searches it.

    Parameters: ``language`` (a code of Anserini's; ``en`` where absent), ``build_heap_mib``, ``force_merge``.
    """

    engine: str  # its name, which its indexes remember
    parameters = (*runtime.PARAMETERS, "language", "k1", "b")

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        parameter_names.check(params, self.parameters, "this engine")
        self.language = languages.check(str(params.get("language", languages.ENGLISH)))
        self._java = Java(params, envelope, assets)
        self._left_out = 0

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Hand the corpus to Anserini's own indexer, in its own file format."""
        progress(0)
        self._java.builds = True
        self._left_out = self._indexer().build(
            ({"id": document.doc_id, "contents": indexing.full_text(document)} for document in corpus), index_dir
        )
        built_with.write(index_dir, self._facts())
        progress(len(corpus))

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents: Anserini ends well whatever failed in its threads."""
        self._indexer().verify(index_dir, len(corpus) - self._left_out)

    def libraries(self) -> dict[str, str]:
        """Versions and JVM options."""
        return self._java.libraries()

    def _indexer(self) -> indexing.Indexer:
        return self._java.indexer("JsonCollection", languages.index_options(self.language))

    def _facts(self) -> dict[str, Scalar]:
        return facts(self.engine, self.assets, self.language)


class Bm25(Bm25Index):
    """BM25 over one field that holds title and text.

    Parameters: those of :class:`Bm25Index`; ``heap_mib``, ``k1``, ``b``.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._stages_s: dict[str, float] = {}

    @abstractmethod
    def open(self, index_dir: Path) -> Any:
        """Return a searcher of the index, which has ``close()``; the JVM runs already."""

    def load(self, index_dir: Path) -> None:
        """Start the JVM in this process and open the index.

        Raises:
            ValueError: the index is of another engine, language or version.
        """
        self._java.builds = False
        built_with.check(index_dir, self._facts())
        self._java.start()
        self._searcher = self.open(index_dir)

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last search or batch: ``retrieve`` (with the analysis), and what follows it."""
        return dict(self._stages_s)

    def threads(self) -> dict[str, int]:
        """Return the JVM's thread counts."""
        return runtime.threads()

    def close(self) -> None:
        """Close the index."""
        self._searcher.close()
