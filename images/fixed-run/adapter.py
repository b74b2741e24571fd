"""A stored run: the ranking that somebody's system gave to each of a collection's queries."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.driver.adapter import Adapter, Corpus
from harness.driver.records import Envelope, Hit, Scalar

_DOCUMENTS = "documents.json"
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


class FixedRun(Adapter):
    """Answers a query with its documents of a TREC run, in the order of their scores, as trec_eval has it.

    Parameter: ``run``, the folder of the assets with ``run.trec`` and the texts of its queries, ``queries.jsonl``
    (``{"_id", "text"}`` a line).
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        self._folder = assets / str(params["run"])

    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Check that the corpus has all documents of the run.

        Raises:
            ValueError: it lacks one.
        """
        ranked = {doc_id for hits in self._run().values() for doc_id in hits}
        missing = ranked - {document.doc_id for document in corpus}
        if missing:
            raise ValueError(f"run.trec ranks {len(missing)} documents that the corpus lacks, such as {min(missing)!r}")
        (index_dir / _DOCUMENTS).write_text(json.dumps(len(ranked)), encoding="utf-8")
        progress(len(corpus))

    def load(self, index_dir: Path) -> None:
        """Read the run and its queries.

        Raises:
            ValueError: a line of either is wrong, or two queries of one text have different rankings.
        """
        if not (index_dir / _DOCUMENTS).is_file():
            raise ValueError(f"the index has no {_DOCUMENTS}: not made by this engine; build it again")
        run, self._rankings = self._run(), dict[str, list[Hit]]()
        for number, line in enumerate(self._lines("queries.jsonl"), 1):
            try:
                raw = json.loads(line)
                query_id, text = str(raw["_id"]), str(raw["text"])
            except (ValueError, KeyError, TypeError):
                raise ValueError(f'queries.jsonl, line {number}: is no {{"_id": ..., "text": ...}}') from None
            # Equal scores: trec_eval takes the later id first.
            hits = sorted(((score, doc_id) for doc_id, score in run.get(query_id, {}).items()), reverse=True)
            ranking = [Hit(doc_id, score) for score, doc_id in hits]
            if self._rankings.setdefault(text, ranking) != ranking:
                raise ValueError(f"queries.jsonl, line {number}: {text[:60]!r} comes twice, with different rankings")

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Look the query's ranking up.

        Raises:
            ValueError: the run's queries do not include it.
        """
        if query not in self._rankings:
            raise ValueError(f"queries.jsonl has no query {query[:60]!r}; a stored run answers its own queries alone")
        return self._rankings[query][:k]

    def _run(self) -> dict[str, dict[str, float]]:
        run: dict[str, dict[str, float]] = {}
        for number, line in enumerate(self._lines("run.trec"), 1):
            try:
                # As TREC has it: ASCII white space alone separates fields, and a number has ASCII digits.
                query_id, _, doc_id, _, score, _ = (field.decode("utf-8") for field in line.encode("utf-8").split())
                ranking, value = run.setdefault(query_id, {}), float(score)
                if not _NUMBER.fullmatch(score) or not math.isfinite(value):
                    raise ValueError(score)
            except ValueError:
                raise ValueError(f"run.trec, line {number}: is no 'query Q0 document rank score tag'") from None
            if doc_id in ranking:
                raise ValueError(f"run.trec, line {number}: document {doc_id!r} comes twice for query {query_id!r}")
            ranking[doc_id] = value
        return run

    def _lines(self, name: str) -> list[str]:
        # Only line feeds end a line: a JSON text may hold other line separators.
        lines = (self._folder / name).read_bytes().decode("utf-8").split("\n")
        return [line for line in lines if line.strip()]


ENGINE = FixedRun
