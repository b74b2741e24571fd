"""OpenSearch; Elasticsearch, whose interface is taken to be the same as far as this client goes.  Not tried here.

Written after pages of https://docs.opensearch.org/latest/: api-reference/document-apis/bulk,
api-reference/index-apis/force-merge and refresh, api-reference/search-apis/search and count,
api-reference/cluster-api/cluster-health, search-plugins/searching-data/sort, im-plugin/similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.driver.adapter import Corpus, QueryFailed
from harness.driver.records import Envelope, Hit, Scalar
from http_adapters import HttpService, batches, contents, number, to_json, understood

# The documentation advises 1,000 to 5,000 documents and 5 to 15 MB a request.
_BULK_DOCUMENTS, _BULK_CHARACTERS = 1000, 5_000_000


class OpenSearch(HttpService):
    """BM25 by a ``match`` query over one field that holds title and text; ties are broken by id.

    One shard without copies, so that scores count all documents.  ``took``, whole milliseconds, is the stage
    ``retrieve``.

    Parameters of the build: ``analyzer`` (built in, such as ``english``), ``k1``, ``b``, ``force_merge`` (into one
    segment).  Of the search: ``index``; ``fields`` (names with commas between: of several, the best one counts);
    ``tie`` (the field that orders equal scores; without it, the order in the index does); ``connections``.
    """

    parameters = ("analyzer", "k1", "b", "force_merge", "index", "fields", "tie")

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._index = f"/{quote(str(self.params['index']), safe='')}"
        fields = [name.strip() for name in str(self.params["fields"]).split(",") if name.strip()]
        if not fields:
            raise ValueError("fields names no field; give the names of text fields, with commas between")
        self._fields = fields
        tie = str(self.params["tie"])
        self._sort: list[Any] = [{"_score": "desc"}, {tie: "asc"} if tie else "_doc"]

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Create the index, send the documents in bulk, merge them, and make them searchable.

        Raises:
            RuntimeError: a document was not indexed, or a shard failed.
        """
        self.connect_to_build()
        self.wait(lambda: self._healthy(""))
        self.http.ask("PUT", self._index, to_json(self._definition()))
        done = 0
        for batch in batches(corpus, _BULK_DOCUMENTS, _BULK_CHARACTERS):
            lines = []
            for _, document in batch:
                lines.append(to_json({"index": {"_id": document.doc_id}}))
                lines.append(to_json({"doc_id": document.doc_id, "contents": contents(document)}))
            answer = self.http.ask("POST", f"{self._index}/_bulk", b"\n".join(lines) + b"\n", "application/x-ndjson")
            _check_bulk(answer, len(batch))
            done += len(batch)
            progress(done)
        if self.params["force_merge"]:
            _check_shards(self.http.ask("POST", f"{self._index}/_forcemerge?max_num_segments=1"))
        _check_shards(self.http.ask("POST", f"{self._index}/_flush"))
        _check_shards(self.http.ask("POST", f"{self._index}/_refresh"))

    def remove(self) -> None:
        """Delete the index that ``build`` made, if it is there."""
        self.connect_to_build()
        self.http.ask("DELETE", f"{self._index}?ignore_unavailable=true")
        self.http.close()

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:  # noqa: ARG002
        """Count the documents that a search sees."""
        with understood():
            held = self.http.get(f"{self._index}/_count")["count"]
        if held != len(corpus):
            raise RuntimeError(f"the index holds {held} of {len(corpus)} documents")

    def ready(self) -> bool:
        """Wait for the index's shard, then for an answer to a search."""
        if not self._healthy(self._index):
            return False
        self.search("ready", 1)
        return True

    def learn(self) -> tuple[dict[str, str], dict[str, int]]:
        """Ask for the version and Lucene's, and for the processors that the server sizes its pools by."""
        with understood():
            version = self.http.get("/")["version"]
            nodes = self.http.get("/_nodes/_local/os")["nodes"]
            name = version.get("distribution", "elasticsearch")
            processors = [node["os"]["allocated_processors"] for node in nodes.values()]
            facts = {name: version["number"], "lucene": version["lucene_version"]}
            return facts, {"allocated_processors": max(processors)}

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Send a search; a partial answer counts as none."""
        one = {"match": {self._fields[0]: {"query": query}}}
        request = {
            "query": one if len(self._fields) == 1 else {"multi_match": {"query": query, "fields": self._fields}},
            "size": k,
            "_source": False,
            "track_total_hits": False,
            "sort": self._sort,
        }
        answer = self.http.ask("POST", f"{self._index}/_search?allow_partial_search_results=false", to_json(request))
        with understood():
            if answer["timed_out"] or answer["_shards"]["failed"]:
                raise QueryFailed("the service answered in part: it timed out, or a shard failed")
            self.note({"retrieve": number(answer["took"]) / 1000})
            # A sorted hit repeats the values that it was sorted by.
            return [Hit(hit["_id"], number(hit["sort"][0])) for hit in answer["hits"]["hits"]]

    def _healthy(self, index: str) -> bool:
        # A shard without copies is green or red, and yellow alone where other indexes have copies.
        answer = self.http.get(f"/_cluster/health{index}?wait_for_status=yellow&timeout=1s")
        with understood():
            return answer["status"] in ("green", "yellow") and not answer["timed_out"]

    def _definition(self) -> dict[str, Any]:
        similarity = {"type": "BM25", "k1": float(self.params["k1"]), "b": float(self.params["b"])}
        return {
            "settings": {
                "index": {
                    "number_of_shards": 1,
                    "number_of_replicas": 0,
                    "refresh_interval": "-1",
                    "similarity": {"default": similarity},
                }
            },
            "mappings": {
                "dynamic": "strict",
                "properties": {
                    "doc_id": {"type": "keyword"},
                    "contents": {"type": "text", "analyzer": str(self.params["analyzer"])},
                },
            },
        }


class Elasticsearch(OpenSearch):
    """Elasticsearch; a token is an API key."""

    token = ("Authorization", "ApiKey ")


def _check_bulk(answer: Any, documents: int) -> None:
    with understood():
        items = [item["index"] for item in answer["items"]]
        wrong = next((item["error"] for item in items if "error" in item), None)
        if wrong is not None:
            raise RuntimeError(f"a document was not indexed: {wrong['type']}: {wrong['reason']}")
        if answer["errors"] or len(items) != documents:
            raise RuntimeError(f"{len(items)} of {documents} documents were indexed")


def _check_shards(answer: Any) -> None:
    with understood():
        if failed := answer["_shards"]["failed"]:
            raise RuntimeError(f"{failed} shards failed")


ENGINE = OpenSearch
