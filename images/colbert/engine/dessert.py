"""DESSERT: PLAID's centroids find documents, hashes of their token vectors score them.

Index of ``V`` token vectors in ``D`` documents: ``V * tables`` bytes of hashes (twice that above 8 bits), 4 bytes for
each document of each centroid's list (at most ``V``), 2 * dimensions bytes a centroid; no vector is kept.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy

from engine import plaid, signatures
from engine.build_state import BuildState
from engine.encoding import Encoder, Passages, Setup
from engine.lists import Lists
from engine.signatures import Signatures
from harness.driver.records import Scalar

FOLDER = "dessert"
READ = ("kmeans_niters", "tables", "bits", "ncells", "scored")
SHAPING = ("kmeans_niters", "tables", "bits")
OPTIONAL = ("mmap",)
_SEED = 12345


def check(params: Mapping[str, Scalar]) -> None:
    """Check the values of the method's parameters.

    Raises:
        ValueError: one is out of range.
    """
    if not 1 <= int(params["bits"]) <= signatures.MOST_BITS:
        raise ValueError(f"bits is {params['bits']!r}, must be 1 to {signatures.MOST_BITS}")
    for name in ("tables", "ncells", "scored"):
        if int(params[name]) < 1:
            raise ValueError(f"{name} is {params[name]!r}, must be at least 1")


def build(passages: Passages, setup: Setup, state: BuildState, progress: Callable[[int], None]) -> Path:
    """Make the engine's index below ``state.folder``, hash each chunk's vectors, and keep its centroids and lists.

    Returns:
        the folder of the index.
    """
    params = setup.params
    tables = Signatures.drawn(setup.encoder.dimensions, int(params["tables"]), int(params["bits"]), _SEED)
    whole = state.folder / plaid.FOLDER

    def write(number: int, vectors: Any, lengths: list[int]) -> None:
        numpy.save(whole / f"{number}.hashes.npy", tables.hash(vectors.numpy()))
        numpy.save(whole / f"{number}.lengths.npy", numpy.array(lengths, dtype=numpy.uint16))

    plaid.build(passages, setup, state, progress, beside=write)
    # Made again by each attempt: what it is made of stays until the end of the build.
    folder = state.folder / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _keep(whole, folder, tables)
    return folder


def _keep(whole: Path, folder: Path, tables: Signatures) -> None:
    """Write the parts of the engine's index that a search reads."""
    import torch

    chunks = sorted(whole.glob("*.hashes.npy"), key=lambda path: int(path.name.split(".")[0]))
    lengths = [numpy.load(str(path).replace(".hashes.", ".lengths.")) for path in chunks]
    numpy.save(folder / "lengths.npy", numpy.concatenate(lengths))
    parts = [numpy.load(path, mmap_mode="r") for path in chunks]
    shape = (sum(len(part) for part in parts), tables.tables)
    hashes = numpy.lib.format.open_memmap(folder / "hashes.npy", mode="w+", dtype=parts[0].dtype, shape=shape)
    place = 0
    for part in parts:
        hashes[place : place + len(part)] = part
        place += len(part)
    hashes.flush()
    numpy.save(folder / "projections.npy", tables.projections)
    numpy.save(folder / "centroids.npy", torch.load(whole / "centroids.pt", map_location="cpu").half().numpy())
    members, sizes = torch.load(whole / "ivf.pid.pt", map_location="cpu")
    ends = numpy.cumsum(sizes.numpy(), dtype=numpy.int64)
    # The engine pads its lists.
    numpy.save(folder / "members.npy", members[: ends[-1]].numpy().astype(numpy.int32))
    numpy.save(folder / "members-ends.npy", ends)


class Dessert:
    """Search over hashes.

    Args:
        index_dir: what ``build`` made.
        encoder: of queries.
        probed: centroids looked into for each query vector.
        scored: documents scored by hashes, at most.
        mapped: leave the hashes in the memory map.
    """

    def __init__(self, index_dir: Path, encoder: Encoder, probed: int, scored: int, *, mapped: bool) -> None:
        folder = index_dir / FOLDER
        self._encoder, self._probed, self._scored = encoder, probed, scored
        self._tables = Signatures(numpy.load(folder / "projections.npy"))
        self._hashes = numpy.load(folder / "hashes.npy", mmap_mode="r" if mapped else None)
        self._lengths = numpy.load(folder / "lengths.npy").astype(numpy.int64)
        self._ends = numpy.cumsum(self._lengths)
        self._lists = Lists(*(numpy.load(folder / f"{name}.npy") for name in ("centroids", "members", "members-ends")))
        if len(self._hashes) != self._ends[-1]:
            raise ValueError(f"the index has {len(self._hashes)} hashed vectors, its documents {self._ends[-1]}")
        self.rerank_s = 0.0  # of the last search
        self.counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._lengths)

    @property
    def checkpoint(self) -> Any:
        """The engine's model."""
        return self._encoder.checkpoint

    def encode(self, queries: list[str]) -> Any:
        """Vectors of queries, one row a query."""
        return self._encoder.query(queries)

    def search(self, vectors: Any, k: int) -> tuple[list[int], list[float]]:
        """Numbers and scores of the best ``k`` passages for one row of ``encode``; equal scores in corpus order."""
        query = vectors[0].float().cpu().numpy()
        numbers, found = self._lists.candidates(query, self._probed, self._scored)
        ready = time.perf_counter()
        scores = self._score(query, numbers)
        order = numpy.argsort(-scores, kind="stable")[:k]
        self.counts = {"candidates": found, "scored": len(numbers)}
        self.rerank_s = time.perf_counter() - ready
        return numbers[order].tolist(), scores[order].tolist()

    def score(self, vectors: Any, numbers: Any) -> list[float]:
        """Estimate the similarity of one row of ``encode`` to some passages, in their order; ``numbers`` is int64."""
        scores: list[float] = self._score(vectors[0].float().cpu().numpy(), numbers).tolist()
        return scores

    def flop(self, vectors: Any, numbers: Any) -> int:
        """Return the operations of scoring some passages: to hash the query, and to compare hashes."""
        tokens, tables = int(vectors.shape[1]), self._tables
        hashing = 2 * tokens * tables.dimensions * tables.tables * tables.bits
        return hashing + tokens * tables.tables * int(self._lengths[numbers].sum())

    def _score(self, query: Any, numbers: Any) -> Any:
        lengths = self._lengths[numbers]
        ends = numpy.cumsum(lengths)
        rows = numpy.arange(ends[-1]) + numpy.repeat(self._ends[numbers] - ends, lengths)
        return self._tables.scores(self._tables.hash(query), self._hashes[rows], lengths)


def load(index_dir: Path, setup: Setup) -> Dessert:
    """Read weights and index into memory."""
    probed, scored = int(setup.params["ncells"]), int(setup.params["scored"])
    return Dessert(index_dir, setup.encoder, probed, scored, mapped=setup.mapped)
