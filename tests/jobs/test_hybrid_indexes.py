"""The index of a hybrid joins the indexes of its components, each of which is built once, under its own key."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness import filesystem
from harness.driver.records import Outcome
from harness.errors import StoreError
from harness.jobs import indexes
from harness.launch.base import LaunchEnd, LaunchRequest, Prepared
from harness.launch.fake import FakeLauncher
from harness.launch.images import assets
from harness.launch.images.systems import System
from harness.progress import Progress
from harness.results.isolation import PROCESS
from harness.results.reader import read_jobs
from harness.results.schema import IndexFacts, Result
from tests.conftest import Bench
from tests.images.test_fusion import PROTOCOL, declare

FAKE_BYTES = len("fake\n")


@pytest.fixture(autouse=True)
def _declared(bench: Bench) -> None:
    declare(bench)


def run(bench: Bench, *systems: str, launcher: FakeLauncher | None = None, **options: bool) -> dict[str, Result]:
    suite = bench.suite(PROTOCOL.format(10), systems=list(systems), profiles=["cpu1-mem256m"])
    summary = bench.run(launcher or FakeLauncher(), suite, **options)
    return {result.spec.cell.system: result for result, _ in summary.jobs}


def built(launcher: FakeLauncher) -> list[str]:
    return sorted(job.spec.system for job in launcher.launched if job.spec.kind == "build")


def facts_of(result: Result) -> IndexFacts:
    assert result.outcome is Outcome.OK and result.index is not None, result.detail
    return result.index


def data_of(bench: Bench, result: Result) -> Path:
    index = indexes.find(bench.cache, result.spec.index_key)
    return index.folder


def fail(system: str, outcome: Outcome) -> Callable[[LaunchRequest], Outcome]:
    return lambda job: outcome if (job.spec.kind, job.spec.system) == ("build", system) else Outcome.OK


def test_hybrid_after_its_components_builds_its_own_part_alone(bench: Bench) -> None:
    run(bench, "words", "letters")
    launcher = FakeLauncher()
    run(bench, "both", launcher=launcher)
    assert built(launcher) == ["both"]
    assert "both: index of tiny built in 2 s (6 s with its components), 0.0 MiB" in bench.screen.getvalue()


@pytest.mark.slow
def test_components_after_the_hybrid_build_nothing_unless_fresh(bench: Bench) -> None:
    launcher = FakeLauncher()
    run(bench, "both", launcher=launcher)
    assert built(launcher) == ["both", "letters", "words"]
    launcher = FakeLauncher()
    assert {result.outcome for result in run(bench, "words", "letters", "both", launcher=launcher).values()} == {
        Outcome.OK
    }
    assert built(launcher) == []
    run(bench, "both", "words", launcher=launcher, fresh=True, fresh_index=True)
    assert built(launcher) == ["both", "letters", "words"]


@pytest.mark.slow
def test_changed_component_parameter_builds_a_component_of_that_hybrid(bench: Bench) -> None:
    before = run(bench, "words", "letters", "both")
    declare(bench, 'method = "rrf"\ndepth = 5\n[build_params]\n"words.shared" = "letters"\n')
    launcher = FakeLauncher()
    after = run(bench, "words", "both", launcher=launcher, fresh=True)
    assert built(launcher) == ["both", "words"], "letters is as it was"
    assert after["both"].spec.index_key != before["both"].spec.index_key
    assert after["words"].spec.index_key == before["words"].spec.index_key


@pytest.mark.parametrize("outcome", [Outcome.OOM, Outcome.TIMEOUT, Outcome.CRASH])
def test_failed_component_fails_the_hybrid_likewise_and_is_named(bench: Bench, outcome: Outcome) -> None:
    launcher = FakeLauncher(fail("letters", outcome))
    results = run(bench, "both", "letters", "words", launcher=launcher)
    assert (results["both"].outcome, results["letters"].outcome, results["words"].outcome) == (
        outcome,
        outcome,
        Outcome.OK,
    )
    assert results["both"].detail == f"letters: {results['letters'].detail}"
    assert built(launcher) == ["letters", "words"], "no build of it is tried twice, and the hybrid's own not at all"


def test_size_and_build_time_are_the_sum_of_all_parts(bench: Bench) -> None:
    results = run(bench, "words", "letters", "both")
    facts = facts_of(results["both"])
    assert facts.components == {name: facts_of(results[name]) for name in ("words", "letters")}
    assert (facts.build_s, facts.own_build_s) == (6.0, 2.0)
    folder = data_of(bench, results["both"])
    assert indexes.content(folder) == (facts.index_bytes, facts.content_sha256)
    assert facts.index_bytes == 3 * FAKE_BYTES
    (stored,) = [job.result for job in read_jobs(bench.results) if job.result.spec.cell.system == "both"]
    assert stored.index == facts


@pytest.mark.parametrize("case", ["container", "no links", "process"])
def test_components_files_are_shared_where_no_job_can_write_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    def refuse(*_: object, **_options: object) -> None:
        raise PermissionError

    class Unguarded(FakeLauncher):
        isolation = PROCESS

    if case == "no links":
        monkeypatch.setattr(os, "link", refuse)
    results = run(bench, "words", "both", launcher=Unguarded() if case == "process" else FakeLauncher())
    shared, own = data_of(bench, results["both"]) / "words" / "index", data_of(bench, results["words"]) / "index"
    assert shared.samefile(own) == (case == "container") and shared.read_bytes() == own.read_bytes()


def test_private_folder_of_a_component_is_open_to_the_user_of_the_hybrids_jobs(bench: Bench) -> None:
    class Private(FakeLauncher):
        def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
            assert job.spec.kind != "build" or not [*job.index_dir.iterdir()], "no build sees files of a component"
            ended = super().launch(job, progress)
            if (job.spec.kind, job.spec.system) == ("build", "words"):
                (job.index_dir / "sub" / "below").mkdir(parents=True)
                (job.index_dir / "sub" / "below" / "file").write_text("x")
                (job.index_dir / "sub").chmod(0o700)
            return ended

    folder = data_of(bench, run(bench, "both", launcher=Private())["both"]) / "words"
    assert (folder / "sub" / "below" / "file").read_text() == "x"
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in (folder, folder / "sub", folder / "sub" / "below"))


def test_components_files_that_are_gone_fail_the_hybrid_in_words(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **_options: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(filesystem, "link_tree", gone)
    result = run(bench, "both")["both"]
    assert (result.outcome, result.detail) == (
        Outcome.CRASH,
        "index build: the index of words cannot be read: No such file or directory",
    )


def test_full_disk_during_a_copy_ends_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **_options: object) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=9 << 20))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(filesystem, "link_tree", full)
    with pytest.raises(StoreError, match="the disk is full"):
        run(bench, "both")


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/etc"), Path.touch])
def test_hybrid_that_writes_into_the_folder_of_a_component_is_bad_output(
    bench: Bench, make: Callable[[Path], object]
) -> None:
    class Writing(FakeLauncher):
        def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
            ended = super().launch(job, progress)
            if (job.spec.kind, job.spec.system) == ("build", "both"):
                make(job.index_dir / "letters")
            return ended

    results = run(bench, "both", "letters", launcher=Writing())
    assert (results["both"].outcome, results["letters"].outcome) == (Outcome.BAD_OUTPUT, Outcome.OK)
    assert "letters" in (results["both"].detail or "")


@pytest.mark.slow
@pytest.mark.parametrize("systems", [("both",), ("both", "words", "letters")])
def test_damaged_component_is_built_again_with_the_hybrid(bench: Bench, systems: tuple[str, ...]) -> None:
    def loads(job: LaunchRequest) -> Outcome:
        files = job.index_dir.rglob("index") if job.spec.kind == "search" else ()
        return Outcome.CRASH if any(path.read_text() != "fake\n" for path in files) else Outcome.OK

    run(bench, "both")
    (damaged,) = (bench.cache / "indexes").glob("*/data/letters/index")
    damaged.write_text("half")
    launcher = FakeLauncher(loads)
    results = run(bench, *systems, launcher=launcher, fresh=True)
    assert {result.outcome for result in results.values()} == {Outcome.OK}
    assert built(launcher) == ["both", "letters"], "the other component is whole"


class _OfWords(FakeLauncher):
    """Launcher that fetches files, and has the image of ``words`` alone."""

    fetches_files = True

    def find(self, system: System) -> Prepared | None:
        return super().find(system) if system.name == "words" else None

    def prepare(self, system: System) -> Prepared:
        return Prepared(system, self.recipe(system), "made", system.image)


def test_component_whose_image_is_here_needs_no_weights(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def lacking(systems: Mapping[str, System], _cache: Path, _models: Path | None) -> dict[str, str]:
        asked.append([part.name for system in systems.values() for part in system.parts])
        return {}

    monkeypatch.setattr(assets, "lacking", lacking)
    assert run(bench, "both", launcher=_OfWords(cache=bench.cache))["both"].outcome is Outcome.OK
    assert asked == [["both", "letters"]]
