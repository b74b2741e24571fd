"""Make both checkpoints ready: ``python3 -m service_prepare ASSETS SYSTEM_JSON``; see ``encoder.prepare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from encoder import prepare
from encoder.roles import Role


def make_ready(assets: Path, params: dict[str, Any]) -> None:
    """Make the bi-encoder and the cross-encoder of a system ready, in place.

    Raises:
        BadCheckpoint: a checkpoint is not what the parameters say.
        ValueError: a parameter is wrong.
    """
    prepare.prepare(assets, params)
    backends = params["rerank_backend"]
    asked = [
        Role("query", str(params["rerank_model"]), str(params["rerank_head"]), str(backend), None, {})
        for backend in (backends if isinstance(backends, list) else [backends])
    ]
    prepare.prepare_folder(assets / asked[0].folder, asked)


if __name__ == "__main__":
    sys.exit(prepare.main(sys.argv[1:], make_ready))
