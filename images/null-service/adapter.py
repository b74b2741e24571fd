"""The client of the service that does nothing."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from service_client import HttpClient, wait_until

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Hit

# More than anyone asks for at once; a suite's k is at most this.
_MOST = 10_000


class NullService(Adapter):
    """Asks a server that answers with the first documents of the corpus.

    Parameters of the search: ``connections``.
    """

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Have the server keep the first ids."""
        self._connect()
        self._http.post("/ids", [document.doc_id for document in itertools.islice(corpus, _MOST)])
        progress(len(corpus))

    def load(self, index_dir: Path) -> None:  # noqa: ARG002
        """Wait until the server answers."""
        self._connect()

    def _connect(self) -> None:
        self._http = HttpClient(self.service_url)
        wait_until(lambda: self._http.get("/ready"))

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Send the query, and return what the server has ready."""
        return [Hit(*pair) for pair in self._http.post("/search", {"query": query, "k": k})]

    def streams(self) -> int:
        """Return the connections of the open loop."""
        return int(self.params["connections"])

    def threads(self) -> dict[str, int]:
        """One, of the server."""
        return {"python": 1}

    def libraries(self) -> dict[str, str]:
        """Python is all there is."""
        return {"python": sys.version.split()[0]}

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


ENGINE = NullService
