"""A server of exact search by faiss beside a server of embeddings; :mod:`vector_server.engine` is their client."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import embedding_server
import supervisor

from harness.driver.records import Envelope, Scalar

PORT = 8000  # of the vectors, as engine.toml has it
EMBEDDINGS_PORT = 8001


def command(
    params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path, *others: Sequence[str]
) -> Sequence[str]:
    """Return the command that runs both, and other servers."""
    vectors = [sys.executable, "-m", "vector_server.server", str(PORT), str(index_dir), str(envelope.cpus)]
    return supervisor.command([vectors, embedding_server.command(params, envelope, assets, EMBEDDINGS_PORT), *others])
