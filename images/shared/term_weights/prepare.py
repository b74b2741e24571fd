"""Make checkpoints ready: ``python3 -m term_weights.prepare ASSETS SYSTEM_JSON``; see ``encoder.prepare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from encoder import prepare
from encoder.errors import BadCheckpoint

from term_weights import expansion, methods


def make_ready(assets: Path, params: dict[str, Any]) -> None:
    """Make encoders ready as ``encoder.prepare`` does it, and the writer of queries.

    Raises:
        BadCheckpoint: a checkpoint is not what the parameters say.
        ValueError: a parameter is wrong.
    """
    methods.named(params, texts=True)
    prepare.prepare(assets, params)
    methods.check_vocabularies(assets, params)
    expander = str(params.get("expansion_model", ""))
    if expander:
        if not (assets / expander).is_dir():
            raise BadCheckpoint(f"{expander}: there is no such folder among the assets")
        expansion.prepare(assets / expander)


if __name__ == "__main__":
    sys.exit(prepare.main(sys.argv[1:], make_ready))
