"""How the three servers start: those of vectors, of embeddings and of the reranker."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import vector_server
from vector_server import PORT

from harness.driver.records import Envelope, Scalar

__all__ = ["PORT", "RERANK_PORT", "command"]

RERANK_PORT = 8002


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:
    """Return the command that runs all three."""
    device = "cuda" if envelope.gpus > 0 else "cpu"
    reranker = [sys.executable, "-m", "rerank_server", str(RERANK_PORT), str(assets), str(envelope.cpus), device]
    return vector_server.command(params, envelope, index_dir, assets, [*reranker, json.dumps(dict(params))])
