"""BM25: Anserini's own HTTP server, and its client."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, quote_plus

from jvm import runtime
from jvm.bm25 import Bm25Index
from jvm.indexing import LUCENE
from service_client import HttpClient, wait_until

from harness.driver.adapter import QueryFailed
from harness.driver.records import Envelope, Hit, Scalar

# What io.anserini.search.SimpleSearcher starts with; the server has no option for others.
_BUILT_IN = {"k1": 0.9, "b": 0.4}
# Where the server's container has its index: a request names the index by its path.
_INDEX = Path("/index")
_NO_INDEX = "Unable to open index"


class LuceneRest(Bm25Index):
    """BM25 asked over HTTP: a GET a query, answered with ids, scores and stored documents (none: null).

    The server finds one query at a time for all its connections, reads each hit's document, and refuses a query without
    a word (status 400) or with more than some 8,000 bytes in its address (status 414).

    Parameters: those of :class:`Bm25Index`; ``heap_mib``; ``k1`` and ``b``, which have the server's own values;
    ``connections``.
    """

    engine = "lucene-rest"
    parameters = (*runtime.PARAMETERS, "k1", "b", "connections")

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        for name, value in _BUILT_IN.items():
            if params[name] != value:
                raise ValueError(f"{name} is {params[name]}; the server has {value} built in, so set that")

    def load(self, index_dir: Path) -> None:  # noqa: ARG002 # the server has it
        """Wait until the server has opened its index and answered a search.

        Raises:
            RuntimeError: the server cannot open its index.
        """
        self._path = f"/v1/{quote(str(_INDEX / LUCENE), safe='')}/search?parse=false&hits="
        self._http = HttpClient(self.service_url)
        wait_until(self._ready)

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Ask the server, which ranks and breaks ties by id as :class:`jvm.searching.Words` does."""
        answer = self._http.get(f"{self._path}{k}&query={quote_plus(query, errors='replace')}")
        try:
            found = answer["candidates"]
            # Java wrote each float with the digits that tell it from the next; this makes it the same float again.
            scores = array("f", [each["score"] for each in found])
            return [Hit(each["docid"], score) for each, score in zip(found, scores, strict=True)]
        except (KeyError, TypeError) as error:
            raise QueryFailed(f"an answer without candidates: {str(answer)[:200]}") from error

    def streams(self) -> int:
        """Return the connections of the open loop."""
        return int(self.params["connections"])

    def threads(self) -> dict[str, int]:
        """One: the server searches its index for one request at a time (``synchronized``), whatever it has."""
        return {"searches_at_once": 1}

    def libraries(self) -> dict[str, str]:
        """Versions and JVM options, less the server's number of processors: its envelope has it, the client's not."""
        known = self._java.libraries()
        if self._java.builds:
            return known
        known["jvm_options"] = " ".join(
            option for option in self._java.options() if not option.startswith("-XX:ActiveProcessorCount=")
        )
        return known

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _ready(self) -> bool:
        try:
            self.search("ready", 1)
        except QueryFailed as error:
            if _NO_INDEX in str(error):
                raise RuntimeError(f"the server answers: {error}") from error
            raise
        return True


ENGINE = LuceneRest
