"""Clients of services that come in images of their own: OpenSearch and Elasticsearch, Qdrant, Vespa.

Not tried here: they are written after the services' documentation, and tests play answers composed after its pages.
Whoever measures such a service makes an engine of it, a folder whose ``adapter.py`` names one of these classes
``ENGINE``, and whose ``engine.toml`` shares ``http_adapters``, ``service_client``, ``parameter_names``, ``ranking``;
``images/opensearch`` is one.
"""

from __future__ import annotations

import contextlib
import json
import threading
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parameter_names
from service_client import HttpClient, wait_until

from harness.driver.adapter import Adapter, Corpus, Document, QueryFailed
from harness.driver.records import Envelope, Scalar

# A request of a build may merge or index everything.
_BUILD_TIMEOUT_S = 6 * 3600.0
_REFUSED = ("status 401:", "status 403:")


class HttpService(Adapter):
    """A service over HTTP: its parameters, connections, credentials, and the times that it reports.

    Parameters of every search: ``connections`` (at once, in the server scenario).
    """

    parameters: tuple[str, ...]  # besides ``connections``
    token = ("Authorization", "Bearer ")  # its header, and the word before it

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        parameter_names.check(params, (*self.parameters, "connections"), "this engine")
        self._of_thread = threading.local()
        self._facts: dict[str, str] = {}
        self._threads: dict[str, int] = {}

    @abstractmethod
    def ready(self) -> bool:
        """Ask the service whether it has its index and answers searches; called until it has."""

    @abstractmethod
    def learn(self) -> tuple[dict[str, str], dict[str, int]]:
        """Ask a ready service for its versions and its thread counts."""

    def load(self, index_dir: Path) -> None:  # noqa: ARG002 # the server has it
        """Wait until the service answers searches.

        Raises:
            RuntimeError: it refuses the credentials.
        """
        self.http = self.client(self.service_url)
        self.wait(self.ready)
        self._facts, self._threads = self.learn()

    def client(self, url: str, timeout_s: float = 60.0) -> HttpClient:
        """Return a client with the service's kind of credentials."""
        return HttpClient(url, timeout_s, token=self.token)

    def connect_to_build(self) -> None:
        """Connect with a time-out that is meant for builds."""
        self.http = self.client(self.service_url, _BUILD_TIMEOUT_S)

    def wait(self, ready: Any) -> None:
        """Call ``ready`` until it returns something true.

        Raises:
            RuntimeError: the service refuses the credentials; waiting would not help.
        """

        def asked() -> object:
            try:
                return ready()
            except QueryFailed as error:
                if str(error).startswith(_REFUSED):
                    names = "HARNESS_SERVICE_TOKEN, or HARNESS_SERVICE_USER and HARNESS_SERVICE_PASSWORD"
                    raise RuntimeError(f"the service refuses the credentials of {names}: {error}") from None
                raise

        wait_until(asked)

    def streams(self) -> int:
        """Return the connections of the open loop."""
        return int(self.params["connections"])

    def note(self, stages_s: dict[str, float]) -> None:
        """Keep the stages of this thread's last search."""
        self._of_thread.stages_s = stages_s

    def stages_s(self) -> dict[str, float]:
        """Return the seconds that the service reports for this thread's last search."""
        return dict(getattr(self._of_thread, "stages_s", {}))

    def threads(self) -> dict[str, int]:
        """Return the thread counts that the service reports."""
        return dict(self._threads)

    def libraries(self) -> dict[str, str]:
        """Return the versions that the service reports."""
        return dict(self._facts)

    def close(self) -> None:
        """Close this thread's connection."""
        self.http.close()


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Turn a missing or odd part of an answer into a failed query."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise QueryFailed(f"an answer of another form: {type(error).__name__}: {error}") from error


def number(value: object) -> float:
    """Return a score that JSON holds as a number.

    Raises:
        TypeError: it is something else, such as null or ``"-Infinity"``.
    """
    if type(value) not in (int, float):
        raise TypeError(f"a score that is {value!r}")
    return float(value)  # type: ignore[arg-type]


def to_json(content: object) -> bytes:
    """Return compact JSON; half a surrogate pair is not text, and is replaced as the engines in the process do."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def contents(document: Document) -> str:
    """Return the text that is searched: title and text as one, as the other systems index them."""
    return f"{document.title} {document.text}" if document.title else document.text


def batches(corpus: Corpus, documents: int, characters: int) -> Iterator[list[tuple[int, Document]]]:
    """Yield the corpus, numbered, in parts of at most so many documents and about so many characters."""
    batch: list[tuple[int, Document]] = []
    size = 0
    for place, document in enumerate(corpus):
        batch.append((place, document))
        size += len(document.title) + len(document.text)
        if len(batch) >= documents or size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
