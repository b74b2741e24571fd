"""MUVERA: one vector a document finds the candidates, MaxSim over PLAID's compressed vectors orders them.

The engine's own index, and beside it the fixed-dimensional encodings of its documents in faiss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy

from engine import plaid
from engine.build_state import BuildState
from engine.encoding import Passages, Setup
from engine.fde import FixedEncodings
from harness.driver.records import Scalar

FOLDER = "muvera"
INDEXES = ("flat", "sq8", "hnsw")
_DRAWS = ("repetitions", "planes", "inner", "final")
SHAPING = ("nbits", "kmeans_niters", *_DRAWS, "fde_index", "hnsw_m")
READ = (*SHAPING, "hnsw_ef_search", "candidates")
OPTIONAL = ("mmap",)
_FAISS = "fde.faiss"
_SEED = 12345
_EF_CONSTRUCTION = 200


def check(params: Mapping[str, Scalar]) -> None:
    """Check the values of the method's parameters.

    Raises:
        ValueError: one is out of range.
    """
    plaid.check(params)
    if params["fde_index"] not in INDEXES:
        raise ValueError(f"fde_index is {params['fde_index']!r}, must be one of {', '.join(INDEXES)}")
    if not 0 <= int(params["planes"]) <= 8:
        raise ValueError(f"planes is {params['planes']!r}, must be 0 to 8")
    for name, least in (("repetitions", 1), ("inner", 1), ("final", 0), ("candidates", 1)):
        if int(params[name]) < least:
            raise ValueError(f"{name} is {params[name]!r}, must be at least {least}")


def _encodings(setup: Setup, dimensions: int) -> FixedEncodings:
    """Draw the encodings of an index; none of its files holds them.

    Raises:
        ValueError: ``inner`` is larger than a token vector.
    """
    draws = {name: int(setup.params[name]) for name in _DRAWS}
    if draws["inner"] > dimensions:
        raise ValueError(f"inner is {draws['inner']}, a token vector has {dimensions} dimensions")
    return FixedEncodings(dimensions, **draws, seed=_SEED)


def build(passages: Passages, setup: Setup, state: BuildState, progress: Callable[[int], None]) -> Path:
    """Make the engine's index below ``state.folder``, and a faiss index of the documents' encodings.

    Returns:
        the folder of the index.
    """
    encodings = _encodings(setup, setup.encoder.dimensions)
    folder = state.folder / FOLDER

    def write(number: int, vectors: Any, lengths: list[int]) -> None:
        numpy.save(folder / f"{number}.fde.npy", encodings.documents(vectors.numpy(), lengths))

    plaid.build(passages, setup, state, progress, name=FOLDER, beside=write)
    state.piece("fde", lambda: _index(folder, setup.params, encodings.dimensions))
    for path in folder.glob("*.fde.npy"):
        path.unlink()
    return folder


def _index(folder: Path, params: Mapping[str, Scalar], dimensions: int) -> None:
    """Write the faiss index of all encodings, chunk by chunk."""
    import faiss

    files = sorted(folder.glob("*.fde.npy"), key=lambda path: int(path.name.split(".")[0]))
    kind, product, bytes_ = params["fde_index"], faiss.METRIC_INNER_PRODUCT, faiss.ScalarQuantizer.QT_8bit
    if kind == "hnsw":
        index = faiss.IndexHNSWSQ(dimensions, bytes_, int(params["hnsw_m"]), product)
        index.hnsw.efConstruction = _EF_CONSTRUCTION
    else:
        index = (
            faiss.IndexFlatIP(dimensions) if kind == "flat" else faiss.IndexScalarQuantizer(dimensions, bytes_, product)
        )
    if kind != "flat":
        # The first chunk gives each dimension's range: values beyond it are clipped.
        index.train(numpy.load(files[0]))
    for path in files:
        index.add(numpy.load(path))
    faiss.write_index(index, str(folder / _FAISS))


class Muvera:
    """Search by encodings, then by MaxSim.

    Args:
        folder: what ``build`` made.
        scorer: the engine over the same folder.
        encodings: those that the index was built with.
        candidates: documents scored by MaxSim.
        ef_search: candidates of HNSW's search; a flat index reads none.
    """

    def __init__(
        self, folder: Path, scorer: plaid.Plaid, encodings: FixedEncodings, candidates: int, ef_search: int
    ) -> None:
        import faiss

        self._scorer, self._encodings, self._candidates = scorer, encodings, candidates
        self._faiss = faiss.read_index(str(folder / _FAISS))
        if self._faiss.ntotal != len(scorer) or self._faiss.d != encodings.dimensions:
            raise ValueError(
                f"the faiss index has {self._faiss.ntotal} encodings of {self._faiss.d} dimensions, the engine's"
                f" {len(scorer)} documents, the system {encodings.dimensions} dimensions; build it again"
            )
        if hasattr(self._faiss, "hnsw"):
            self._faiss.hnsw.efSearch = ef_search
        self.rerank_s = 0.0  # of the last search
        self.counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._scorer)

    @property
    def checkpoint(self) -> Any:
        """The engine's model."""
        return self._scorer.checkpoint

    def encode(self, queries: list[str]) -> Any:
        """Vectors of queries, one row a query."""
        return self._scorer.encode(queries)

    def search(self, vectors: Any, k: int) -> tuple[list[int], list[float]]:
        """Numbers and scores of the best ``k`` passages for one row of ``encode``; equal scores in corpus order."""
        encoded = self._encodings.query(vectors[0].float().cpu().numpy())
        _, found = self._faiss.search(encoded[None], min(max(k, self._candidates), len(self)))
        # faiss says -1 where HNSW reaches fewer.
        numbers = numpy.sort(found[0][found[0] >= 0])
        ready = time.perf_counter()
        scores = numpy.array(self._scorer.score(vectors, numbers))
        order = numpy.argsort(-scores, kind="stable")[:k]
        self.counts = {"candidates": len(numbers), "scored": len(numbers)}
        self.rerank_s = time.perf_counter() - ready
        return numbers[order].tolist(), scores[order].tolist()

    def score(self, vectors: Any, numbers: Any) -> list[float]:
        """MaxSim of one row of ``encode`` with some passages, in their order; ``numbers`` is int64."""
        return self._scorer.score(vectors, numbers)

    def flop(self, vectors: Any, numbers: Any) -> int:
        """Return the operations of comparing one row of ``encode`` with all vectors of some passages."""
        return self._scorer.flop(vectors, numbers)


def load(index_dir: Path, setup: Setup) -> Muvera:
    """Read weights, the engine's index and the encodings into memory."""
    folder, params = index_dir / FOLDER, setup.params
    scorer = plaid.Plaid(folder, setup, {}, 0)
    encodings = _encodings(setup, scorer.dimensions)
    return Muvera(folder, scorer, encodings, int(params["candidates"]), int(params["hnsw_ef_search"]))
