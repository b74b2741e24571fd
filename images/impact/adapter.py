"""Learned sparse retrieval: neural encoders, and Lucene's inverted index through Anserini."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import impact_methods
from index_files import built_with
from jvm import indexing, languages, runtime, searching

from harness.driver.adapter import Adapter, Corpus, Document
from harness.records import Envelope, Hit, Scalar

if TYPE_CHECKING:
    from impact_queries import Queries

_LINES = "documents.jsonl"
_BUILDING = ".building"


class Impact(Adapter):
    """SPLADE and uniCOIL (impacts of terms), DeepCT and docT5query (text made for BM25).

    Parameters: ``method``, those of ``encoder.roles``, ``quantisation`` or ``scale`` (what weights are multiplied by
    before they are rounded), those of ``impact_expansion``, ``batch_size``, ``shard_documents``, ``language``,
    ``build_heap_mib``, ``force_merge``; ``heap_mib``, and ``k1`` and ``b`` where BM25 ranks.
    """

    _heap = "heap_mib"  # the parameter that sizes the JVM of this job

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._method = impact_methods.check(params)
        self._language = languages.check(str(params.get("language", languages.ENGLISH)))
        self._stages_s: dict[str, float] = {}
        self._encoders: dict[str, str] = {}
        self._resumed_s = 0.0
        self._left_out = 0
        self._queries: Queries | None = None
        self._device = "cpu"

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Encode the documents in shards that outlive an interruption, then hand them to Anserini's own indexer."""
        self._heap = "build_heap_mib"
        building = index_dir / _BUILDING
        files = self._encode(corpus, building, progress)
        self._left_out = self._indexer().build_files(files, index_dir, building / "staged")
        built_with.write(index_dir, self._facts())
        shutil.rmtree(building)

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and count its documents: Anserini ends well whatever failed in its threads."""
        self._indexer().verify(index_dir, len(corpus) - self._left_out)

    def resumed_s(self) -> float:
        """Seconds that earlier attempts spent on shards that this one found."""
        return self._resumed_s

    def load(self, index_dir: Path) -> None:
        """Read the encoder of queries, where there is one; start the JVM in this process and open the index.

        Raises:
            ValueError: the index is of another system or version.
        """
        built_with.check(index_dir, self._facts())
        if not self._method.impact:
            runtime.start(self._jvm_options(), runtime.jar(self.assets))
            analyzer = languages.analyzer(self._language)
            self._words = searching.Words(index_dir, float(self.params["k1"]), float(self.params["b"]), analyzer)
            return
        # Where BM25 ranks, no encoder is so much as imported.
        from impact_queries import Queries

        self._queries = Queries(self.params, self.assets, self.envelope.cpus, self._accelerator())
        self._encoders = self._queries.model.libraries()
        runtime.start(self._jvm_options(), runtime.jar(self.assets))
        self._weights = searching.Weights(index_dir)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Encode the query and add up products of impacts; or rank its words with BM25."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Encode all queries in one forward pass; the index is asked for one after the other."""
        start = time.perf_counter()
        if self._queries is None:
            found = [self._words.search(query, k) for query in queries]
            self._stages_s = {"retrieve": time.perf_counter() - start}
            return found
        weights = self._queries(queries)
        encoded = time.perf_counter()
        found = [self._weights.search(each, k) for each in weights]
        self._stages_s = {"encode": encoded - start, "retrieve": time.perf_counter() - encoded}
        return found

    def stages_s(self) -> dict[str, float]:
        """Seconds of the last search or batch: ``retrieve``, and ``encode`` where queries are encoded."""
        return dict(self._stages_s)

    def threads(self) -> dict[str, int]:
        """Return the thread counts of the JVM and the encoder's backend."""
        return {**runtime.threads(), **(self._queries.model.threads() if self._queries else {})}

    def libraries(self) -> dict[str, str]:
        """Versions of what does the work, and JVM options."""
        return {**runtime.libraries(self.assets, self._jvm_options()), **self._encoders}

    def device(self) -> str:
        """``cuda`` when the envelope has a GPU, and this job encodes anything; else ``cpu``."""
        return self._device

    def close(self) -> None:
        """Close the index and let go of the encoder."""
        (self._weights if self._method.impact else self._words).close()
        self._queries = None

    def _encode(self, corpus: Corpus, building: Path, progress: Callable[[int], None]) -> list[Path]:
        """Write the documents' lines, one file a shard."""
        from encoder.shards import Shards

        shards = Shards(building / "shards", dict(self._facts()), int(self.params["shard_documents"]))
        writer = impact_methods.writer(self.params, self.assets, self.envelope.cpus, self._accelerator())

        def work(documents: list[Document], place: Path, tell: Callable[[int], None]) -> None:
            with (place / _LINES).open("w", encoding="utf-8") as file:
                for line in writer.lines(documents, tell):
                    file.write(json.dumps(line) + "\n")

        folders = shards.run(corpus, work, progress)
        self._resumed_s = shards.resumed_s
        self._encoders = writer.libraries()
        return [folder / _LINES for folder in folders]

    def _indexer(self) -> indexing.Indexer:
        impacts = self._method.impact
        return indexing.Indexer(
            collection="JsonVectorCollection" if impacts else "JsonCollection",
            options=["-impact", "-pretokenized"] if impacts else languages.index_options(self._language),
            force_merge=bool(self.params["force_merge"]),
            assets=self.assets,
            heap_mib=int(self.params["build_heap_mib"]),
            cpus=self.envelope.cpus,
        )

    def _accelerator(self) -> str:
        self._device = "cuda" if self.envelope.gpus > 0 else "cpu"
        return self._device

    def _expander(self) -> str:
        return str(self.params.get("expansion_model", ""))

    def _jvm_options(self) -> list[str]:
        options = runtime.search_options if self._heap == "heap_mib" else runtime.options
        return options(int(self.params[self._heap]), self.envelope.cpus)

    def _facts(self) -> dict[str, Scalar]:
        """Return all facts that an index depends on, from small files, so that no encoder is loaded."""
        known: dict[str, Scalar] = {
            "engine": "impact",
            "anserini": runtime.anserini_version(self.assets),
            "method": str(self.params["method"]),
        }
        known |= {name: self.params[name] for name in self._method.shaping if name in self.params}
        read = ((impact_methods.document_model(self.params), "encoder.json"), (self._expander(), "expander.json"))
        for folder, note in read:
            if folder:
                noted = json.loads((self.assets / folder / note).read_text(encoding="utf-8"))
                known[f"{folder}_sha256"] = noted["checkpoint_sha256"]
        return known


ENGINE = Impact
