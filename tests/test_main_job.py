"""Tests of the main job with real engines, a real collection and real limits.

BM25 has the whole of SciFact; the bi-encoder, whose index of it takes minutes, a part (and all of it in a soak).
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import docker
import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.config import data_root
from harness.driver.output import REPEAT_TRIAL, WARMUP_TRIAL
from harness.driver.records import Outcome
from harness.launch import cpu_placement
from harness.results import reader
from harness.results.reader import StoredJob

pytestmark = pytest.mark.docker

# Queries of the part, and how many documents it has: all that are judged for those, and each 200th.
_QUERIES, _DOCUMENTS, _EACH = 30, 58, 200
_SUITE = """
systems = ["{system}"]
datasets = ["{dataset}"]
profiles = ["{profile}", "cpu1-mem256m"]
build_profile = "{profile}"
overhead = {overhead}
[protocol]
sample_size = {queries}
warmup_cap = 100
trials = 1
load_timeout_s = 120
"""
_DIES = """[[expect]]
system = "minilm-torch"
profile = "cpu1-mem256m"
outcome = "oom"
"""


def _run(folder: Path, text: str) -> Path:
    (folder / "real.toml").write_text(text, encoding="utf-8")
    done = CliRunner().invoke(main, ["run", str(folder / "real.toml"), "--results", str(folder / "results")])
    assert done.exit_code == 0, done.output
    return folder / "results"


def _part_of_scifact(folder: Path) -> Path:
    whole = data_root() / "datasets" / "scifact"
    folder.mkdir()
    queries = (whole / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:_QUERIES]
    sample_ids = {json.loads(line)["_id"] for line in queries}
    judged = [line for line in (whole / "qrels.trec").read_text().splitlines() if line.split()[0] in sample_ids]
    kept = {line.split()[2] for line in judged}
    with gzip.open(whole / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        documents = [line for n, line in enumerate(file) if n % _EACH == 0 or json.loads(line)["_id"] in kept]
    assert len(documents) == _DOCUMENTS
    (folder / "corpus.jsonl").write_text("".join(documents), encoding="utf-8")
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n", encoding="utf-8")
    (folder / "qrels.trec").write_text("\n".join(judged) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def bm25(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Path:
    """Results on the whole of SciFact, and of the null system, some with two CPUs."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.fail("the suite needs two CPUs")
    text = _SUITE.format(system="bm25", dataset="scifact", profile="cpu2-mem4", overhead="true", queries=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(cpu_placement.VARIABLE, raising=False)  # no time counts: it need not wait until nobody has any CPU
        return _run(tmp_path_factory.mktemp("bm25"), text)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Path:
    """Results on a part of SciFact."""
    folder = tmp_path_factory.mktemp("minilm")
    _part_of_scifact(folder / "part")
    return _run(folder, _bi_encoder("./part", _QUERIES))


def _bi_encoder(dataset: str, queries: int) -> str:
    text = _SUITE.format(system="minilm-torch", dataset=dataset, profile="cpu1-mem4", overhead="false", queries=queries)
    return text + _DIES


def _ndcg(results: Path) -> float:
    text = CliRunner().invoke(main, ["report", str(results), "--format", "json"]).stdout
    rows = json.loads(text)["rows"]
    (row,) = [row for row in rows if row["profile"] != "cpu1-mem256m" and row["system"] != "null"]
    return float(row["measures"]["nDCG@10"]["value"])


def _outcomes(results: Path) -> dict[str, Outcome]:
    """By profile."""
    return {job.result.spec.cell.profile: job.result.outcome for job in _of_systems(results)}


def _of_systems(results: Path) -> list[StoredJob]:
    return [job for job in reader.read_jobs(results) if job.result.spec.cell.system != "null"]


def test_bm25_reaches_its_known_accuracy(bm25: Path) -> None:
    """Anserini's flat BM25 has nDCG@10 .679 on SciFact."""
    assert _ndcg(bm25) == pytest.approx(0.679, abs=0.002)


def test_bi_encoder_reaches_the_accuracy_of_a_plain_script(minilm: Path) -> None:
    """Compare with a script: transformers' BertModel, one text at a time, mean pooling, numpy."""
    assert _ndcg(minilm) == pytest.approx(0.96309, abs=5e-4)


def test_bi_encoder_is_killed_at_256_mib_and_bm25_is_not(bm25: Path, minilm: Path) -> None:
    assert _outcomes(bm25) == {"cpu2-mem4": Outcome.OK, "cpu1-mem256m": Outcome.OK}
    assert _outcomes(minilm) == {"cpu1-mem4": Outcome.OK, "cpu1-mem256m": Outcome.OOM}


def test_measurements_are_plausible_and_complete(bm25: Path, minilm: Path) -> None:
    jobs = [(job, 300, 1 << 18) for job in _of_systems(bm25)]
    jobs += [(job, _QUERIES, _DOCUMENTS * 384 * 4) for job in _of_systems(minilm)]  # 384 single floats a document
    for job, queries, least_bytes in jobs:
        result = job.result
        if result.outcome is not Outcome.OK:
            continue
        assert (
            result.observed.memory.peak_anon_bytes is not None and result.observed.memory.peak_cgroup_bytes is not None
        )
        assert 32 << 20 < result.observed.memory.peak_anon_bytes <= result.spec.envelope.memory_bytes
        assert result.measured.effective is not None
        assert set(result.measured.effective.threads.values()) <= {1, result.spec.envelope.cpus}
        assert result.index is not None and result.index.index_bytes > least_bytes
        assert result.measured.load_s is not None and result.answers.first_query_s is not None
        assert result.provenance.image_digest is not None and result.provenance.image_digest.startswith("sha256:")
        trials = Counter(job.samples().column("trial").to_pylist())
        assert trials.keys() == {WARMUP_TRIAL, 0, REPEAT_TRIAL}
        assert result.spec.sample_size == queries and result.spec.held_out > 0, "all of its queries are judged"
        assert (trials[0], trials[REPEAT_TRIAL]) == (result.spec.timed_queries, 40), "each of 20 is asked twice more"
        assert 20 <= trials[WARMUP_TRIAL] == result.answers.warmup_done <= 100
        assert result.answers.ranking_disagreements == 0
        assert {reading.when for reading in result.observed.canary} >= {"before", "after"}
        assert (
            result.observed.placement is not None and len(result.observed.placement.cpus) == result.spec.envelope.cpus
        )


def test_null_system_was_measured_once_per_profile(bm25: Path) -> None:
    null = [job.result for job in reader.read_jobs(bm25) if job.result.spec.cell.system == "null"]
    assert sorted(result.spec.cell.profile for result in null) == ["cpu1-mem256m", "cpu2-mem4"]
    assert {result.outcome for result in null} == {Outcome.OK}


def test_shipped_system_meets_the_contract(engine: docker.DockerClient) -> None:
    """Engines of other systems are tested in tests/test_add_a_system.py and tests/checkpoints."""
    done = CliRunner().invoke(main, ["conformance", "minilm"])
    assert done.exit_code == 0, done.output
    assert "10 of 10 ok" in done.output


@pytest.mark.soak
def test_bi_encoder_reaches_its_known_accuracy_on_all_of_scifact(tmp_path: Path, engine: docker.DockerClient) -> None:
    """all-MiniLM-L6-v2 has nDCG@10 .645 there."""
    assert _ndcg(_run(tmp_path, _bi_encoder("scifact", 300))) == pytest.approx(0.645, abs=0.002)
