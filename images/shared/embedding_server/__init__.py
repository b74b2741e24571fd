"""A server of embeddings in the shape of OpenAI's ``POST /v1/embeddings``, and its client.

The server runs the encoder of ``images/shared/encoder`` with a system's parameters (:mod:`encoder.roles`), so its
vectors are those of the same encoder in an engine's own process.  An engine's ``service.py`` starts it with
:func:`command`; its adapter asks it through :class:`embedding_server.client.Embedder`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.driver.records import Envelope, Scalar

# The parameters that it reads; :mod:`encoder.roles` describes them, as far as one text is concerned.
BUILD = (
    "model",
    "document_model",
    "head",
    "pooling",
    "document_head",
    "normalise",
    "document_tokens",
    "document_prefix",
    "document_segment",
    "document_backend",
    "original_positions",
    "batch_size",
)
SEARCH = ("query_model", "query_head", "query_tokens", "query_prefix", "query_segment", "backend")


def command(params: Mapping[str, Scalar], envelope: Envelope, assets: Path, port: int) -> list[str]:
    """Return the server's command; ``params`` are the system's, of which it reads the encoder's."""
    device = "cuda" if envelope.gpus > 0 else "cpu"
    words = [sys.executable, "-m", "embedding_server.server", str(port), str(assets), str(envelope.cpus), device]
    return [*words, json.dumps(dict(params))]
