"""Two real systems in one image answer as they do separately."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import docker
import pytest
from click.testing import CliRunner

from harness.cli import main
from harness.config import data_root
from harness.driver.records import Outcome
from harness.launch.docker import DockerLauncher
from harness.results.reader import read_jobs
from tests.conftest import Bench
from tests.images.conftest import CACHE
from tests.images.test_fusion import declare, fused, rankings, run

pytestmark = pytest.mark.docker

SUITE = """
systems = ["tantivy", "minilm", "hybrid-minilm"]
datasets = ["./part"]
profiles = ["cpu1-mem4"]
build_profile = "cpu2-mem4"
overhead = false
[protocol]
warmup_queries = 2
warmup_cap = 2
trials = 1
k = 100
repeats = 0
"""
QUERIES = 8


def write_part(folder: Path, documents: int = 12, queries: int = QUERIES) -> None:
    """The first documents of SciFact, and some of its queries."""
    folder.mkdir()
    shipped = data_root() / "datasets" / "scifact"
    with gzip.open(shipped / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        corpus = [next(lines) for _ in range(documents)]
    topics = (shipped / "queries.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:queries]
    qrels = "".join(f"{json.loads(line)['_id']} 0 {json.loads(corpus[0])['_id']} 1\n" for line in topics)
    for name, text in (("corpus.jsonl", "".join(corpus)), ("queries.jsonl", "".join(topics)), ("qrels.trec", qrels)):
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Path:
    """Results of two systems, alone and fused."""
    folder = tmp_path_factory.mktemp("joined")
    write_part(folder / "part")
    (folder / "joined.toml").write_text(SUITE, encoding="utf-8")
    arguments = ["run", str(folder / "joined.toml"), "--results", str(folder / "results"), "--cache", str(CACHE)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return folder / "results"


def test_ranking_fuses_those_of_the_systems_measured_separately(results: Path) -> None:
    ranked = rankings(results)
    assert len(ranked["hybrid-minilm"]) == QUERIES
    for query_id, hits in ranked["hybrid-minilm"].items():
        lists = [ranked["tantivy"].get(query_id, []), ranked["minilm"][query_id]]
        assert hits == fused(lists, 100, method="rrf", rrf_k=60)
    assert any(
        hits != fused([[], ranked["minilm"][each]], 100, method="rrf") for each, hits in ranked["hybrid-minilm"].items()
    )
    (joined,) = [job.result for job in read_jobs(results) if job.result.spec.cell.system == "hybrid-minilm"]
    measured = joined.measured
    assert measured is not None and measured.effective is not None and len(measured.effective.cpus) == 1
    threads = measured.effective.threads
    assert threads["minilm.onnxruntime_intraop"] == 1
    assert {"tantivy.tantivy", "minilm.onnxruntime"} <= measured.libraries.keys()
    facts = {job.result.spec.cell.system: job.result.index for job in read_jobs(results)}
    index = facts["hybrid-minilm"]
    assert index is not None and index.components == {name: facts[name] for name in ("tantivy", "minilm")}
    assert 0 < index.own_build_s < index.build_s


def test_killed_component_is_oom_and_a_hung_one_is_a_timeout(bench: Bench, engine: docker.DockerClient) -> None:
    launcher = DockerLauncher(bench.cache)
    try:
        declare(bench, misdeed="oom")
        result = run(bench, launcher=launcher)["both"]
        assert result.outcome is Outcome.OOM
        assert result.detail == "the kernel killed one of its processes at the memory limit of 256 MiB"
        declare(bench, misdeed="hang")
        assert run(bench, launcher=launcher)["both"].outcome is Outcome.TIMEOUT
        declare(bench)
        assert run(bench, launcher=launcher)["both"].outcome is Outcome.OK
    finally:
        launcher.close()
