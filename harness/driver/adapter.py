"""The contract of an engine: the verbs that an adapter offers, and the hits that it may return.

An image puts ``adapter.py`` on the import path; it defines one subclass of :class:`Adapter` as ``ENGINE``.  The driver
does everything else: clock, warm-up, checks, files.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from harness.driver.records import Envelope, Filter, Hit, Scalar

MAX_ID_CHARS = 256


@dataclass(frozen=True)
class Document:
    """One document of the corpus.  ``title`` may be empty; ``metadata`` holds its fields, for filters."""

    doc_id: str
    title: str
    text: str
    metadata: Mapping[str, Scalar] = field(default_factory=dict)


class Corpus:
    """The documents of ``/corpus/corpus.jsonl``, streamed; ``len()`` is their number."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path  # for engines that read the file themselves
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Document]:
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                yield document_of(json.loads(line))


def document_of(raw: Mapping[str, Any]) -> Document:
    """Return the document of a line of the corpus."""
    return Document(raw["_id"], raw.get("title", ""), raw["text"], raw.get("metadata", {}))


class MissingParameter(KeyError):
    """A parameter that an adapter reads and its system's file lacks."""

    def __str__(self) -> str:
        name = str(self.args[0])
        return f"the system's file has no parameter {name!r}; add it to build_params or search_params"


class Parameters(dict[str, Scalar]):
    """A system's parameters; a missing one is an error that names the remedy."""

    def __missing__(self, name: str) -> Scalar:
        raise MissingParameter(name)


class QueryFailed(Exception):
    """The service gave this query no answer: an error, or none in time (``timed_out``).  The next may get one.

    The open loop counts it; in the other scenarios it ends the job.
    """

    def __init__(self, text: str, *, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


class Adapter(ABC):
    """An engine under test.  One instance lives for one job: ``build``, or ``load``, ``search`` ..., ``close``.

    Args:
        params: the system's parameters, as its TOML gives them.
        envelope: the limits of this job; use ``envelope.cpus`` threads and no more.
        assets: folder of the files that the system's TOML names (weights, jars); read-only.

    The adapter of a service is its client: ``service_url`` is the server's address, set before ``build`` and ``load``.
    """

    service_url = ""

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        self.params = params
        self.envelope = envelope
        self.assets = assets

    @abstractmethod
    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Write the index of ``corpus`` into ``index_dir``; report the documents done to ``progress``.

        The folder is empty; for an engine with ``resumable_builds`` it may hold an earlier attempt at the same build.
        """

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Raise if the index just built does not hold ``corpus``; called after ``build``, outside its time.

        For engines whose indexer may succeed and leave half an index: open it and count its documents.
        """

    def resumed_s(self) -> float:
        """Return the seconds that earlier attempts spent on the work that this build took over."""
        return 0.0

    @abstractmethod
    def load(self, index_dir: Path) -> None:
        """Read weights and open the index.  Timed apart from search."""

    @abstractmethod
    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Return at most ``k`` hits for one query text, best first.

        The driver times this call alone: tokenising, encoding, retrieval and top-k belong in it, and the answer is
        complete (device synchronised) when it returns.
        """

    def search_filtered(self, query: str, k: int, wanted: Filter) -> Sequence[Hit]:  # noqa: ARG002 # of others
        """Return at most ``k`` hits among the documents that have these values in these fields; timed as ``search``.

        Raises:
            ValueError: this engine knows no filters.
        """
        fields = ", ".join(name for name, _ in wanted)
        raise ValueError(
            f"{type(self).__name__} knows no filters, and {query[:40]!r} filters on {fields}; measure engines that"
            " know filters, or queries without one"
        )

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Return one answer for each query text, in order; timed as ``search`` is.

        Override it if the engine can share work between queries; by default they run one after the other.
        """
        return [self.search(query, k) for query in queries]

    def shares_batches(self) -> bool:
        """Return whether ``search_batch`` answers all queries at once; else its stages time the last query."""
        return type(self).search_batch is not Adapter.search_batch

    def begin_updates(self) -> None:
        """Make ready for inserts and deletes (``mixed`` scenario): called once, after ``load`` and under no clock.

        Raises:
            ValueError: this engine knows no updates.
        """
        if type(self).insert is Adapter.insert:
            raise ValueError(
                f"{type(self).__name__} knows no updates; measure engines that know them, or another scenario"
            )

    def insert(self, documents: Sequence[Document]) -> None:
        """Add documents to the loaded index; return when the engine has accepted them (``mixed`` scenario).

        It replaces a document that has its id.  The driver measures when a search finds it.  Some threads call
        ``search`` while another calls ``insert`` or ``delete``.  The index folder is a copy that may be written.

        Raises:
            QueryFailed: the service refused, or gave no answer in time; counted, and the next may succeed.
        """
        raise NotImplementedError(f"{type(self).__name__} inserts no documents")

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Remove documents from the loaded index; as :meth:`insert`.  It may lack some of them."""
        raise NotImplementedError(f"{type(self).__name__} deletes no documents")

    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Return a score for each given document, in their order; higher is better.

        A system that offers it can be the second stage of ``two-stage``, which times it as a part of its own search.

        Raises:
            ValueError: this engine scores no given documents, or its index lacks one of them.
        """
        raise ValueError(
            f"{type(self).__name__} only searches, and was asked to score {len(doc_ids)} documents for {query[:40]!r};"
            " name a reranker as the second component"
        )

    def streams(self) -> int:
        """Return the number of threads that may call ``search`` at once (``server`` scenario)."""
        return 1

    def stages_s(self) -> dict[str, float]:
        """Return the seconds of the last search or batch by stage (``tokenise``, ``encode``, ``retrieve``)."""
        return {}

    def counts(self) -> dict[str, int]:
        """Return the work of the last search or scoring that no machine changes (``pairs``, ``tokens``, ``flop``)."""
        return {}

    def first_stage(self) -> Sequence[Hit]:
        """Return the ranking that the second stage of the last search was given; empty where there is one stage."""
        return []

    def threads(self) -> dict[str, int]:
        """Return each library's thread count after ``load``, e.g. ``{"torch_intraop": 1}``."""
        return {}

    def libraries(self) -> dict[str, str]:
        """Return the versions of the libraries that do the work, e.g. ``{"faiss": "1.15.1"}``."""
        return {}

    def device(self) -> str:
        """Return ``cpu``, or the accelerator's name."""
        return "cpu"

    def close(self) -> None:
        """Release what ``load`` took."""

    def remove(self) -> None:
        """Remove the index named by the parameter ``index`` from a service that runs already; it may not exist.

        Called in a process of its own, in place of ``load``, if ``engine.toml`` says ``removes = true``.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot remove an index from its service")


class Reranker(Adapter):
    """An engine that orders the documents of a first stage; alone, it scores every document of its index."""

    @abstractmethod
    def score(self, query: str, doc_ids: Sequence[str]) -> Sequence[float]:
        """Return a score for each given document, in their order; higher is better.

        Raises:
            ValueError: the index lacks one of them.
        """

    @abstractmethod
    def doc_ids(self) -> Sequence[str]:
        """Return the ids of all documents in the index."""

    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Score all documents; equal scores stay in the order of the index."""
        ids = self.doc_ids()
        ranked = sorted(zip(self.score(query, ids), ids, strict=True), key=lambda pair: -pair[0])
        return [Hit(doc_id, score) for score, doc_id in ranked[:k]]


class BadAnswer(Exception):
    """An answer that breaks the contract; the text says how."""


def check_hits(answer: object, k: int, minimum: int) -> list[tuple[str, float]]:
    """Return the hits as (id, score) pairs.

    Args:
        answer: the return value of ``Adapter.search``.
        k: maximum number of hits.
        minimum: minimum number of hits.

    Raises:
        BadAnswer: not a list of hits, too many or too few, an id that is not a plain string or comes twice, a score
            that is not a finite number, or scores that rise down the ranking.
    """
    # A lazy sequence could do its work here, outside the clock.
    if type(answer) not in (list, tuple):
        raise BadAnswer(f"search returned {type(answer).__name__}, not a list or tuple of hits")
    answer = cast(list[object], answer)
    if len(answer) > k:
        raise BadAnswer(f"{len(answer)} hits, asked for {k}")
    if len(answer) < minimum:
        raise BadAnswer(f"{len(answer)} hits, expected {minimum}")
    pairs = [_pair(rank, hit) for rank, hit in enumerate(answer, 1)]
    seen: set[str] = set()
    for rank, (doc_id, score) in enumerate(pairs, 1):
        if doc_id in seen:
            raise BadAnswer(f"rank {rank}: document {doc_id!r} comes twice")
        seen.add(doc_id)
        # trec_eval orders by score: it would evaluate another ranking.
        if rank > 1 and score > pairs[rank - 2][1]:
            raise BadAnswer(f"rank {rank}: score {score} is above the one before, {pairs[rank - 2][1]}")
    return pairs


def _pair(rank: int, hit: object) -> tuple[str, float]:
    if not isinstance(hit, Hit):
        raise BadAnswer(f"rank {rank}: {type(hit).__name__}, not a Hit")
    if not isinstance(hit.doc_id, str):
        raise BadAnswer(f"rank {rank}: the document id is {type(hit.doc_id).__name__}, not str")
    if not 0 < len(hit.doc_id) <= MAX_ID_CHARS:
        raise BadAnswer(
            f"rank {rank}: the document id has {len(hit.doc_id)} characters, allowed are 1 to {MAX_ID_CHARS}"
        )
    if not hit.doc_id.isprintable() or " " in hit.doc_id:
        raise BadAnswer(f"rank {rank}: the document id {hit.doc_id!r} has blanks or control characters")
    # Plain numbers only: converting a device's or a lazy number could be work outside the clock.
    if type(hit.score) not in (int, float):
        raise BadAnswer(f"rank {rank}: the score is {type(hit.score).__name__}, not a plain float")
    try:
        score = float(hit.score)
    except OverflowError:
        raise BadAnswer(f"rank {rank}: the score is too large") from None
    if not math.isfinite(score):
        raise BadAnswer(f"rank {rank}: the score is {score}")
    return hit.doc_id, score
