"""The client of Chroma and of a server of embeddings."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ranking
import service
from embedding_server.adapter import BUILD_TIMEOUT_S, SEARCH_TIMEOUT_S, EmbeddingsAdapter
from service_client import HttpClient, wait_until

from harness.driver.adapter import Corpus, Document, QueryFailed
from harness.driver.records import Envelope, Filter, Hit, Scalar

_SPACES = ("ip", "cosine", "l2")
_COLLECTIONS = "/api/v2/tenants/default_tenant/databases/default_database/collections"
_NAME = "documents"
_MOST_ADDED = 1024  # documents of a request
# How often a build has the whole graph written, as far as the corpus has documents for it; and the most requests
# between two times, far below a request's documents: then requests of like size meet the number exactly.
_LEAST_WRITTEN, _MOST_BETWEEN = 10, 500

Fields = dict[str, dict[str, Scalar] | None]
_NO_RULE: Mapping[str, Any] = MappingProxyType({})


class Chroma(EmbeddingsAdapter):
    """Asks a server of embeddings for a text's vector, and Chroma for the vector's neighbours.

    Parameters: as :class:`embedding_server.adapter.EmbeddingsAdapter`; of the build
    ``similarity`` (``ip``, ``cosine`` or ``l2``), ``ef_construction`` and ``max_neighbors``; of the search
    ``ef_search``.  Scores: the inner product or cosine, or minus the squared distance.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    own = ("similarity", "ef_construction", "max_neighbors", "ef_search")

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        if self.params["similarity"] not in _SPACES:
            raise ValueError(f"similarity is {self.params['similarity']!r}, must be one of {', '.join(_SPACES)}")
        for name in ("ef_construction", "max_neighbors", "ef_search"):
            self.number(name)

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Ask for the vectors of all documents, and add them to a new collection.

        Raises:
            ValueError: the corpus is empty.
            QueryFailed: a server answered with an error.
        """
        if not len(corpus):
            raise ValueError("the corpus has no documents")
        self.connect("document", BUILD_TIMEOUT_S)
        sizes, written_after = batches(len(corpus))
        graph = {
            "space": self.params["similarity"],
            "ef_construction": self.params["ef_construction"],
            "max_neighbors": self.params["max_neighbors"],
            "num_threads": self.encoder["cpus"],
            "sync_threshold": written_after,
        }
        self._open(self._http.post(_COLLECTIONS, {"name": _NAME, "configuration": {"hnsw": graph}}))
        kept: Fields = {}
        vectors, done = self.embedder.corpus(_noted(corpus, kept)), 0
        for size in sizes:
            added = list(islice(vectors, size))
            self._http.post(f"{self._path}/add", _request(added, kept))
            progress(done := done + size)
        wait_until(lambda: self._count() == len(corpus))
        self._nearest(added[-1][1].tolist(), 1)

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:  # noqa: ARG002
        """Count the collection's documents."""
        if (found := self._count()) != len(corpus):
            raise ValueError(f"the collection has {found} documents, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:  # noqa: ARG002
        """Wait until both servers answer a search.

        Raises:
            QueryFailed: a server answered with an error.
        """
        self.connect("query", SEARCH_TIMEOUT_S)
        self._open(self._http.get(f"{_COLLECTIONS}/{_NAME}"))
        changed = {"new_configuration": {"hnsw": {"ef_search": self.params["ef_search"]}}}
        self._http.ask("PUT", self._path, json.dumps(changed).encode())
        # The first search reads the graph into memory.
        self.search("", 1)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Ask for the query's vector, then for the nearest documents; of equal scores the lower id is first."""
        return self._best(query, k, {})

    def search_filtered(self, query: str, k: int, wanted: Filter) -> Sequence[Hit]:
        """Ask for the query's vector, then for the nearest documents that have these values."""
        rules = [{name: {"$eq": _same(value)}} for name, value in wanted]
        return self._best(query, k, {"where": rules[0] if len(rules) == 1 else {"$and": rules}})

    def _best(self, query: str, k: int, rule: dict[str, Any]) -> Sequence[Hit]:
        def nearest(vector: array[float]) -> list[Hit]:
            asked = partial(self._nearest, vector.tolist(), rule=rule)
            return [Hit(doc_id, score) for score, doc_id in ranking.best(asked, k)]

        return self.find(query, nearest)

    def begin_updates(self) -> None:
        """Load the encoder of documents.

        Raises:
            QueryFailed: the server of embeddings answered with an error.
        """
        self.embedder.wait("document")

    def insert(self, documents: Sequence[Document]) -> None:
        """Ask for the documents' vectors, and send them to Chroma, which answers once its log has them."""
        kept: Fields = {}
        added = list(self.embedder.corpus(_noted(documents, kept)))
        self._http.post(f"{self._path}/upsert", _request(added, kept))

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Send the ids to Chroma, which answers once its log has them."""
        self._http.post(f"{self._path}/delete", {"ids": list(doc_ids)})

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        return {**super().libraries(), "chromadb": version("chromadb")}

    def close(self) -> None:
        """Close this thread's connections."""
        super().close()
        self._http.close()

    def connect(self, role: str, timeout_s: float) -> None:
        """Wait until both servers answer."""
        self._http = HttpClient(self.service_url, timeout_s)
        wait_until(lambda: self._http.get("/api/v2/heartbeat"))
        self.connect_embedder(service.EMBEDDINGS_PORT, role, timeout_s)

    def _open(self, collection: dict[str, Any]) -> None:
        self._path = f"{_COLLECTIONS}/{collection['id']}"

    def _count(self) -> int:
        return int(self._http.get(f"{self._path}/count"))

    def _nearest(self, vector: list[float], k: int, rule: Mapping[str, Any] = _NO_RULE) -> list[tuple[float, str]]:
        """Return scores and ids of the nearest documents, best first."""
        asked = {"query_embeddings": [vector], "n_results": k, "include": ["distances"], **rule}
        answer = self._http.post(f"{self._path}/query", asked)
        most = 0.0 if self.params["similarity"] == "l2" else 1.0
        try:
            (ids,), (distances,) = answer["ids"], answer["distances"]
            return [(most - distance, doc_id) for distance, doc_id in zip(distances, ids, strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            raise QueryFailed(f"an answer without one list of neighbours: {type(error).__name__}: {error}") from error


def _noted(documents: Iterable[Document], kept: Fields) -> Iterator[Document]:
    """Yield documents, and keep the fields of each until its vector comes back."""
    for each in documents:
        kept[each.doc_id] = {name: _same(value) for name, value in each.metadata.items()} or None
        yield each


def _request(added: Sequence[tuple[str, array[float]]], kept: Fields) -> dict[str, Any]:
    """Return what adds documents; fields only where some document has any."""
    written = [base64.b64encode(vector.tobytes()).decode("ascii") for _, vector in added]
    fields = [kept.pop(doc_id) for doc_id, _ in added]
    made: dict[str, Any] = {"ids": [doc_id for doc_id, _ in added], "embeddings": written}
    return {**made, "metadatas": fields} if any(fields) else made


def _same(value: Scalar) -> Scalar:
    """Return a value as Chroma can compare it: where a field has whole and other numbers, 0 would fit 0.5."""
    return value if isinstance(value, str) else float(value)


def batches(documents: int) -> tuple[Iterator[int], int]:
    """Cut a corpus into requests of like size; return their sizes, and after how many documents Chroma writes.

    Chroma writes its whole graph each time that so many documents (``sync_threshold``) have come since the last time,
    and keeps those after it in a log, which each start would read again.  The last request reaches that number here.
    """
    writings = max(_LEAST_WRITTEN, -(-documents // (_MOST_ADDED * _MOST_BETWEEN)))
    together = -(-documents // (_MOST_ADDED * writings))  # requests from one writing to the next
    requests = min(together * writings, max(1, documents // 2))
    least, larger = divmod(documents, requests)
    return (least + (number < larger) for number in range(requests)), max(2, together * least)


ENGINE = Chroma
