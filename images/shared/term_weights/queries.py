"""Queries as weights of terms."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from encoder.model import Model
from encoder.roles import role

from harness.driver.records import Scalar
from term_weights import terms


class Queries:
    """The encoder of queries under the backend that the system names.

    Attributes:
        model: the encoder.
        names: of the terms, by token id.
        stages_s: seconds of the last call: ``tokenise``, ``encode`` (the model alone) and ``weigh``.
        encoded: the batches of the last call.

    Args:
        params: the system's.
        assets: folder of the checkpoints.
        threads: for all libraries.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(self, params: dict[str, Scalar], assets: Path, threads: int, device: str) -> None:
        found = role("query", dict(params))
        if found is None:
            raise ValueError(f"the method {params['method']} encodes queries: name query_model, or model")
        folder = assets / found.folder
        self.model: Any = Model.load(folder, found.head, found.backend, threads, device, found.params)
        self._tokens = int(params["query_tokens"])
        self.model.meet_lengths(self._tokens)
        self._scale = float(params.get("query_quantisation", params["quantisation"]))
        self._whole = params["method"] == "splade"
        tokenizer = self.model.tokenizer
        size = self.model.dims if self._whole else tokenizer.get_vocab_size()
        self.names = terms.names(terms.vocabulary(tokenizer, size))
        self._left_out = {tokenizer.token_to_id("[CLS]")}
        self.stages_s: dict[str, float] = {}
        self.encoded: list[Any] = []

    def __call__(self, texts: Sequence[str]) -> list[dict[str, int]]:
        """Return the impacts of each text's terms, by one forward pass; one a text where they would mix in a batch."""
        batches = [[text] for text in texts] if self.model.mixes else [list(texts)]
        self.stages_s = {"tokenise": 0.0, "encode": 0.0, "weigh": 0.0}
        self.encoded = []
        return [weights for batch in batches for weights in self._batch(batch)]

    def _batch(self, texts: list[str]) -> list[dict[str, int]]:
        clock = time.perf_counter
        start = clock()
        batch = self.model.tokenise(texts, self._tokens)
        tokenised = clock()
        rows = self.model.run(batch)
        encoded = clock()
        if self._whole:
            found = [self._of_row(row) for row in rows]
        else:
            found = [self._of_tokens(batch, rows, number) for number in range(len(texts))]
        self.encoded.append(batch)
        self.stages_s["tokenise"] += tokenised - start
        self.stages_s["encode"] += encoded - tokenised
        self.stages_s["weigh"] += clock() - encoded
        return found

    def _of_row(self, row: Any) -> dict[str, int]:
        kept, impacts = terms.quantised(row, self._scale)
        return {self.names[term]: impact for term, impact in zip(kept, impacts, strict=True)}

    def _of_tokens(self, batch: Any, rows: Any, number: int) -> dict[str, int]:
        """Count a repeated term each time (as uniCOIL's queries do; its documents take the largest)."""
        length = int(batch.mask[number].sum())
        weights = terms.by_term(
            batch.ids[number, :length].tolist(), rows[number, :length].tolist(), left_out=self._left_out, add=True
        )
        return terms.named(weights, self.names, self._scale)
