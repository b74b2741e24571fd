"""Qdrant, over its REST interface.  Not tried here.

Written after https://api.qdrant.tech/api-reference (collections/create-collection, collections/get-collection,
points/upsert-points, points/count-points, search/query-points) and
https://qdrant.tech/documentation/concepts/collections/.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import ranking

from harness.driver.adapter import Corpus, QueryFailed
from harness.driver.records import Hit
from http_adapters import HttpService, batches, contents, number, to_json, understood

_COLLECTION = "/collections/documents"
_DOCUMENTS, _CHARACTERS = 256, 1_000_000
_POLL_S = 0.05


class Embedder(Protocol):
    """Makes vectors of texts: :class:`embedding_server.client.Embedder`, for one."""

    def query(self, text: str) -> Iterable[float]:
        """Return a query's vector."""

    def documents(self, texts: Sequence[str]) -> Sequence[Iterable[float]]:
        """Return the vectors of documents, in their order."""


class Qdrant(HttpService):
    """Dense retrieval: an embedder makes the vectors, Qdrant finds the nearest, over HNSW or all of them.

    Of equal scores the earlier document comes first: where the last score asked for equals the one before, more hits
    are asked for.  Stages: ``encode`` (the embedder's, as this client sees it) and ``retrieve`` (the service's own).

    Parameters: ``distance`` (``Cosine``, ``Dot``), ``m``, ``ef_construct``, ``indexing_threshold_kb`` (segments of
    fewer are searched without HNSW), of the build; ``hnsw_ef``, ``exact``, ``connections``.
    """

    parameters = ("distance", "m", "ef_construct", "indexing_threshold_kb", "hnsw_ef", "exact")
    token = ("api-key", "")

    @abstractmethod
    def embedder(self) -> Embedder:
        """Return the embedder, which is ready; an engine knows where its own is."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Create the collection, send vectors with their documents' ids, and wait until they are indexed.

        Raises:
            RuntimeError: the service could not index them.
        """
        self.connect_to_build()
        self.wait(lambda: self._result("GET", "/collections"))
        embedder, done = self.embedder(), 0
        for batch in batches(corpus, _DOCUMENTS, _CHARACTERS):
            vectors = [list(each) for each in embedder.documents([contents(document) for _, document in batch])]
            if not done:
                self._result("PUT", _COLLECTION, self._definition(len(vectors[0])))
            points = [
                {"id": place, "vector": vector, "payload": {"doc_id": document.doc_id}}
                for (place, document), vector in zip(batch, vectors, strict=True)
            ]
            with understood():
                status = self._result("PUT", f"{_COLLECTION}/points?wait=true", {"points": points})["status"]
                if status != "completed":
                    raise RuntimeError(f"the service did not finish an upsert, and said {status!r}")
            done += len(batch)
            progress(done)
        while not self._indexed():
            time.sleep(_POLL_S)

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:  # noqa: ARG002
        """Count the points."""
        with understood():
            held = self._result("POST", f"{_COLLECTION}/points/count", {"exact": True})["count"]
        if held != len(corpus):
            raise RuntimeError(f"the collection holds {held} of {len(corpus)} documents")

    def load(self, index_dir: Path) -> None:
        """Wait for the embedder, and until the service answers searches."""
        self._embedder = self.embedder()
        super().load(index_dir)

    def ready(self) -> bool:
        """Send a search."""
        self.search("ready", 1)
        return True

    def learn(self) -> tuple[dict[str, str], dict[str, int]]:
        """Ask for the version; Qdrant reports no thread counts."""
        with understood():
            return {"qdrant": self.http.get("/")["version"]}, {}

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Encode the query, and ask for the nearest points: one request, or more where scores tie at the cut."""
        start = time.perf_counter()
        vector = list(self._embedder.query(query))
        encode_s, retrieve_s = time.perf_counter() - start, 0.0
        ids: dict[int, str] = {}

        def nearest(limit: int) -> list[tuple[float, int]]:
            nonlocal retrieve_s
            answer = self._ask("POST", f"{_COLLECTION}/points/query", self._request(vector, limit))
            with understood():
                retrieve_s += number(answer["time"])
                points = answer["result"]["points"]
                ids.update((point["id"], point["payload"]["doc_id"]) for point in points)
                return [(number(point["score"]), point["id"]) for point in points]

        found = ranking.best(nearest, k)
        self.note({"encode": encode_s, "retrieve": retrieve_s})
        return [Hit(ids[place], score) for score, place in found]

    def _request(self, vector: list[float], limit: int) -> dict[str, Any]:
        return {
            "query": vector,
            "limit": limit,
            "with_payload": ["doc_id"],
            "params": {"hnsw_ef": int(self.params["hnsw_ef"]), "exact": bool(self.params["exact"])},
        }

    def _definition(self, dims: int) -> dict[str, Any]:
        return {
            "vectors": {"size": dims, "distance": str(self.params["distance"])},
            "hnsw_config": {"m": int(self.params["m"]), "ef_construct": int(self.params["ef_construct"])},
            "optimizers_config": {"indexing_threshold": int(self.params["indexing_threshold_kb"])},
        }

    def _indexed(self) -> bool:
        """Return whether no optimisation is under way or due."""
        with understood():
            state = self._result("GET", _COLLECTION)
            if state["status"] == "red" or state["optimizer_status"] != "ok":
                raise RuntimeError(f"the service could not index: {state['status']}, {state['optimizer_status']}")
            return bool(state["status"] == "green")

    def _result(self, method: str, path: str, content: object = None) -> Any:
        with understood():
            return self._ask(method, path, content)["result"]

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        body = None if content is None else to_json(content)
        answer = self.http.ask(method, path, body)
        with understood():
            if answer["status"] != "ok":
                raise QueryFailed(f"the service answers with the status {answer['status']!r}")
        return answer
