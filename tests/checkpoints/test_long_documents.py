"""Rerankers of long documents that the suite ``long-documents`` trains on the spot."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path

import docker
import pytest

from checkpoints import long_documents
from harness.config import data_root
from harness.jobs.suite import load as load_suite
from harness.launch.images import catalog
from tests.checkpoints.conftest import CACHE

pytestmark = pytest.mark.docker

# Word pieces of all documents would take longer than the few steps over some.
FEW_DOCUMENTS = 300


def _ids(corpus: Path) -> list[str]:
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["_id"] for line in lines]


def test_training_documents_are_all_that_no_query_judges(tmp_path: Path) -> None:
    long_documents.write_unjudged(CACHE, tmp_path / "corpus.jsonl.gz")
    judged = {line.split()[2] for line in (data_root() / "datasets/scifact/qrels.trec").read_text().splitlines()}
    everything = _ids(data_root() / "datasets/scifact/corpus.jsonl.gz")
    assert len(everything) > 5000
    assert _ids(tmp_path / "corpus.jsonl.gz") == [each for each in everything if each not in judged]


def test_systems_of_the_suite_are_trained_and_written(
    engine: docker.DockerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = tmp_path / "far"
    dataset.mkdir()
    (dataset / "candidates.trec").write_text("q Q0 d1 1 1.0 random\n")
    (dataset / "queries.jsonl").write_text('{"_id": "q", "text": "ice"}\n')
    heard: list[str] = []
    written = long_documents._lines
    monkeypatch.setattr(long_documents, "_lines", lambda *given: islice(written(*given), FEW_DOCUMENTS))

    def make() -> None:
        long_documents.make(engine, tmp_path, dataset, cache=CACHE, heard=lambda what, *_: heard.append(what), steps=2)

    make()
    assert {"windows", "parade"} <= set(heard)
    assert len(_ids(tmp_path / "training.jsonl.gz")) == FEW_DOCUMENTS
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "images" / "far"))
    suite = load_suite(data_root() / "suites" / "long-documents.toml")
    systems = [catalog.system(name) for name in suite.systems]
    assert all(system.stand_in for system in systems)
    assert [each.name for each in systems[0].components] == ["candidates", "firstp-small"]
    before = len(heard)
    make()
    assert len(heard) == before, "what is there is kept"
