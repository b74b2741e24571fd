"""Scores of micro-batches: from a head that scores each window, or from one over whole documents."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from encoder import tokens
from encoder.config import read_config
from encoder.model import Model
from encoder.weights import Weights
from pairs import MicroBatch
from parameters import WINDOW_SCORES


class WindowScorer:
    """One score a window from any backend, and their first, mean, maximum or sum.

    ``avg`` is the mean over windows that hold tokens of the document.  With ``pad_windows = s3`` it is the sum over
    all windows, divided by the number of those (the code behind the published numbers); then the linear map's constant
    must be counted once, so that the mean of vectors is meant.
    """

    def __init__(self, folder: Path, params: dict[str, Any], threads: int, device: str) -> None:
        self.model = Model.load(folder, params["head"], params["backend"], threads, device)
        self._aggregation = params["aggregation"]
        self._fixed = params["pad_windows"] == "s3"
        self._constant = 0.0
        if self._fixed and self._aggregation == "avg" and params["head"] == "linear":
            self._constant = float(Weights(folder)("cls.bias")[0])
        self.apart = False
        self.parameters = self.model.parameters

    def run(self, parts: Sequence[MicroBatch], _query: MicroBatch | None) -> tuple[list[Any], float]:
        """Score micro-batches; returns float32 scores of each one's documents, and the seconds of the aggregation."""
        scores = [self.model.run(part.batch)[:, 0] for part in parts]
        start = time.perf_counter()
        found = [self._aggregated(part, each) for part, each in zip(parts, scores, strict=True)]
        return found, time.perf_counter() - start

    def _aggregated(self, part: MicroBatch, scores: Any) -> Any:
        starts = numpy.flatnonzero(numpy.diff(part.pair, prepend=-1))
        if self._aggregation == "max":
            return numpy.maximum.reduceat(scores, starts)
        if self._aggregation in ("first", "long"):
            return scores[starts]
        summed = numpy.add.reduceat(scores - self._constant, starts)
        if self._aggregation == "sum":
            return summed
        real = numpy.maximum(numpy.add.reduceat((part.lengths > 0).astype(numpy.int64), starts), 1)
        return summed / real.astype(numpy.float32) + self._constant

    def threads(self) -> dict[str, int]:
        """Return the backend's thread counts."""
        return self.model.threads()

    def libraries(self) -> dict[str, str]:
        """Return the versions of the libraries that do the work."""
        return self.model.libraries()


def load(folder: Path, params: dict[str, Any], threads: int, device: str) -> Any:
    """Load the scorer that the parameters ask for."""
    if params["aggregation"] in WINDOW_SCORES:
        return WindowScorer(folder, params, threads, device)
    from document_graph import DocumentScorer

    return DocumentScorer(folder, params, threads, device)


def tokeniser(folder: Path) -> tokens.Tokens:
    """Read a checkpoint's tokeniser, checked."""
    return tokens.Tokens(tokens.read(folder), read_config(folder).vocabulary, name=folder.name)
