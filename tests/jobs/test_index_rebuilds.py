"""Tests of the orchestrator with fake jobs: when it builds an index again."""

from __future__ import annotations

import errno
import os
import shutil
from types import SimpleNamespace

import pytest

from harness.driver.records import Outcome
from harness.jobs import indexes
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.progress import Progress
from harness.results.reader import read_jobs
from tests.conftest import Bench


def _kinds(launcher: FakeLauncher) -> list[str]:
    return [job.spec.kind for job in launcher.launched]


def test_unloadable_cached_index_is_rebuilt_and_measured_as_often_as_it_is_damaged(bench: Bench) -> None:
    def loads(job: LaunchRequest) -> Outcome:
        damaged = job.spec.kind == "search" and (job.index_dir / "index").read_text() != "fake\n"
        return Outcome.CRASH if damaged else Outcome.OK

    path = bench.suite(profiles=["cpu1-mem1", "cpu2-mem4"])
    bench.run(FakeLauncher(loads), path)
    for _ in range(2):
        (index,) = (bench.cache / "indexes").glob("*/data/index")
        index.write_text("half")
        launcher = FakeLauncher(loads)
        assert bench.run(launcher, path, fresh=True).unforeseen == []
        assert _kinds(launcher) == ["search", "build", "search", "search"]
        assert bench.screen.getvalue().count("the cached index of tiny does not load; building it again") == 1
    assert {job.result.outcome for job in read_jobs(bench.results)} == {Outcome.OK}


def test_system_that_loads_no_index_gets_one_rebuild(bench: Bench) -> None:
    kinds = []
    for _ in range(3):
        launcher = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
        assert [result.outcome for result in bench.run(launcher).unforeseen] == [Outcome.CRASH]
        kinds.append(_kinds(launcher))
    assert kinds == [["build", "search"], ["search", "build", "search"], ["search"]]
    assert len(read_jobs(bench.results)) == 3, "one result a run"


def test_index_is_not_rebuilt_after_a_crash_if_it_once_loaded(bench: Bench) -> None:
    """A limit may be too small: do not discard an index that took days to build."""
    bench.run(FakeLauncher())
    launcher = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
    assert [result.outcome for result in bench.run(launcher, fresh=True).unforeseen] == [Outcome.CRASH]
    assert _kinds(launcher) == ["search"]


def test_index_is_not_rebuilt_after_a_crash_while_another_run_reads_it(bench: Bench) -> None:
    bench.run(FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK))
    (facts,) = (bench.cache / "indexes").glob("*/facts.json")
    (facts.parent / "rebuilt").unlink(missing_ok=True)
    index = indexes.read(facts.parent)
    assert index is not None and not index.used_elsewhere()
    launcher = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
    with index.in_use():
        assert index.used_elsewhere()
        bench.run(launcher, fresh=True)
    assert _kinds(launcher) == ["search"]


def test_broken_index_is_rebuilt_without_folder_locks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def locks_nothing(*_: object, **_options: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    bench.run(FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK))
    launcher = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
    monkeypatch.setattr(indexes, "filesystem", SimpleNamespace(**vars(indexes.filesystem) | {"lock": locks_nothing}))
    bench.run(launcher, fresh=True)
    assert _kinds(launcher) == ["search", "build", "search"]


def test_fresh_index_builds_each_index_of_the_chosen_cells_once_and_measures_them(bench: Bench) -> None:
    path = bench.suite(systems=["planted", "null"], profiles=["cpu1-mem1", "cpu2-mem4"])
    bench.run(FakeLauncher(), path)
    launcher = FakeLauncher()
    summary = bench.run(launcher, path, only="planted", fresh_index=True)
    assert _kinds(launcher) == ["build", "search", "search"] and summary.done_before == 0
    assert {job.spec.system for job in launcher.launched} == {"planted"}
    stored = [job.result for job in read_jobs(bench.results) if job.result.spec.cell.system == "planted"]
    assert {result.spec.repetition for result in stored} == {0, 1}
    builds = {result.spec.repetition: result.index for result in stored}
    assert builds[0] and builds[1] and builds[0].started_at != builds[1].started_at
    assert builds[1].environment == stored[0].environment and builds[1].content_sha256 == builds[0].content_sha256


def test_read_only_cache_costs_no_result(bench: Bench) -> None:
    """Use a shared cache, and an index that another user removed meanwhile."""
    bench.run(FakeLauncher())

    class Removing(FakeLauncher):
        def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
            ended = super().launch(job, progress)
            shutil.rmtree(job.index_dir.parent)
            return ended

    assert bench.run(Removing(), fresh=True).unforeseen == []
    assert {job.result.outcome for job in read_jobs(bench.results)} == {Outcome.OK}


def test_expected_crash_causes_no_rebuild(bench: Bench) -> None:
    path = bench.suite('[[expect]]\nsystem = "planted"\nprofile = "cpu1-mem256m"\noutcome = "crash"\n')
    for _ in range(2):
        launcher = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
        bench.run(launcher, path, fresh=True)
    assert _kinds(launcher) == ["search"]
