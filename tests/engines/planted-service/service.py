"""How the planted server starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.driver.records import Envelope, Scalar


def command(params: Mapping[str, Scalar], envelope: Envelope, index_dir: Path, assets: Path) -> Sequence[str]:
    """Return the server's command, with its parameters."""
    if params.get("misdeed") == "no_command":
        raise ValueError("the planted service has no command")
    return [sys.executable, "-m", "server", str(index_dir), json.dumps(dict(params))]
