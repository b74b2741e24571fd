"""ColBERTv1: every token vector kept as it is (float16), every candidate compared in full.

Follows the authors' branch ``colbertv1`` (SIGIR 2020).  Its markers, masks and query expansion are those that
``colbert-ai`` has state.  ``candidates = "faiss"`` is its end-to-end retrieval: ``indexing/faiss_index.py`` and
``index_faiss.py`` (an IVF of 2^ceil(log2(8 * sqrt(vectors))) cells over product quantisation of 16 x 8 bits, trained on
a 5 % sample), ``ranking/faiss_index.py`` (the ``faiss_depth`` nearest token vectors of each of the query's, in
``nprobe`` cells; 1024 and 32 in its README), ``ranking/index_part.py`` (all vectors in memory, float16).
``candidates = "all"`` compares every passage: what the paper does to a given list, done to the whole collection.
MaxSim itself is the engine's of today (``colbert_score_packed``).  A checkpoint trained with ``similarity="l2"`` ranks
alike under cosine, because vectors have length one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.build_state import BuildState
from engine.encoding import Encoder, Passages, Setup
from harness.driver.records import Scalar

FOLDER = "uncompressed"
READ = ("candidates", "nprobe", "faiss_depth")
SHAPING = ("candidates",)
OPTIONAL = ()
CANDIDATES = ("faiss", "all")
_FAISS = "ivfpq.faiss"
_SEED = 12345
_SAMPLE = 0.05
_SUB_VECTORS, _BITS = 16, 8
# An exhaustive search holds the float32 form of so many passages at once.
_AT_ONCE = 4096


def check(params: Mapping[str, Scalar]) -> None:
    """Check the values of the method's parameters.

    Raises:
        ValueError: ``candidates`` names no way to find them.
    """
    if params["candidates"] not in CANDIDATES:
        raise ValueError(f"candidates is {params['candidates']!r}, must be 'faiss' or 'all'")


def build(passages: Passages, setup: Setup, state: BuildState, progress: Callable[[int], None]) -> Path:
    """Encode all passages below ``state.folder``, in files of passages that a later attempt takes over.

    With ``candidates="faiss"`` the sample that the index is trained on is held in memory (float32).

    Returns:
        the folder of the index.
    """
    import numpy

    folder, params = state.folder / FOLDER, setup.params
    batch_size = int(params["batch_size"])
    folder.mkdir(exist_ok=True)
    encoded = 0

    def told(number: int) -> None:
        nonlocal encoded
        encoded += number
        progress(encoded)

    for number, texts in enumerate(_chunks(passages, int(params["chunk_documents"]))):

        def write(number: int = number, texts: list[str] = texts) -> None:
            vectors, lengths = setup.encoder.documents(texts, batch_size, told)
            numpy.save(folder / f"{number}.vectors.npy", vectors.numpy())
            numpy.save(folder / f"{number}.lengths.npy", numpy.array(lengths, dtype=numpy.int64))

        before = encoded
        state.piece(f"chunk-{number}", write)
        encoded = before + len(texts)
        progress(encoded)
    if params["candidates"] == "faiss":
        state.piece("faiss", lambda: _index(folder))
    return folder


def _chunks(passages: Passages, size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for text in passages:
        chunk.append(text)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _files(folder: Path) -> list[Path]:
    """List the files of vectors in the order of the passages."""
    return sorted(folder.glob("*.vectors.npy"), key=lambda path: int(path.name.split(".")[0]))


def _index(folder: Path) -> None:
    """Write the faiss index of all token vectors."""
    import faiss
    import numpy

    parts = [numpy.load(path, mmap_mode="r") for path in _files(folder)]
    total, dimensions = sum(len(part) for part in parts), parts[0].shape[1]
    random = numpy.random.default_rng(_SEED)
    # A small collection needs more than the 5 % for its cells to be trained at all.
    cells = 1 << math.ceil(math.log2(8 * math.sqrt(total)))
    share = min(1.0, max(_SAMPLE, 2 * cells / total))
    sample = numpy.concatenate(
        [part[numpy.sort(random.choice(len(part), math.ceil(len(part) * share), replace=False))] for part in parts]
    ).astype(numpy.float32)
    cells = min(cells, 1 << int(math.log2(len(sample))))
    if len(sample) < 1 << _BITS:
        # Product quantisation learns 256 values a sub-vector: a collection this small is searched as it is.
        index = faiss.IndexFlatL2(dimensions)
    else:
        quantizer = faiss.IndexFlatL2(dimensions)
        index = faiss.IndexIVFPQ(quantizer, dimensions, cells, _SUB_VECTORS, _BITS)
        index.train(sample)
    for part in parts:
        index.add(numpy.asarray(part, dtype=numpy.float32))
    faiss.write_index(index, str(folder / _FAISS))


class Uncompressed:
    """Search over uncompressed token vectors.

    Args:
        index_dir: what ``build`` made.
        encoder: of queries.
        candidates: ``faiss`` or ``all``.
        nprobe: cells that faiss looks into.
        faiss_depth: token vectors that faiss brings for each of the query's.
    """

    def __init__(self, index_dir: Path, encoder: Encoder, candidates: str, nprobe: int, faiss_depth: int) -> None:
        import numpy
        import torch

        folder = index_dir / FOLDER
        self._encoder, self._depth = encoder, faiss_depth
        files = _files(folder)
        lengths = [numpy.load(str(path).replace(".vectors.", ".lengths.")) for path in files]
        self._lengths = torch.from_numpy(numpy.concatenate(lengths))
        ends = self._lengths.cumsum(0)
        self._starts = ends - self._lengths
        self._vectors = torch.empty(int(ends[-1]), encoder.dimensions, dtype=torch.float16)
        place = 0
        for path in files:
            part = torch.from_numpy(numpy.load(path))
            self._vectors[place : place + len(part)] = part
            place += len(part)
        self._faiss: Any = None
        if candidates == "faiss":
            import faiss

            self._faiss = faiss.read_index(str(folder / _FAISS))
            if self._faiss.ntotal != len(self._vectors):
                raise ValueError(f"the faiss index has {self._faiss.ntotal} vectors, its passages have {place}")
            if isinstance(self._faiss, faiss.IndexIVF):
                self._faiss.nprobe = nprobe
            # The passage of each vector: 4 bytes, as in the authors' engine; PyTorch would pass through 8.
            numbers = numpy.arange(len(self._lengths), dtype=numpy.int32)
            self._of = torch.from_numpy(numpy.repeat(numbers, self._lengths.numpy()))
        self.rerank_s = 0.0  # of the last search
        self.counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._lengths)

    def encode(self, queries: list[str]) -> Any:
        """Vectors of queries, one row a query."""
        return self._encoder.query(queries)

    def search(self, vectors: Any, k: int) -> tuple[list[int], list[float]]:
        """Numbers and scores of the best ``k`` passages for one row of ``encode``; equal scores in corpus order."""
        import torch

        with torch.inference_mode():
            numbers = self._candidates(vectors)
            found = time.perf_counter()
            parts = [self._score(vectors, block) for block in numbers.split(_AT_ONCE)]
            order = torch.cat(parts).sort(descending=True, stable=True)
            best, scores = numbers[order.indices[:k]].tolist(), order.values[:k].tolist()
        self.counts = {"candidates": len(numbers), "scored": len(numbers)}
        self.rerank_s = time.perf_counter() - found
        return best, scores

    def score(self, vectors: Any, numbers: Any) -> list[float]:
        """MaxSim of one row of ``encode`` with some passages, in their order; ``numbers`` is int64."""
        import torch

        with torch.inference_mode():
            parts = [self._score(vectors, block) for block in torch.from_numpy(numbers).split(_AT_ONCE)]
            return torch.cat(parts).tolist()

    def flop(self, vectors: Any, numbers: Any) -> int:
        """Return the operations of comparing one row of ``encode`` with all vectors of some passages."""
        return 2 * vectors[0].numel() * int(self._lengths[numbers].sum())

    @property
    def checkpoint(self) -> Any:
        """The engine's model."""
        return self._encoder.checkpoint

    def _candidates(self, vectors: Any) -> Any:
        """Numbers of the passages to compare, ascending."""
        import torch

        if self._faiss is None:
            return torch.arange(len(self))
        wanted = min(self._depth, len(self._vectors))
        _, rows = self._faiss.search(vectors.squeeze(0).float().cpu().numpy(), wanted)
        rows = torch.from_numpy(rows).flatten()
        # faiss says -1 where its cells hold fewer.
        return torch.unique(self._of[rows[rows >= 0]]).long()

    def _score(self, vectors: Any, numbers: Any) -> Any:
        """MaxSim of a query with some passages, by the engine."""
        import torch
        from colbert.modeling.colbert import colbert_score_packed

        lengths = self._lengths[numbers]
        first = lengths.cumsum(0) - lengths
        rows = torch.arange(int(lengths.sum())) + torch.repeat_interleave(self._starts[numbers] - first, lengths)
        packed = self._vectors[rows].float()
        return colbert_score_packed(vectors, packed, lengths, self._encoder.checkpoint.colbert_config).cpu()


def load(index_dir: Path, setup: Setup) -> Uncompressed:
    """Read weights and index into memory."""
    params = setup.params
    nprobe, depth = int(params["nprobe"]), int(params["faiss_depth"])
    return Uncompressed(index_dir, setup.encoder, str(params["candidates"]), nprobe, depth)
