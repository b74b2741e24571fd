"""The client of a server of embeddings and of a server of exact search by faiss."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from embedding_server.adapter import BUILD_TIMEOUT_S, SEARCH_TIMEOUT_S, EmbeddingsAdapter
from embedding_server.client import TOGETHER, text_of, whole
from service_client import HttpClient, wait_until

import vector_server
from harness.driver.adapter import Corpus, QueryFailed
from harness.driver.records import Envelope, Hit, Scalar


class Embeddings(EmbeddingsAdapter):
    """Asks a server of embeddings, then another server for the vector's neighbours by exact inner product.

    The vectors are searched in a process beside the encoder, within the measured envelope, and not in the client: what
    is priced then contains the whole work of a query.  The difference to the same encoder and search in one process
    (``minilm`` of the engine ``dense``) is what the two services cost.

    Parameters: those of the encoder (:mod:`encoder.roles`), and ``connections`` of the search.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    keeps_texts = False  # whether the server keeps the documents' texts beside their vectors

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._vectors: dict[str, Any] = {}

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Ask for the vectors of all documents, and send them on.

        Raises:
            ValueError: the corpus is empty.
            QueryFailed: a server answered with an error.
        """
        if not len(corpus):
            raise ValueError("the corpus has no documents")
        self.connect("document", BUILD_TIMEOUT_S)
        documents, done = iter(corpus), 0
        while together := list(islice(documents, TOGETHER)):
            texts = list(map(text_of, together))
            vectors = [_base64(vector) for vector in self.embedder.documents(texts)]
            sent = {"ids": [each.doc_id for each in together], "vectors": vectors}
            self._http.post("/documents", {**sent, "texts": list(map(whole, texts))} if self.keeps_texts else sent)
            progress(done := done + len(together))
        self._http.post("/finish", None)

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:  # noqa: ARG002
        """Count the server's documents."""
        if (found := self._http.get("/ready")["documents"]) != len(corpus):
            raise ValueError(f"the index has {found} documents, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:  # noqa: ARG002
        """Wait until both servers answer.

        Raises:
            QueryFailed: the server of embeddings cannot load its encoder.
        """
        self.connect("query", SEARCH_TIMEOUT_S)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Ask for the query's vector, then for the nearest documents."""
        return self.nearest(query, k)[0]

    def nearest(self, query: str, k: int, texts: int = 0) -> tuple[list[Hit], list[str]]:
        """Return the nearest documents, and the texts of the first of them."""
        return self.find(query, lambda vector: self._neighbours(vector, k, texts))

    def _neighbours(self, vector: array[float], k: int, texts: int) -> tuple[list[Hit], list[str]]:
        answer = self._http.post("/search", {"vector": _base64(vector), "k": k, "texts": texts})
        try:
            hits = [Hit(*pair) for pair in zip(answer["ids"], answer["scores"], strict=True)]
            return hits, answer["texts"] if texts else []
        except (KeyError, TypeError, ValueError) as error:
            raise QueryFailed(f"an answer without ids and scores: {type(error).__name__}: {error}") from error

    def threads(self) -> dict[str, int]:
        """Return the thread counts of both servers."""
        return {**super().threads(), **self._vectors["threads"]}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        return {**super().libraries(), **self._vectors["libraries"]}

    def close(self) -> None:
        """Close this thread's connections."""
        super().close()
        self._http.close()

    def connect(self, role: str, timeout_s: float) -> None:
        """Wait until both servers answer."""
        self._http = HttpClient(self.service_url, timeout_s)
        wait_until(lambda: self._http.get("/ready"))
        self._vectors = self._http.get("/ready")
        self.connect_embedder(vector_server.EMBEDDINGS_PORT, role, timeout_s)


def _base64(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode("ascii")
