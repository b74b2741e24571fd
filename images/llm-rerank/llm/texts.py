"""The index of an LLM reranker: its documents' whole texts as UTF-8, in one mapped file."""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
from index_files import doc_ids

from harness.driver.adapter import Corpus
from llm import prompts

_TEXTS, _OFFSETS = "texts.bin", "texts-offsets.npy"
_REPORT_EVERY = 1000


def write(corpus: Corpus, folder: Path, progress: Callable[[int], None]) -> int:
    """Write the texts of all documents, uncut, one at a time in memory; return their number.

    Raises:
        ValueError: the corpus is empty.
    """
    offsets, ids = array("q", [0]), []
    with (folder / _TEXTS).open("wb") as target:
        for document in corpus:
            # Half a surrogate pair is no text: it is replaced, as a decoder would do.
            written = target.write(prompts.document_text(document.title, document.text).encode("utf-8", "replace"))
            offsets.append(offsets[-1] + written)
            ids.append(document.doc_id)
            if len(ids) % _REPORT_EVERY == 0:
                progress(len(ids))
    if not ids:
        raise ValueError("the corpus is empty; an index needs a document")
    numpy.save(folder / _OFFSETS, numpy.array(offsets, dtype=numpy.int64))
    doc_ids.write(folder, ids)
    progress(len(ids))
    return len(ids)


class Passages:
    """The stored documents: ``passages(ids)`` are their texts.

    Raises:
        ValueError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.ids = doc_ids.Ids(folder)
        try:
            self._offsets: Any = numpy.load(folder / _OFFSETS, mmap_mode="r")
            size = (folder / _TEXTS).stat().st_size
            with (folder / _TEXTS).open("rb") as file:
                # An empty file cannot be mapped.
                self._texts: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except (OSError, ValueError) as error:
            raise ValueError(f"the index is damaged: {_TEXTS} and {_OFFSETS} cannot be read; build it again") from error
        if len(self._offsets) != len(self.ids) + 1 or int(self._offsets[-1]) != size:
            raise ValueError(
                f"the index is damaged: {_TEXTS} has {size} bytes, not {int(self._offsets[-1])}; build it again"
            )

    def __call__(self, wanted: Sequence[str]) -> list[str]:
        """Read the texts of documents.

        Raises:
            ValueError: one is not in the index.
        """
        bounds = ((int(self._offsets[row]), int(self._offsets[row + 1])) for row in self.ids.rows(wanted).tolist())
        return [self._texts[start:end].decode("utf-8") for start, end in bounds]
