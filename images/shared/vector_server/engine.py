"""The client of a server of embeddings and of a server of exact search by faiss."""

from __future__ import annotations

import base64
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import embedding_server
import parameter_names
from embedding_server.client import TOGETHER, Embedder, text_of, whole
from service_client import HttpClient, wait_until

import vector_server
from harness.driver.adapter import Adapter, Corpus, QueryFailed
from harness.driver.records import Envelope, Hit, Scalar

_BUILD_TIMEOUT_S, _SEARCH_TIMEOUT_S = 600.0, 60.0


class Embeddings(Adapter):
    """Asks one server for a text's vector and another for its neighbours by exact inner product: two requests a query.

    The vectors are searched in a process beside the encoder, within the measured envelope, and not in the client: what
    is priced then contains the whole work of a query.  The difference to the same encoder and search in one process
    (``minilm`` of the engine ``dense``) is what the two services cost.

    Parameters: those of the encoder (:mod:`encoder.roles`), and ``connections`` of the search.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    own: tuple[str, ...] = ()  # more parameters, of a subclass
    keeps_texts = False  # whether the server keeps the documents' texts beside their vectors

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        known = (*embedding_server.BUILD, *embedding_server.SEARCH, "connections", *self.own)
        parameter_names.check(params, known, "this engine")
        self._connections = self.number("connections")
        self.of_thread = threading.local()  # results of the thread's last search
        self._encoder: dict[str, Any] = {}
        self._vectors: dict[str, Any] = {}

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Ask for the vectors of all documents, and send them on.

        Raises:
            ValueError: the corpus is empty.
            QueryFailed: a server answered with an error.
        """
        if not len(corpus):
            raise ValueError("the corpus has no documents")
        self.connect("document", _BUILD_TIMEOUT_S)
        documents, done = iter(corpus), 0
        while together := list(islice(documents, TOGETHER)):
            texts = list(map(text_of, together))
            vectors = [_base64(vector) for vector in self._embedder.documents(texts)]
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
        self.connect("query", _SEARCH_TIMEOUT_S)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Ask for the query's vector, then for the nearest documents."""
        return self.nearest(query, k)[0]

    def nearest(self, query: str, k: int, texts: int = 0) -> tuple[list[Hit], list[str]]:
        """Return the nearest documents, and the texts of the first of them."""
        clock = time.perf_counter
        start = clock()
        vector = self._embedder.query(query)
        encoded = clock()
        answer = self._http.post("/search", {"vector": _base64(vector), "k": k, "texts": texts})
        try:
            hits = [Hit(*pair) for pair in zip(answer["ids"], answer["scores"], strict=True)]
            found = answer["texts"] if texts else []
        except (KeyError, TypeError, ValueError) as error:
            raise QueryFailed(f"an answer without ids and scores: {type(error).__name__}: {error}") from error
        self.of_thread.stages_s = {"encode": encoded - start, "retrieve": clock() - encoded}
        return hits, found

    def streams(self) -> int:
        """Return the connections of the open loop."""
        return self._connections

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of this thread's last search: ``encode`` and ``retrieve``, each with its way there."""
        return dict(getattr(self.of_thread, "stages_s", {}))

    def counts(self) -> dict[str, int]:
        """Return the encoder's ``parameters``, and its ``flop`` for this thread's last query without comparisons."""
        return {"flop": self._embedder.flop(), "parameters": int(self._encoder["parameters"])}

    def threads(self) -> dict[str, int]:
        """Return the thread counts of both servers."""
        return {**self._encoder["threads"], **self._vectors["threads"]}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        return {**self._encoder["libraries"], **self._vectors["libraries"]}

    def device(self) -> str:
        """Return ``cuda`` where the encoder runs on a GPU, else ``cpu``."""
        return str(self._encoder["device"])

    def close(self) -> None:
        """Close this thread's connections."""
        self._embedder.close()
        self._http.close()

    def connect(self, role: str, timeout_s: float) -> None:
        """Wait until both servers answer."""
        self._http = HttpClient(self.service_url, timeout_s)
        host = urlsplit(self.service_url).hostname
        self._embedder = Embedder(f"http://{host}:{vector_server.EMBEDDINGS_PORT}", timeout_s)
        wait_until(lambda: self._http.get("/ready"))
        self._vectors, self._encoder = self._http.get("/ready"), self._embedder.wait(role)

    def number(self, name: str, least: int = 1) -> int:
        """Return a parameter that is a whole number.

        Raises:
            ValueError: it is none, or too small.
        """
        value = self.params[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r}, must be a whole number, at least {least}")
        return value


def _base64(vector: array[float]) -> str:
    return base64.b64encode(vector.tobytes()).decode("ascii")
