"""The planted server: ``python3 -m server INDEX_DIR PARAMETERS``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 8080


class Planted:
    """The documents' words by id, and what goes wrong: ``misdeed``, from search ``at`` on (counted from 0)."""

    def __init__(self, folder: Path, params: dict[str, Any]) -> None:
        self._file, self._params = folder / "words.json", params
        self._words = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        self._searches, self._updates, self._lock = 0, 0, threading.Lock()
        if self._words:  # it searches
            (folder / "used").write_text("a server may write here", encoding="utf-8")
            self._misbehave("_in_load")

    def keep(self, documents: list[list[str]]) -> None:
        """Keep documents."""
        self._misbehave("_in_build")
        self._words = {doc_id: text.lower().split() for doc_id, text in documents}
        self._file.write_text(json.dumps(self._words), encoding="utf-8")

    def search(self, query: str, k: int) -> list[list[Any]]:
        """Count common words; ties by id."""
        with self._lock:
            number, self._searches = self._searches, self._searches + 1
        time.sleep(float(self._params.get("service_s", 0)))
        if number >= int(self._params.get("at", 0)):
            self._misbehave("")
        wanted = set(query.lower().split())
        found = sorted(((len(wanted & set(words)), name) for name, words in self._words.items()), reverse=True)[:k]
        hits = [[name, float(score)] for score, name in found]
        return [["no-such-document", 99.0], *hits[1:]] if self._params.get("misdeed") == "lie" else hits

    def update(self, kind: str, documents: list[list[str]]) -> bool:
        """Insert or delete documents; return False for each third update of a server that fails some."""
        with self._lock:
            self._updates += 1
            if self._params.get("updates") == "failing" and self._updates % 3 == 0:
                return False
            changed = dict(self._words)
            for doc_id, text in documents:
                changed.pop(doc_id, None)
                if kind == "insert":
                    changed[doc_id] = text.lower().split()
            self._words = changed
        return True

    def wrong_answer(self) -> str | None:
        """Return how an answer goes wrong, once enough searches were answered."""
        return str(self._params.get("answer")) if self._searches > int(self._params.get("at", 0)) else None

    def _misbehave(self, when: str) -> None:
        misdeed = str(self._params.get("build_misdeed" if when == "_in_build" else "misdeed", ""))
        if misdeed == f"exit{when}":
            print("the planted server leaves", flush=True)
            os._exit(3)
        if misdeed == f"kill{when}":
            os.kill(os.getpid(), signal.SIGKILL)  # of the first process of a container the kernel lets only few through
            os._exit(137)
        if misdeed == f"oom{when}":
            os.urandom(1 << 20) * 4096
        if misdeed == f"oom_child{when}":
            subprocess.run([sys.executable, "-c", "b'x' * (4 << 30)"], check=False)
        if misdeed == f"hang{when}":
            time.sleep(3600)


class Handler(BaseHTTPRequestHandler):
    """Answers with JSON, on connections that stay open."""

    protocol_version = "HTTP/1.1"
    planted: Planted

    def do_GET(self) -> None:
        """Say that the server is ready."""
        self._send(b"true")

    def do_POST(self) -> None:
        """Keep documents, or search."""
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/documents":
            self.planted.keep(content)
            self._send(b"true")
            return
        if self.path in ("/insert", "/delete"):
            if self.planted.update(self.path[1:], content):
                self._send(b"true")
            else:
                self.send_error(500, "planted")
            return
        hits = self.planted.search(content["query"], content["k"])
        match self.planted.wrong_answer():
            case "status_500":
                self.send_error(500, "planted")
            case "close":
                self.close_connection = True
                self.connection.close()
            case "not_json":
                self._send(b"<html>")
            case "huge":
                self._send(b"", 1 << 30)
                while True:
                    self.wfile.write(b"x" * (1 << 20))
            case _:
                self._send(json.dumps(hits).encode())

    def _send(self, body: bytes, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _ended(how: object) -> None:
    """Decide what the signal to end does."""
    actions = {"ignores_term": lambda *_: None, "fails_at_term": lambda *_: os._exit(5)}
    signal.signal(signal.SIGTERM, actions.get(str(how), lambda *_: os._exit(0)))


if __name__ == "__main__":
    folder, params = Path(sys.argv[1]), json.loads(sys.argv[2])
    _ended(params.get("build_misdeed"))
    Handler.planted = Planted(folder, params)
    if params.get("deaf"):
        time.sleep(3600)
    with ThreadingHTTPServer(("127.0.0.1", PORT), Handler) as server:
        server.serve_forever()
