"""Tiny checkpoints for all shipped systems, made once."""

from __future__ import annotations

import os
from pathlib import Path

import docker
import pytest

from checkpoints import tiny
from harness import catalog

# The same place as the command line's: what it has fetched already is not fetched again.
CACHE = Path(os.environ.get("HARNESS_CACHE") or Path.home() / ".cache" / "ir-harness")

TOPICS = ["river", "glacier", "volcano", "desert", "forest", "harbour", "bridge", "castle", "market", "orchestra"]
# As the ten documents and queries of the contract's check are worded: a vocabulary has whole words of what it has seen.
TEXTS = [
    text
    for topic in TOPICS
    for text in (
        f"{topic.capitalize()} This one is about the {topic}. A {topic} is {topic}.",
        f"old the {topic} of the north",
    )
]


@pytest.fixture(scope="session")
def tiny_systems(engine: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``models`` and ``images``: each shipped system that has weights once more, as ``<system>-tiny``."""
    folder = tmp_path_factory.mktemp("tiny")
    shipped = catalog.systems(catalog.images_dir()).values()
    tiny.make(engine, shipped, folder, texts=TEXTS, cache=CACHE, say=print)
    return folder
