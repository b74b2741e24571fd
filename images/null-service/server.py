"""A server that answers at once: ``python3 -m server INDEX_DIR``.  One thread waits for all its connections."""

from __future__ import annotations

import json
import re
import selectors
import signal
import socket
import sys
from pathlib import Path

PORT = 8080
_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)", re.IGNORECASE)


class Server:
    """Keeps the ids of documents in a file, and answers each search with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ids.json"
        self._ids: list[str] = json.loads(self._file.read_text("utf-8")) if self._file.exists() else []
        self._answers: dict[int, bytes] = {}
        self._partial: dict[socket.socket, bytes] = {}

    def run(self, listening: socket.socket) -> None:
        """Answer for ever."""
        chosen = selectors.DefaultSelector()
        chosen.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in chosen.select():
                if key.fileobj is listening:
                    connection, _ = listening.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    chosen.register(connection, selectors.EVENT_READ)
                    self._partial[connection] = b""
                elif isinstance(key.fileobj, socket.socket) and not self._serve(key.fileobj):
                    chosen.unregister(key.fileobj)
                    del self._partial[key.fileobj]
                    key.fileobj.close()

    def _serve(self, connection: socket.socket) -> bool:
        """Answer a request once it is whole; return whether the connection is still open."""
        try:
            new = connection.recv(1 << 16)
        except OSError:
            return False
        if not new:
            return False
        request = self._partial[connection] + new
        head, found, body = request.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(body) < (int(length[1]) if length else 0):
            self._partial[connection] = request
            return True
        self._partial[connection] = b""
        connection.sendall(self._answer(head.split(b" ", 2)[1], body))
        return True

    def _answer(self, path: bytes, body: bytes) -> bytes:
        if path == b"/ids":
            self._ids = json.loads(body)
            self._file.write_bytes(body)
        elif path == b"/search":
            k = json.loads(body)["k"]
            if k not in self._answers:
                self._answers[k] = _response([[name, float(-rank)] for rank, name in enumerate(self._ids[:k])])
            return self._answers[k]
        return _response(True)


def _response(content: object) -> bytes:
    text = json.dumps(content).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.create_server(("127.0.0.1", PORT)) as listening:
        Server(Path(sys.argv[1])).run(listening)
