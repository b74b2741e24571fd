"""How the two servers start: Chroma's and that of embeddings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import embedding_server
import supervisor

from harness.driver.records import Envelope, Scalar

PORT = 8000  # of Chroma, as engine.toml has it
EMBEDDINGS_PORT = 8001


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:
    """Return the command that runs both."""
    chroma = [sys.executable, "-m", "chroma_server", "--path", str(index_dir), "--host", "127.0.0.1"]
    embeddings = embedding_server.command(params, envelope, assets, EMBEDDINGS_PORT)
    return supervisor.command([[*chroma, "--port", str(PORT)], embeddings])
