"""Vectors of all documents as a faiss index: exact, or approximate in one of three ways.

The vectors come from shards on disk and go in chunk by chunk, so that building takes no more memory than the index
itself, and an exact one much less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

KINDS = ("flat", "hnsw", "ivfpq", "sq8")
SIMILARITIES = ("ip", "cosine", "l2")

VECTORS = "vectors.npy"  # of one shard
_FLAT = "vectors.f32"  # rows of float32 without a header: written and read in passing
_INDEX = "vectors.faiss"


@dataclass(frozen=True)
class Settings:
    """Parameters of an index; each kind reads its own.

    Attributes:
        kind: ``flat`` (exact), ``hnsw``, ``ivfpq`` or ``sq8``.
        similarity: ``ip`` (inner product), ``cosine``, or ``l2`` (score: minus the squared distance).
        hnsw_m, hnsw_ef_construction, hnsw_ef_search: neighbours a node, candidates at building and at search.
        ivf_nlist, ivf_nprobe: cells, and how many of them are searched.
        pq_m, pq_nbits: codes a vector, and bits a code.
        train_documents: vectors that cells, codes and ranges are learned from, drawn with ``seed``.
    """

    kind: str
    similarity: str
    hnsw_m: int
    hnsw_ef_construction: int
    hnsw_ef_search: int
    ivf_nlist: int
    ivf_nprobe: int
    pq_m: int
    pq_nbits: int
    train_documents: int
    seed: int


class Shards:
    """Vectors in the files of shards: ``len()`` rows of ``dims``.

    Args:
        folders: each with a file :data:`VECTORS`.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._paths = [folder / VECTORS for folder in folders]
        shapes = [numpy.load(path, mmap_mode="r").shape for path in self._paths]
        self.dims = int(shapes[0][1])
        self._sizes = [int(shape[0]) for shape in shapes]

    def __len__(self) -> int:
        return sum(self._sizes)

    def __iter__(self) -> Iterator[Any]:
        for path in self._paths:
            yield numpy.load(path)

    def sample(self, size: int, seed: int) -> Any:
        """So many different rows, drawn evenly; all when there are fewer."""
        total = len(self)
        if size >= total:
            return numpy.concatenate(list(self))
        rows = numpy.sort(numpy.random.default_rng(seed).choice(total, size, replace=False))
        found, before = [], 0
        for path, length in zip(self._paths, self._sizes, strict=True):
            within = rows[(rows >= before) & (rows < before + length)] - before
            if len(within):
                found.append(numpy.load(path, mmap_mode="r")[within])
            before += length
        return numpy.concatenate(found)


def build(shards: Shards, folder: Path, settings: Settings, added: Callable[[int], None]) -> None:
    """Write the index of all vectors into ``folder``; ``added`` is told the rows that are in.

    Raises:
        ValueError: a parameter does not fit the vectors.
    """
    if settings.kind == "flat":
        done = 0
        with (folder / _FLAT).open("wb") as target:
            for chunk in shards:
                target.write(numpy.ascontiguousarray(chunk, dtype="<f4").tobytes())
                done += len(chunk)
                added(done)
        return
    import faiss

    index = _untrained(shards, settings)
    if not index.is_trained:
        index.train(shards.sample(settings.train_documents, settings.seed))
    for chunk in shards:
        index.add(chunk)
        added(index.ntotal)
    faiss.write_index(index, str(folder / _INDEX))


def load(folder: Path, settings: Settings, dims: int) -> Any:
    """Load an index into memory and set it for search.

    Raises:
        ValueError: its file is damaged, or of another kind.
    """
    import faiss

    if settings.kind == "flat":
        path = folder / _FLAT
        if not path.is_file() or path.stat().st_size % (4 * dims):
            raise ValueError(f"the index is damaged: {_FLAT} is no whole number of vectors of {dims} dimensions")
        index = faiss.IndexFlat(dims, _metric(settings))
        index.add(numpy.memmap(path, dtype="<f4", mode="r").reshape(-1, dims))
        return index
    try:
        index = faiss.read_index(str(folder / _INDEX))
    except RuntimeError as error:
        raise ValueError(f"the index is damaged: faiss cannot read {_INDEX}") from error
    if settings.kind == "hnsw":
        index.hnsw.efSearch = settings.hnsw_ef_search
    elif settings.kind == "ivfpq":
        index.nprobe = settings.ivf_nprobe
    return index


def scores(found: Any, settings: Settings) -> Any:
    """Convert faiss's values into scores: the higher, the better."""
    return -found if settings.similarity == "l2" else found


def scores_of(index: Any, rows: Any, query: Any, settings: Settings) -> list[float]:
    """Score some rows of a loaded index against one query, by the arithmetic of the index's own search.

    Args:
        rows: int64 numbers of rows.
        query: float32 of shape (1, dims).

    Raises:
        ValueError: the index is of a kind that gives no vector back by its row.
    """
    import faiss

    if not len(rows):
        return []
    if settings.kind == "ivfpq":
        raise ValueError("an 'ivfpq' index gives no vectors back, so it cannot rerank; take 'flat', 'hnsw' or 'sq8'")
    if settings.kind == "sq8":
        held: Any = faiss.IndexFlat(index.d, _metric(settings))
        held.add(index.reconstruct_batch(rows))
        rows = numpy.arange(len(rows), dtype=numpy.int64)
    else:
        held = faiss.downcast_index(index.storage) if settings.kind == "hnsw" else index
    found = numpy.empty((1, len(rows)), dtype=numpy.float32)
    pointers = [faiss.swig_ptr(array) for array in (query, found, rows)]
    held.compute_distance_subset(1, pointers[0], len(rows), *pointers[1:])
    given: list[float] = scores(found[0], settings).tolist()
    return given


def _metric(settings: Settings) -> Any:
    import faiss

    return faiss.METRIC_L2 if settings.similarity == "l2" else faiss.METRIC_INNER_PRODUCT


def _untrained(shards: Shards, settings: Settings) -> Any:
    """Create an empty index, with fixed seeds for all random draws of faiss."""
    import faiss

    metric = _metric(settings)
    if settings.kind == "hnsw":
        index = faiss.IndexHNSWFlat(shards.dims, settings.hnsw_m, metric)
        index.hnsw.efConstruction = settings.hnsw_ef_construction
        return index
    if settings.kind == "sq8":
        return faiss.IndexScalarQuantizer(shards.dims, faiss.ScalarQuantizer.QT_8bit, metric)
    needed = max(settings.ivf_nlist, 2**settings.pq_nbits)
    sample = min(len(shards), settings.train_documents)
    if sample < needed:
        raise ValueError(
            f"ivf_nlist {settings.ivf_nlist} and pq_nbits {settings.pq_nbits} are learned from at least {needed} "
            f"documents, there are {sample} to learn from; ask for less, or for the index 'flat'"
        )
    if shards.dims % settings.pq_m:
        raise ValueError(f"pq_m is {settings.pq_m}, must divide the {shards.dims} dimensions of a vector")
    cells = faiss.IndexFlat(shards.dims, metric)
    index = faiss.IndexIVFPQ(cells, shards.dims, settings.ivf_nlist, settings.pq_m, settings.pq_nbits, metric)
    cells.this.disown()
    index.own_fields = True
    for clustering in (index.cp, index.pq.cp):
        clustering.seed = settings.seed
        clustering.max_points_per_centroid = 256  # of the sample; the same whatever its size
        clustering.min_points_per_centroid = 1  # faiss would print advice
    return index
