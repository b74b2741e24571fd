"""ColBERTv2 with PLAID: residual compression and centroid pruning, by ``colbert-ai``'s own indexer and searcher.

Memory of a build, by the engine's design: it trains its centroids on the token vectors of a sample of the passages (all
of a small collection, 16 * sqrt(120 * passages) of a large one: 520,000 of 8.8 million), held at once and twice over; and
its inverted list sorts the codes of all token vectors of the collection at once (24 bytes a vector).  Texts are
streamed, and encoding holds one chunk.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import late_engine
from late_encoding import Encoder, Passages
from late_kept import Kept

# The engine's own: what it samples, and how it splits the sample, is drawn from this.
_SEED = 12345
FOLDER = "plaid"


def build(
    passages: Passages, encoder: Encoder, config: Any, kept: Kept, chunk: int, progress: Callable[[int], None]
) -> Path:
    """Make the engine's index below ``kept.folder``.

    An attempt that follows another takes over each sample and each chunk of ``chunk`` passages that was encoded, and
    the centroids; drawing the sample and the inverted list are made again.

    Args:
        passages: the collection.
        encoder: of documents.
        config: the engine's configuration; its ``index_path`` is set here.
        kept: what earlier attempts left.
        chunk: passages a file of the index.
        progress: is told the number of passages encoded.

    Returns:
        the folder of the index.
    """
    import torch
    from colbert.data import Collection
    from colbert.infra import Run

    folder = kept.folder / FOLDER
    folder.mkdir(exist_ok=True)
    config.configure(index_path=str(folder), rank=0, nranks=1)
    collection = Collection(data=passages)
    collection.get_chunksize = lambda: chunk
    with late_engine.quiet(), Run().context(config, inherit_config=False), torch.inference_mode():
        indexer = _indexer(config, collection, encoder, kept, chunk, progress)
        indexer.setup()
        kept.piece("codec", lambda: indexer.train(None))
        indexer.index()
        indexer.finalize()
    return folder


def _indexer(
    config: Any, collection: Any, encoder: Encoder, kept: Kept, chunk: int, progress: Callable[[int], None]
) -> Any:
    """The engine's indexer with the parts replaced that hold it up: see the comments."""
    import torch
    from colbert.indexing.collection_indexer import CollectionIndexer
    from colbert.indexing.index_saver import IndexSaver
    from colbert.infra.launcher import set_seed

    class Indexer(CollectionIndexer):  # type: ignore[misc]
        def __init__(self) -> None:
            # Not the engine's: it would read the checkpoint a second time.
            self.verbose, self.config, self.rank, self.nranks = 0, config, 0, 1
            self.use_gpu = config.total_visible_gpus > 0
            self.collection, self.saver = collection, IndexSaver(config)
            self.sampled: list[int] = []
            self.encoded = 0

        def _encode(self, texts: list[str]) -> tuple[Any, list[int]]:
            return encoder.documents(texts, config.index_bsize, self._told)

        def _told(self, number: int) -> None:
            self.encoded += number
            progress(self.encoded)

        def _sample_pids(self) -> set[int]:
            set_seed(_SEED)
            drawn = super()._sample_pids()
            self.sampled = sorted(drawn)
            return drawn

        # The engine encodes sampled passages here and once more in "index"; of a small collection, that is all of them.
        def _sample_embeddings(self, sampled_pids: set[int]) -> float:
            texts = (text for number, text in enumerate(collection.data) if number in sampled_pids)
            lengths: list[int] = []
            for start in range(0, len(self.sampled), chunk):
                size = min(chunk, len(self.sampled) - start)
                part = [next(texts) for _ in range(size)]
                lengths += kept.piece(f"sample-{start}", lambda part=part: self._encode(part))[1]
                self.encoded = start + size
                progress(self.encoded)
            self.num_sample_embs = sum(lengths)
            self.avg_doclen_est = sum(lengths) / len(lengths)
            return self.avg_doclen_est

        def _save_plan(self) -> None:
            # k-means cannot have more centroids than vectors; the engine's rule asks for more in tiny collections.
            while self.num_partitions > max(1, int(0.95 * self.num_sample_embs)):
                self.num_partitions //= 2
            super()._save_plan()

        def train(self, shared_lists: Any) -> None:
            set_seed(_SEED)
            super().train(shared_lists)

        def _concatenate_and_split_sample(self) -> tuple[Any, Any]:
            sample = torch.empty(self.num_sample_embs, config.dim, dtype=torch.float16)
            place = 0
            for start in range(0, len(self.sampled), chunk):
                vectors = kept.again(f"sample-{start}")[0]
                sample[place : place + len(vectors)] = vectors
                place += len(vectors)
            sample = sample[torch.randperm(len(sample))]
            # The engine's shares; it cannot do with an empty second one, which fewer than 20 vectors give.
            apart = int(min(0.05 * len(sample), 50_000))
            if apart == 0:
                return sample, sample
            return sample[:-apart], sample[-apart:]

        # The engine writes in a thread whose errors (a full disk) hang the build.
        def index(self) -> None:
            codec = self.saver.load_codec()
            for number, offset, texts in collection.enumerate_batches(rank=0):
                ours = self.sampled[bisect_left(self.sampled, offset) : bisect_left(self.sampled, offset + len(texts))]
                rest = len(texts) - len(ours)

                def write(number: int = number, offset: int = offset, texts: list[str] = texts) -> None:
                    vectors, lengths = self._chunk(offset, texts)
                    self.saver._write_chunk_to_disk(number, offset, codec.compress(vectors), lengths)

                before = self.encoded
                kept.piece(f"chunk-{number}", write)
                self.encoded = before + rest
                progress(self.encoded)

        def _chunk(self, offset: int, texts: list[str]) -> tuple[Any, list[int]]:
            """Vectors of one chunk in order: those of the sample are there, the others are encoded."""
            first = bisect_left(self.sampled, offset)
            last = bisect_left(self.sampled, offset + len(texts))
            vectors: dict[int, Any] = {}
            for start in range(first // chunk * chunk, last, chunk):
                flat, lengths = kept.again(f"sample-{start}")
                for place, each in enumerate(flat.split(lengths), start):
                    if first <= place < last:
                        vectors[self.sampled[place] - offset] = each
            left = [number for number in range(len(texts)) if number not in vectors]
            if left:
                flat, lengths = self._encode([texts[number] for number in left])
                vectors.update(zip(left, flat.split(lengths), strict=True))
            ordered = [vectors[number] for number in range(len(texts))]
            return torch.cat(ordered), [len(each) for each in ordered]

    return Indexer()


class Plaid:
    """The engine's ``Searcher``, told its parameters before each search and timed where it lets itself be timed.

    Args:
        index_dir: what ``build`` made.
        checkpoint: the folder of the weights.
        config: the engine's configuration (``query_maxlen``).
        settings: ``ncells``, ``centroid_score_threshold`` and ``ndocs``.
        depth: passages that are asked of the engine at least.
        passages: how many there are.
    """

    def __init__(
        self, index_dir: Path, checkpoint: Path, config: Any, settings: dict[str, Any], depth: int, passages: int
    ) -> None:
        from colbert import Searcher
        from colbert.data import Collection
        from colbert.search.index_storage import IndexScorer

        self._settings, self._depth = settings, depth
        with late_engine.quiet():
            self._searcher: Any = Searcher(
                index=str(index_dir / FOLDER),
                checkpoint=str(checkpoint),
                # The engine wants to hold all texts; it only searches.
                collection=Collection(data=range(passages)),
                config=config,
                verbose=0,
            )
        self._gpu = bool(self._searcher.config.total_visible_gpus)
        self.stages_s: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        ranker = self._searcher.ranker
        ranker.retrieve = self._counted(ranker.retrieve)
        # The last step: residuals are decompressed, and every token is compared.
        if self._gpu:
            ranker.lookup_pids = _noted(ranker.lookup_pids)
        elif not isinstance(IndexScorer.decompress_residuals, FunctionType):
            # The engine calls it on the class, which all searchers of a process share.
            IndexScorer.decompress_residuals = _noted(IndexScorer.decompress_residuals)

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
        start = time.perf_counter()
        # The engine keeps what its first search chose.
        self._searcher.configure(**self._settings)
        numbers, _, scores = self._searcher.dense_search(vectors, max(k, self._depth))
        end = time.perf_counter()
        self.stages_s = {"retrieve": _LAST.since - start, "rerank": end - _LAST.since}
        self.counts["scored"] = _LAST.scored
        return numbers[:k], scores[:k]

    def _counted(self, retrieve: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found = retrieve(*arguments)
            self.counts["candidates"] = len(found[0])
            return found

        return call


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
