"""A transformer and its head under one inference backend: texts in, numbers out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy

from encoder import tokens
from encoder.config import Config, read_config
from encoder.errors import BadCheckpoint
from encoder.tokens import Batch, Text

_OFTEN_MET = 64  # tokens; few queries are longer


class Model:
    """One encoder, loaded.  Made by :meth:`load`.

    Attributes:
        tokens: the tokeniser, checked.
        declared: ``config.json`` of its checkpoint.
        dims: length of a vector (dense heads), rows of the vocabulary (``splade``); nothing for ``term_weight``.
        parameters: the number of parameters of transformer and head.
    """

    def __init__(self, backend: Any, tokeniser: tokens.Tokens, declared: Config, params: dict[str, Any]) -> None:
        self._backend = backend
        self.parameters = int(backend.parameters)
        self.tokens = tokeniser
        self.declared = declared
        self._max_tokens = max_tokens = declared.max_tokens
        self._normalise = bool(params.get("normalise", False))
        self._prefix = str(params.get("prefix", ""))
        self.dims = int(self.run(self.tokenise([""], min(max_tokens, 8))).shape[-1])

    @classmethod
    def load(
        cls,
        folder: Path,
        head: str,
        backend: str = "torch",
        threads: int = 1,
        device: str = "cpu",
        params: dict[str, Any] | None = None,
    ) -> Model:
        """Read tokeniser and weights.

        Args:
            folder: a checkpoint in the hub's format (torch backends), or one that ``encoder.prepare`` made for the
                backend.
            head: see :mod:`encoder.heads`.
            backend: see :mod:`encoder.backends`.
            threads: of the backend; the tokeniser takes as many.
            device: ``cpu``, or ``cuda`` (torch backends).
            params: ``normalise`` (L2, default false), ``prefix`` (before each text), ``segment`` (token type of a text,
                default 0), ``segments`` (token types 0 and 1 for the texts of a pair, default false), and what the
                head reads.

        Raises:
            BadCheckpoint: the files do not fit what is asked for.
            RuntimeError: a GPU is asked for that the backend cannot use.
        """
        from encoder.backends import BACKENDS, FILES

        given = dict(params or {})
        # Before the tokeniser's first use: it reads this once.
        os.environ["RAYON_NUM_THREADS"] = str(threads)
        if backend not in BACKENDS:
            raise BadCheckpoint(f"no backend {backend!r}; there are {', '.join(BACKENDS)}")
        if device != "cpu" and not backend.startswith("torch"):
            raise RuntimeError(f"the backend {backend} runs on CPUs alone; with a GPU take torch or torch-bf16")
        wanted = FILES[backend]
        if wanted and not (folder / wanted).is_file():
            raise BadCheckpoint(f"{folder.name}: not prepared for {backend} ({wanted} is missing); see encoder.prepare")
        _check_head(folder, head)
        declared = read_config(folder)
        tokeniser = tokens.Tokens(
            tokens.read(folder),
            declared.vocabulary,
            segments=bool(given.get("segments", False)) and declared.kind.token_types,
            segment=_segment(given, declared),
            name=folder.name,
        )
        loaded = BACKENDS[backend](folder, head, name=backend, threads=threads, device=device, params=given)
        return cls(loaded, tokeniser, declared, given)

    @property
    def tokenizer(self) -> Any:
        """The tokeniser of the ``tokenizers`` library."""
        return self.tokens.tokenizer

    @property
    def mixes(self) -> bool:
        """Return whether the other texts of a batch change a text's result."""
        from encoder.backends import MIXING

        return self._backend.name in MIXING

    def meet_lengths(self, max_tokens: int) -> None:
        """Run a text of each length up to 64 tokens: some backends take four times as long at the first of a length.

        Args:
            max_tokens: of the texts that will come.
        """
        from encoder.backends import COMPILING

        if self._backend.name in COMPILING:
            for length in range(2, min(self._checked(max_tokens), _OFTEN_MET) + 1):
                ids = numpy.zeros((1, length), dtype=numpy.int64)
                self._backend.run(Batch(ids, numpy.ones_like(ids), numpy.zeros_like(ids)))

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(self._backend.device)

    def __call__(self, texts: Sequence[Text], max_tokens: int) -> Any:
        """Encode texts in one forward pass: float32, on the host.

        Args:
            texts: as they are; the prefix is put before them here.  A pair is a title and a text.
            max_tokens: texts are cut to so many, special tokens included.

        Returns:
            ``(texts, dims)``; for the head ``term_weight`` ``(texts, tokens of the longest)``.

        Raises:
            ValueError: the transformer has fewer positions than ``max_tokens``.
        """
        return self.run(self.tokenise(texts, max_tokens))

    def many(self, texts: Sequence[Text], max_tokens: int, batch_size: int) -> Any:
        """Encode many texts in batches of texts of like length: ``(texts, dims)`` in the order of ``texts``."""
        rows: Any = numpy.empty((len(texts), self.dims), dtype=numpy.float32)
        for numbers, batch in self.batches(texts, max_tokens, batch_size):
            rows[numbers] = self.run(batch)
        return rows

    def batches(self, texts: Sequence[Text], max_tokens: int, batch_size: int) -> Any:
        """Cut texts into batches of like length, longest first: yields (numbers of the texts, batch)."""
        encodings = self.tokens.encode(self._prefixed(texts), self._checked(max_tokens))
        order = sorted(range(len(encodings)), key=lambda number: -len(encodings[number].ids))
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            yield numbers, self.tokens.batch([encodings[number] for number in numbers])

    def tokenise(self, texts: Sequence[Text], max_tokens: int) -> Batch:
        """Texts as one batch of token ids; see :meth:`__call__`."""
        return self.tokens.batch(self.tokens.encode(self._prefixed(texts), self._checked(max_tokens)))

    def run(self, batch: Batch) -> Any:
        """Run the forward pass alone.

        Raises:
            BadCheckpoint: a result is no number, which no index would ever rank.
        """
        rows = self._backend.run(batch)
        # What numpy.linalg.norm computes, without its detours: after a forward pass no code is in the CPU's caches.
        lengths = numpy.sqrt((rows * rows).sum(axis=1, keepdims=True))
        finite = numpy.isfinite(lengths)  # as a length is only if all of its row is
        if not finite.all():
            raise BadCheckpoint(
                f"{self._backend.folder.name}: {int((~finite).sum())} of {len(rows)} texts become NaN or infinity "
                f"under {self._backend.name}; fetch the checkpoint anew, or take another backend"
            )
        return rows / numpy.maximum(lengths, 1e-12) if self._normalise else rows

    def counts(self, batches: Sequence[Batch]) -> dict[str, int]:
        """Return the work of these batches (``flop``) and the ``parameters`` that did it; no machine changes them."""
        shapes = [batch.ids.shape for batch in batches]
        flop = sum(self.declared.flop(*shape) for shape in shapes)
        if self._backend.head == "splade":
            flop += sum(self.declared.vocabulary_flop(texts * width) for texts, width in shapes)
        return {"flop": flop, "parameters": self.parameters}

    def threads(self) -> dict[str, int]:
        """Return the backend's thread counts."""
        return dict(self._backend.threads())

    def libraries(self) -> dict[str, str]:
        """Versions of what does the work."""
        from importlib.metadata import version

        return {**self._backend.libraries(), "tokenizers": version("tokenizers"), "numpy": version("numpy")}

    def _prefixed(self, texts: Sequence[Text]) -> Sequence[Text]:
        if not self._prefix:
            return texts
        return [(self._prefix + text[0], text[1]) if isinstance(text, tuple) else self._prefix + text for text in texts]

    def _checked(self, max_tokens: int) -> int:
        if not 2 <= max_tokens <= self._max_tokens:
            raise ValueError(
                f"{max_tokens} tokens are asked for; the transformer has {self._max_tokens} positions, "
                "and two go to special tokens"
            )
        return max_tokens


def _segment(params: dict[str, Any], declared: Config) -> int:
    segment = int(params.get("segment", 0))
    types = int(declared.raw.get("type_vocab_size", 2))
    if segment and not (declared.kind.token_types and 0 <= segment < types):
        raise BadCheckpoint(f"token type {segment} is asked for; the transformer has {types}")
    return segment


def _check_head(folder: Path, head: str) -> None:
    """Check that a prepared folder holds the head in its graph."""
    path = folder / "encoder.json"
    if path.is_file():
        prepared = json.loads(path.read_text(encoding="utf-8"))
        if prepared["head"] != head:
            raise BadCheckpoint(f"{folder.name}: prepared with the head {prepared['head']!r}, not {head!r}")
