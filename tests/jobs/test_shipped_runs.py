"""Times and sizes of shipped results stand in where nothing was measured here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import config
from harness.driver.records import Outcome
from harness.jobs import growth
from harness.jobs.estimates import RunModel
from harness.jobs.shipped_runs import ShippedRuns, shipped_runs
from harness.results.reader import stored_jobs
from harness.results.schema import Cell, Result

DEMO = Cell("quickstart", "minilm", "scifact-1200", "single_stream", "cpu1-mem1")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [job.result for job in stored_jobs(config.published_folder())]


@pytest.fixture
def times(results: list[Result]) -> RunModel:
    return RunModel([], job_timeout_s=7200, build_timeout_s=7200, shipped=ShippedRuns(results))


def test_jobs_are_those_of_the_cell_else_of_the_system_if_they_ended_well(results: list[Result]) -> None:
    runs = ShippedRuns(results)
    small = replace(DEMO, profile="cpu1-mem96m")
    assert {job.outcome for job in runs.jobs(small)} == {Outcome.OOM}
    assert {job.spec.cell.profile for job in runs.jobs(replace(DEMO, suite="own", dataset="own"))} == {"cpu1-mem1"}
    assert runs.jobs(replace(DEMO, scenario="offline")) == [] and runs.jobs(replace(DEMO, system="other")) == []


def test_build_grows_with_the_corpus_and_a_joined_index_has_its_own_time_alone(
    results: list[Result], times: RunModel
) -> None:
    (facts,) = {job.index.build_s: job.index for job in results if job.spec.cell == DEMO and job.index}.values()
    same = times.build("minilm", "scifact-1200", 1200)
    assert same.seconds == pytest.approx(facts.build_s) and same.shipped and not same.measured
    assert times.build("minilm", "scifact-1200", 0).seconds == same.seconds, "the shipped corpus has a known size"
    larger = times.build("minilm", "own", 10 * 1200)
    assert larger.seconds == pytest.approx(same.seconds * growth.times("minilm", "build_s", 12_000, 1200))
    assert 5 * same.seconds < larger.seconds < 10 * same.seconds, "a build starts once"
    assert not times.build("minilm", "own", 0).shipped and not times.build("other", "scifact-1200", 1200).shipped
    assert times.build("hybrid-minilm", "own", 0).shipped
    assert times.build("hybrid-minilm", "own", 0).seconds < 0.1 * same.seconds
    runs = ShippedRuns(results)
    assert runs.figure("minilm", "own", 10 * 1200, "index_bytes") == pytest.approx(10 * facts.index_bytes, rel=0.01)
    assert runs.figure("other", "scifact-1200", 1200, "index_bytes") is None


def test_stored_results_come_before_shipped_ones(results: list[Result]) -> None:
    (own, *_) = [job for job in results if job.spec.cell == DEMO]
    model = RunModel(
        [replace(own, wall_s=100.0)], job_timeout_s=7200, build_timeout_s=7200, shipped=ShippedRuns(results)
    )
    known = model.job(own.spec)
    assert known.seconds == pytest.approx(100.0) and known.measured and not known.shipped
    assumed = model.build("other", "scifact", 10)
    assert not (known + assumed).shipped, "a part of it is assumed"
    mixed = known + model.build("bm25", "scifact-1200", 1200)
    assert mixed.shipped and not mixed.measured


def test_shipped_results_name_their_machine_and_the_size_of_images() -> None:
    runs = shipped_runs()
    assert "CPUs" in runs.machine and (runs.image_bytes("minilm") or 0) > (runs.image_bytes("tantivy") or 0) > 10**7
    assert ShippedRuns([]).machine == ""


def test_a_version_has_the_times_of_its_system() -> None:
    shipped = shipped_runs()
    one, version = (Cell("quickstart", name, "scifact-1200", "single_stream", "cpu1-mem1") for name in _VERSIONS)
    assert shipped.jobs(one) and shipped.jobs(version) == shipped.jobs(one)
    old, new = (shipped.figure(name, "scifact-1200", 1200, "build_s") for name in ("tantivy@old", "tantivy"))
    assert old == new
    assert shipped.image_bytes("tantivy@old") == shipped.image_bytes("tantivy") is not None


_VERSIONS = ("tantivy", "tantivy@old")
