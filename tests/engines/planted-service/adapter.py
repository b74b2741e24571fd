"""The client of a server that does what its parameters say, right or wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from service_client import HttpClient, wait_until

from harness.driver.adapter import Adapter, Corpus, Document
from harness.driver.records import Hit


class PlantedService(Adapter):
    """``timeout_s`` bounds a query; ``client`` names what the client does wrong; ``burn_s`` is its work in a build."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Send the documents."""
        self._connect()
        documents = [[each.doc_id, f"{each.title} {each.text}"] for each in corpus]
        self._http.post("/documents", documents)
        until = time.process_time() + float(self.params.get("burn_s", 0))
        while time.process_time() < until:
            pass
        progress(len(documents))

    def load(self, index_dir: Path) -> None:
        """Wait until the server is ready."""
        self._connect()
        if self.params.get("client") == "oom":
            self._held = b"x" * (4 << 30)

    def _connect(self) -> None:
        self._http = HttpClient(self.service_url, float(self.params.get("timeout_s", 20)))
        wait_until(lambda: self._http.get("/ready"))

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Ask the server."""
        if self.params.get("client") == "busy":  # all the time that there is
            until = time.perf_counter() + 0.02
            while time.perf_counter() < until:
                pass
        return [Hit(*pair) for pair in self._http.post("/search", {"query": query, "k": k})]

    def begin_updates(self) -> None:
        """Be ready already."""

    def insert(self, documents: Sequence[Document]) -> None:
        """Send the documents."""
        self._http.post("/insert", [[each.doc_id, f"{each.title} {each.text}"] for each in documents])

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Send the ids."""
        self._http.post("/delete", [[doc_id, ""] for doc_id in doc_ids])

    def streams(self) -> int:
        """Return the connections at once."""
        return int(self.params.get("connections", 4))

    def threads(self) -> dict[str, int]:
        """One."""
        return {"python": 1}


ENGINE = PlantedService
