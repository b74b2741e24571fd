"""Learned sparse retrieval: neural encoders, and exact search over BMP's blocks of documents."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import block_max
import ranking
from term_weights.engine import TermWeights

from harness.driver.adapter import Corpus
from harness.driver.records import Envelope, Hit, Scalar


class Bmp(TermWeights):
    """SPLADE and uniCOIL over blocks of documents, read in the order of their upper bounds until none can matter.

    Mallia, Suel and Tonellotto, *Faster Learned Sparse Retrieval with Block-Max Pruning*, SIGIR 2024.

    Parameters: those of :class:`TermWeights`; ``block_size`` (documents), ``compress_range`` (smaller, where a term is
    in few blocks); ``alpha`` (1 is exact; below, more blocks are left out) and ``beta`` (share of a query's terms, the
    heaviest, that are read; 1 is all).
    """

    name = "bmp"
    shaping = ("block_size", "compress_range")
    own = (*shaping, "alpha", "beta")

    def __init__(self, params: dict[str, Scalar], envelope: Envelope, assets: Path) -> None:
        super().__init__(params, envelope, assets)
        if missing := [name for name in self.own if name not in params]:
            raise ValueError(f"the parameter {missing[0]!r} is missing")
        self._alpha, self._beta = float(params["alpha"]), float(params["beta"])
        if not (0 < self._alpha <= 1 and 0 < self._beta <= 1):
            raise ValueError(f"alpha is {self._alpha} and beta {self._beta}; both must be above 0, and 1 at most")

    def index(self, files: Sequence[Path], index_dir: Path, staged: Path) -> None:  # noqa: ARG002
        """Put the documents into blocks, in the order of the corpus."""
        compress = bool(self.params["compress_range"])
        blocks = block_max.Blocks(index_dir, self.names, int(self.params["block_size"]), compress=compress)
        for file in files:
            with file.open(encoding="utf-8") as lines:
                for line in lines:
                    document = json.loads(line)
                    blocks.add(document["id"], document["vector"])
        blocks.finish()

    def verify_index(self, corpus: Corpus, index_dir: Path) -> None:
        """Open the index and compare the number of documents that its end names."""
        found = len(block_max.BlockMax(index_dir, self.names))
        if found != len(corpus):
            raise ValueError(f"the index has {found} documents, the corpus {len(corpus)}")

    def open(self, index_dir: Path) -> None:
        """Read the index into memory."""
        self._searcher = block_max.BlockMax(index_dir, self.names)

    def find(self, query: Mapping[str, int], k: int) -> list[Hit]:
        """Rank by sums of products of weights, equal ones by id."""
        kept = query
        if self._beta < 1:
            heaviest = sorted(query, key=lambda term: -query[term])[: math.ceil(len(query) * self._beta)]
            kept = {term: query[term] for term in heaviest}

        def search(count: int) -> list[tuple[float, str]]:
            ids, scores = self._searcher.search(kept, count, self._alpha)
            return list(zip(scores, ids, strict=True))

        return [Hit(doc_id, score) for score, doc_id in ranking.best(search, k)]

    def threads(self) -> dict[str, int]:
        """Return the threads of a search, and those of the encoder's backend."""
        return {"bmp": 1, **super().threads()}

    def index_libraries(self) -> Mapping[str, str]:
        """Return BMP's version."""
        return {"bmp": version("bmp")}

    def index_version(self) -> Mapping[str, Scalar]:
        """Return BMP's version."""
        return {"bmp": version("bmp")}

    def close(self) -> None:
        """Let go of index and encoder."""
        del self._searcher
        super().close()


ENGINE = Bmp
