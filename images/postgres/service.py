"""How PostgreSQL starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import postgres
import supervisor

from harness.driver.records import Envelope, Scalar

PORT = 5432


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:  # noqa: ARG001
    """Return the server's command."""
    chosen = postgres.settings(envelope, PORT, postgres.number(params, "connections"))
    return supervisor.command([postgres.command(chosen, index_dir)], {0: postgres.STOP})
