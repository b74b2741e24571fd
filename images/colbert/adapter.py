"""Late interaction: ColBERTv2 with PLAID, ColBERTv1, DESSERT and MUVERA, over ``colbert-ai``."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine import checkpoint, encoding, parameters, runtime
from engine.build_state import BuildState
from engine.encoding import Passages, Setup
from index_files import built_with, doc_ids

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope, Hit, Scalar

_KEPT = ".building"


class ColBERT(Adapter):
    """Token vectors of documents, compared with those of the query.

    Parameters of all methods: ``method`` (one of ``parameters.METHODS``), ``checkpoint`` (folder of the assets),
    ``document_tokens``, ``batch_size``, ``chunk_documents`` (documents encoded and kept at once); ``query_tokens``.

    ``plaid``: ``nbits`` (of a residual's dimension: 1, 2 or 4), ``kmeans_niters``; ``k`` (asked of the engine at
    least), ``ncells``, ``centroid_score_threshold``, ``ndocs`` (a quarter of them is scored in full: no more are ever
    returned).

    ``uncompressed``: ``candidates`` (``faiss`` or ``all``); ``nprobe``, ``faiss_depth``.

    ``plaid``, ``dessert``, ``muvera``: ``mmap`` (read residuals or hashes through the memory map; false where absent).

    ``dessert``: ``kmeans_niters``, ``tables``, ``bits`` (projections a table); ``ncells``, ``scored`` (documents).

    ``muvera``: ``nbits``, ``kmeans_niters``; ``repetitions``, ``planes``, ``inner``, ``final`` (of its encodings),
    ``fde_index`` (``flat``, ``sq8`` or ``hnsw``), ``hnsw_m``; ``hnsw_ef_search``, ``candidates`` (documents that MaxSim
    scores).
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        parameters.check(params)
        self._method = str(params["method"])
        self._checkpoint = assets / str(params["checkpoint"])
        self._stages_s: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._resumed_s = 0.0

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Encode all documents and write the engine's index, ids and what they were made with."""
        progress(0)
        if len(corpus) == 0:
            raise ValueError("the corpus is empty")
        runtime.start(self.envelope.cpus, self.envelope.gpus)
        facts = {**self._facts(), "documents": len(corpus)}
        batches = {name: self.params[name] for name in ("chunk_documents", "batch_size")}
        state = BuildState(index_dir / _KEPT, {**facts, **batches})
        if (index_dir / self._method).is_dir():  # an attempt that ended right after moving it there
            (index_dir / self._method).replace(state.folder / self._method)
        setup = self._setup(len(corpus), index_bsize=int(self.params["batch_size"]))
        folder: Path = parameters.METHODS[self._method].build(Passages(corpus), setup, state, progress)
        self._resumed_s = state.resumed_s
        doc_ids.write(index_dir, (document.doc_id for document in corpus))
        folder.replace(index_dir / folder.name)
        built_with.write(index_dir, facts)
        shutil.rmtree(state.folder)
        progress(len(corpus))

    def resumed_s(self) -> float:
        """Seconds that earlier attempts spent on what this build took over."""
        return self._resumed_s

    def load(self, index_dir: Path) -> None:
        """Read weights and the whole index into memory.

        Raises:
            ValueError: the index is of another engine, system, checkpoint or version, or its parts do not fit together.
        """
        if self.params.get("mmap") and self.envelope.gpus:
            raise ValueError("mmap is true, but a search on a GPU holds the whole index; leave it out")
        runtime.start(self.envelope.cpus, self.envelope.gpus)
        documents = int(built_with.check(index_dir, self._facts())["documents"])
        self._ids = doc_ids.Ids(index_dir)
        self._searcher: Any = parameters.METHODS[self._method].load(index_dir, self._setup(documents))
        if not len(self._ids) == len(self._searcher) == documents:
            raise ValueError(
                f"the index has {len(self._searcher)} documents and {len(self._ids)} ids, it was made of {documents};"
                " build it again"
            )
        self._tokenised = encoding.TokeniserClock(self._searcher.checkpoint)
        self._parameters = encoding.parameters(self._searcher.checkpoint)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Encode the query, find candidates and compare all their tokens."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Encode all queries in one forward pass; the engine searches for one after the other."""
        start, before_s = time.perf_counter(), self._tokenised.seconds
        vectors = self._searcher.encode(list(queries))
        encoded, tokenise_s = time.perf_counter(), self._tokenised.seconds - before_s
        answers, rerank_s = [], 0.0
        for row in range(len(queries)):
            numbers, scores = self._searcher.search(vectors[row : row + 1], k)
            answers.append([Hit(self._ids[each], score) for each, score in zip(numbers, scores, strict=True)])
            rerank_s += self._searcher.rerank_s
        # A query is filled up with masks: each of the batch has as many tokens.
        self._counts = {**self._searcher.counts, "flop": len(queries) * self._flop(vectors)}
        self._stages_s = {
            "tokenise": tokenise_s,
            "encode": encoded - start - tokenise_s,
            "retrieve": time.perf_counter() - encoded - rerank_s,
            "rerank": rerank_s,
        }
        return answers

    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Encode the query and compare it with all stored token vectors of the documents (MaxSim).

        Raises:
            ValueError: the index lacks a document.
        """
        clock = time.perf_counter
        start = clock()
        numbers = self._ids.rows(doc_ids)
        fetched = clock()
        before_s = self._tokenised.seconds
        vectors = self._searcher.encode([query])
        scores: list[float] = self._searcher.score(vectors, numbers) if len(numbers) else []
        tokenise_s = self._tokenised.seconds - before_s
        self._stages_s = {
            "fetch": fetched - start,
            "tokenise": tokenise_s,
            "score": clock() - fetched - tokenise_s,
        }
        # A query is filled up with masks, and their vectors take part: all of its tokens are real.
        tokens = int(vectors.shape[1])
        self._counts = {
            "pairs": len(numbers),
            "windows": 1,
            "tokens": tokens,
            "padded_tokens": tokens,
            "calls": 1,
            "flop": self._flop(vectors) + self._searcher.flop(vectors, numbers),
        }
        return scores

    def stages_s(self) -> dict[str, float]:
        """Seconds of the last call.

        Of a search or batch: ``tokenise``, ``encode`` (the model alone), ``retrieve`` (find and prune, and make the
        hits), ``rerank`` (all tokens).  Of ``score``: ``fetch`` (find the rows), ``tokenise`` and ``score`` (encode,
        decompress and compare).
        """
        return dict(self._stages_s)

    def counts(self) -> dict[str, int]:
        """Count the ``candidates`` of the last search and the passages ``scored`` in full, or the work of ``score``.

        ``flop`` of a search is the encoder's alone; ``parameters`` are the encoder's.
        """
        return {**self._counts, "parameters": self._parameters}

    def threads(self) -> dict[str, int]:
        """Return the thread counts of PyTorch, faiss and every BLAS and OpenMP library; the C++ code takes PyTorch's.

        The tokeniser is held by ``RAYON_NUM_THREADS`` and cannot be asked.
        """
        return runtime.threads()

    def libraries(self) -> dict[str, str]:
        """Versions of what does the work."""
        names = ("colbert-ai", "torch", "transformers", "tokenizers", "faiss-cpu", "numpy")
        return {name: version(name) for name in names}

    def device(self) -> str:
        """``cuda`` when the envelope has a GPU, else ``cpu``."""
        return "cuda" if self.envelope.gpus > 0 else "cpu"

    def close(self) -> None:
        """Let go of weights and index."""
        del self._searcher

    def _flop(self, vectors: Any) -> int:
        """Return the operations of encoding one query, whose token vectors these are (queries, tokens, dimensions)."""
        return encoding.flop(self._searcher.checkpoint, int(vectors.shape[1]))

    def _setup(self, documents: int, **settings: Any) -> Setup:
        """Build the engine's configuration for this system's parameters.

        Raises:
            ValueError: texts may be longer than the transformer has positions.
        """
        most = checkpoint.positions(self._checkpoint)
        for name in ("document_tokens", "query_tokens"):
            if most is not None and int(self.params[name]) > most:
                raise ValueError(
                    f"{name} is {self.params[name]}, the transformer of {self._checkpoint.name} reads at most {most}"
                )
        if "kmeans_niters" in self.params:
            # DESSERT keeps no residuals.
            settings |= {"nbits": int(self.params.get("nbits", 1)), "kmeans_niters": int(self.params["kmeans_niters"])}
        config = runtime.config(
            self._checkpoint,
            doc_maxlen=int(self.params["document_tokens"]),
            query_maxlen=int(self.params["query_tokens"]),
            **settings,
        )
        return Setup(self._checkpoint, config, self.params, documents, self.envelope.gpus > 0)

    def _facts(self) -> dict[str, Scalar]:
        """Return all facts that an index depends on."""
        return {
            "engine": f"colbert-ai {version('colbert-ai')}",
            "weights": checkpoint.fingerprint(self._checkpoint),
            **{name: self.params[name] for name in parameters.shaping(self._method)},
        }


ENGINE = ColBERT
