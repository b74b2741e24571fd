"""What the clients of engines with a server of embeddings share; the server of the vectors is the engine's own."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import parameter_names

import embedding_server
from embedding_server.client import Embedder
from harness.driver.adapter import Adapter
from harness.driver.records import Envelope, Scalar

BUILD_TIMEOUT_S, SEARCH_TIMEOUT_S = 600.0, 60.0

Found = TypeVar("Found")


class EmbeddingsAdapter(Adapter):
    """Asks one server for a text's vector and another for the vector's neighbours: two requests a query.

    Both servers share the measured envelope.  Parameters: as the encoder's (:mod:`encoder.roles`), and ``connections``
    of the search.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    own: tuple[str, ...] = ()  # more parameters, of a subclass

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        known = (*embedding_server.BUILD, *embedding_server.SEARCH, "connections", *self.own)
        parameter_names.check(params, known, "this engine")
        self._connections = self.number("connections")
        self.of_thread = threading.local()  # results of the thread's last search
        self.encoder: dict[str, Any] = {}  # what the server of embeddings tells of itself

    def connect_embedder(self, port: int, role: str, timeout_s: float) -> None:
        """Wait until the server of embeddings has loaded the encoder of a role.

        Raises:
            QueryFailed: it cannot load it.
        """
        self.embedder = Embedder(f"http://{urlsplit(self.service_url).hostname}:{port}", timeout_s)
        self.encoder = self.embedder.wait(role)

    def find(self, query: str, nearest: Callable[[array[float]], Found]) -> Found:
        """Ask for the query's vector, and return what ``nearest`` finds for it; keep the seconds of both."""
        clock = time.perf_counter
        start = clock()
        vector = self.embedder.query(query)
        encoded = clock()
        found = nearest(vector)
        self.of_thread.stages_s = {"encode": encoded - start, "retrieve": clock() - encoded}
        return found

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number of at least 1.

        Raises:
            ValueError: it is another.
        """
        value = self.params[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}, must be a whole number, at least 1")
        return value

    def streams(self) -> int:
        """Return the connections of the open loop."""
        return self._connections

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of this thread's last search: ``encode`` and ``retrieve``, each with its way there."""
        return dict(getattr(self.of_thread, "stages_s", {}))

    def counts(self) -> dict[str, int]:
        """Return the encoder's ``parameters``, and its ``flop`` for this thread's last query without comparisons."""
        return {"flop": self.embedder.flop(), "parameters": int(self.encoder["parameters"])}

    def threads(self) -> dict[str, int]:
        """Return the thread counts of the server of embeddings."""
        return dict(self.encoder["threads"])

    def libraries(self) -> dict[str, str]:
        """Return the versions of what encodes."""
        return dict(self.encoder["libraries"])

    def device(self) -> str:
        """Return ``cuda`` where the encoder runs on a GPU, else ``cpu``."""
        return str(self.encoder["device"])

    def close(self) -> None:
        """Close this thread's connection to the server of embeddings."""
        self.embedder.close()
