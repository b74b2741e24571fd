"""BM25 over an index of Anserini's: everything but the searcher, for engines that differ in who calls it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import parameter_names
from index_files import built_with

from harness.driver.adapter import Adapter, Corpus
from harness.records import Envelope, Scalar
from jvm import indexing, languages, runtime


class Bm25(Adapter):
    """BM25 over one field that holds title and text.

    Parameters: ``language`` (a code of Anserini's; ``en`` where absent), ``build_heap_mib``, ``force_merge``;
    ``heap_mib``, ``k1``, ``b``.
    """

    # The engine's name, which its indexes remember.
    engine: str
    _heap = "heap_mib"  # the parameter that sizes the JVM of this job

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        parameter_names.check(params, (*runtime.PARAMETERS, "language", "k1", "b"), "this engine")
        self.language = languages.check(str(params.get("language", languages.ENGLISH)))
        self._left_out = 0

    @abstractmethod
    def open(self, index_dir: Path) -> Any:
        """Return a searcher of the index, which has ``close()``; the JVM runs already."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Hand the corpus to Anserini's own indexer, in its own file format."""
        progress(0)
        self._heap = "build_heap_mib"
        self._left_out = self._indexer().build(
            ({"id": document.doc_id, "contents": indexing.full_text(document)} for document in corpus), index_dir
        )
        built_with.write(index_dir, self._facts())
        progress(len(corpus))

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents: Anserini ends well whatever failed in its threads."""
        self._indexer().verify(index_dir, len(corpus) - self._left_out)

    def load(self, index_dir: Path) -> None:
        """Start the JVM in this process and open the index.

        Raises:
            ValueError: the index is of another engine, language or version.
        """
        self._heap = "heap_mib"
        built_with.check(index_dir, self._facts())
        runtime.start(self._jvm_options(), runtime.jar(self.assets))
        self._searcher = self.open(index_dir)

    def threads(self) -> dict[str, int]:
        """Return the JVM's thread counts."""
        return runtime.threads()

    def libraries(self) -> dict[str, str]:
        """Versions and JVM options."""
        return runtime.libraries(self.assets, self._jvm_options())

    def close(self) -> None:
        """Close the index."""
        self._searcher.close()

    def _indexer(self) -> indexing.Indexer:
        return indexing.Indexer(
            collection="JsonCollection",
            options=languages.index_options(self.language),
            force_merge=bool(self.params["force_merge"]),
            assets=self.assets,
            heap_mib=int(self.params["build_heap_mib"]),
            cpus=self.envelope.cpus,
        )

    def _jvm_options(self) -> list[str]:
        options = runtime.search_options if self._heap == "heap_mib" else runtime.options
        return options(int(self.params[self._heap]), self.envelope.cpus)

    def _facts(self) -> dict[str, Scalar]:
        version = runtime.anserini_version(self.assets)
        return {"engine": self.engine, "anserini": version, "language": self.language}
