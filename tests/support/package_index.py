"""A local package index with the pages that PEP 503 and PEP 691 describe."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.support.loopback import serving


@dataclass
class PackageIndex:
    """Files by project; ``cut`` names files whose content ends too early, ``silent`` leaves the checksums out."""

    projects: dict[str, dict[str, bytes]]
    json: bool = True
    silent: bool = False
    cut: set[str] = field(default_factory=set)
    # The address that pages give for a file, in place of its own.
    moved: dict[str, str] = field(default_factory=dict)
    status: int = 200
    url: str = ""
    requests: list[str] = field(default_factory=list)

    def page(self, project: str) -> tuple[str, bytes]:
        """Return the content type and the content of a project's page."""
        files = self.projects[project]
        addresses = {name: self.moved.get(name, f"../../files/{project}/{name}") for name in files}
        sums = {name: {} if self.silent else {"sha256": checksum(content)} for name, content in files.items()}
        if self.json:
            listed = [{"filename": name, "url": addresses[name], "hashes": sums[name]} for name in files]
            text = json.dumps({"meta": {"api-version": "1.0"}, "name": project, "files": listed})
            return "application/vnd.pypi.simple.v1+json", text.encode()
        anchors = (
            f'<a href="{addresses[name]}{"#sha256=" + sums[name]["sha256"] if sums[name] else ""}">{name}</a><br/>'
            for name in files
        )
        return "text/html", f"<!DOCTYPE html><html><body>{''.join(anchors)}</body></html>".encode()


def checksum(content: bytes) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()


def sdist(members: dict[str, bytes]) -> bytes:
    """Pack an sdist."""
    with io.BytesIO() as packed:
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, content in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return packed.getvalue()


@contextmanager
def serve(index: PackageIndex) -> Iterator[PackageIndex]:
    """Serve an index on a free port of the loopback interface."""
    with serving(_handler(index)) as url:
        index.url = f"{url}/simple"
        yield index


def _handler(index: PackageIndex) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.requests.append(self.path)
            kind, project, *rest = self.path.strip("/").split("/")
            files = index.projects.get(project)
            if files is None or (kind == "files" and rest[0] not in files):
                self.send_error(404)
                return
            content_type, content = index.page(project) if kind == "simple" else ("application/octet-stream", b"")
            content = files[rest[0]] if kind == "files" else content
            self.send_response(index.status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if rest and rest[0] in index.cut else content)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
