"""Row of a document by its id, from sorted hashes in a mapped file: a dict of millions of ids would fill a gigabyte."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy
from index_files.doc_ids import Ids

_HASHES, _ROWS = "id-hashes.npy", "id-rows.npy"


class Rows:
    """The rows of an index by document id.

    Args:
        folder: of the index.
        ids: its document ids by row.

    Raises:
        ValueError: the files are missing or damaged, or do not fit the ids.
    """

    def __init__(self, folder: Path, ids: Ids) -> None:
        try:
            self._hashes: Any = numpy.load(folder / _HASHES, mmap_mode="r")
            self._rows: Any = numpy.load(folder / _ROWS, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise ValueError(f"the index is damaged: {_HASHES} and {_ROWS} cannot be read") from error
        if not len(self._hashes) == len(self._rows) == len(ids):
            raise ValueError(f"the index is damaged: {len(self._hashes)} rows by id, {len(ids)} ids")
        self._ids = ids

    def __getitem__(self, doc_id: str) -> int:
        wanted = _hash(doc_id)
        place = int(numpy.searchsorted(self._hashes, numpy.uint64(wanted)))
        while place < len(self._hashes) and int(self._hashes[place]) == wanted:
            row = int(self._rows[place])
            if self._ids[row] == doc_id:
                return row
            place += 1
        raise ValueError(f"the index has no document {doc_id!r}; build it over the corpus that the first stage ranks")


def write(folder: Path, ids: Ids) -> None:
    """Write the rows of all ids."""
    hashes = numpy.fromiter((_hash(ids[row]) for row in range(len(ids))), dtype=numpy.uint64, count=len(ids))
    order = numpy.argsort(hashes, kind="stable")
    numpy.save(folder / _HASHES, hashes[order])
    numpy.save(folder / _ROWS, order.astype(numpy.int64))


def _hash(doc_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(doc_id.encode("utf-8"), digest_size=8).digest(), "little")
