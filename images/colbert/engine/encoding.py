"""Texts into token vectors, by the engine's own model code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from engine import runtime
from harness.driver.adapter import Corpus
from harness.driver.records import Scalar


class Passages:
    """The texts of a corpus in its order, streamed: what the engine calls the data of a collection."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def __len__(self) -> int:
        return len(self._corpus)

    def __iter__(self) -> Iterator[str]:
        for document in self._corpus:
            yield f"{document.title} {document.text}" if document.title else document.text


class Encoder:
    """The engine's ``Checkpoint``: transformer, projection, markers, masks.

    Args:
        folder: the checkpoint.
        config: the engine's configuration (``doc_maxlen``, ``query_maxlen``).
        gpu: encode on CUDA, where the engine computes in mixed precision (float16).
    """

    def __init__(self, folder: Path, config: Any, gpu: bool) -> None:
        from colbert.modeling.checkpoint import Checkpoint

        with runtime.quiet():
            checkpoint = Checkpoint(str(folder), colbert_config=config, verbose=0)
        self.checkpoint: Any = checkpoint.cuda() if gpu else checkpoint
        self.dimensions = int(self.checkpoint.colbert_config.dim)

    def documents(self, texts: list[str], batch_size: int, done: Callable[[int], None]) -> tuple[Any, list[int]]:
        """Vectors of all tokens of all texts, and how many each text has.

        The engine's own loop pads thousands of texts to their longest.  Here each batch is of texts of about one length
        and padded to its own longest; vectors differ by rounding only.

        Args:
            texts: in any order; each is cut at ``doc_maxlen`` tokens.
            batch_size: texts encoded at once.
            done: is told the number of texts of each batch.

        Returns:
            (vectors, dimensions) float16 on the host, in the order of the texts; and the number of vectors of each.
        """
        import torch

        order = sorted(range(len(texts)), key=lambda number: len(texts[number]), reverse=True)
        vectors: list[Any] = [None] * len(texts)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            with torch.inference_mode():
                flat, lengths = self.checkpoint.docFromText(
                    [texts[number] for number in batch], bsize=len(batch), keep_dims="flatten"
                )
            for number, each in zip(batch, flat.half().split(lengths), strict=True):
                vectors[number] = each
            done(len(batch))
        return torch.cat(vectors), [len(each) for each in vectors]

    def query(self, texts: list[str]) -> Any:
        """Vectors of queries, (texts, ``query_maxlen``, dimensions) float32 on the host."""
        # The engine leaves those of up to 128 texts on the GPU, which may be at work: encoding ends with the copy.
        return self.checkpoint.queryFromText(texts, bsize=128 if len(texts) > 128 else None, to_cpu=True).cpu()


class TokeniserClock:
    """The seconds that a checkpoint's own tokeniser of queries has taken in all.

    Args:
        checkpoint: the engine's; it encodes texts in one call, so its tokeniser is timed inside.
    """

    def __init__(self, checkpoint: Any) -> None:
        self.seconds = 0.0
        self._plain = checkpoint.query_tokenizer.tensorize
        checkpoint.query_tokenizer.tensorize = self._timed

    def _timed(self, *texts: Any, **options: Any) -> Any:
        start = time.perf_counter()
        found = self._plain(*texts, **options)
        self.seconds += time.perf_counter() - start
        return found


@dataclass(frozen=True)
class Setup:
    """A checkpoint and the parameters that a method builds and searches with.

    Attributes:
        checkpoint: folder of the weights.
        config: the engine's configuration.
        params: the system's.
        documents: of the collection.
        gpu: encode on CUDA.
    """

    checkpoint: Path
    config: Any
    params: Mapping[str, Scalar]
    documents: int
    gpu: bool

    @property
    def mapped(self) -> bool:
        """The system leaves what documents are scored by in the memory map."""
        return bool(self.params.get("mmap", False))

    @cached_property
    def encoder(self) -> Encoder:
        """The model, read at the first use."""
        return Encoder(self.checkpoint, self.config, gpu=self.gpu)


def parameters(checkpoint: Any) -> int:
    """Return the number of a checkpoint's parameters, the linear map to its vectors included."""
    return sum(each.numel() for each in checkpoint.model.parameters())


def flop(checkpoint: Any, tokens: int) -> int:
    """Return the analytic operations of encoding one text of so many tokens: ``layers * n * (24 H^2 + 4 n H)``."""
    config = checkpoint.model.config
    layers, hidden = int(config.num_hidden_layers), int(config.hidden_size)
    return layers * tokens * (24 * hidden**2 + 4 * tokens * hidden)
