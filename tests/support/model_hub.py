"""A local model hub with the HTTP interface that huggingface_hub uses."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LFS_OVER = 1000  # bytes; larger files are known by their sha256, smaller ones by git's hash


@dataclass
class Hub:
    """Models by id: commit -> file name -> content; the last commit is the newest."""

    models: dict[str, dict[str, dict[str, bytes]]]
    licences: dict[str, str] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    url: str = ""
    downloaded: list[str] = field(default_factory=list)

    def info(self, model: str, revision: str) -> dict[str, object]:
        """Return the answer of ``/api/models/...?blobs=true``."""
        siblings = []
        for name, content in self.models[model][revision].items():
            sibling = {"rfilename": name, "size": len(content), "blobId": hashlib.sha1(content).hexdigest()}
            if len(content) > LFS_OVER:
                sha = hashlib.sha256(content).hexdigest()
                sibling["lfs"] = {"size": len(content), "sha256": sha, "pointerSize": 134}
            siblings.append(sibling)
        card = {"license": self.licences[model]} if model in self.licences else {}
        return {"id": model, "sha": revision, "siblings": siblings, "cardData": card}


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Serve the hub on a free port of the loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *args: object) -> None:
            pass

        def _answer(self, body: bool) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            api = parts[:2] == ["api", "models"]
            model, rest = ("/".join(parts[2:4]), parts[4:]) if api else ("/".join(parts[:2]), parts[2:])
            commits = hub.models.get(model)
            if commits is None:
                return self._send(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
            if model in hub.gated:
                return self._send(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
            commit = rest[1] if len(rest) > 1 else next(reversed(commits))
            if commit not in commits:
                return self._send(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            if api:
                answer = json.dumps(hub.info(model, commit)).encode()
                return self._send(200, {"Content-Type": "application/json"}, answer, body=body)
            name = "/".join(rest[2:])
            content = commits[commit][name]
            if body:
                hub.downloaded.append(name)
            etag = hashlib.sha1(content).hexdigest()
            return self._send(200, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}, content, body=body)

        def _send(self, status: int, headers: dict[str, str], content: bytes = b"", *, body: bool = True) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content)

    return Handler
