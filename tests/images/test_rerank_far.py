"""A scorer that counts shared words, over a generated collection whose relevant passages start late."""

from __future__ import annotations

import shutil
from pathlib import Path

import docker
import pytest

from harness.config import data_root
from harness.launch.images import builder, catalog
from tests.images.conftest import CACHE, GIVEN, IMPORTS
from tests.images.inside import Warmth

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def test_training_documents_open_with_their_passage_until_they_are_shuffled(
    engine: docker.DockerClient, warmth: Warmth, tmp_path: Path
) -> None:
    image = builder.ImageBuilder(engine, CACHE).ensure_engine(catalog.system("parade-max"))
    job = tmp_path / "job"
    shutil.copytree(data_root() / "checkpoints", job / "checkpoints", ignore=shutil.ignore_patterns("__pycache__"))
    (job / "params.json").write_text("{}")
    (job / "probe.py").write_text(
        GIVEN
        + """
from checkpoints.training import biased
sentences = [list(range(40 * n, 40 * n + 20)) for n in range(400)]
for shuffled in (False, True):
    drawer = biased.BiasedDrawer(sentences, 3, shuffled=shuffled)
    drawn = [drawer.pairs() for _ in range(300)]
    first = sum(set(query[:1]) <= set(right[:13]) for (query, right), *_ in drawn)
    say([first, all(len(text) == 231 for pairs in drawn for _, text in pairs),
         sum(query[0] in wrong[77:] for pairs in drawn for query, wrong in pairs[1:])])
"""
    )
    original, shuffled = warmth.of(image.digest, IMPORTS["rerank"]).ask(job)
    assert original[0] == 300 and 60 <= shuffled[0] <= 200, "one segment of two to six comes first"
    assert original[1] and shuffled[1]
    # Seven wrong documents in ten have a part of the sentence, none of it within the first third.
    assert 900 * 0.46 <= original[2] <= 900 * 0.66
