"""A service that runs before harness does: it answers searches in indexes, and counts what is asked of it."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass
class RunningService:
    """Its indexes, and each request with its time; it dies after ``dies_after`` searches."""

    indexes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    requests: list[tuple[float, str, str, str]] = field(default_factory=list)
    dies_after: int | None = None
    url: str = ""
    searched: threading.Event = field(default_factory=threading.Event)
    dead: bool = False

    def put(self, name: str, corpus: Path) -> None:
        """Fill an index."""
        documents = map(json.loads, corpus.read_text("utf-8").splitlines())
        self.indexes[name] = {each["_id"]: f"{each['title']} {each['text']}".lower().split() for each in documents}

    def times(self, path: str) -> list[float]:
        """Return when a path was asked for."""
        return [at for at, _, asked, _ in self.requests if asked == path]

    @property
    def writes(self) -> list[tuple[str, str]]:
        """The requests that change something."""
        return [(verb, path) for _, verb, path, _ in self.requests if path.startswith("/indexes/")]

    def search(self, index: str, query: str, k: int) -> list[list[Any]]:
        """Count common words; ties by id."""
        wanted = set(query.lower().split())
        scored = ((len(wanted & set(words)), name) for name, words in self.indexes[index].items())
        return [[name, float(score)] for score, name in sorted(scored, reverse=True)[:k]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # an answer is one packet
    service: RunningService

    def _answer(self) -> None:
        service = self.service
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        service.requests.append((time.monotonic(), self.command, self.path, self.headers.get("Authorization", "")))
        name = self.path.rpartition("/")[2]
        answer: Any = True
        if self.command == "DELETE":
            service.indexes.pop(name, None)
        elif self.path.startswith("/indexes/"):
            service.indexes[name] = {doc_id: text.lower().split() for doc_id, text in json.loads(body)}
        elif self.path == "/search":
            service.searched.set()
            if service.dies_after is not None and len(service.times("/search")) > service.dies_after:
                service.dead = True
            answer = service.search(**json.loads(body)) if not service.dead else None
        if service.dead:
            self.close_connection = True
            self.connection.close()
            return
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def handle(self) -> None:
        """Serve; a client that goes is no news."""
        with suppress(OSError):
            super().handle()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def running(service: RunningService, tls: tuple[Path, Path] | None = None) -> Iterator[RunningService]:
    """Run the service on a free port; ``tls``: its certificate and key."""
    handler = type("Handler", (_Handler,), {"service": service})
    server = _Server(("127.0.0.1", 0), handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    service.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
