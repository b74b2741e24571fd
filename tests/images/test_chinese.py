"""Chinese collections end to end: dataset, index build, run, judgement.

What differs between engines and between collections is in the engines' own tests: here, one pair shows the way, the
others are a soak.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.config import data_root
from harness.driver.records import Outcome
from harness.evaluation import evaluate, measure_names, trec
from harness.launch.images import catalog
from harness.results.reader import read_jobs
from tests.images.conftest import CACHE

pytestmark = pytest.mark.docker

SUITE = """
systems = ["{system}"]
datasets = ["./{dataset}"]
profiles = ["cpu1-mem2"]
build_profile = "cpu2-mem4"
measures = ["nDCG@10"]
overhead = false
[protocol]
warmup_queries = 2
trials = 1
warmup_cap = 2
sample_size = 100
repeats = 0
k = 10
"""

# nDCG@10, below what was measured (0.98, 0.33, 0.32, 0.18) and far above chance (0.02 on XQuAD, 0.01 on the part of
# DuReader): text that is lost, cut or split on the way falls short of it.  The dense model is English, and knows some
# characters.
LEAST = {
    ("bm25", "xquad-part"): 0.95,  # its dataset.toml states the language
    ("bm25-zh", "xquad-part"): 0.95,
    ("bm25-zh", "dureader-part"): 0.24,
    ("minilm-128", "xquad-part"): 0.25,
    ("minilm-128", "dureader-part"): 0.13,
}


def lines(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as packed:
        yield from map(json.loads, packed)


def write_part(name: str, folder: Path, documents: int) -> None:
    """The first documents of a shipped collection, and the questions that have a relevant one among them."""
    folder.mkdir()
    shipped = data_root() / "datasets" / name
    corpus = [each for each, _ in zip(lines(shipped / "corpus.jsonl.gz"), range(documents), strict=False)]
    known = {each["_id"] for each in corpus}
    judged = [line.split() for line in (shipped / "qrels.trec").read_text(encoding="utf-8").splitlines()]
    kept = [row for row in judged if row[2] in known]
    asked = {row[0] for row in kept}
    topics = [each for each in lines(shipped / "queries.jsonl.gz") if each["_id"] in asked]
    for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", topics)):
        text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "dataset.toml").write_bytes((shipped / "dataset.toml").read_bytes())
    (folder / "qrels.trec").write_text("".join(" ".join(row) + "\n" for row in kept), encoding="utf-8")


def declare_dense(folder: Path) -> None:
    """Return ``minilm`` with half the document length, to halve the test's time."""
    folder.mkdir(parents=True)
    shipped = (catalog.images_dir() / "dense" / "systems" / "minilm.toml").read_text(encoding="utf-8")
    assert "document_tokens = 256" in shipped
    text = shipped.replace("document_tokens = 256", "document_tokens = 128")
    (folder / "minilm-128.toml").write_text(text, encoding="utf-8")


SHOWN = ("bm25", "xquad-part")
PARTS = {"xquad-part": ("xquad-zh", 80), "dureader-part": ("dureader-demo-zh-titles", 200)}


@pytest.mark.parametrize(
    ("system", "dataset"), [pytest.param(*cell, marks=() if cell == SHOWN else pytest.mark.soak) for cell in LEAST]
)
def test_lexical_and_dense_systems_find_chinese(
    system: str, dataset: str, tmp_path: Path, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare_dense(tmp_path / "own" / "dense" / "systems")
    monkeypatch.setenv("HARNESS_IMAGES", str(tmp_path / "own"))
    name, documents = PARTS[dataset]
    write_part(name, tmp_path / dataset, documents)
    (tmp_path / "chinese.toml").write_text(SUITE.format(system=system, dataset=dataset), encoding="utf-8")
    results = tmp_path / "results"
    arguments = ["run", str(tmp_path / "chinese.toml"), "--results", str(results), "--cache", str(CACHE)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    (job,) = read_jobs(results)
    assert job.result.outcome is Outcome.OK
    assert job.result.spec.params.get("language") == (None if system == "minilm-128" else "zh")
    assert job.run_path is not None
    run, qrels = trec.read_run(job.run_path), trec.read_qrels(job.qrels_path())
    (value,) = evaluate.evaluate(run, qrels, job.sample_ids(), measure_names.parse(["nDCG@10"])).values.values()
    assert value is not None and value > LEAST[system, dataset]
