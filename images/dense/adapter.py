"""A bi-encoder (one vector a text) over a faiss index."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import faiss_index
import numpy
import parameters
import ranking
from encoder.model import Model
from encoder.prepare import checkpoint_sha256
from encoder.roles import Role, role
from encoder.shards import Shards
from encoder.tokens import Batch
from index_files import built_with, doc_ids

from harness.driver.adapter import Adapter, Corpus, Document
from harness.driver.records import Envelope, Hit, Scalar

_ENGINE = "dense"
_FORMAT = 3  # of what lies in an index's folder
_BUILDING = ".building"


class Dense(Adapter):
    """One vector a document, one a query; the nearest are found exactly or approximately.

    Parameters: see ``parameters.py`` and :mod:`encoder.roles`.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._all = parameters.complete(params)
        self._settings = parameters.settings(self._all)
        self._stages_s: dict[str, float] = {}
        self._encoded: Sequence[Batch] = ()
        self._compared: dict[str, int] = {}  # of the last score
        self._resumed_s = 0.0
        self._model: Model | None = None

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Encode all documents in shards, then put their vectors into an index.

        What an attempt that was cut short left in ``index_dir`` is used, if it was made with the same parameters and
        checkpoint.

        Raises:
            ValueError: the corpus is empty, or a parameter does not fit it.
            BadCheckpoint: the weights are not what the parameters say.
        """
        import faiss

        asked = self._role("document")
        key = {**self._facts(), "batch_size": self._all["batch_size"]}
        building = index_dir / _BUILDING
        shards = Shards(building / "shards", key, self._all["shard_documents"])

        def encode(documents: list[Document], place: Path, done: Callable[[int], None]) -> None:
            self._model = self._model or self._load(asked)
            numpy.save(place / faiss_index.VECTORS, self._vectors(documents, done))
            doc_ids.write(place, [document.doc_id for document in documents])

        folders = shards.run(corpus, encode, progress)
        self._resumed_s = shards.resumed_s
        faiss.omp_set_num_threads(self.envelope.cpus)
        vectors = faiss_index.Shards(folders)
        faiss_index.build(vectors, index_dir, self._settings, lambda _: progress(len(vectors)))
        doc_ids.join(folders, index_dir)
        built_with.write(index_dir, {**self._facts(), "documents": len(vectors), "dimensions": vectors.dims})
        shutil.rmtree(building)

    def resumed_s(self) -> float:
        """Seconds that earlier attempts spent on the shards that this build found."""
        return self._resumed_s

    def load(self, index_dir: Path) -> None:
        """Read weights and vectors.

        Raises:
            ValueError: the index is of another engine or version, was made with other parameters or weights, or its
                parts do not fit together.
            BadCheckpoint: the weights are not what the parameters say.
        """
        import faiss

        made = built_with.check(index_dir, self._facts())
        asked = self._role("query")
        self._model = self._load(asked)
        self._model.meet_lengths(int(self._all["query_tokens"]))
        if self._model.dims != made["dimensions"]:
            raise ValueError(
                f"{asked.folder} makes vectors of {self._model.dims} dimensions, the index has {made['dimensions']}"
            )
        # One query's search can be slower on more threads: the parameter decides.
        faiss.omp_set_num_threads(min(int(self._all["faiss_threads"]) or self.envelope.cpus, self.envelope.cpus))
        self._index = faiss_index.load(index_dir, self._settings, made["dimensions"])
        self._ids = doc_ids.Ids(index_dir)
        if not len(self._ids) == self._index.ntotal == made["documents"]:
            raise ValueError(
                f"the index has {self._index.ntotal} vectors, {len(self._ids)} ids, {made['documents']} documents"
            )

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Encode the query and find the nearest documents."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Encode all queries, in one forward pass where the backend allows it, and search for all of them at once."""
        clock = time.perf_counter
        start = clock()
        batches = self._tokenised(queries)
        tokenised = clock()
        # The vectors come back to the host as numbers, so an accelerator has finished here.
        vectors = self._run(batches)
        encoded = clock()
        answers = self._nearest(vectors, k)
        self._encoded, self._compared = batches, {}
        self._stages_s = {"tokenise": tokenised - start, "encode": encoded - tokenised, "retrieve": clock() - encoded}
        return answers

    def _nearest(self, vectors: Any, k: int) -> list[list[Hit]]:
        """Search for all vectors at once; of equal scores the earlier document is first."""
        first = self._pairs(vectors, k + 1)

        def search(number: int, count: int) -> list[tuple[float, int]]:
            return first[number] if count == k + 1 else self._pairs(vectors[number : number + 1], count)[0]

        ranked = (ranking.best(partial(search, number), k) for number in range(len(first)))
        return [[Hit(self._ids[row], score) for score, row in pairs] for pairs in ranked]

    def _pairs(self, vectors: Any, k: int) -> list[list[tuple[float, int]]]:
        """Return scores and rows of the k nearest of each vector; which of equal scores are in is faiss's choice."""
        found, rows = self._index.search(vectors, min(k, len(self._ids)))
        found = faiss_index.scores(found, self._settings)
        # An approximate index that finds too few fills up with row -1.
        return [
            [(score, row) for score, row in zip(*pairs, strict=True) if row >= 0]
            for pairs in zip(found.tolist(), rows.tolist(), strict=True)
        ]

    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Encode the query and compare it with the stored vectors of the documents: a second stage without their texts.

        Raises:
            ValueError: the index lacks a document, or is of a kind that gives no vector back.
        """
        assert self._model is not None
        clock = time.perf_counter
        start = clock()
        rows = self._ids.rows(doc_ids)
        fetched = clock()
        batch = self._model.tokenise([query], int(self._all["query_tokens"]))
        tokenised = clock()
        vector = numpy.ascontiguousarray(self._model.run(batch), dtype=numpy.float32)
        found = faiss_index.scores_of(self._index, rows, vector, self._settings)
        self._stages_s = {"fetch": fetched - start, "tokenise": tokenised - fetched, "score": clock() - tokenised}
        self._encoded = [batch]
        self._compared = {
            "pairs": len(rows),
            "windows": 1,
            "tokens": int(batch.mask.sum()),
            "padded_tokens": batch.mask.size,
            "calls": 1,
            "flop": 2 * len(rows) * self._model.dims,
        }
        return found

    def stages_s(self) -> dict[str, float]:
        """Seconds of the last call.

        Of a search or batch: ``tokenise``, ``encode`` (the model alone), ``retrieve`` (search, and make the hits).  Of
        ``score``: ``fetch`` (find the rows), ``tokenise``, ``score`` (encode and compare).
        """
        return dict(self._stages_s)

    def counts(self) -> dict[str, int]:
        """Return the encoder's ``parameters`` and its ``flop`` for the last query; of ``score`` its other work as well.

        The documents were encoded when the index was made; what a search of the index compares is not counted.
        """
        assert self._model is not None
        encoder = self._model.counts(self._encoded)
        return {**self._compared, **encoder, "flop": encoder["flop"] + self._compared.get("flop", 0)}

    def threads(self) -> dict[str, int]:
        """Return the thread counts of the backend, faiss and every BLAS and OpenMP library in this process.

        The tokeniser is held by ``RAYON_NUM_THREADS`` and cannot be asked.
        """
        import faiss
        from threadpoolctl import threadpool_info

        # Several copies of one library may be loaded, each with a pool of its own: the largest counts.
        pools: dict[str, int] = {}
        for pool in threadpool_info():
            pools[pool["prefix"]] = max(int(pool["num_threads"]), pools.get(pool["prefix"], 0))
        said = self._model.threads() if self._model else {}
        return {**said, "faiss_omp": faiss.omp_get_max_threads(), **pools}

    def libraries(self) -> dict[str, str]:
        """Versions of what does the work."""
        return {**(self._model.libraries() if self._model else {}), "faiss-cpu": version("faiss-cpu")}

    def device(self) -> str:
        """``cuda`` when the envelope has a GPU, else ``cpu``; the index is searched on the CPU in both cases."""
        return "cuda" if self.envelope.gpus > 0 else "cpu"

    def close(self) -> None:
        """Let go of weights and vectors."""
        del self._model, self._index

    def _role(self, side: str) -> Role:
        found = role(side, self._all)
        if found is None:
            raise ValueError(f"the parameters name no model for {side} texts; add model or {side}_model")
        return found

    def _load(self, asked: Role) -> Model:
        normalise = asked.params["normalise"] or self._settings.similarity == "cosine"
        return Model.load(
            self.assets / asked.folder,
            asked.head,
            asked.backend,
            threads=self.envelope.cpus,
            device=self.device(),
            params={**asked.params, "normalise": normalise},
        )

    def _tokenised(self, queries: Sequence[str]) -> list[Batch]:
        """Return queries as batches of token ids: one by one where a batch would change its texts' vectors."""
        assert self._model is not None
        tokens = int(self._all["query_tokens"])
        groups = [[query] for query in queries] if self._model.mixes else [queries]
        return [self._model.tokenise(group, tokens) for group in groups]

    def _run(self, batches: Sequence[Batch]) -> Any:
        """Encode batches into float32 rows on the host."""
        assert self._model is not None
        rows = [self._model.run(batch) for batch in batches]
        return rows[0] if len(rows) == 1 else numpy.concatenate(rows)

    def _vectors(self, documents: list[Document], done: Callable[[int], None]) -> Any:
        """Encode documents into float32 rows, in their order."""
        assert self._model is not None
        rows: Any = numpy.empty((len(documents), self._model.dims), dtype=numpy.float32)
        texts = [self._text(document) for document in documents]
        finished = 0
        for numbers, batch in self._model.batches(texts, self._all["document_tokens"], self._all["batch_size"]):
            rows[numbers] = self._model.run(batch)
            finished += len(numbers)
            done(finished)
        return rows

    def _text(self, document: Document) -> str | tuple[str, str]:
        if not document.title or self._all["title"] == "drop":
            return document.text
        if self._all["title"] == "pair":
            return (document.title, document.text)
        return f"{document.title}{self._all['title_separator']}{document.text}"

    def _facts(self) -> dict[str, Scalar]:
        """Return all facts that an index depends on."""
        return {
            "engine": _ENGINE,
            "format": _FORMAT,
            "checkpoint_sha256": checkpoint_sha256(self.assets / self._role("document").folder),
            **parameters.shaping(self._all),
        }


ENGINE = Dense
