"""Document ids by row, as bytes: eight million of them as Python texts would take half a gigabyte."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy

BYTES = "ids.bin"
_ENDS = "ids.npy"


class Ids:
    """The document ids of an index's rows: ``ids[row]``.

    Raises:
        ValueError: they are missing, or damaged.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._bytes = (folder / BYTES).read_bytes()
            ends: Any = numpy.load(folder / _ENDS)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(f"the index is damaged: {BYTES} and {_ENDS} cannot be read") from error
        if ends.ndim != 1 or ends.dtype != numpy.int64:
            raise ValueError(f"the index is damaged: {_ENDS} is not a row of 64-bit integers")
        if len(ends) and ends[-1] != len(self._bytes):
            raise ValueError(f"the index is damaged: {BYTES} has {len(self._bytes)} bytes, not {ends[-1]}")
        self._ends = memoryview(ends)  # hands out Python's own integers, in half of the time

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        return self._bytes[self._ends[row - 1] if row else 0 : self._ends[row]].decode()

    def rows(self, doc_ids: Sequence[str]) -> Any:
        """Return the rows of some documents, in their order, as int64.

        The first call builds a map of 12 bytes a document, so that a system that only searches does not pay for it.

        Raises:
            ValueError: the index lacks one of them; it is named.
        """
        hashes, order = self._by_hash
        wanted = numpy.fromiter((_hash(doc_id) for doc_id in doc_ids), dtype=numpy.int64, count=len(doc_ids))
        places = numpy.searchsorted(hashes, wanted)
        return numpy.array(
            [self._row(doc_id, int(place), hashes, order) for doc_id, place in zip(doc_ids, places, strict=True)],
            dtype=numpy.int64,
        )

    def _row(self, doc_id: str, place: int, hashes: Any, order: Any) -> int:
        """Return the document's row; ``place`` is the first row whose hash is not below its own."""
        wanted = _hash(doc_id)
        while place < len(hashes) and int(hashes[place]) == wanted:
            if self[row := int(order[place])] == doc_id:
                return row
            place += 1  # another id with the same hash
        raise ValueError(f"the index has no document {doc_id!r}; rank over the corpus that it was built of")

    @cached_property
    def _by_hash(self) -> tuple[Any, Any]:
        """The hashes of all ids in ascending order, and the row of each."""
        ends = self._ends.tolist()
        hashes = numpy.fromiter(
            (hash(self._bytes[start:end]) for start, end in pairwise((0, *ends))), dtype=numpy.int64, count=len(ends)
        )
        order = numpy.argsort(hashes, kind="stable")
        return hashes[order], order.astype(numpy.int32)


def _hash(doc_id: str) -> int:
    """Return Python's own hash of an id's bytes: it holds for this process alone, as the map does."""
    # Half a surrogate pair is in no index: it is replaced, and then not found.
    return hash(doc_id.encode("utf-8", "replace"))


def write(folder: Path, ids: Iterable[str]) -> None:
    """Write the ids of rows, one at a time in memory."""
    ends, end = array("q"), 0
    with (folder / BYTES).open("wb") as target:
        for doc_id in ids:
            end += target.write(doc_id.encode("utf-8"))
            ends.append(end)
    numpy.save(folder / _ENDS, numpy.array(ends, dtype=numpy.int64))


def join(parts: Iterable[Path], folder: Path) -> None:
    """Write the ids of all parts, in order, into one folder."""
    ends, before = [], 0
    with (folder / BYTES).open("wb") as target:
        for part in parts:
            target.write((part / BYTES).read_bytes())
            ends.append(numpy.load(part / _ENDS) + before)
            before = target.tell()
    numpy.save(folder / _ENDS, numpy.concatenate(ends))
