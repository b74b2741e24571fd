"""How the server that does nothing starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.driver.records import Envelope, Scalar


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:  # noqa: ARG001
    """Return the server's command."""
    return [sys.executable, "-m", "server", str(index_dir)]
