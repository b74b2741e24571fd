"""The server of embeddings: ``python3 -m embedding_server.server PORT ASSETS CPUS DEVICE PARAMETERS``.

| request | answer |
|---|---|
| ``GET /ready?role=query`` | ``model``, ``dims`` and :meth:`Encoder.facts`, once the model is loaded |
| ``POST /v1/embeddings`` | ``{"data": [{"index": 0, "embedding": ...}], "model": ..., "usage": ...}`` |

Beside OpenAI's ``input`` (a text or a list of texts), ``model`` and ``encoding_format`` (``float``, or ``base64`` of
little-endian float32), a request may name a ``role``: queries and documents may have different encoders, prefixes,
lengths and backends.  A role's encoder is loaded when it is first asked for.  ``usage`` has the ``flop`` of the forward
passes beside OpenAI's tokens.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from service_server import BadRequest, read_object, serve

ROLES = ("query", "document")
_BATCH_SIZE = 16
_MOST_TEXTS = 4096


class Encoder(Protocol):
    """What makes vectors of texts of one role."""

    name: str
    dims: int

    def encode(self, texts: Sequence[str]) -> tuple[Any, int, int]:
        """Return float32 rows of ``dims`` numbers, the tokens that were read, and the operations that it took."""

    def facts(self) -> dict[str, Any]:
        """Return ``cpus``, ``device``, ``parameters``, ``libraries`` and ``threads``."""


class Embeddings:
    """Answers requests with vectors.

    Args:
        load: returns the encoder of a role; ValueError: the system has none.
    """

    def __init__(self, load: Callable[[str], Encoder]) -> None:
        self._load = load
        self._encoders: dict[str, Encoder] = {}

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        """See the module.

        Raises:
            BadRequest: the request is wrong.
        """
        address = urlsplit(target)
        if (method, address.path) == ("POST", "/v1/embeddings"):
            return 200, self._embed(read_object(body))
        if (method, address.path) == ("GET", "/ready"):
            encoder = self._encoder(parse_qs(address.query).get("role", [ROLES[0]])[0])
            return 200, {"model": encoder.name, "dims": encoder.dims, **encoder.facts()}
        raise BadRequest(f"there is no {method} {address.path}", 404)

    def _embed(self, asked: dict[str, Any]) -> dict[str, Any]:
        encoder = self._encoder(asked.get("role", ROLES[0]))
        if asked.get("model", encoder.name) != encoder.name:
            raise BadRequest(f"model is {asked['model']!r}; this server has {encoder.name!r}", 404)
        texts = [asked["input"]] if isinstance(asked.get("input"), str) else asked.get("input")
        if not isinstance(texts, list) or not 0 < len(texts) <= _MOST_TEXTS:
            raise BadRequest(f"input must be a text or a list of 1 to {_MOST_TEXTS} texts")
        if not all(isinstance(text, str) for text in texts):
            raise BadRequest("input has an entry that is not a text")
        written = _FORMATS.get(asked.get("encoding_format", "float"))
        if written is None:
            raise BadRequest(f"encoding_format is one of {', '.join(_FORMATS)}")
        rows, tokens, flop = encoder.encode(texts)
        return {
            "object": "list",
            "model": encoder.name,
            "data": [
                {"object": "embedding", "index": number, "embedding": written(row)} for number, row in enumerate(rows)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens, "flop": flop},
        }

    def _encoder(self, role: object) -> Encoder:
        if role not in ROLES:
            raise BadRequest(f"role is one of {', '.join(ROLES)}")
        name = str(role)
        if name not in self._encoders:
            try:
                self._encoders[name] = self._load(name)
            except ValueError as error:
                raise BadRequest(str(error)) from error
        return self._encoders[name]


_FORMATS: dict[object, Callable[[Any], Any]] = {
    "float": lambda row: row.tolist(),
    "base64": lambda row: base64.b64encode(row.astype("<f4").tobytes()).decode("ascii"),
}


class RoleEncoder:
    """The encoder of a role, as the engine ``dense`` runs it: one text in a forward pass, or batches of like length."""

    def __init__(self, role: str, assets: Path, params: Mapping[str, Any], cpus: int, device: str) -> None:
        from encoder.model import Model
        from encoder.roles import role as read

        asked = read(role, dict(params))
        if asked is None or asked.max_tokens is None:
            raise ValueError(f"the parameters name no model, or no longest text, for {role} texts")
        self.name = asked.folder
        self._cpus = cpus
        self._tokens = asked.max_tokens
        self._batch_size = int(params.get("batch_size", _BATCH_SIZE))
        self._model = Model.load(assets / asked.folder, asked.head, asked.backend, cpus, device, asked.params)
        self.dims = self._model.dims
        self.encode([""])  # refuses more tokens than the transformer has positions
        if role == "query":
            self._model.meet_lengths(self._tokens)

    def encode(self, texts: Sequence[str]) -> tuple[Any, int, int]:
        """Return float32 rows, the tokens that were read, and the operations that it took."""
        import numpy

        if len(texts) == 1:
            batch = self._model.tokenise(texts, self._tokens)
            return self._model.run(batch), int(batch.mask.sum()), self._model.counts([batch])["flop"]
        rows, tokens, flop = numpy.empty((len(texts), self.dims), dtype=numpy.float32), 0, 0
        for numbers, batch in self._model.batches(texts, self._tokens, self._batch_size):
            rows[numbers] = self._model.run(batch)
            tokens += int(batch.mask.sum())
            flop += self._model.counts([batch])["flop"]
        return rows, tokens, flop

    def facts(self) -> dict[str, Any]:
        """Return what the model is and runs on."""
        return {
            "cpus": self._cpus,
            "device": self._model.device,
            "parameters": self._model.parameters,
            "libraries": self._model.libraries(),
            "threads": self._model.threads(),
        }


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    port, assets, cpus, device, written = arguments
    params = json.loads(written)
    serve(int(port), Embeddings(lambda role: RoleEncoder(role, Path(assets), params, int(cpus), device)).answer)


if __name__ == "__main__":
    main(sys.argv[1:])
