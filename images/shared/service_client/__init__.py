"""The client of a service that speaks JSON over HTTP: connections that stay open, bounded answers, no retries.

A retry would be a second latency of the same query, so a query that fails has failed (:class:`QueryFailed`).
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from harness.driver.adapter import QueryFailed

# Far above the answer to any query; a server that sends more is at fault.
MOST_BYTES = 32 << 20
_POLL_S = 0.005
_REASON_CHARS = 200


class HttpClient:
    """Asks one server; each thread has a connection of its own.

    Args:
        url: the server's address, ``http://host:port`` or ``https://host/prefix``.
        timeout_s: the longest wait for a reply's next bytes.
        headers: sent with each request; the credentials of a service that runs already come from the environment.
        token: the header of a token, and the word before it.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float = 60.0,
        headers: Mapping[str, str] | None = None,
        token: tuple[str, str] = ("Authorization", "Bearer "),
    ) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"{url!r} is not the address of a service, as http://host:port is")
        self._host, self._prefix = address.hostname, address.path.rstrip("/")
        self._port = address.port or (443 if address.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json", **authorization(*token), **(headers or {})}
        self._of_thread = threading.local()

    def get(self, path: str) -> Any:
        """Return the JSON that the server answers a GET with; see :meth:`ask`."""
        return self.ask("GET", path)

    def post(self, path: str, content: Any) -> Any:
        """Return the JSON that the server answers a POST of JSON with; see :meth:`ask`."""
        return self.ask("POST", path, json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8"))

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> Any:
        """Send one request; return the parsed JSON of its answer, None for an empty one.

        Raises:
            QueryFailed: the server answered with an error, with no JSON, too much, too late, or closed the connection.
        """
        headers = {**self._headers, "Content-Type": kind} if body is not None else self._headers
        try:
            connection = self._connection()
            connection.request(method, self._prefix + path, body, headers)
            response = connection.getresponse()
            text = response.read(MOST_BYTES + 1)
        except TimeoutError as error:
            self.close()
            raise QueryFailed(f"no answer within {self._timeout_s:g} s", timed_out=True) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise QueryFailed(f"the connection failed: {type(error).__name__}: {error}") from error
        if len(text) > MOST_BYTES:
            self.close()
            raise QueryFailed(f"an answer of more than {MOST_BYTES >> 20} MiB")
        if not 200 <= response.status < 300:
            raise QueryFailed(f"status {response.status}: {_shown(text)}")
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError) as error:
            raise QueryFailed(f"an answer that is not JSON: {_shown(text)}") from error

    def close(self) -> None:
        """Close this thread's connection; the next request opens another."""
        connection = getattr(self._of_thread, "connection", None)
        if connection is not None:
            connection.close()
        self._of_thread.connection = None

    def _connection(self) -> http.client.HTTPConnection:
        connection = getattr(self._of_thread, "connection", None)
        if connection is None:
            if self._tls:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout_s, context=self._tls
                )
            else:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            connection.connect()
            # A request's last packet must not wait for the answer to its first.
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._of_thread.connection = connection
        return connection  # type: ignore[no-any-return]


def authorization(header: str = "Authorization", scheme: str = "Bearer ") -> dict[str, str]:
    """Return the header for ``HARNESS_SERVICE_TOKEN``, else for ``HARNESS_SERVICE_USER`` and its password, if set.

    The launcher hides their values in all that a client leaves behind.
    """
    if token := os.environ.get("HARNESS_SERVICE_TOKEN"):
        return {header: scheme + token}
    if user := os.environ.get("HARNESS_SERVICE_USER"):
        pair = f"{user}:{os.environ.get('HARNESS_SERVICE_PASSWORD', '')}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode('utf-8')).decode('ascii')}"}
    return {}


def runs_already() -> bool:
    """Return whether the service ran before the job: then a client asks it once, and waits for nothing."""
    return bool(os.environ.get("HARNESS_SERVICE_RUNS"))


def wait_until(ready: Callable[[], object]) -> None:
    """Call ``ready`` until it returns something true; it may raise QueryFailed until the server listens.

    The host ends a job whose server is never ready (``load_timeout_s``), so this has no limit of its own.  A service
    that runs already is asked once, and its failure is the client's.
    """
    if runs_already():
        if not ready():
            raise QueryFailed("the service answers that it is not ready")
        return
    while True:
        try:
            if ready():
                return
        except QueryFailed:
            pass
        time.sleep(_POLL_S)


def _shown(text: bytes) -> str:
    return " ".join(text[:_REASON_CHARS].decode("utf-8", "replace").split())
