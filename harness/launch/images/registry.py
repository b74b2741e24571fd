"""Files of a package index, identified by their SHA-256 and downloaded without running anything.

pip reads an sdist's metadata by running its code.  Here a file of a distribution is data: the index's page (PEP 503,
PEP 691) names it, and its content decides whether it is the declared one.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from harness import child_process, filesystem
from harness.untrusted import one_line, parse_json, reason_of

if TYPE_CHECKING:
    import requests

INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
MAX_PAGE_BYTES = 32 << 20
_MAX_FILE_BYTES = 32 << 30
# To connect, and between two pieces of an answer.
_TIMEOUT_S = (15.0, 60.0)
_LOOK_TIMEOUT_S = (5.0, 5.0)
_RETRIES = 3
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Settings:
    """Settings of pip: indexes, folders of files, certificates and a proxy."""

    indexes: tuple[str, ...]
    folders: tuple[Path, ...]
    certificates: str | bool
    proxy: str | None
    trusted: frozenset[str]


def download(name: str, version: str, sha256: str, target: Path) -> str | None:
    """Download the file of a distribution that has this SHA-256, from the indexes that pip is configured with.

    Args:
        name: of the project.
        version: the file's name holds it.
        sha256: of the file.
        target: the file to write; it exists afterwards only if its content is right.

    Returns:
        ``None``, or the reason why there is no such file here.
    """
    settings = _settings()
    if path := _in_folders(settings, name, version, sha256):
        target.write_bytes(path.read_bytes())
        return None

    def take(session: requests.Session, url: str | None) -> str | None:
        actual = _fetch(session, url, target) if url else None
        if actual == sha256:
            return None
        target.unlink(missing_ok=True)
        return f"sent a file with sha256 {actual}, not {sha256}" if actual else _no_file(name, version, sha256)

    failure = _ask(settings, lambda session, index: take(session, _url_of(session, index, name, version, sha256)))
    if failure:
        target.unlink(missing_ok=True)
    return failure


# Begins the fault of a server that does not answer.
SILENT = "does not answer"


def download_url(url: str, sha256: str, target: Path) -> str | None:
    """Download the file at an address; it exists afterwards only if it has this SHA-256.

    Returns:
        ``None``, or the fault of the server, without its name.
    """
    import requests
    from requests.adapters import HTTPAdapter

    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
        session.headers["Accept-Encoding"] = "identity"
        try:
            actual = _fetch(session, url, target)
        except (requests.RequestException, ValueError) as error:
            target.unlink(missing_ok=True)
            if isinstance(error, requests.HTTPError) and error.response is not None:
                return f"answers {error.response.status_code}"
            return f"{SILENT}: {one_line(re.sub('//[^/@ ]*@', '//', str(error)), 200)}"
    if actual != sha256:
        target.unlink()
        return f"sent a file with sha256 {actual}, not {sha256}"
    return None


def missing(name: str, version: str, sha256: str) -> str | None:
    """Return why no index or folder that pip is configured with lists the file of a distribution; None if one does.

    Nothing is downloaded, and a silent index is asked once, for seconds.

    Args:
        name: of the project.
        version: the file's name holds it.
        sha256: of the file.
    """
    settings = _settings()
    if _in_folders(settings, name, version, sha256):
        return None

    def look(session: requests.Session, index: str) -> str | None:
        url = _url_of(session, index, name, version, sha256, timeout_s=_LOOK_TIMEOUT_S)
        return None if url else _no_file(name, version, sha256)

    return _ask(settings, look, retries=0)


def _no_file(name: str, version: str, sha256: str) -> str:
    return f"has no file of {name} {version} with sha256 {sha256}"


def _in_folders(settings: _Settings, name: str, version: str, sha256: str) -> Path | None:
    """Return the file of a distribution in the folders that pip is configured with, if it is there."""
    for folder in settings.folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if _names(path.name, name, version) and path.is_file() and filesystem.sha256(path) == sha256:
                return path
    return None


def _ask(
    settings: _Settings, question: Callable[[requests.Session, str], str | None], *, retries: int = _RETRIES
) -> str | None:
    """Ask each index in turn, until one has no fault; return the faults of all, or None.

    Args:
        settings: name the indexes.
        question: takes a session and an index; returns the index's fault, or None.
        retries: of a request that fails.
    """
    import requests
    from requests.adapters import HTTPAdapter

    reasons: list[str] = []
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        session.headers["Accept-Encoding"] = "identity"
        if settings.proxy:
            session.proxies = {"http": settings.proxy, "https": settings.proxy}
        for index in settings.indexes:
            host = urlsplit(index).hostname or index
            session.verify = settings.certificates if host not in settings.trusted else False
            try:
                fault = question(session, index)
            except (requests.RequestException, ValueError) as error:
                reason = str(error) if isinstance(error, requests.RequestException) else reason_of(error)
                reason = re.sub("//[^/@ ]*@", "//", reason)  # the user's password for the index
                reasons.append(f"{host} does not answer as an index does: {one_line(reason, 200)}")
            else:
                if fault is None:
                    return None
                reasons.append(f"{host} {fault}")
    return "; ".join(reasons) or "pip is configured without a package index"


def _url_of(
    session: requests.Session,
    index: str,
    name: str,
    version: str,
    sha256: str,
    *,
    timeout_s: tuple[float, float] = _TIMEOUT_S,
) -> str | None:
    """Return the address of the file that the index's page lists with this SHA-256."""
    page = f"{index.rstrip('/')}/{re.sub('[-_.]+', '-', name).lower()}/"
    with session.get(page, headers={"Accept": _ACCEPT}, timeout=timeout_s, stream=True) as answer:
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        content = b"".join(_pieces(answer, MAX_PAGE_BYTES))
        base, kind = answer.url, answer.headers.get("Content-Type", "")
    listed = listed_files(content, kind)
    found = next((url for url, checksum in listed.items() if checksum == sha256), None)
    if found is None:  # an index need not know the checksums of its files
        unknown = (url for url, checksum in listed.items() if not checksum)
        found = next(
            (url for url in unknown if _names(unquote(urlsplit(url).path).rpartition("/")[2], name, version)), None
        )
    url = urljoin(base, found) if found else None
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"it names the address {one_line(url, 80)}, and only http and https are read")
    return url


def listed_files(content: bytes, kind: str) -> dict[str, str]:
    """Return the files that an index's page lists: their addresses, and each SHA-256 or nothing.

    Raises:
        ValueError: the page is damaged.
    """
    if "json" in kind:
        try:
            files = parse_json(content).get("files", [])
            return {str(file["url"]): str(file.get("hashes", {}).get("sha256", "")) for file in files}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its page is damaged: {reason_of(error)}") from error
    anchors = _Anchors()
    anchors.feed(content.decode("utf-8", "replace"))
    parts = (urldefrag(address) for address in anchors.addresses)
    return {url: fragment.partition("sha256=")[2] for url, fragment in parts}


class _Anchors(HTMLParser):
    """The addresses of all links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for key, value in attrs if tag == "a" and key == "href" and value]


def _names(file: str, name: str, version: str) -> bool:
    """Check whether a file's name has this project and version."""
    plain = re.sub("[-_.]+", "-", file).lower()
    return plain.startswith(re.sub("[-_.]+", "-", f"{name}-{version}-").lower())


def _fetch(session: requests.Session, url: str, target: Path) -> str:
    """Download a file; return its SHA-256."""
    digest = hashlib.sha256()
    with session.get(url, timeout=_TIMEOUT_S, stream=True) as answer, target.open("wb") as file:
        answer.raise_for_status()
        for piece in _pieces(answer, _MAX_FILE_BYTES):
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def _pieces(answer: requests.Response, most_bytes: int) -> Iterator[bytes]:
    """Yield an answer's content; raise ValueError beyond ``most_bytes``."""
    left = most_bytes
    for piece in answer.iter_content(_PIECE_BYTES):
        left -= len(piece)
        if left < 0:
            raise ValueError(f"its answer has more than {most_bytes:,} bytes")
        yield piece


def _settings() -> _Settings:
    """Ask pip how the user has configured it."""
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listed = child_process.run(command, *child_process.PIP).stdout
    found: dict[str, str] = {}
    # Of one key, variables outrank the section of the command, which outranks `global`.
    for section in ("global", "download", ":env:"):
        for key, value in re.findall(rf"^{section}\.([a-z-]+)=(.*)$", listed, re.MULTILINE):
            found[key] = str(ast.literal_eval(value))
    indexes = (
        [] if _on(found.get("no-index")) else [found.get("index-url", INDEX), *found.get("extra-index-url", "").split()]
    )
    links = found.get("find-links", "").split()
    return _Settings(
        tuple(index for index in indexes if urlsplit(index).scheme in ("http", "https")),
        tuple(Path(link.removeprefix("file://")) for link in links if "://" not in link.removeprefix("file://")),
        found.get("cert") or True,
        found.get("proxy"),
        frozenset(host.partition(":")[0] for host in found.get("trusted-host", "").split()),
    )


def _on(value: str | None) -> bool:
    return (value or "").lower() in ("1", "true", "yes", "on")
