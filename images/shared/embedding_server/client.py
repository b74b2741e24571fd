"""The client of a server of embeddings."""

from __future__ import annotations

import base64
import sys
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from urllib.parse import quote

from service_client import HttpClient, wait_until

from harness.driver.adapter import Document, QueryFailed

# Many documents take a slow encoder minutes.
_TIMEOUT_S = 600.0
# Documents of a request: as many as the engine ``dense`` encodes together, so that batches and vectors are the same.
TOGETHER = 1024


class Embedder:
    """Asks a server for the vectors of texts; each thread has a connection of its own.

    Args:
        url: the server's address, ``http://127.0.0.1:8081``.
        timeout_s: the longest wait for an answer.
    """

    def __init__(self, url: str, timeout_s: float = _TIMEOUT_S) -> None:
        self._http = HttpClient(url, timeout_s)
        self._of_thread = threading.local()

    def wait(self, role: str) -> dict[str, Any]:
        """Wait until the encoder of a role is loaded; return what it
        tells of itself (:class:`embedding_server.server.Encoder`).

        Raises:
            QueryFailed: the server cannot load it.
        """
        failures: list[QueryFailed] = []
        facts: dict[str, Any] = {}

        def loaded() -> bool:
            try:
                facts.update(self._http.get(f"/ready?role={quote(role)}"))
            except QueryFailed as error:
                if not str(error).startswith("status "):
                    raise  # nobody listens yet
                failures.append(error)
            return True

        wait_until(loaded)
        if failures:
            raise failures[0]
        return facts

    def query(self, text: str) -> array[float]:
        """Return a query's vector.

        Raises:
            QueryFailed: the server gave no answer, or another one than a vector.
        """
        return self._vectors([text], "query")[0]

    def documents(self, texts: Sequence[str]) -> list[array[float]]:
        """Return the vectors of documents, in their order; the server reads them in batches of like length.

        Raises:
            QueryFailed: the server gave no answer, or another one than as many vectors.
        """
        return self._vectors(texts, "document")

    def corpus(self, documents: Iterable[Document]) -> Iterator[tuple[str, array[float]]]:
        """Yield the id and the vector of each document; a title stands before its text.

        Raises:
            QueryFailed: as :meth:`documents` does.
        """
        left = iter(documents)
        while together := list(islice(left, TOGETHER)):
            vectors = self.documents(list(map(text_of, together)))
            yield from zip([each.doc_id for each in together], vectors, strict=True)

    def flop(self) -> int:
        """Return the operations of the forward passes that this thread last asked for."""
        return int(getattr(self._of_thread, "flop", 0))

    def close(self) -> None:
        """Close this thread's connection."""
        self._http.close()

    def _vectors(self, texts: Sequence[str], role: str) -> list[array[float]]:
        asked = {"input": list(map(whole, texts)), "role": role, "encoding_format": "base64"}
        answer = self._http.post("/v1/embeddings", asked)
        try:
            given = sorted(answer["data"], key=lambda each: each["index"])
            vectors = [_floats(each["embedding"]) for each in given]
            self._of_thread.flop = int(answer["usage"]["flop"])
        except (KeyError, TypeError, ValueError) as error:
            raise QueryFailed(f"an answer that holds no embeddings: {type(error).__name__}: {error}") from error
        if len(vectors) != len(texts):
            raise QueryFailed(f"{len(vectors)} embeddings of {len(texts)} texts")
        return vectors


def text_of(document: Document) -> str:
    """Return what is encoded of a document: its title, where it has one, before its text."""
    return f"{document.title} {document.text}" if document.title else document.text


def whole(text: str) -> str:
    """Return a text that can be sent: half a surrogate pair is replaced, as the encoder would do."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _floats(text: str) -> array[float]:
    vector = array("f", base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
