"""ColBERTv2 with PLAID: residual compression and centroid pruning, by ``colbert-ai``'s own indexer and searcher.

Memory of a build, by the engine's design: it trains its centroids on the token vectors of a sample of the passages
(all of a small collection, 16 * sqrt(120 * passages) of a large one: 520,000 of 8.8 million), held at once and twice
over; and its inverted list sorts the codes of all token vectors of the collection at once (24 bytes a vector).  Texts
are streamed, and encoding holds one chunk.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from engine import runtime
from engine.build_state import Beside, BuildState
from engine.encoding import Passages, Setup
from harness.driver.records import Scalar

FOLDER = "plaid"
READ = ("nbits", "kmeans_niters", "k", "ncells", "centroid_score_threshold", "ndocs")
SHAPING = ("nbits", "kmeans_niters")
OPTIONAL = ("mmap",)


def check(params: Mapping[str, Scalar]) -> None:
    """Check the values of the method's parameters.

    Raises:
        ValueError: the engine packs residuals in other widths.
    """
    if params["nbits"] not in (1, 2, 4):
        raise ValueError(f"nbits is {params['nbits']!r}, must be 1, 2 or 4")


def build(
    passages: Passages,
    setup: Setup,
    state: BuildState,
    progress: Callable[[int], None],
    *,
    name: str = FOLDER,
    beside: Beside | None = None,
) -> Path:
    """Make the engine's index below ``state.folder``.

    An attempt that follows another takes over each sample and each chunk of passages that was encoded, and the
    centroids; drawing the sample and the inverted list are made again.

    Args:
        passages: the collection.
        setup: its configuration's ``index_path`` is set here.
        state: what earlier attempts left.
        progress: is told the number of passages encoded.
        name: of the folder.
        beside: writes another form of each chunk; its files are taken over with the chunk.

    Returns:
        the folder of the index.
    """
    import torch
    from colbert.data import Collection
    from colbert.infra import Run

    from engine.indexer import Indexer

    folder, chunk = state.folder / name, int(setup.params["chunk_documents"])
    folder.mkdir(exist_ok=True)
    config, encoder = setup.config, setup.encoder
    config.configure(index_path=str(folder), rank=0, nranks=1)
    collection = Collection(data=passages)
    collection.get_chunksize = lambda: chunk
    with runtime.quiet(), Run().context(config, inherit_config=False), torch.inference_mode():
        indexer = Indexer(config, collection, encoder, state, chunk, progress, beside)
        indexer.setup()
        state.piece("codec", lambda: indexer.train(None))
        indexer.index()
        indexer.finalize()
    return folder


class Plaid:
    """The engine's ``Searcher``, told its parameters before each search and timed where it lets itself be timed.

    Args:
        folder: what ``build`` made.
        setup: the weights, the engine's configuration (``query_maxlen``), the number of passages.
        settings: ``ncells``, ``centroid_score_threshold`` and ``ndocs``.
        depth: passages that are asked of the engine at least.
    """

    def __init__(self, folder: Path, setup: Setup, settings: dict[str, Any], depth: int) -> None:
        from colbert import Searcher
        from colbert.data import Collection
        from colbert.search.index_storage import IndexScorer

        from engine import mapped

        self._settings, self._depth = settings, depth
        with runtime.quiet(), mapped.scorer() if setup.mapped else contextlib.nullcontext():
            self._searcher: Any = Searcher(
                index=str(folder),
                checkpoint=str(setup.checkpoint),
                # The engine wants to hold all texts; it only searches.
                collection=Collection(data=range(setup.documents)),
                config=setup.config,
                verbose=0,
            )
        self.dimensions = int(self._searcher.config.dim)
        self._gpu = bool(self._searcher.config.total_visible_gpus)
        self.rerank_s = 0.0  # of the last search
        self.counts: dict[str, int] = {}
        ranker = self._searcher.ranker
        ranker.retrieve = self._counted(ranker.retrieve)
        # The last step: residuals are decompressed, and every token is compared.
        if self._gpu:
            ranker.lookup_pids = _noted(ranker.lookup_pids)
        elif not isinstance(IndexScorer.decompress_residuals, FunctionType):
            # The engine calls it on the class, which all searchers of a process share.
            IndexScorer.decompress_residuals = _noted(mapped.gathering(IndexScorer.decompress_residuals))

    def __len__(self) -> int:
        return len(self._searcher.ranker.doclens)

    def encode(self, queries: Sequence[str]) -> Any:
        """Vectors of queries, one row a query."""
        vectors = self._searcher.encode(list(queries))
        if self._gpu:
            import torch

            torch.cuda.synchronize()  # encoding ends here, not where the search waits for it
        return vectors

    def search(self, vectors: Any, k: int) -> tuple[list[int], list[float]]:
        """Numbers and scores of the best ``k`` passages for one row of ``encode``."""
        # What the search before left must not be taken for this one's: the engine may find nothing to score.
        _LAST.since, _LAST.scored = 0.0, 0
        self.counts = {"candidates": 0}
        # The engine keeps what its first search chose.
        self._searcher.configure(**self._settings)
        numbers, _, scores = self._searcher.dense_search(vectors, max(k, self._depth))
        end = time.perf_counter()
        scored_from = _LAST.since or end
        self.rerank_s = end - scored_from
        self.counts["scored"] = _LAST.scored
        return numbers[:k], scores[:k]

    def score(self, vectors: Any, numbers: Any) -> list[float]:
        """MaxSim of one row of ``encode`` with some passages, in their order; ``numbers`` is int64.

        The engine's last step alone: no centroid prunes the passages, residuals are decompressed and compared.
        """
        import torch

        ranker = self._searcher.ranker
        with torch.inference_mode():
            passages = torch.from_numpy(numbers).int().to(vectors.device)
            scores, _ = ranker.score_pids(self._searcher.config, vectors, passages, None)
            return scores.tolist()

    def flop(self, vectors: Any, numbers: Any) -> int:
        """Return the operations of comparing one row of ``encode`` with all vectors of some passages."""
        return 2 * vectors[0].numel() * int(self._searcher.ranker.doclens[numbers].sum())

    @property
    def checkpoint(self) -> Any:
        """The engine's model."""
        return self._searcher.checkpoint

    def _counted(self, retrieve: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found = retrieve(*arguments)
            self.counts["candidates"] = len(found[0])
            return found

        return call


def load(index_dir: Path, setup: Setup) -> Plaid:
    """Read weights and index into memory; the engine finds the GPU by itself."""
    settings = {name: setup.params[name] for name in ("ncells", "centroid_score_threshold", "ndocs")}
    return Plaid(index_dir / FOLDER, setup, settings, int(setup.params["k"]))


class _Step:
    """When the engine last began to score in full, and how many passages."""

    since = 0.0
    scored = 0


_LAST = _Step()


def _noted(decompress: Callable[..., Any]) -> Callable[..., Any]:
    def call(numbers: Any, *others: Any) -> Any:
        _LAST.since, _LAST.scored = time.perf_counter(), len(numbers)
        return decompress(numbers, *others)

    return call
