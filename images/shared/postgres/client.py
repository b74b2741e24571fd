"""A client of PostgreSQL: a pool of connections, statements prepared once, errors of a query as QueryFailed."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from harness.driver.adapter import QueryFailed
from harness.driver.records import Scalar

_POLL_S = 0.005


class Client:
    """Asks one server; as many connections are open as threads have asked at once.

    Args:
        url: ``postgresql://host:port``; user and database are ``postgres`` where it names none.
        settings: of each connection.
        prepare: is called with each new connection.
    """

    def __init__(
        self,
        url: str,
        settings: Mapping[str, str],
        prepare: Callable[[psycopg.Connection[Any]], object] = lambda _: None,
    ) -> None:
        defaults = {"user": "postgres", "dbname": "postgres", "connect_timeout": "5"}
        words = {"client_min_messages": "warning", **settings}
        self._prepare = prepare
        options = " ".join(f"-c {name}={value}" for name, value in words.items())
        self._where: dict[str, Any] = {**defaults, **conninfo_to_dict(url), "options": options}
        self._idle: deque[psycopg.Connection[Any]] = deque()

    def wait(self) -> None:
        """Wait until the server takes connections; the host ends a job whose server never does."""
        while True:
            try:
                with self.connection():
                    return
            except psycopg.OperationalError:
                time.sleep(_POLL_S)

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend the connection that was used last, or a new one; each statement is committed."""
        try:
            lent = self._idle.pop()
        except IndexError:
            lent = psycopg.connect(**self._where, autocommit=True)
            lent.prepare_threshold = 0
            self._prepare(lent)
        try:
            yield lent
        finally:
            if lent.closed:
                self.close()  # the server has gone, for the others too
            else:
                self._idle.append(lent)

    def ask(self, statement: LiteralString | bytes, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows that a query gets.

        Raises:
            QueryFailed: the server answered with an error, too late, or closed the connection.
        """
        try:
            with self.connection() as connection, connection.cursor(binary=True) as cursor:
                rows: list[tuple[Any, ...]] = cursor.execute(statement, values).fetchall()
                return rows
        except psycopg.Error as error:
            raise QueryFailed(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error

    def processes(self) -> int:
        """Return how many of the server's processes may work on one query."""
        [(workers,)] = self.ask("SELECT current_setting('max_parallel_workers_per_gather')", ())
        return int(workers) + 1

    def libraries(self) -> dict[str, str]:
        """Return the versions of the server and of the client's library."""
        with self.connection() as connection:
            number = connection.info.server_version
        return {"postgresql": f"{number // 10_000}.{number % 10_000}", "psycopg": version("psycopg-binary")}

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()


def plain(text: str) -> str:
    """Return a text as PostgreSQL can hold it: without the character 0 and halves of surrogate pairs."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def fields(metadata: Mapping[str, Scalar]) -> str:
    """Return a document's fields, or a filter, as JSON that PostgreSQL can hold; true is 1, as filters have it."""
    return json.dumps({plain(name): _same(value) for name, value in metadata.items()})


def _same(value: Scalar) -> str | float:
    if isinstance(value, str):
        return plain(value)
    return int(value) if isinstance(value, bool) else value
