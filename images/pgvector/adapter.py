"""The client of PostgreSQL with pgvector and of a server of embeddings."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import service
import vectors
from embedding_server.adapter import BUILD_TIMEOUT_S, SEARCH_TIMEOUT_S, EmbeddingsAdapter
from postgres.client import Client, fields

from harness.driver.adapter import Corpus, Document
from harness.driver.records import Envelope, Filter, Hit, Scalar

_SHOWN = 256  # documents from one report of progress to the next


class Pgvector(EmbeddingsAdapter):
    """Asks a server of embeddings for a text's vector, and PostgreSQL for the vector's neighbours.

    Parameters: as :class:`embedding_server.adapter.EmbeddingsAdapter`; of the build
    ``index`` (``exact`` or ``hnsw``) and of ``hnsw`` ``m`` and ``ef_construction``; of the search of
    ``hnsw`` ``ef_search``.  Scores: the inner product.

    Raises:
        ValueError: a parameter is unknown or wrong.
    """

    own = (*vectors.BUILD, *vectors.SEARCH)

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._index = vectors.Index.of(params)
        self._place = 0  # the last one

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Ask for the vectors of all documents, copy them into a table, and make its index.

        Raises:
            ValueError: the corpus is empty.
            QueryFailed: the server of embeddings answered with an error.
        """
        if not len(corpus):
            raise ValueError("the corpus has no documents")
        self._connect("document", BUILD_TIMEOUT_S)
        with self._client.connection() as connection:
            # An index of a table of the same transaction needs no log.
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute(self._index.tables(self.encoder["dims"]), prepare=False)
                with cursor.copy("COPY documents FROM STDIN WITH (FORMAT binary)") as rows:
                    rows.write(vectors.COPY_BEGINS)
                    for done, (doc_id, vector, own) in enumerate(self._encoded(corpus)):
                        rows.write(vectors.row(done, doc_id, vector, own))
                        if done % _SHOWN == 0:
                            progress(done)
                    rows.write(vectors.COPY_ENDS)
                if self._index.create:
                    cursor.execute(self._index.create)
            for statement in ("VACUUM (FREEZE, ANALYZE)", "CHECKPOINT"):
                connection.execute(statement)
        progress(len(corpus))

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:  # noqa: ARG002
        """Count the documents.

        Raises:
            ValueError: they are not as many as the corpus has.
        """
        [(found,)] = self._client.ask("SELECT count(*) FROM documents", ())
        if found != len(corpus):
            raise ValueError(f"the index has {found} documents, the corpus {len(corpus)}")

    def load(self, index_dir: Path) -> None:  # noqa: ARG002
        """Wait until both servers answer a search.

        Raises:
            ValueError: the index was made with other parameters.
            QueryFailed: a server answered with an error.
        """
        self._connect("query", SEARCH_TIMEOUT_S)
        [(made,)] = self._client.ask("SELECT facts FROM built_with", ())
        if made != self._index.facts:
            raise ValueError(f"the index was built as {made}, the system asks for {self._index.facts}; build it again")
        self.search("", 1)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Ask for the query's vector, then for the nearest documents; of equal scores the earlier one is first."""
        return self.find(query, lambda vector: self.nearest(vector, k))

    def nearest(self, vector: array[float], k: int) -> list[Hit]:
        """Return the nearest documents of a vector, best first."""
        return [Hit(*row) for row in self._client.ask(vectors.SEARCH_STATEMENT, (vectors.packed(vector), k))]

    def search_filtered(self, query: str, k: int, wanted: Filter) -> Sequence[Hit]:
        """Ask for the query's vector, then for the nearest documents that have these values.

        The graph is searched on until k of them are found, or pgvector gives up (20,000 vectors).
        """
        chosen = fields(dict(wanted))

        def nearest(vector: array[float]) -> list[Hit]:
            values = (vectors.packed(vector), chosen, k)
            return [Hit(*row) for row in self._client.ask(vectors.FILTERED_STATEMENT, values)]

        return self.find(query, nearest)

    def _encoded(self, documents: Iterable[Document]) -> Iterator[tuple[str, array[float], str]]:
        """Yield the id, the vector and the fields of each document."""
        kept: dict[str, str] = {}

        def noted() -> Iterator[Document]:
            for each in documents:
                kept[each.doc_id] = fields(each.metadata)
                yield each

        for doc_id, vector in self.embedder.corpus(noted()):
            yield doc_id, vector, kept.pop(doc_id)

    def begin_updates(self) -> None:
        """Give each document's id a unique index, as a table that changes has, and load the encoder of documents.

        Raises:
            QueryFailed: a server answered with an error.
        """
        with self._client.connection() as connection:
            connection.execute(vectors.UNIQUE_STATEMENT)
        [(self._place,)] = self._client.ask("SELECT max(place) FROM documents", ())
        self.embedder.wait("document")

    def insert(self, documents: Sequence[Document]) -> None:
        """Ask for the documents' vectors, then commit the rows one by one; every later search sees them."""
        for doc_id, vector, own in self._encoded(documents):
            self._place += 1
            self._client.ask(vectors.INSERT_STATEMENT, (self._place, doc_id, vectors.packed(vector), own))

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Commit the deletion; no later search sees the rows, which stay in the graph until a vacuum."""
        self._client.ask(vectors.DELETE_STATEMENT, (list(doc_ids),))

    def threads(self) -> dict[str, int]:
        """Return the thread counts of the server of embeddings, and PostgreSQL's processes that work on one query."""
        return {**super().threads(), "postgres": self._client.processes()}

    def libraries(self) -> dict[str, str]:
        """Return the versions of what does the work."""
        [(pgvector,)] = self._client.ask("SELECT extversion FROM pg_extension WHERE extname = 'vector'", ())
        return {**super().libraries(), **self._client.libraries(), "pgvector": pgvector}

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._client.close()

    def _connect(self, role: str, timeout_s: float) -> None:
        """Wait until both servers answer."""
        # One plan for all queries, which differ in their vectors alone.
        settings = {"plan_cache_mode": "force_generic_plan", **self._index.settings}
        self._client = Client(self.service_url, settings, vectors.register)
        self._client.wait()
        self.connect_embedder(service.EMBEDDINGS_PORT, role, timeout_s)


ENGINE = Pgvector
