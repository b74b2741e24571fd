"""The main job for real: real engines, real collection, real limits.  Slow the first time; indexes are cached."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import docker
import pytest
from click.testing import CliRunner

from harness import stored_jobs
from harness.cli import main
from harness.measure.output import REPEAT_TRIAL, WARMUP_TRIAL
from harness.records import Outcome

pytestmark = [pytest.mark.docker, pytest.mark.alone]

SUITE = """
systems = ["bm25", "minilm"]
datasets = ["scifact"]
profiles = ["cpu2-mem4", "cpu1-mem256m"]
build_profile = "cpu2-mem4"
[protocol]
sample_size = 300
trials = 1
load_timeout_s = 120
[[expect]]
system = "minilm"
profile = "cpu1-mem256m"
outcome = "oom"
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, engine: docker.DockerClient) -> Path:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.fail("the suite needs two CPUs")
    folder = tmp_path_factory.mktemp("main-job")
    (folder / "real.toml").write_text(SUITE, encoding="utf-8")
    done = CliRunner().invoke(main, ["run", str(folder / "real.toml"), "--results", str(folder / "results")])
    assert done.exit_code == 0, done.output
    return folder / "results"


def test_both_systems_reach_their_known_accuracy(results: Path) -> None:
    """Anserini's flat BM25 has nDCG@10 .679 on SciFact, all-MiniLM-L6-v2 .645."""
    text = CliRunner().invoke(main, ["report", str(results), "--format", "json"]).stdout
    rows = {(row["system"], row["profile"]): row for row in json.loads(text)["rows"]}
    assert rows["bm25", "cpu2-mem4"]["measures"]["nDCG@10"]["value"] == pytest.approx(0.679, abs=0.002)
    assert rows["minilm", "cpu2-mem4"]["measures"]["nDCG@10"]["value"] == pytest.approx(0.645, abs=0.002)


def test_256_mib_kills_the_bi_encoder_and_not_bm25(results: Path) -> None:
    outcomes = {
        (job.result.spec.cell.system, job.result.spec.cell.profile): job.result.outcome
        for job in stored_jobs.read_jobs(results)
    }
    assert outcomes["minilm", "cpu1-mem256m"] is Outcome.OOM
    assert outcomes["bm25", "cpu1-mem256m"] is Outcome.OK


def test_what_was_measured_is_plausible_and_complete(results: Path) -> None:
    for job in stored_jobs.read_jobs(results):
        result = job.result
        if result.outcome is not Outcome.OK or result.spec.cell.system == "null":
            continue
        assert result.memory.peak_anon_bytes is not None and result.memory.peak_cgroup_bytes is not None
        assert 32 << 20 < result.memory.peak_anon_bytes <= result.spec.envelope.memory_bytes
        assert result.effective is not None
        assert set(result.effective.threads.values()) <= {1, result.spec.envelope.cpus}
        assert result.index is not None and result.index.index_bytes > 1 << 20
        assert result.load_s is not None and result.first_query_s is not None
        assert result.spec.image_digest.startswith("sha256:")
        trials = Counter(job.samples().column("trial").to_pylist())
        assert trials.keys() == {WARMUP_TRIAL, 0, REPEAT_TRIAL}
        assert (trials[0], trials[REPEAT_TRIAL]) == (300, 40), "each of 20 queries is asked twice more"
        assert 20 <= trials[WARMUP_TRIAL] == result.warmup_done <= 1000
        assert result.ranking_disagreements == 0
        assert {reading.when for reading in result.canary} >= {"before", "after"}
        assert result.placement is not None and len(result.placement.cpus) == result.spec.envelope.cpus


def test_the_null_system_was_measured_beside_them_once_on_each_profile(results: Path) -> None:
    null = [job.result for job in stored_jobs.read_jobs(results) if job.result.spec.cell.system == "null"]
    assert sorted(result.spec.cell.profile for result in null) == ["cpu1-mem256m", "cpu2-mem4"]
    assert {result.outcome for result in null} == {Outcome.OK}


@pytest.mark.parametrize("system", ["bm25", "minilm"])
def test_shipped_systems_keep_the_contract(system: str, engine: docker.DockerClient) -> None:
    done = CliRunner().invoke(main, ["conformance", system])
    assert done.exit_code == 0, done.output
    assert "FAIL" not in done.output
