"""Vespa: an application of one schema, fed and searched over HTTP.  Not tried here.

Written after pages of https://docs.vespa.ai/en/: reference/api/document-v1.html, reference/api/deploy-v2.html,
reference/api/state-v1.html, reference/querying/default-result-format.html, reference/querying/sorting-language.html,
reference/rank-feature-configuration.html, learn/tutorials/text-search.html and learn/tutorials/hybrid-search.html.
"""

from __future__ import annotations

import io
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.driver.adapter import Corpus, Document, QueryFailed
from harness.driver.records import Hit
from http_adapters import HttpService, contents, number, to_json, understood

_TIMEOUT = "60s"  # Vespa's own is half a second, after which it answers in part
_SERVICES = """<?xml version="1.0" encoding="UTF-8"?>
<services version="1.0">
    <container id="default" version="1.0">
        <search />
        <document-processing />
        <document-api />
    </container>
    <content id="documents" version="1.0">
        <min-redundancy>1</min-redundancy>
        <documents>
            <document type="doc" mode="index" />
        </documents>
        <nodes>
            <node distribution-key="0" hostalias="node1" />
        </nodes>
    </content>
</services>
"""
_SCHEMA = """schema doc {
    document doc {
        field language type string {
            indexing: "LANGUAGE" | set_language
        }
        field place type int {
            indexing: attribute
        }
        field doc_id type string {
            indexing: attribute | summary
        }
        field contents type string {
            indexing: index
            index: enable-bm25
        }
    }
    fieldset default {
        fields: contents
    }
    document-summary ids {
        summary doc_id {
        }
    }
    rank-profile bm25 {
        first-phase {
            expression: bm25(contents)
        }
        rank-properties {
            bm25(contents).k1: K1
            bm25(contents).b: B_
        }
    }
}
"""
# Characters that mean something in Vespa's query syntax are replaced, as its documentation advises: all but words.
_NO_WORD = re.compile(r"[^\w]+")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


class Vespa(HttpService):
    """BM25 over one field that holds title and text, retrieved with ``weakAnd``; ties are broken by document order.

    ``weakAnd`` may miss documents that the ranking would put among the first; ``target_hits`` does not follow ``k``, so
    that the first documents are the same for any ``k``.  Vespa's own ``searchtime`` is the stage ``retrieve``.

    Parameters: ``k1``, ``b``, ``language``, ``feeders`` (documents under way at once), ``deploy_port`` (of the
    configuration server, 19071), of the build; ``target_hits``, ``connections``.
    """

    parameters = ("k1", "b", "language", "feeders", "deploy_port", "target_hits")

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:  # noqa: ARG002
        """Deploy the application and feed the documents; each can be searched once its feeding is confirmed."""
        self._deploy()
        self.connect_to_build()
        self.wait(self._up)
        self._feed(enumerate(corpus), progress)

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:  # noqa: ARG002
        """Count the documents that a search sees."""
        answer = self._query({"yql": "select * from doc where true", "hits": 0, "timeout": _TIMEOUT})
        with understood():
            held = answer["root"]["fields"]["totalCount"]
        if held != len(corpus):
            raise RuntimeError(f"the service holds {held} of {len(corpus)} documents")

    def ready(self) -> bool:
        """Send a search."""
        self.search("ready", 1)
        return True

    def learn(self) -> tuple[dict[str, str], dict[str, int]]:
        """Ask for the version; a search takes one thread, as no rank profile here asks for more."""
        with understood():
            version = self.http.get("/state/v1/version")["version"]
        return {"vespa": version}, {"threads_per_search": 1}

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Send a search; an answer that covers a part of the documents counts as none.

        A query without a word has no hits, and Vespa would refuse it: it is not sent.
        """
        words = _NO_WORD.sub(" ", query).strip()
        if not words:
            return []
        target = int(self.params["target_hits"])
        if k > target:
            raise ValueError(f"k is {k}, more than target_hits, {target}; set target_hits higher")
        request = {
            "yql": f"select * from doc where {{targetHits:{target}}}userInput(@words)",  # noqa: S608 # a number
            "words": words,
            "language": str(self.params["language"]),
            "hits": k,
            "ranking": "bm25",
            "sorting": "-[relevance] +place",
            "summary": "ids",
            "timeout": _TIMEOUT,
            "ranking.softtimeout.enable": False,
            "presentation.timing": True,
        }
        answer = self._query(request)
        with understood():
            self.note({"retrieve": number(answer["timing"]["searchtime"])})
            hits = answer["root"].get("children", [])
            return [Hit(hit["fields"]["doc_id"], number(hit["relevance"])) for hit in hits]

    def _query(self, request: dict[str, Any]) -> Any:
        answer = self.http.ask("POST", "/search/", to_json(request))
        with understood():
            root = answer["root"]
            if errors := root.get("errors"):
                raise QueryFailed(f"the service answers with an error: {errors[0]['summary']}")
            coverage = root.get("coverage", {"full": True})
            if not coverage["full"]:
                raise QueryFailed(f"the service searched {coverage['coverage']} % of the documents")
        return answer

    def _deploy(self) -> None:
        address = urlsplit(self.service_url)
        url = f"{address.scheme}://{address.hostname}:{int(self.params['deploy_port'])}"
        self.http = self.client(url, timeout_s=600.0)
        self.wait(self._up)
        self.http.ask("POST", "/application/v2/tenant/default/prepareandactivate", self._package(), "application/zip")
        self.http.close()

    def _up(self) -> bool:
        answer = self.http.get("/state/v1/health")
        with understood():
            return bool(answer["status"]["code"] == "up")

    def _package(self) -> bytes:
        """Return the application package as a zip."""
        schema = _SCHEMA
        for name, key in (("LANGUAGE", "language"), ("K1", "k1"), ("B_", "b")):
            schema = schema.replace(name, str(self.params[key]))
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as package:
            for path, text in (("services.xml", _SERVICES), ("schemas/doc.sd", schema)):
                package.writestr(zipfile.ZipInfo(path, _ZIP_TIME), text)
        return made.getvalue()

    def _feed(self, documents: Iterator[tuple[int, Document]], progress: Callable[[int], None]) -> None:
        """Put each document, over several connections: the interface takes one a request."""
        turn, failed = threading.Lock(), threading.Event()
        done = 0

        def feed() -> None:
            nonlocal done
            try:
                while not failed.is_set():
                    with turn:
                        following = next(documents, None)
                    if following is None:
                        return
                    place, document = following
                    fields = {"place": place, "doc_id": document.doc_id, "contents": contents(document)}
                    self.http.ask("POST", f"/document/v1/harness/doc/docid/{place}", to_json({"fields": fields}))
                    with turn:
                        done += 1
                        progress(done)
            except BaseException:
                failed.set()
                raise
            finally:
                self.http.close()

        feeders = int(self.params["feeders"])
        with ThreadPoolExecutor(feeders) as pool:
            for feeding in [pool.submit(feed) for _ in range(feeders)]:
                feeding.result()


ENGINE = Vespa
