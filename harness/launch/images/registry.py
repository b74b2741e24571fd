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
from contextlib import contextmanager
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


@dataclass(frozen=True)
class Distribution:
    """A file of a project's version, which its SHA-256 identifies."""

    project: str
    version: str
    sha256: str

    def __str__(self) -> str:
        """Return the project and its version, as pip writes them."""
        return f"{self.project}=={self.version}"

    @property
    def absence(self) -> str:
        """The fault of an index that does not list it."""
        return f"has no file of {self.project} {self.version} with sha256 {self.sha256}"

    def may_be(self, file: str) -> bool:
        """Check whether a file's name has this project and version."""
        return _plain(file).startswith(_plain(f"{self.project}-{self.version}-"))


def download(wanted: Distribution, target: Path) -> str | None:
    """Download a distribution, from the indexes that pip is configured with.

    Args:
        wanted: the distribution.
        target: the file to write; it exists afterwards only if its content is right.

    Returns:
        ``None``, or the reason why there is no such file here.
    """
    settings = _settings()
    if path := _in_folders(settings, wanted):
        target.write_bytes(path.read_bytes())
        return None

    def take(session: requests.Session, index: str) -> str | None:
        url = _url_of(session, index, wanted, _TIMEOUT_S)
        return _fetch(session, url, wanted.sha256, target) if url else wanted.absence

    return _ask(settings, take, _RETRIES)


# Begins the fault of a server that does not answer.
SILENT = "does not answer"


def download_url(url: str, sha256: str, target: Path) -> str | None:
    """Download the file at an address; it exists afterwards only if it has this SHA-256.

    Returns:
        ``None``, or the fault of the server, without its name.
    """
    import requests

    with _session(_RETRIES) as session:
        try:
            return _fetch(session, url, sha256, target)
        except (requests.RequestException, ValueError) as error:
            if isinstance(error, requests.HTTPError) and error.response is not None:
                return f"answers {error.response.status_code}"
            return f"{SILENT}: {_without_password(str(error))}"


def missing(wanted: Distribution) -> str | None:
    """Return why no index or folder that pip is configured with lists a distribution; None if one does.

    Nothing is downloaded, and a silent index is asked once, for seconds.
    """
    settings = _settings()
    if _in_folders(settings, wanted):
        return None

    def look(session: requests.Session, index: str) -> str | None:
        return None if _url_of(session, index, wanted, _LOOK_TIMEOUT_S) else wanted.absence

    return _ask(settings, look, retries=0)


def _in_folders(settings: _Settings, wanted: Distribution) -> Path | None:
    """Return the file of a distribution in the folders that pip is configured with, if it is there."""
    for folder in settings.folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if wanted.may_be(path.name) and path.is_file() and filesystem.sha256(path) == wanted.sha256:
                return path
    return None


@contextmanager
def _session(retries: int) -> Iterator[requests.Session]:
    """Open connections on which a request that fails is sent again, and no answer is packed."""
    import requests
    from requests.adapters import HTTPAdapter

    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retries))
        session.headers["Accept-Encoding"] = "identity"
        yield session


def _ask(settings: _Settings, question: Callable[[requests.Session, str], str | None], retries: int) -> str | None:
    """Ask each index in turn, until one has no fault; return the faults of all, or None.

    Args:
        settings: name the indexes.
        question: takes a session and an index; returns the index's fault, or None.
        retries: of a request that fails.
    """
    import requests

    reasons: list[str] = []
    with _session(retries) as session:
        if settings.proxy:
            session.proxies = {"http": settings.proxy, "https": settings.proxy}
        for index in settings.indexes:
            host = urlsplit(index).hostname or index
            session.verify = settings.certificates if host not in settings.trusted else False
            try:
                fault = question(session, index)
            except (requests.RequestException, ValueError) as error:
                reason = str(error) if isinstance(error, requests.RequestException) else reason_of(error)
                fault = f"does not answer as an index does: {_without_password(reason)}"
            if fault is None:
                return None
            reasons.append(f"{host} {fault}")
    return "; ".join(reasons) or "pip is configured without a package index"


def _without_password(reason: str) -> str:
    """Return an error on one line, without the user's password in its address."""
    return one_line(re.sub("//[^/@ ]*@", "//", reason), 200)


def _url_of(session: requests.Session, index: str, wanted: Distribution, timeout_s: tuple[float, float]) -> str | None:
    """Return the address of a distribution that the index's page lists."""
    page = f"{index.rstrip('/')}/{_plain(wanted.project)}/"
    with session.get(page, headers={"Accept": _ACCEPT}, timeout=timeout_s, stream=True) as answer:
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        content = b"".join(_pieces(answer, MAX_PAGE_BYTES))
        base, kind = answer.url, answer.headers.get("Content-Type", "")
    listed = listed_files(content, kind)
    found = next((url for url, checksum in listed.items() if checksum == wanted.sha256), None)
    if found is None:  # an index need not know the checksums of its files
        unknown = (url for url, checksum in listed.items() if not checksum)
        found = next((url for url in unknown if wanted.may_be(unquote(urlsplit(url).path).rpartition("/")[2])), None)
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


def _plain(name: str) -> str:
    """Return a name as indexes write it (PEP 503)."""
    return re.sub("[-_.]+", "-", name).lower()


def _fetch(session: requests.Session, url: str, sha256: str, target: Path) -> str | None:
    """Download a file; return the fault if its content is another.  It exists afterwards only if it is right."""
    digest = hashlib.sha256()
    try:
        with session.get(url, timeout=_TIMEOUT_S, stream=True) as answer, target.open("wb") as file:
            answer.raise_for_status()
            for piece in _pieces(answer, _MAX_FILE_BYTES):
                digest.update(piece)
                file.write(piece)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    if (actual := digest.hexdigest()) == sha256:
        return None
    target.unlink()
    return f"sent a file with sha256 {actual}, not {sha256}"


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
