"""The client of three servers: of embeddings, of vectors and texts, and of a reranker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import service
from embedding_server.client import whole
from service_client import HttpClient, wait_until
from vector_server.engine import Embeddings

from harness.driver.adapter import QueryFailed
from harness.driver.records import MAX_DEPTH, Envelope, Hit, Scalar


class RerankService(Embeddings):
    """Asks for a query's vector, for the nearest documents with their texts, and has the first ``depth`` reranked.

    Three requests a query, to three servers that share the measured envelope.  The texts go from the server of vectors
    through the client to the reranker, as they do where a reranker is a service.  Documents below ``depth`` keep the
    first stage's order, below those that were reranked.

    Parameters: as :class:`vector_server.engine.Embeddings`, ``depth``, ``rerank_model`` (folder of the assets),
    ``rerank_head``, ``rerank_backend``, ``rerank_tokens`` (longest pair) and ``rerank_batch_size``.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    own = ("depth", "rerank_model", "rerank_head", "rerank_backend", "rerank_tokens", "rerank_batch_size")
    keeps_texts = True

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._depth = self.number("depth")
        if self._depth > MAX_DEPTH:
            raise ValueError(f"depth is {self._depth}, must be at most {MAX_DEPTH}")
        self._reranks: dict[str, Any] = {}

    def load(self, index_dir: Path) -> None:
        """Wait until all three servers answer.

        Raises:
            QueryFailed: a server cannot load its model.
        """
        super().load(index_dir)
        self._reranker = HttpClient(f"http://{urlsplit(self.service_url).hostname}:{service.RERANK_PORT}")
        wait_until(self._ready)
        self._reranks = self._reranker.get("/ready")

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Find ``depth`` documents, or ``k`` if that is more, and have the first ``depth`` of them reranked."""
        hits, texts = self.nearest(query, max(k, self._depth), self._depth)
        start = time.perf_counter()
        # A reranked list that is cut at k would lose the first stage's order of equal scores; so all come back.
        answer = self._reranker.post("/rerank", {"query": whole(query), "documents": texts})
        try:
            flop = int(answer["usage"]["flop"])
            results = [(hits[each["index"]].doc_id, float(each["relevance_score"])) for each in answer["results"]]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise QueryFailed(f"an answer without results: {type(error).__name__}: {error}") from error
        if len(results) != len(texts):
            raise QueryFailed(f"{len(results)} results of {len(texts)} documents")
        lowest = results[-1][1]
        below = [Hit(hit.doc_id, lowest - rank) for rank, hit in enumerate(hits[len(texts) :], 1)]
        self.of_thread.first_stage, self.of_thread.work = hits, {"pairs": len(texts), "flop": flop}
        self.of_thread.stages_s["rerank"] = time.perf_counter() - start
        return ([Hit(*pair) for pair in results] + below)[:k]

    def first_stage(self) -> Sequence[Hit]:
        """Return the ranking that this thread's last search had before the reranker."""
        return list(getattr(self.of_thread, "first_stage", []))

    def counts(self) -> dict[str, int]:
        """Return the ``parameters`` of both models, their ``flop`` for this thread's last query, and its ``pairs``."""
        work, encoder = getattr(self.of_thread, "work", {}), super().counts()
        parameters = encoder["parameters"] + int(self._reranks["parameters"])
        return {**work, "flop": encoder["flop"] + work.get("flop", 0), "parameters": parameters}

    def threads(self) -> dict[str, int]:
        """Return the thread counts of all servers."""
        return {**self._reranks["threads"], **super().threads()}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        return {**self._reranks.get("libraries", {}), **super().libraries()}

    def close(self) -> None:
        """Close this thread's connections."""
        super().close()
        if self._reranks:
            self._reranker.close()

    def _ready(self) -> bool:
        try:
            self._reranker.get("/ready")
        except QueryFailed as error:
            if not str(error).startswith("status "):
                raise  # nobody listens yet
        return True


ENGINE = RerankService
