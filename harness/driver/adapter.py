"""What an engine must offer to be measured: the verbs of the container contract.

An image puts ``adapter.py`` on the import path; it defines one subclass of :class:`Adapter` under the
name ``ENGINE``.  Everything else (clock, warm-up, checks, files) is the driver's.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.records import Envelope, Hit, Scalar


@dataclass(frozen=True)
class Document:
    """One document of the corpus.  ``title`` may be empty."""

    doc_id: str
    title: str
    text: str


class Corpus:
    """The documents of ``/corpus/corpus.jsonl``, streamed; ``len()`` is their number."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size

    @property
    def path(self) -> Path:
        """The file itself, for engines that read it with their own hands."""
        return self._path

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Document]:
        with self._path.open(encoding="utf-8") as lines:
            for line in lines:
                raw = json.loads(line)
                yield Document(raw["_id"], raw.get("title", ""), raw["text"])


class Adapter(ABC):
    """Drives one engine.  One instance lives for one job: ``build``, or ``load``, ``search`` ..., ``close``.

    Args:
        params: the system's parameters, as its TOML gives them.
        envelope: the limits of this job; use ``envelope.cpus`` threads and no more.
        assets: folder of the files that the system's TOML names (weights, jars); read-only.
    """

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        self.params = params
        self.envelope = envelope
        self.assets = assets

    @abstractmethod
    def build(self, corpus: Corpus, index_dir: Path, progress: Callable[[int], None]) -> None:
        """Write the index of ``corpus`` into ``index_dir``; tell ``progress`` the documents done.

        The folder is empty; for an engine with ``resumable_builds`` it may hold what an earlier attempt at this very
        build left there.
        """

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Raise where the index just built does not hold ``corpus``; asked after ``build``, outside its time.

        For engines whose indexer may end well and leave half an index: open it and count its documents.
        """

    def resumed_s(self) -> float:
        """Seconds that earlier attempts at this build spent on what this one took over from them."""
        return 0.0

    @abstractmethod
    def load(self, index_dir: Path) -> None:
        """Make ready to answer: read weights, open the index.  Timed apart from search."""

    @abstractmethod
    def search(self, query: str, k: int) -> Sequence[Hit]:
        """Rank: at most ``k`` hits, best first, for one query text.

        This call alone is timed: tokenising, encoding, retrieval and top-k belong in it, and the answer
        is complete (device synchronised) when it returns.
        """

    def search_batch(self, queries: Sequence[str], k: int) -> Sequence[Sequence[Hit]]:
        """Rank for several query texts at once: one answer for each, in order; timed as ``search`` is.

        An engine that can share work between queries says so here; others are asked one query after the other.
        """
        return [self.search(query, k) for query in queries]

    def streams(self) -> int:
        """How many threads may call ``search`` at once (``server`` scenario)."""
        return 1

    def stages_s(self) -> dict[str, float]:
        """Seconds of the last search, or batch, by stage (``encode``, ``retrieve``, ``rerank``), where known."""
        return {}

    def threads(self) -> dict[str, int]:
        """What each library says of its thread count after ``load``, e.g. ``{"torch_intraop": 1}``."""
        return {}

    def libraries(self) -> dict[str, str]:
        """Versions of the libraries that do the work, e.g. ``{"faiss": "1.15.1"}``."""
        return {}

    def device(self) -> str:
        """Where the work is done: ``cpu``, or the accelerator's name."""
        return "cpu"

    def close(self) -> None:
        """Let go of what ``load`` took."""
