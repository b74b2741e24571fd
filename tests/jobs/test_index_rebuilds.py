"""Tests of the orchestrator with fake jobs: when it builds an index again."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from harness import filesystem
from harness.driver.records import Outcome
from harness.jobs import indexes
from harness.launch.base import LaunchRequest
from harness.launch.fake import FakeLauncher
from harness.results.reader import read_jobs
from tests.conftest import Bench


def _kinds(launcher: FakeLauncher) -> list[str]:
    return [job.spec.kind for job in launcher.launched]


def crashing() -> FakeLauncher:
    return FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)


def damaged(bench: Bench) -> indexes.Index:
    """Change the cached index."""
    (facts,) = (bench.cache / "indexes").glob("*/facts.json")
    index = indexes.read(facts.parent)
    (index.folder / "index").write_text("half")
    return index


@pytest.mark.slow
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
        assert bench.screen.getvalue().count("the cached index of tiny has changed; building it again") == 1
    assert {job.result.outcome for job in read_jobs(bench.results)} == {Outcome.OK}


def test_unchanged_index_is_not_rebuilt_after_a_crash(bench: Bench) -> None:
    """A limit may be too small: do not discard an index that took days to build."""
    bench.run(FakeLauncher())
    assert [result.outcome for result in bench.run(crashing(), fresh=True).unforeseen] == [Outcome.CRASH]
    launcher = crashing()
    bench.run(launcher, fresh=True)
    assert _kinds(launcher) == ["search"]


def test_index_is_not_rebuilt_after_a_crash_while_another_run_reads_it(bench: Bench) -> None:
    bench.run(crashing())
    index = damaged(bench)
    assert not index.used_elsewhere()
    launcher = crashing()
    with index.in_use():
        assert index.used_elsewhere()
        bench.run(launcher, fresh=True)
    assert _kinds(launcher) == ["search"]


def test_changed_index_that_this_user_cannot_remove_is_tried_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run(crashing())
    place, remove = damaged(bench).folder.parent, filesystem.remove_tree
    monkeypatch.setattr(filesystem, "remove_tree", lambda folder: None if folder == place else remove(folder))
    launcher = crashing()
    bench.run(launcher, fresh=True)
    assert _kinds(launcher) == ["search", "search"]


def test_broken_index_is_rebuilt_without_folder_locks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def locks_nothing(*_: object, **_options: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    bench.run(crashing())
    damaged(bench)
    launcher = crashing()
    monkeypatch.setattr(indexes, "filesystem", SimpleNamespace(**vars(indexes.filesystem) | {"lock": locks_nothing}))
    bench.run(launcher, fresh=True)
    assert _kinds(launcher) == ["search", "build", "search"]


@pytest.mark.slow
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


def test_expected_crash_causes_no_rebuild(bench: Bench) -> None:
    path = bench.suite('[[expect]]\nsystem = "planted"\nprofile = "cpu1-mem256m"\noutcome = "crash"\n')
    for _ in range(2):
        launcher = crashing()
        bench.run(launcher, path, fresh=True)
    assert _kinds(launcher) == ["search"]
