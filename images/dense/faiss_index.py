"""Vectors of all documents as a faiss index: exact, or approximate in one of four ways.

The vectors come from shards on disk and go in chunk by chunk, so that building takes no more memory than the index
itself, and an exact one much less.  A search reads every index through the memory map: its pages are the kernel's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

KINDS = ("flat", "hnsw", "ivfpq", "sq8", "binary")
CODED = ("ivfpq", "sq8", "binary")  # these hold codes in place of the vectors
SIMILARITIES = ("ip", "cosine", "l2")

VECTORS = "vectors.npy"  # of one shard
_FLAT = "vectors.f32"  # rows of float32 without a header: written and read in passing
_INDEX = "vectors.faiss"


@dataclass(frozen=True)
class Settings:
    """Parameters of an index; each kind reads its own.

    Attributes:
        kind: ``flat`` (exact), ``hnsw``, ``ivfpq``, ``sq8`` (a byte a dimension) or ``binary`` (a bit: its sign).
        similarity: ``ip`` (inner product), ``cosine``, or ``l2`` (score: minus the squared distance).
        hnsw_m, hnsw_ef_construction, hnsw_ef_search: neighbours a node, candidates at building and at search.
        ivf_nlist, ivf_nprobe: cells, and how many of them are searched.
        pq_m, pq_nbits: codes a vector, and bits a code.
        train_documents: vectors that cells, codes and ranges are learned from, drawn with ``seed``.
        keep_vectors: whether the vectors lie beside their codes.
        rescore: candidates for each hit that the codes find and the vectors order; 0: the codes alone.
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
    keep_vectors: bool
    rescore: int


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
    index = None if settings.kind == "flat" else _untrained(shards, settings)
    if index is not None and not index.is_trained:
        index.train(shards.sample(settings.train_documents, settings.seed))
    done = 0
    with contextlib.ExitStack() as open_files:
        kept = index is None or settings.keep_vectors
        target = open_files.enter_context((folder / _FLAT).open("wb")) if kept else None
        for chunk in shards:
            if target is not None:
                target.write(numpy.ascontiguousarray(chunk, dtype="<f4").tobytes())
            if index is not None:
                index.add(chunk)
            done += len(chunk)
            added(done)
    if index is not None:
        import faiss

        faiss.write_index(index, str(folder / _INDEX))


class Exact:
    """The vectors in their file, searched where they lie by the functions behind faiss's own exact index.

    Raises:
        ValueError: the file is damaged.
    """

    def __init__(self, path: Path, dims: int, settings: Settings) -> None:
        size = path.stat().st_size if path.is_file() else 0
        if not size or size % (4 * dims):
            raise ValueError(f"the index is damaged: {path.name} is no whole number of vectors of {dims} dimensions")
        self._rows = numpy.memmap(path, dtype="<f4", mode="r").reshape(-1, dims)
        self._settings = settings
        self.ntotal = len(self._rows)

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Return faiss's values and the rows of the nearest vectors, best first."""
        import faiss

        found, rows = faiss.knn(queries, self._rows, k, metric=_metric(self._settings))
        return found, rows

    def distances(self, query: Any, rows: Any) -> Any:
        """Return faiss's values of some rows for one query."""
        import faiss

        compute = faiss.fvec_L2sqr_by_idx if self._settings.similarity == "l2" else faiss.fvec_inner_products_by_idx
        found = numpy.empty(len(rows), dtype=numpy.float32)
        compute(*map(faiss.swig_ptr, (found, query, self._rows, rows)), self._rows.shape[1], 1, len(rows))
        return found


class Rescored:
    """Codes, which find candidates, before the vectors, which order them (faiss's IndexRefine over a mapped file)."""

    def __init__(self, codes: Any, exact: Exact, settings: Settings) -> None:
        self._codes, self._exact, self._settings = codes, exact, settings
        self.ntotal = codes.ntotal

    def search(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Return faiss's values of the vectors and the rows of the nearest candidates, best first; -1 fills up."""
        _, candidates = self._codes.search(queries, min(k * self._settings.rescore, self.ntotal))
        found = numpy.zeros((len(queries), k), dtype=numpy.float32)
        rows = numpy.full((len(queries), k), -1, dtype=numpy.int64)
        for number, row in enumerate(candidates):
            able = numpy.sort(row[row >= 0])  # in the file's order: of equal scores the first document wins
            values = self._exact.distances(queries[number], able)
            best = numpy.argsort(-scores(values, self._settings), kind="stable")[:k]
            found[number, : len(best)], rows[number, : len(best)] = values[best], able[best]
        return found, rows

    def distances(self, query: Any, rows: Any) -> Any:
        """Return faiss's values of some vectors for one query."""
        return self._exact.distances(query, rows)


def load(folder: Path, settings: Settings, dims: int) -> Any:
    """Open an index through the memory map and set it for search.

    Raises:
        ValueError: its file is damaged, or of another kind.
    """
    import faiss

    exact = settings.kind == "flat"
    for name in [_FLAT] * (exact or settings.rescore > 0) + [_INDEX] * (not exact):
        _read_once(folder / name)
    if exact:
        return Exact(folder / _FLAT, dims, settings)
    try:
        index = faiss.read_index(str(folder / _INDEX), faiss.IO_FLAG_MMAP_IFC)
    except RuntimeError as error:
        raise ValueError(f"the index is damaged: faiss cannot read {_INDEX}") from error
    if settings.kind == "hnsw":
        index.hnsw.efSearch = settings.hnsw_ef_search
    elif settings.kind == "ivfpq":
        index.nprobe = settings.ivf_nprobe
    return Rescored(index, Exact(folder / _FLAT, dims, settings), settings) if settings.rescore else index


def scores(found: Any, settings: Settings) -> Any:
    """Convert faiss's values into scores: the higher, the better; of ``binary`` codes minus the differing bits."""
    bits = settings.kind == "binary" and not settings.rescore
    return -found if bits or settings.similarity == "l2" else found


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
    if settings.kind in ("ivfpq", "binary") and not settings.rescore:
        raise ValueError(
            f"an index {settings.kind!r} gives no vectors back, so it cannot rerank; take 'flat', 'hnsw' or 'sq8', or"
            " keep_vectors and rescore"
        )
    if settings.kind == "flat" or settings.rescore:
        exact: list[float] = scores(index.distances(query, rows), settings).tolist()
        return exact
    if settings.kind == "sq8":
        held: Any = faiss.IndexFlat(index.d, _metric(settings))
        held.add(index.reconstruct_batch(rows))
        rows = numpy.arange(len(rows), dtype=numpy.int64)
    else:
        held = faiss.downcast_index(index.storage)
    found = numpy.empty((1, len(rows)), dtype=numpy.float32)
    pointers = [faiss.swig_ptr(array) for array in (query, found, rows)]
    held.compute_distance_subset(1, pointers[0], len(rows), *pointers[1:])
    given: list[float] = scores(found[0], settings).tolist()
    return given


def _read_once(path: Path) -> None:
    """Bring a file's pages into memory, so that no query waits for the disk; a missing file is its reader's matter."""
    buffer = bytearray(1 << 20)
    if path.is_file():
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


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
    if settings.kind == "binary":
        return faiss.IndexLSH(shards.dims, shards.dims, False, False)  # neither rotated nor shifted: signs
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
