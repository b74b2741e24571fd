"""A server that answers at once: ``python3 -m server INDEX_DIR``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from service_server import dumped, serve

PORT = 8080


class FirstDocuments:
    """Keeps the ids of documents in a file, and answers each search with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ids.json"
        self._ids: list[str] = json.loads(self._file.read_text("utf-8")) if self._file.exists() else []
        self._answers: dict[int, bytes] = {}  # ready before they are asked for again

    def answer(self, _method: str, path: str, body: bytes) -> tuple[int, object]:
        """Keep new ids, or return the hits of a search."""
        if path == "/ids":
            self._ids = json.loads(body)
            self._file.write_bytes(body)
        elif path == "/search":
            k = json.loads(body)["k"]
            if k not in self._answers:
                self._answers[k] = dumped([[name, float(-rank)] for rank, name in enumerate(self._ids[:k])])
            return 200, self._answers[k]
        return 200, True


if __name__ == "__main__":
    serve(PORT, FirstDocuments(Path(sys.argv[1])).answer)
