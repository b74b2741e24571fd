"""A server of JSON over HTTP/1.1, standard library only: connections stay open, one request is answered at a time.

One thread waits for all connections and does the work, in the order in which requests are whole; so the work has all
of the envelope's CPUs, and no request is interrupted by another.
"""

from __future__ import annotations

import json
import re
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

# Answers a request (method, path with its query, body) with a status and an object for JSON, or bytes that are JSON.
Answer = Callable[[str, str, bytes], tuple[int, Any]]

MOST_BODY_BYTES = 512 << 20  # a thousand long documents
_MOST_HEAD_BYTES = 64 << 10
_READ_BYTES = 1 << 18
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*(?:\r\n|$)", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*(?:\r\n|$)", re.IGNORECASE)
_ENCODED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 413: "Content Too Large", 500: "Internal Server Error"}


class BadRequest(Exception):
    """A request that an :data:`Answer` refuses; the text says why."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


def serve(port: int, answer: Answer, host: str = "127.0.0.1") -> NoReturn:
    """Answer on a port until SIGTERM ends the process with exit code 0."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.create_server((host, port), backlog=128) as listening:
        Server(answer).run(listening)


class Server:
    """Reads requests of many connections, and answers each when it is whole."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._received: dict[socket.socket, bytearray] = {}

    def run(self, listening: socket.socket) -> NoReturn:
        """Answer for ever."""
        with selectors.DefaultSelector() as chosen:
            chosen.register(listening, selectors.EVENT_READ)
            while True:
                for key, _ in chosen.select():
                    if key.fileobj is listening:
                        connection, _ = listening.accept()
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        chosen.register(connection, selectors.EVENT_READ)
                        self._received[connection] = bytearray()
                    elif isinstance(key.fileobj, socket.socket) and not self._read(key.fileobj):
                        chosen.unregister(key.fileobj)
                        del self._received[key.fileobj]
                        key.fileobj.close()

    def _read(self, connection: socket.socket) -> bool:
        """Read what has come, and answer all requests that are whole; return whether the connection stays open."""
        try:
            new = connection.recv(_READ_BYTES)
            self._received[connection] += new
            return bool(new) and self._answer_whole(connection, self._received[connection])
        except OSError:
            return False

    def _answer_whole(self, connection: socket.socket, received: bytearray) -> bool:
        while (end := received.find(b"\r\n\r\n", 0, _MOST_HEAD_BYTES)) >= 0:
            head = bytes(received[:end])
            found = _LENGTH.search(head)
            length = int(found[1]) if found else 0
            if length > MOST_BODY_BYTES or _ENCODED.search(head):
                why = f"a body has a Content-Length of at most {MOST_BODY_BYTES} bytes"
                connection.sendall(_response(413, _error(why)))
                return False
            if len(received) < end + 4 + length:
                return True
            body = bytes(received[end + 4 : end + 4 + length])
            del received[: end + 4 + length]
            connection.sendall(self._response_to(head, body))
            if _CLOSES.search(head):
                return False
        return len(received) < _MOST_HEAD_BYTES

    def _response_to(self, head: bytes, body: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return _response(400, _error("this is not a request of HTTP/1.1"))
        try:
            return _response(*self._answer(words[0], words[1], body))
        except BadRequest as error:
            return _response(error.status, _error(str(error)))
        except Exception as error:  # noqa: BLE001 # whatever failed, the client is told, and the next request may work
            return _response(500, _error(f"{type(error).__name__}: {error}"))


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request's body.

    Raises:
        BadRequest: there is none.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise BadRequest("the body is not a JSON object")
    return content


def dumped(content: Any) -> bytes:
    """Return compact JSON."""
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def _error(why: str) -> dict[str, Any]:
    return {"error": {"message": why}}


def _response(status: int, content: Any) -> bytes:
    text = content if isinstance(content, bytes) else dumped(content)
    head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\nContent-Type: application/json\r\n"
    return b"%bContent-Length: %d\r\n\r\n%b" % (head.encode("ascii"), len(text), text)
