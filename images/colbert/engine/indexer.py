"""The engine's indexer with the parts replaced that hold it up; each comment says why.

Imports the engine: call ``runtime.start`` first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import torch
from colbert.indexing.collection_indexer import CollectionIndexer
from colbert.indexing.index_saver import IndexSaver
from colbert.infra.launcher import set_seed

from engine.build_state import Beside, BuildState
from engine.encoding import Encoder

# The engine's own: what it samples, and how it splits the sample, is drawn from this.
_SEED = 12345


class Indexer(CollectionIndexer):  # type: ignore[misc]
    """The engine's indexer, resumable and streamed.

    Args:
        config: the engine's configuration.
        collection: the engine's, of streamed texts.
        encoder: of documents.
        state: pieces of this attempt and of earlier ones.
        chunk: passages a file of the index.
        progress: is told the number of passages encoded.
        beside: writes another form of each chunk.
    """

    def __init__(
        self,
        config: Any,
        collection: Any,
        encoder: Encoder,
        state: BuildState,
        chunk: int,
        progress: Callable[[int], None],
        beside: Beside | None = None,
    ) -> None:
        # Not the engine's: it would read the checkpoint a second time.
        self.verbose, self.config, self.rank, self.nranks = 0, config, 0, 1
        self.use_gpu = config.total_visible_gpus > 0
        self.collection, self.saver = collection, IndexSaver(config)
        self.encoder, self.state, self.chunk, self.progress = encoder, state, chunk, progress
        self.beside = beside
        self.sampled: list[int] = []
        self.encoded = 0

    def _encode(self, texts: list[str]) -> tuple[Any, list[int]]:
        return self.encoder.documents(texts, self.config.index_bsize, self._told)

    def _told(self, number: int) -> None:
        self.encoded += number
        self.progress(self.encoded)

    def _sample_pids(self) -> set[int]:
        set_seed(_SEED)
        drawn = super()._sample_pids()
        self.sampled = sorted(drawn)
        return drawn

    def _sample_embeddings(self, sampled_pids: set[int]) -> float:
        # The engine encodes these here and once more in "index"; of a small collection, that is all passages.
        texts = (text for number, text in enumerate(self.collection.data) if number in sampled_pids)
        lengths: list[int] = []
        for start in range(0, len(self.sampled), self.chunk):
            size = min(self.chunk, len(self.sampled) - start)
            part = [next(texts) for _ in range(size)]
            lengths += self.state.piece(f"sample-{start}", lambda part=part: self._encode(part))[1]
            self.encoded = start + size
            self.progress(self.encoded)
        self.num_sample_embs = sum(lengths)
        self.avg_doclen_est = sum(lengths) / len(lengths)
        return self.avg_doclen_est

    def _save_plan(self) -> None:
        # k-means cannot have more centroids than vectors; the engine's rule asks for more in tiny collections.
        while self.num_partitions > max(1, int(0.95 * self.num_sample_embs)):
            self.num_partitions //= 2
        super()._save_plan()

    def train(self, shared_lists: Any) -> None:
        """Centroids and residuals' buckets, alike for an attempt that drew its sample anew and one that did not."""
        set_seed(_SEED)
        super().train(shared_lists)

    def _concatenate_and_split_sample(self) -> tuple[Any, Any]:
        sample = torch.empty(self.num_sample_embs, self.config.dim, dtype=torch.float16)
        place = 0
        for start in range(0, len(self.sampled), self.chunk):
            vectors = self.state.load(f"sample-{start}")[0]
            sample[place : place + len(vectors)] = vectors
            place += len(vectors)
        sample = sample[torch.randperm(len(sample))]
        # The engine's shares; it cannot do with an empty second one, which fewer than 20 vectors give.
        apart = int(min(0.05 * len(sample), 50_000))
        if apart == 0:
            return sample, sample
        return sample[:-apart], sample[-apart:]

    def index(self) -> None:
        """Encode and compress chunk by chunk; written here, as an error in the engine's thread would hang the build."""
        codec = self.saver.load_codec()
        for number, offset, texts in self.collection.enumerate_batches(rank=0):
            ours = self.sampled[bisect_left(self.sampled, offset) : bisect_left(self.sampled, offset + len(texts))]
            rest = len(texts) - len(ours)

            def write(number: int = number, offset: int = offset, texts: list[str] = texts) -> None:
                vectors, lengths = self._chunk(offset, texts)
                if self.beside:
                    self.beside(number, vectors, lengths)
                self.saver._write_chunk_to_disk(number, offset, codec.compress(vectors), lengths)

            before = self.encoded
            self.state.piece(f"chunk-{number}", write)
            self.encoded = before + rest
            self.progress(self.encoded)

    def _chunk(self, offset: int, texts: list[str]) -> tuple[Any, list[int]]:
        """Vectors of one chunk in order: those of the sample are there, the others are encoded."""
        first = bisect_left(self.sampled, offset)
        last = bisect_left(self.sampled, offset + len(texts))
        vectors: dict[int, Any] = {}
        for start in range(first // self.chunk * self.chunk, last, self.chunk):
            flat, lengths = self.state.load(f"sample-{start}")
            for place, each in enumerate(flat.split(lengths), start):
                if first <= place < last:
                    vectors[self.sampled[place] - offset] = each
        left = [number for number in range(len(texts)) if number not in vectors]
        if left:
            flat, lengths = self._encode([texts[number] for number in left])
            vectors.update(zip(left, flat.split(lengths), strict=True))
        ordered = [vectors[number] for number in range(len(texts))]
        return torch.cat(ordered), [len(each) for each in ordered]
