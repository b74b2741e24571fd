"""The service runs already, so nothing starts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.driver.records import Envelope, Scalar


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:
    """Return no command that starts a server."""
    raise ValueError("this service runs already")
