"""An engine of learned sparse retrieval without its index: encoders of both sides, builds in shards, stages."""

from __future__ import annotations

import json
import shutil
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from index_files import built_with

from harness.driver.adapter import Adapter, Corpus, Document
from harness.driver.records import Envelope, Hit, Scalar
from term_weights import methods

if TYPE_CHECKING:
    from term_weights.queries import Queries

_LINES = "documents.jsonl"
_BUILDING = ".building"


class TermWeights(Adapter):
    """Encodes documents and queries; a subclass indexes the lines of documents and ranks.

    Parameters: ``method``, those of ``encoder.roles``, ``quantisation`` or ``scale`` (what weights are multiplied by
    before they are rounded), ``query_quantisation`` (the same of queries, where it differs), those of
    ``term_weights.expansion``, ``batch_size``, ``shard_documents``, and the subclass's own.
    """

    name = ""
    own: tuple[str, ...] = ()  # parameters of the subclass
    shaping: tuple[str, ...] = ()  # those of them that the index depends on
    texts = False  # True if it ranks texts by BM25 too

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._method = methods.check(params, self.own, texts=self.texts)
        self._stages_s: dict[str, float] = {}
        self._encoders: dict[str, str] = {}
        self._resumed_s = 0.0
        self._queries: Queries | None = None
        self.names: list[str] = []  # of the terms, by token id, once an encoder is loaded
        self._device = "cpu"

    @abstractmethod
    def index(self, files: Sequence[Path], index_dir: Path, staged: Path) -> None:
        """Index the documents of files of JSON lines; see :data:`term_weights.methods.Line`.

        Args:
            staged: a place for a folder that the index does not need.
        """

    @abstractmethod
    def open(self, index_dir: Path) -> None:
        """Open the index."""

    @abstractmethod
    def find(self, query: Any, k: int) -> list[Hit]:
        """Return the best hits of a query: weights by term, or a text where BM25 ranks."""

    @abstractmethod
    def index_libraries(self) -> Mapping[str, str]:
        """Return the versions of the libraries that index and rank."""

    @abstractmethod
    def index_version(self) -> Mapping[str, Scalar]:
        """Return the version that an index depends on, by the library's name."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Encode the documents in shards that outlive an interruption, then index them."""
        building = index_dir / _BUILDING
        files = self._encode(corpus, building, progress)
        self.index(files, index_dir, building / "staged")
        built_with.write(index_dir, self._facts())
        shutil.rmtree(building)

    def resumed_s(self) -> float:
        """Seconds that earlier attempts spent on shards that this one found."""
        return self._resumed_s

    def load(self, index_dir: Path) -> None:
        """Read the encoder of queries, where there is one, and open the index.

        Raises:
            ValueError: the index is of another system or version.
        """
        built_with.check(index_dir, self._facts())
        if self._method.impact:  # where BM25 ranks, no encoder is so much as imported
            from term_weights.queries import Queries

            self._queries = Queries(self.params, self.assets, self.envelope.cpus, self._accelerator())
            self._encoders, self.names = self._queries.model.libraries(), self._queries.names
        self.open(index_dir)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Encode the query, if its method does, and rank."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Encode all queries in one forward pass; the index is asked for one after the other."""
        asked = self._queries(queries) if self._queries else queries
        start = time.perf_counter()
        found = [self.find(query, k) for query in asked]
        before = self._queries.stages_s if self._queries else {}
        self._stages_s = {**before, "retrieve": time.perf_counter() - start}
        return found

    def stages_s(self) -> dict[str, float]:
        """Seconds of the last search or batch: ``retrieve``, before it those of ``Queries`` where they are encoded."""
        return dict(self._stages_s)

    def counts(self) -> dict[str, int]:
        """Return the ``parameters`` of the encoder of queries and its ``flop`` for the last one, where there is one."""
        return self._queries.model.counts(self._queries.encoded) if self._queries else {}

    def threads(self) -> dict[str, int]:
        """Return the thread counts of the encoder's backend."""
        return dict(self._queries.model.threads()) if self._queries else {}

    def libraries(self) -> dict[str, str]:
        """Return the versions of the libraries that encode, index and rank."""
        return {**self.index_libraries(), **self._encoders}

    def device(self) -> str:
        """``cuda`` when the envelope has a GPU, and this job encodes anything; else ``cpu``."""
        return self._device

    def close(self) -> None:
        """Let go of the encoder."""
        self._queries = None

    def _encode(self, corpus: Corpus, building: Path, progress: Callable[[int], None]) -> list[Path]:
        """Write the documents' lines, one file a shard."""
        from encoder.shards import Shards

        shards = Shards(building / "shards", dict(self._facts()), int(self.params["shard_documents"]))
        writer = methods.writer(self.params, self.assets, self.envelope.cpus, self._accelerator())

        def work(documents: list[Document], place: Path, tell: Callable[[int], None]) -> None:
            with (place / _LINES).open("w", encoding="utf-8") as file:
                for line in writer.lines(documents, tell):
                    file.write(json.dumps(line) + "\n")

        folders = shards.run(corpus, work, progress)
        self._resumed_s = shards.resumed_s
        self._encoders = writer.libraries()
        self.names = writer.names if self._method.impact else []
        return [folder / _LINES for folder in folders]

    def _accelerator(self) -> str:
        self._device = "cuda" if self.envelope.gpus > 0 else "cpu"
        return self._device

    def _facts(self) -> dict[str, Scalar]:
        """Return all facts that an index depends on, from small files, so that no encoder is loaded."""
        known: dict[str, Scalar] = {"engine": self.name, **self.index_version(), "method": str(self.params["method"])}
        shaping = (*self._method.shaping, *self.shaping)
        known |= {name: self.params[name] for name in shaping if name in self.params}
        expander = str(self.params.get("expansion_model", ""))
        read = ((methods.document_model(self.params), "encoder.json"), (expander, "expander.json"))
        for folder, note in read:
            if folder:
                noted = json.loads((self.assets / folder / note).read_text(encoding="utf-8"))
                known[f"{folder}_sha256"] = noted["checkpoint_sha256"]
        return known
