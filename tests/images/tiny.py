"""Small checkpoints of the published formats, made in an engine's image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import docker

from harness.config import data_root
from harness.launch.images import builder, catalog
from tests.images.conftest import CACHE
from tests.support.container_output import output_of


def make_checkpoints(engine: docker.DockerClient, name: str, asked: list[dict[str, Any]], folder: Path) -> None:
    """Run ``checkpoints/sparse.py`` in the engine's image; write the checkpoints to ``folder``."""
    image = builder.ImageBuilder(engine, CACHE).ensure_engine(catalog.system(name))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    (folder / "asked.json").write_text(json.dumps(asked))
    output_of(
        engine,
        image.digest,
        ["/scripts/sparse.py", "/made/asked.json", "/made"],
        entrypoint=["python3"],
        network_mode="none",
        user="65532:65532",
        tmpfs={"/tmp": "size=64m"},
        volumes={
            str(data_root() / "checkpoints"): {"bind": "/scripts", "mode": "ro"},
            str(folder): {"bind": "/made", "mode": "rw"},
        },
    )
    (folder / "asked.json").unlink()
