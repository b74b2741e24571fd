"""BMP's index and searcher, kept inside the limits in which their answers are exact.

BMP 0.2.8 keeps impacts in 8 bits, adds scores in 16 and wraps around above; it scales a query's weights so that the
largest is 32; it never reads the last block of those that it has chosen; and it starts from a threshold that a document
must exceed, though one that equals it may be among the best.  So impacts are checked here, a term outside the index
holds the scale, a block that no document is in comes last, and a query that the threshold left short is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
from bmp import Indexer, Searcher

HEAVIEST = 255  # an impact
_WEIGHT = 32  # the largest weight of a term in a query; BMP scales to it
_SCORE = (1 << 16) - 1
_TERMS = 1 << 16
_BLOCK = 256
_FILE, _HIGHEST = "blocks.bmp", "highest.npy"
# No vocabulary has these names, because terms hold no white space.
_SCALE, _COUNT = " scale", " count"
# Terms of the last block and their impacts: weights up to 32 give it any upper bound that a threshold needs.
_LAST = {" 255": 255, " 32": 32, " 1": 1}
# BMP takes its threshold from the 10th, 100th or 1,000th highest impact of a term, the first that is not below k.
_RANKS = (10, 100, 1000)


class Blocks:
    """Documents into blocks.  Call :meth:`add` for each, then :meth:`finish`.

    Args:
        names: of the terms, by number.
        block: documents in a block, 1 to 256.
        compress: keep the largest impacts of a term's blocks without those that are 0.

    Raises:
        ValueError: a parameter or the number of terms is beyond BMP's limits.
    """

    def __init__(self, folder: Path, names: Sequence[str], block: int, *, compress: bool) -> None:
        if not 1 <= block <= _BLOCK:
            raise ValueError(f"block_size is {block}, must be 1 to {_BLOCK}")
        if len(names) + len(_LAST) + 1 > _TERMS:
            raise ValueError(f"the vocabulary has {len(names)} terms; BMP numbers {_TERMS} at most")
        self._folder, self._block = folder, block
        self._indexer = Indexer(str(folder / _FILE), bsize=block, compress_range=compress)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._counts: Any = numpy.zeros((len(names), HEAVIEST + 1), dtype=numpy.uint32)
        self._documents = 0

    def add(self, doc_id: str, vector: Mapping[str, int]) -> None:
        """Add a document.

        Raises:
            ValueError: an impact does not fit 8 bits.
        """
        if vector and max(vector.values()) > HEAVIEST:
            raise ValueError(
                f"{doc_id!r} has an impact of {max(vector.values())}; BMP keeps {HEAVIEST} at most: lower quantisation"
            )
        self._indexer.add_document(doc_id, dict(vector))
        self._counts[[self._numbers[name] for name in vector], list(vector.values())] += 1
        self._documents += 1

    def finish(self) -> None:
        """Write the index, and the highest impacts of each term."""
        documents = self._documents
        self._fill()
        self._indexer.add_document(str(documents), {_COUNT: 1})
        self._documents += 1
        self._fill()
        self._indexer.add_document("last", _LAST)
        self._indexer.finish()
        numpy.save(self._folder / _HIGHEST, _highest(self._counts))

    def _fill(self) -> None:
        """Add empty documents up to the end of the block."""
        for _ in range(-self._documents % self._block):
            self._indexer.add_document("", {})
            self._documents += 1


class BlockMax:
    """An index in memory.

    Raises:
        ValueError: a file is missing.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        for name in (_FILE, _HIGHEST):  # BMP would end the process
            if not (folder / name).is_file():
                raise ValueError(f"the index is damaged: {name} is missing; build it again")
        self._searcher = Searcher(str(folder / _FILE))
        self._highest: Any = numpy.load(folder / _HIGHEST)
        self._numbers = {name: number for number, name in enumerate(names)}

    def __len__(self) -> int:
        """Return the number of documents, as the last block but one has it."""
        (doc_id,), _ = self._searcher.search({_SCALE: float(_WEIGHT), _COUNT: 2.0, " 1": 1.0}, k=1, alpha=1.0, beta=1.0)
        return int(doc_id)

    def search(self, query: Mapping[str, int], k: int, alpha: float = 1.0) -> tuple[list[str], list[float]]:
        """Return the ids and scores of the ``k`` best documents.

        A query with a weight above 32 is scaled as BMP scales it; one that could exceed a score of 65,535 is scaled
        down until it cannot.

        Args:
            alpha: 1 is exact; below, blocks are skipped whose upper bound is less than ``1 / alpha`` times the
                threshold.
        """
        known = {name: number for name in query if 0 <= (number := self._numbers.get(name, -1)) < len(self._highest)}
        highest = self._highest[[known[name] for name in known]].astype(numpy.int64)
        weights: Any = numpy.fromiter((query[name] for name in known), dtype=numpy.int64, count=len(known))
        if len(weights) and weights.max() > _WEIGHT:
            weights = -(-weights * _WEIGHT // weights.max())
        most = int(weights @ highest[:, 0])
        if not most:
            return [], []
        if most > _SCORE:
            weights = weights * _SCORE // most
        asked = {name: float(weight) for name, weight in zip(known, weights, strict=True) if weight}
        column = next((number for number, rank in enumerate(_RANKS, 1) if k <= rank), 0)
        threshold = int((weights * highest[:, column]).max()) if column else 0
        ids, scores = self._ask(asked, k, alpha, threshold)
        if len(ids) < k and threshold:  # documents that equal the threshold are missing
            ids, scores = self._ask(asked, _RANKS[-1] + 1, alpha, 0)
        return ids[:k], scores[:k]

    def _ask(self, weights: dict[str, float], k: int, alpha: float, threshold: int) -> tuple[list[str], list[float]]:
        """Search; the last block gets the least upper bound above the threshold."""
        asked, left = {**weights, _SCALE: float(_WEIGHT)}, threshold + 1
        for name, impact in _LAST.items():
            weight = min(left // impact, _WEIGHT)
            if weight:
                asked[name] = float(weight)
            left -= weight * impact
        ids, scores = self._searcher.search(asked, k=k, alpha=alpha, beta=1.0)
        return ids, scores


def _highest(counts: Any) -> Any:
    """Return the highest impact of each term, and those at BMP's ranks, from counts by impact."""
    above = counts[:, ::-1].cumsum(axis=1)
    columns = [numpy.where(above[:, -1] >= rank, HEAVIEST - (above >= rank).argmax(axis=1), 0) for rank in (1, *_RANKS)]
    return numpy.stack(columns, axis=1).astype(numpy.uint8)
