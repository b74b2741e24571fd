"""Document ids by row, as bytes: eight million of them as Python texts would take half a gigabyte."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
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
            self._ends: Any = numpy.load(folder / _ENDS)
        except (OSError, ValueError) as error:
            raise ValueError(f"the index is damaged: {BYTES} and {_ENDS} cannot be read") from error
        if len(self._ends) and int(self._ends[-1]) != len(self._bytes):
            raise ValueError(f"the index is damaged: {BYTES} has {len(self._bytes)} bytes, not {int(self._ends[-1])}")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: int) -> str:
        start = int(self._ends[row - 1]) if row else 0
        return self._bytes[start : int(self._ends[row])].decode("utf-8")


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
