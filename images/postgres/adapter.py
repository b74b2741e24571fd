"""Full text: the client of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import postgres
from full_text import FullText
from postgres.client import Client, fields, plain

from harness.driver.adapter import Adapter, Corpus, Document
from harness.driver.records import Envelope, Filter, Hit, Scalar

_BATCH = 1000


class Postgres(Adapter):
    """PostgreSQL's full text over one value that holds title and text: documents with any of the query's words.

    Parameters: ``language`` (``en`` where absent), ``rank`` (``ts_rank`` or ``ts_rank_cd``), ``normalization`` (the
    flags of that function), ``connections``.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._full_text = FullText.of(params)
        self._connections = postgres.number(params, "connections")
        self._place = 0  # the last one

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Copy the documents into a table, and make a GIN index of their words."""
        self._connect()
        with self._client.connection() as connection:
            # An index of a table of the same transaction needs no log.
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(self._full_text.tables, prepare=False)
                documents, done = iter(corpus), 0
                while batch := list(islice(documents, _BATCH)):
                    with cursor.copy("COPY batch FROM STDIN") as rows:
                        for place, each in enumerate(batch, done):
                            text = f"{each.title} {each.text}" if each.title else each.text
                            rows.write_row((place, each.doc_id, plain(text), fields(each.metadata)))
                    cursor.execute(self._full_text.insert)
                    cursor.execute("TRUNCATE batch")
                    done += len(batch)
                    progress(done)
                cursor.execute("CREATE INDEX ON documents USING gin (words) WITH (fastupdate = off)")
            for statement in ("DROP TABLE batch", "VACUUM (FREEZE, ANALYZE)", "CHECKPOINT"):
                connection.execute(statement)

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:  # noqa: ARG002
        """Count the documents.

        Raises:
            ValueError: they are not as many as the corpus has.
        """
        [(found,)] = self._client.ask("SELECT count(*) FROM documents", ())
        self._client.close()
        if found != len(corpus):
            raise ValueError(f"the index has {found} documents, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:  # noqa: ARG002
        """Connect as soon as the server answers.

        Raises:
            ValueError: the index is of another language.
        """
        self._connect()
        [(made,)] = self._client.ask("SELECT configuration FROM built_with", ())
        if made != self._full_text.configuration:
            raise ValueError(
                f"the index was built for {made}, the system asks for {self._full_text.configuration}; build it again"
            )

    def _connect(self) -> None:
        # Each query's own plan: how many documents have a word decides it.
        self._client = Client(self.service_url, {"plan_cache_mode": "force_custom_plan"})
        self._client.wait()

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank all documents that have any of the query's words."""
        text = plain(query)
        return [Hit(*row) for row in self._client.ask(self._full_text.search, (text, text, k))]

    def search_filtered(self, query: str, k: int, wanted: Filter) -> Sequence[Hit]:
        """Rank the documents that have these values and any of the query's words."""
        text = plain(query)
        values = (text, text, fields(dict(wanted)), k)
        return [Hit(*row) for row in self._client.ask(self._full_text.search_filtered, values)]

    def begin_updates(self) -> None:
        """Give each document's id a unique index, as a table that changes has."""
        with self._client.connection() as connection:
            connection.execute("CREATE UNIQUE INDEX IF NOT EXISTS documents_id ON documents (id)")
        [(self._place,)] = self._client.ask("SELECT max(place) FROM documents", ())

    def insert(self, documents: Sequence[Document]) -> None:
        """Commit the documents one by one; every later search sees them."""
        for each in documents:
            self._place += 1
            text = f"{each.title} {each.text}" if each.title else each.text
            self._client.ask(self._full_text.update, (self._place, each.doc_id, plain(text), fields(each.metadata)))

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Commit the deletion; no later search sees the documents."""
        self._client.ask("DELETE FROM documents WHERE id = ANY(%s) RETURNING id", (list(doc_ids),))

    def streams(self) -> int:
        """Return the connections of the open loop."""
        return self._connections

    def threads(self) -> dict[str, int]:
        """Return the processes that work on one query at most."""
        return {"postgres": self._client.processes()}

    def libraries(self) -> dict[str, str]:
        """Return the server's version and the client's."""
        return self._client.libraries()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


ENGINE = Postgres
