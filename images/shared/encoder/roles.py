"""The encoders of queries and of documents, from a system's parameters; often they are one.

| parameter | of documents | of queries |
|---|---|---|
| folder of the assets | ``document_model``, else ``model`` | ``query_model``, else ``model`` |
| head | ``document_head``, else ``head``, else ``pooling`` | ``query_head``, else ``head``, else ``pooling`` |
| backend | ``document_backend`` (``torch``) | ``backend`` (``torch``) |
| longest text, in tokens | ``document_tokens`` | ``query_tokens`` |
| put before a text | ``document_prefix`` | ``query_prefix`` |
| token type of a text | ``document_segment`` (0) | ``query_segment`` (0) |

Common to both: ``normalise`` (L2), ``segments`` (a pair's texts have token types 0 and 1), ``original_positions`` (see
:class:`encoder.graph.Graph`).  A side whose folder is the
empty text has no encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# For ``prepare_params`` of an engine that uses encoder.prepare.
PREPARED = (
    "model",
    "document_model",
    "query_model",
    "head",
    "pooling",
    "document_head",
    "query_head",
    "document_backend",
    "backend",
    "document_tokens",
    "query_tokens",
    "original_positions",
)


@dataclass(frozen=True)
class Role:
    """One encoder of a system.  ``side`` is ``document`` or ``query``; ``max_tokens`` may be unknown to ``prepare``."""

    side: str
    folder: str
    head: str
    backend: str
    max_tokens: int | None
    params: dict[str, Any]


def role(side: str, params: dict[str, Any]) -> Role | None:
    """Return the encoder of one side, or ``None``.

    Raises:
        ValueError: the parameters name no head.
    """
    folder = str(params.get(f"{side}_model", params.get("model", "")))
    if not folder:
        return None
    head = params.get(f"{side}_head", params.get("head", params.get("pooling")))
    if head is None:
        raise ValueError(f"the parameters name no head for {side} texts; add {side}_head, head or pooling")
    backend = params.get("backend" if side == "query" else "document_backend", "torch")
    tokens = params.get(f"{side}_tokens")
    given = {
        "normalise": params.get("normalise", False),
        "segments": params.get("segments", False),
        "original_positions": params.get("original_positions", 0),
        "segment": params.get(f"{side}_segment", 0),
        "prefix": params.get(f"{side}_prefix", ""),
    }
    return Role(side, folder, str(head), str(backend), None if tokens is None else int(tokens), given)


def roles(params: dict[str, Any]) -> list[Role]:
    """Both sides, as far as the system has them."""
    return [found for side in ("document", "query") if (found := role(side, params)) is not None]
