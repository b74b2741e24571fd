"""PLAID's residuals in the memory map: a search reads those of the passages that it scores, from the page cache.

The engine has such a setting, but only for an index of one chunk, and for the file header of one version of PyTorch.
Here each chunk's file is mapped, codes stay in memory (a tenth of the index), and the residuals of the scored passages
are copied together before the engine decompresses them: the same bytes, so the same scores.

Imports the engine: call ``runtime.start`` first.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import colbert.searcher
import torch
from colbert.search.index_storage import IndexScorer


class MappedResiduals:
    """The residuals of an index, one mapped file a chunk.

    Args:
        folder: the engine's index.
        chunks: how many it has.
        offsets: where each passage's vectors start, of all chunks together; its last number is their end.
    """

    def __init__(self, folder: Path, chunks: int, offsets: Any) -> None:
        self._parts = [torch.load(folder / f"{number}.residuals.pt", mmap=True) for number in range(chunks)]
        self._firsts = [0]
        for part in self._parts:
            self._firsts.append(self._firsts[-1] + len(part))
        if self._firsts[-1] != int(offsets[-1]):
            raise ValueError(f"the index has residuals of {self._firsts[-1]} vectors, its passages {int(offsets[-1])}")

    def rows(self, start: int, end: int) -> Any:
        """Return the residuals of one passage, which lies within a chunk; nothing is copied."""
        chunk = bisect_right(self._firsts, start) - 1
        first = self._firsts[chunk]
        return self._parts[chunk][start - first : end - first]


class _MappedScorer(IndexScorer):  # type: ignore[misc]
    """The engine's scorer without residuals in memory."""

    def _load_embeddings(self) -> None:
        folder = Path(self.index_path)
        codes = [torch.load(folder / f"{number}.codes.pt") for number in range(self.num_chunks)]
        ends = torch.cumsum(self.doclens, dim=0)
        self.offsets = torch.cat((torch.zeros(1, dtype=torch.int64), ends))
        residuals = MappedResiduals(folder, self.num_chunks, self.offsets)
        self.embeddings = SimpleNamespace(codes=torch.cat(codes), residuals=residuals)

    def set_embeddings_strided(self) -> None:
        """Make no views: only a GPU's search reads them."""


@contextlib.contextmanager
def scorer() -> Iterator[None]:
    """Let a ``colbert.Searcher`` that is made meanwhile map its residuals."""
    colbert.searcher.IndexScorer = _MappedScorer
    try:
        yield
    finally:
        colbert.searcher.IndexScorer = IndexScorer


def gathering(decompress: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the engine's decompression: it gets the residuals of its passages alone, where they are mapped."""

    def call(numbers: Any, lengths: Any, offsets: Any, *codec: Any) -> Any:
        *tables, residuals, codes, centroids, dimensions, bits = codec
        if not isinstance(residuals, MappedResiduals):
            return decompress(numbers, lengths, offsets, *codec)
        if not len(numbers):
            return torch.zeros(0, dimensions)
        places = numbers.long()
        spans = list(zip(offsets[places].tolist(), offsets[places + 1].tolist(), strict=True))
        taken = torch.cat([residuals.rows(start, end) for start, end in spans])
        own = torch.cat([codes[start:end] for start, end in spans])
        few = lengths[places]
        starts = torch.cumsum(few, dim=0) - few
        order = torch.arange(len(numbers), dtype=torch.int32)
        return decompress(order, few, starts, *tables, taken, own, centroids, dimensions, bits)

    return call
