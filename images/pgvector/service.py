"""How the two servers start: PostgreSQL and that of embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import embedding_server
import postgres
import supervisor

from harness.driver.records import Envelope, Scalar

PORT = 5432  # of PostgreSQL, as engine.toml has it
EMBEDDINGS_PORT = 5433
# The encoder's memory.  PostgreSQL's shares do not count it.
_ENCODER_BYTES = 256 << 20


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:
    """Return the command that runs both."""
    chosen = postgres.settings(envelope, PORT, postgres.number(params, "connections"), _ENCODER_BYTES)
    embeddings = embedding_server.command(params, envelope, assets, EMBEDDINGS_PORT)
    return supervisor.command([postgres.command(chosen, index_dir), embeddings], {0: postgres.STOP})
