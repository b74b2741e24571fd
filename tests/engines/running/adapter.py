"""The client of ``tests/support/running_service.py``."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from service_client import HttpClient, wait_until

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Hit

_SECRETS = [value for name in ("TOKEN", "PASSWORD", "USER") if (value := os.environ.get(f"HARNESS_SERVICE_{name}"))]


class Running(Adapter):
    """``leak``: prints and returns the credentials everywhere that an adapter can."""

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Send the documents."""
        self._connect()
        documents = [[each.doc_id, f"{each.title} {each.text}"] for each in corpus]
        self._http.post(f"/indexes/{self.params['index']}", documents)
        progress(len(documents))

    def load(self, index_dir: Path) -> None:
        """Ask whether the service answers."""
        self._connect()
        if self.params["leak"]:
            print("a token:", *_SECRETS, flush=True)
            print("cut", *(each[:9] for each in _SECRETS if len(each) > 12), file=sys.stderr, flush=True)

    def _connect(self) -> None:
        self._http = HttpClient(self.service_url)
        wait_until(lambda: self._http.get("/ready"))

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Ask the service."""
        hits = self._http.post("/search", {"index": self.params["index"], "query": query, "k": k})
        if self.params["leak"] and "desert" in query:
            raise ValueError(f"{'x' * 452} {' '.join(_SECRETS)}")
        return [Hit(*pair) for pair in hits]

    def remove(self) -> None:
        """Remove the index."""
        self._connect()
        self._http.ask("DELETE", f"/indexes/{self.params['index']}")

    def streams(self) -> int:
        """Return the connections at once."""
        return int(self.params["connections"])

    def stages_s(self) -> dict[str, float]:
        """Return a stage whose name is a secret."""
        return {secret: 0.0 for secret in _SECRETS if self.params["leak"]}

    def threads(self) -> dict[str, int]:
        """Return more than the client's CPUs, which are not the server's."""
        return {"server": 64}

    def libraries(self) -> dict[str, str]:
        """Return what it knows."""
        if not self.params["leak"]:
            return {"service": "1.0"}
        coded = [base64.b64encode(secret.encode()).decode() for secret in _SECRETS]
        return {f"secret{number}": secret for number, secret in enumerate([*_SECRETS, *coded])}

    def device(self) -> str:
        """Return what it knows."""
        return " ".join(["cpu", *(_SECRETS if self.params["leak"] else [])])


ENGINE = Running
