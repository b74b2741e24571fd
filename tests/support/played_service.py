"""A service that answers with a conversation from ``tests/data/services``, and compares what it is asked."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from tests.support.loopback import serving

CONVERSATIONS = Path(__file__).parents[1] / "data" / "services"


def conversation(service: str, part: str) -> list[dict[str, Any]]:
    """Return a part of a stored conversation: ``build``, ``load`` or ``search``."""
    turns: list[dict[str, Any]] = json.loads((CONVERSATIONS / f"{service}.json").read_text(encoding="utf-8"))[part]
    assert all(turn["page"].startswith("https://") for turn in turns), "each names its page"
    return turns


def body_of(request: dict[str, Any]) -> bytes:
    """Return the bytes that a stored request sends."""
    if "lines" in request:
        return b"".join(_compact(line) + b"\n" for line in request["lines"])
    return _compact(request["body"]) if "body" in request else b""


def _compact(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


@dataclass
class Played:
    """What a service was asked.

    Attributes:
        url: its address.
        turns: that are still to come.
        differences: what was asked otherwise than stored.
        headers: of each request.
        files: of the last zip that was sent.
        connections: numbers of the clients' ports.
    """

    url: str = ""
    turns: list[dict[str, Any]] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    connections: set[int] = field(default_factory=set)

    def play(self, *parts: list[dict[str, Any]]) -> None:
        """Add turns."""
        self.turns += [turn for part in parts for turn in part]

    def check(self) -> None:
        """Require that all was asked as stored."""
        assert self.differences == [] and self.turns == []

    def compare(self, method: str, path: str, kind: str | None, body: bytes) -> tuple[int, bytes]:
        """Return the status and the answer to a request."""
        if not self.turns:
            self.differences.append(f"nothing more was expected than {method} {path}")
            return 500, b"{}"
        turn = self.turns.pop(0)
        request = turn["request"]
        if (method, path) != (request["method"], request["path"]):
            self.differences.append(f"{method} {path}, not {request['method']} {request['path']}")
        if "files" in request:
            with zipfile.ZipFile(io.BytesIO(body)) as package:
                self.files = {name: package.read(name).decode() for name in package.namelist()}
            if list(self.files) != request["files"]:
                self.differences.append(f"files {list(self.files)}")
        elif body != body_of(request):
            self.differences.append(f"{body!r}, not {body_of(request)!r}")
        if kind != request.get("type", "application/json" if body else None):
            self.differences.append(f"{path} was sent as {kind}")
        return turn.get("status", 200), json.dumps(turn["answer"]).encode("utf-8")


@contextmanager
def playing() -> Iterator[Played]:
    """Serve the turns of a conversation that the test adds."""
    played = Played()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            played.headers.append(dict(self.headers.items()))
            played.connections.add(self.client_address[1])
            status, text = played.compare(self.command, self.path, self.headers.get("Content-Type"), body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        played.url = url
        yield played
