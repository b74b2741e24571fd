"""A shipped system over tiny checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import docker
import pytest

from checkpoints import tiny
from harness import catalog
from harness.catalog import System

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

Tiny = Callable[[str], tuple[System, Path]]


@pytest.fixture
def as_tiny(engine: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """Makes a shipped system once more as ``<system>-tiny``; returns that and the folder of its checkpoints."""

    def make(name: str) -> tuple[System, Path]:
        system, folder = catalog.system(name), tmp_path / "tiny"
        tiny.make(engine, [system, *system.components], folder, texts=TEXTS, cache=CACHE, say=print)
        monkeypatch.setenv("HARNESS_IMAGES", str(folder / "images"))
        return catalog.system(f"{name}-tiny"), folder / "models"

    return make
