"""A server of reranking: ``python3 -m rerank_server PORT ASSETS CPUS DEVICE PARAMETERS``.

| request | answer |
|---|---|
| ``GET /ready`` | ``model``, ``parameters``, ``libraries`` and ``threads``, once the model is loaded |
| ``POST /rerank`` | ``{"model": ..., "results": [{"index": 2, "relevance_score": 4.2}, ...]}``, best first |

The request is Cohere's and Jina's: ``query``, ``documents`` (a list of texts), ``top_n`` (all, if it is missing) and
``model``.  A score is the cross-encoder's own number, not squeezed between 0 and 1, where high scores become equal.
``usage`` has the ``flop`` of the forward passes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from service_server import BadRequest, read_object, serve

_MOST_TEXTS = 4096


class Scorer(Protocol):
    """What scores documents for a query."""

    name: str

    def score(self, query: str, documents: Sequence[str]) -> tuple[list[float], int]:
        """Return a score for each document, in their order, and the operations that it took; higher is better."""

    def facts(self) -> dict[str, Any]:
        """Return ``parameters``, ``libraries`` and ``threads``."""


class Reranking:
    """Answers requests with scores; the scorer is loaded at the first request."""

    def __init__(self, load: Callable[[], Scorer]) -> None:
        self._load = load
        self._scorer: Scorer | None = None

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """See the module.

        Raises:
            BadRequest: the request is wrong.
        """
        if (method, target) not in (("GET", "/ready"), ("POST", "/rerank"), ("POST", "/v1/rerank")):
            raise BadRequest(f"there is no {method} {target}", 404)
        if self._scorer is None:
            try:
                self._scorer = self._load()
            except ValueError as error:
                raise BadRequest(str(error)) from error
        if method == "GET":
            return 200, {"model": self._scorer.name, **self._scorer.facts()}
        return 200, self._rerank(self._scorer, read_object(body))

    def _rerank(self, scorer: Scorer, asked: dict[str, Any]) -> dict[str, Any]:
        query, documents = asked.get("query"), asked.get("documents")
        if asked.get("model", scorer.name) != scorer.name:
            raise BadRequest(f"model is {asked['model']!r}; this server has {scorer.name!r}", 404)
        if not isinstance(query, str):
            raise BadRequest("query must be a text")
        if not isinstance(documents, list) or not 0 < len(documents) <= _MOST_TEXTS:
            raise BadRequest(f"documents must be a list of 1 to {_MOST_TEXTS} texts")
        if not all(isinstance(text, str) for text in documents):
            raise BadRequest("documents has an entry that is not a text")
        most = asked.get("top_n", len(documents))
        if not isinstance(most, int) or most < 1:
            raise BadRequest("top_n must be a whole number, at least 1")
        scores, flop = scorer.score(query, documents)
        order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))[:most]
        results = [{"index": number, "relevance_score": scores[number]} for number in order]
        return {"model": scorer.name, "results": results, "usage": {"flop": flop}}


class CrossEncoder:
    """Query and document as a pair, cut at the end of the longer one, as the hub's cross-encoders read them."""

    def __init__(self, assets: Path, params: Mapping[str, Any], cpus: int, device: str) -> None:
        from encoder.model import Model

        self.name = str(params["rerank_model"])
        self._tokens, self._batch_size = int(params["rerank_tokens"]), int(params["rerank_batch_size"])
        head, backend = str(params["rerank_head"]), str(params["rerank_backend"])
        self._model = Model.load(assets / self.name, head, backend, cpus, device, {"segments": True})
        self.score("", [""])  # refuses more tokens than the transformer has positions

    def score(self, query: str, documents: Sequence[str]) -> tuple[list[float], int]:
        """Return a score for each document, in their order, and the operations that it took."""
        pairs = [(query, document) for document in documents]
        scores, flop = [0.0] * len(pairs), 0
        for numbers, batch in self._model.batches(pairs, self._tokens, self._batch_size):
            for number, score in zip(numbers, self._model.run(batch)[:, 0].tolist(), strict=True):
                scores[number] = score
            flop += self._model.counts([batch])["flop"]
        return scores, flop

    def facts(self) -> dict[str, Any]:
        """Return what the model is and runs on."""
        facts = {"libraries": self._model.libraries(), "threads": self._model.threads()}
        return {"parameters": self._model.parameters, **facts}


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    port, assets, cpus, device, written = arguments
    params = json.loads(written)
    serve(int(port), Reranking(lambda: CrossEncoder(Path(assets), params, int(cpus), device)).answer)


if __name__ == "__main__":
    main(sys.argv[1:])
