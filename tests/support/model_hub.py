"""A local model hub with the HTTP interface that huggingface_hub uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

from tests.support.loopback import serving

LFS_OVER = 1000  # bytes; larger files are known by their sha256, smaller ones by git's hash


@dataclass
class Hub:
    """Models by id: commit -> file name -> content; the last commit is the newest.

    Files of ``gated`` models are not sent, although all may read about them.  ``cut`` breaks off a file's first
    transfer after so many bytes; ``changed`` sends other bytes than the API says.  ``ranges`` are the first bytes that
    were asked for.
    """

    models: dict[str, dict[str, dict[str, bytes]]]
    licences: dict[str, str] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    url: str = ""
    downloaded: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    changed: dict[str, bytes] = field(default_factory=dict)
    ranges: list[int] = field(default_factory=list)

    def info(self, model: str, revision: str) -> dict[str, object]:
        """Return the answer of ``/api/models/...?blobs=true``."""
        siblings = []
        for name, content in self.models[model][revision].items():
            sibling = {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
            if len(content) > LFS_OVER:
                sha = hashlib.sha256(content).hexdigest()
                sibling["lfs"] = {"size": len(content), "sha256": sha, "pointerSize": 134}
            siblings.append(sibling)
        card = {"license": self.licences[model]} if model in self.licences else {}
        return {"id": model, "sha": revision, "siblings": siblings, "cardData": card}


def git_hash(content: bytes) -> str:
    """Return git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Serve the hub on a free port of the loopback interface."""
    with serving(_handler(hub)) as url:
        hub.url = url
        yield hub


NO_HUB = "http://127.0.0.1:9"


@contextmanager
def chosen(url: str) -> Iterator[None]:
    """Make this process, and its children, ask the hub at an address, with no token."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("HF_ENDPOINT", url), ("HF_TOKEN_PATH", "/nowhere"), ("HF_HUB_DISABLE_XET", "1")):
            patch.setenv(name, value)
        patch.setattr(constants, "ENDPOINT", url)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(constants, "HF_TOKEN_PATH", "/nowhere")
        yield


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
            if model in hub.gated and not api:
                return self._send(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
            commit = rest[1] if len(rest) > 1 else next(reversed(commits))
            if commit not in commits:
                return self._send(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
            if api:
                answer = json.dumps(hub.info(model, commit)).encode()
                return self._send(200, {"Content-Type": "application/json"}, answer, body=body)
            name = "/".join(rest[2:])
            content = hub.changed.get(name, commits[commit][name])
            headers = {"X-Repo-Commit": commit, "ETag": f'"{git_hash(content)}"', "Accept-Ranges": "bytes"}
            if not body:
                return self._send(200, headers, content, body=False)
            hub.downloaded.append(name)
            if first := int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]):
                hub.ranges.append(first)
                headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
                return self._send(206, headers, content[first:])
            return self._send(200, headers, content, most=hub.cut.pop(name, None))

        def _send(
            self,
            status: int,
            headers: dict[str, str],
            content: bytes = b"",
            *,
            body: bool = True,
            most: int | None = None,
        ) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                self.wfile.write(content[:most])
            if most is not None:
                self.close_connection = True

    return Handler
