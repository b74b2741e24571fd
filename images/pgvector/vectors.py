"""What vectors need of PostgreSQL: the parameters of an index, its statements, and rows and vectors in binary."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.driver.records import Scalar

if TYPE_CHECKING:
    from psycopg import Connection

INDEXES = ("exact", "hnsw")
BUILD = ("index", "m", "ef_construction")
SEARCH = ("ef_search",)
_RANGES = {"m": (2, 100), "ef_construction": (4, 1000), "ef_search": (1, 1000)}  # pgvector's own
# A row of a longer vector would not fit into a page of the table.
_MOST_INLINE = 1950

# COPY's binary form: https://www.postgresql.org/docs/17/sql-copy.html
COPY_BEGINS = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
COPY_ENDS = struct.pack("!h", -1)

# The score is the inner product; of equal scores the earlier document is first.
SEARCH_STATEMENT = (
    "SELECT id, -distance FROM ("
    "SELECT id, place, embedding <#> %s AS distance FROM documents ORDER BY distance, place LIMIT %s"
    ") AS nearest ORDER BY distance, place"
)

FILTERED_STATEMENT = (
    "SELECT id, -distance FROM ("
    "SELECT id, place, embedding <#> %s AS distance FROM documents WHERE fields @> %s::jsonb"
    " ORDER BY distance, place LIMIT %s"
    ") AS nearest ORDER BY distance, place"
)
UNIQUE_STATEMENT = "CREATE UNIQUE INDEX IF NOT EXISTS documents_id ON documents (id)"
INSERT_STATEMENT = (
    "INSERT INTO documents (place, id, embedding, fields) VALUES (%s, %s, %s, %s::jsonb) ON CONFLICT (id) DO UPDATE"
    " SET place = excluded.place, embedding = excluded.embedding, fields = excluded.fields RETURNING id"
)
DELETE_STATEMENT = "DELETE FROM documents WHERE id = ANY(%s) RETURNING id"


class Packed(bytes):
    """A vector as pgvector sends and receives it."""


def register(connection: Connection[Any]) -> None:
    """Let a connection send vectors in binary, where the database knows them."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    [(number,)] = connection.execute("SELECT to_regtype('vector')::oid").fetchall()
    if number is None:
        return

    class VectorDumper(Dumper):
        format = Format.BINARY
        oid = int(number)

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    connection.adapters.register_dumper(Packed, VectorDumper)


@dataclass(frozen=True)
class Index:
    """How the nearest vectors are found; the numbers are 0 where every vector is compared."""

    kind: str
    m: int = 0
    ef_construction: int = 0
    ef_search: int = 0

    @classmethod
    def of(cls, params: Mapping[str, Scalar]) -> Index:
        """Read the parameters ``index``, and of ``hnsw`` ``m``, ``ef_construction`` and ``ef_search``.

        Raises:
            ValueError: one is wrong, missing, or of another kind of index.
        """
        kind = str(params["index"])
        if kind not in INDEXES:
            raise ValueError(f"index is {kind!r}, must be one of {', '.join(INDEXES)}")
        if kind == "exact":
            if further := next((name for name in _RANGES if name in params), None):
                raise ValueError(f"{further} is a parameter of index = 'hnsw'; remove it")
            return cls(kind)
        for name, (least, most) in _RANGES.items():
            if type(value := params[name]) is not int or not least <= value <= most:
                raise ValueError(f"{name} is {value!r}, must be a whole number from {least} to {most}")
        m, ef_construction, ef_search = (int(params[name]) for name in _RANGES)
        if ef_construction < 2 * m:
            raise ValueError(f"ef_construction is {ef_construction}, must be at least twice m, {2 * m}")
        return cls(kind, m, ef_construction, ef_search)

    @property
    def facts(self) -> str:
        """What the index in the database was made with."""
        return f"{self.kind} m={self.m} ef_construction={self.ef_construction}"

    def tables(self, dims: int) -> bytes:
        """Return the statements that make the tables for vectors of ``dims`` numbers."""
        storage = "PLAIN" if dims <= _MOST_INLINE else "EXTERNAL"
        column = f"embedding vector({dims}) STORAGE {storage} NOT NULL"
        return (
            "CREATE EXTENSION vector;"
            f"CREATE TABLE documents (place integer NOT NULL, id text NOT NULL, {column}, fields jsonb NOT NULL);"
            f"CREATE TABLE built_with AS SELECT '{self.facts}'::text AS facts"
        ).encode()

    @property
    def create(self) -> bytes | None:
        """The statement that makes the index, or None."""
        if self.kind == "exact":
            return None
        how = f"m = {self.m}, ef_construction = {self.ef_construction}"
        return f"CREATE INDEX ON documents USING hnsw (embedding vector_ip_ops) WITH ({how})".encode()

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a search's connections.

        The graph is used even for so few documents that comparing all would be quicker.  Where k is more than
        ``ef_search``, the graph is searched on until k are found.
        """
        if self.kind == "exact":
            return {}
        return {"hnsw.ef_search": str(self.ef_search), "hnsw.iterative_scan": "strict_order", "enable_seqscan": "off"}


def packed(vector: array[float]) -> Packed:
    """Return a vector in binary."""
    swapped = array("f", vector)
    if sys.byteorder == "little":
        swapped.byteswap()
    return Packed(struct.pack("!hh", len(vector), 0) + swapped.tobytes())


def row(place: int, doc_id: str, vector: array[float], fields: str = "{}") -> bytes:
    """Return a document as a row of COPY; ``fields`` are JSON."""
    columns = (struct.pack("!i", place), doc_id.encode("utf-8"), packed(vector), b"\x01" + fields.encode("utf-8"))
    return struct.pack("!h", len(columns)) + b"".join(struct.pack("!i", len(each)) + each for each in columns)
