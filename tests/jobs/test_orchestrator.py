"""Tests of the orchestrator with fake jobs: jobs run, results kept, jobs repeated."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.analysis import results_folder, rows
from harness.driver.records import Envelope, Outcome
from harness.errors import EngineError, StoreError, UsageError
from harness.launch.base import LaunchEnd, LaunchRequest, Prepared
from harness.launch.fake import FakeLauncher
from harness.launch.images import assets
from harness.launch.images.systems import System
from harness.pricing import prices
from harness.progress import Progress
from harness.results import suite_record
from harness.results.isolation import CONTAINER, FAKE
from harness.results.reader import StoredJob, read_jobs
from harness.results.schema import Cell, SweepPoint
from tests.conftest import Bench, protocol, write_dataset
from tests.support.stored_jobs import build_table


def test_every_cell_is_stored_and_a_second_run_runs_nothing(bench: Bench) -> None:
    path = bench.suite(profiles=["cpu1-mem1", "cpu2-mem4"])
    first = bench.run(FakeLauncher(), path)
    assert (first.done_before, len(first.jobs), first.unforeseen) == (0, 2, [])
    for job in read_jobs(bench.results):
        latency_ns = job.samples().column("latency_ns").to_pylist()
        assert job.result.answers.first_query_s == latency_ns[0] / 1e9
        assert job.result.answers.warmup_done == sum(job.samples().column("warmup").to_pylist())
    again = FakeLauncher()
    second = bench.run(again, path)
    assert (second.done_before, second.jobs, again.launched) == (2, (), [])


def test_unjudged_queries_measure_nothing_again_where_judged_ones_fill_the_sample(bench: Bench) -> None:
    def run(size: int, *, unjudged: bool = False) -> tuple[int, int]:
        keys = {"warmup_queries": 1, "sample_size": size} | ({"unjudged": True} if unjudged else {})
        done = bench.run(FakeLauncher(), bench.suite(protocol(2, name="santhanam2023", **keys)))
        return done.done_before, len(done.jobs)

    assert run(4) == (0, 1)
    assert run(4, unjudged=True) == (1, 0)
    assert run(1000) == (1, 0), "four of its queries are judged"
    assert run(1000, unjudged=True) == (0, 1), "the dataset has two more"


def test_measures_and_pairs_of_the_suite_are_stored_without_measuring_again(bench: Bench) -> None:
    bench.plant("other")
    for measures, pairs in ((["P@1", "AP"], {}), (["AP"], {"planted": "other"})):
        table = "[firstp]\n" + "".join(f'{name} = "{other}"\n' for name, other in pairs.items())
        done = bench.run(FakeLauncher(), bench.suite(table, measures=measures, systems=["planted", "other"]))
        assert list(suite_record.read_measures(bench.results)) == measures
        assert suite_record.read_pairs(bench.results, "firstp") == pairs
    assert done.jobs == ()


@pytest.mark.slow
def test_points_of_a_grid_share_image_and_index_and_know_their_sweep(bench: Bench) -> None:
    bench.plant("grid", depth=1, form="a")
    launcher = FakeLauncher()
    done = bench.run(launcher, bench.suite('[sweep.grid]\ndepth = [10, 20]\nform = ["a", "b"]\n', systems=["grid"]))
    results = {result.spec.cell.system: result for result, _ in done.jobs}
    assert {name: result.provenance.sweep for name, result in results.items()} == {
        f"grid-depth{depth}-form_{form}": SweepPoint("grid", {"depth": depth, "form": form})
        for depth in (10, 20)
        for form in "ab"
    }
    assert len({(result.spec.recipe, result.spec.index_key) for result in results.values()}) == 1
    assert [job.spec.kind for job in launcher.launched].count("build") == 1
    rows = {row.system: row.sweep for row in results_folder.read(bench.results, cache=bench.cache).table.rows}
    again = {row.system: row.sweep for row in results_folder.read(bench.results, cache=bench.cache).table.rows}
    assert rows == again == {name: result.provenance.sweep for name, result in results.items()}


@pytest.mark.slow
def test_systems_of_a_curve_are_its_points_with_the_parameters_that_differ(bench: Bench) -> None:
    bench.plant("narrow", depth=1, form="a", width=2)
    bench.plant("wide", depth=9, form="a", width=4)
    path = bench.suite('[curve]\nbeam = ["narrow", "wide"]\n', systems=["narrow", "wide", "planted"])
    done = bench.run(FakeLauncher(), path)
    assert {result.spec.cell.system: result.provenance.sweep for result, _ in done.jobs} == {
        "narrow": SweepPoint("beam", {"depth": 1, "width": 2}),
        "wide": SweepPoint("beam", {"depth": 9, "width": 4}),
        "planted": None,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ('beam = ["wide", "same"]', "wide and same of beam are the same point; keep one"),
        ('beam = ["wide", "text"]', "wide and text of beam differ in form, which is not a number"),
        ('beam = ["wide", "more"]', "wide and more of beam differ in engine, weights or components"),
        ('beam = ["wide", "null"]', "wide and null of beam differ in engine, weights or components"),
        ('planted = ["wide", "text"]', "planted is the name of a system; choose another"),
    ],
)
def test_curve_joins_systems_that_differ_in_numbers_alone(bench: Bench, curve: str, message: str) -> None:
    bench.plant("wide", depth=9, form="a")
    bench.plant("same", depth=9, form="a")
    bench.plant("text", depth=9, form="b")
    bench.plant("more", depth=9, form="a", width=4)
    path = bench.suite(f"[curve]\n{curve}\n", systems=["wide", "same", "text", "more", "null"])
    with pytest.raises(UsageError, match=message):
        bench.run(FakeLauncher(), path)


def test_jobs_and_index_of_a_cell_get_the_language_of_its_dataset(bench: Bench) -> None:
    path = bench.folder / "engines" / "planted" / "engine.toml"
    path.write_text(path.read_text() + 'languages = ["en", "ar", "zh"]\n')
    for name in ("arabic", "chinese"):
        write_dataset(bench.folder / name)
    datasets = ["./arabic", "./chinese", "./tiny"]
    launcher = FakeLauncher()
    bench.run(launcher, bench.suite("[languages]\narabic = 'ar'\nchinese = 'zh'\n", datasets=datasets))
    of_jobs = {job.result.spec.cell.dataset: job.result.spec.params.get("language") for job in read_jobs(bench.results)}
    assert of_jobs == {"arabic": "ar", "chinese": "zh", "tiny": None}
    for kind in ("build", "search"):
        given = [request.spec.params.get("language") for request in launcher.launched if request.spec.kind == kind]
        assert sorted(map(str, given)) == ["None", "ar", "zh"]


def test_one_image_builds_the_index_and_another_searches_it(bench: Bench) -> None:
    engine = bench.folder / "engines" / "planted" / "engine.toml"
    engine.write_text(
        f'{engine.read_text()}prepare = "x"\nprepare_params = ["form"]\nlean_search_if = {{form = ["a"]}}\n'
    )
    bench.plant("apart", form="a")
    with (engine.parent / "systems" / "apart.toml").open("a") as file:
        file.write(f'[[assets]]\nfolder = "model"\nlicence = "MIT"\nsha256 = {{ "weights" = "{"0" * 64}" }}\n')
    launcher = FakeLauncher()
    bench.run(launcher, bench.suite(systems=["apart"]))
    ran = {(job.spec.kind, job.prepared.system.image) for job in launcher.launched}
    assert ran == {("build", "apart"), ("search", "apart-search")}
    assert bench.run(FakeLauncher(), bench.suite(systems=["apart"])).done_before == 1


def test_failed_job_is_stored_with_its_stand_in_and_retried(bench: Bench) -> None:
    declared = bench.folder / "engines" / "planted" / "systems" / "planted.toml"
    declared.write_text('description = "planted"\nstand_in = "a model of two layers"\n', encoding="utf-8")
    failing = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
    (failed,) = bench.run(failing).unforeseen
    assert (failed.outcome, failed.provenance.stand_in) == (Outcome.CRASH, "a model of two layers")
    assert bench.run(FakeLauncher()).unforeseen == []
    outcomes = [(job.result.spec.repetition, job.result.outcome) for job in read_jobs(bench.results)]
    assert sorted(outcomes) == [(0, Outcome.CRASH), (1, Outcome.OK)]
    assert bench.run(FakeLauncher()).done_before == 1


@pytest.mark.parametrize("build_gpus", [0, 1])
def test_gpu_profile_gets_gpu_packages_and_shares_the_index(bench: Bench, build_gpus: int) -> None:
    class WithGpus(FakeLauncher):
        def cannot(self, envelope: Envelope) -> str | None:
            return None

    engine = bench.folder / "engines" / "planted"
    (engine / "requirements-cuda12.lock").touch()
    text = (
        '[build_params]\ndocuments = "c"\n[search_params]\nqueries = "c"\n[with_gpus]\ndocuments = "g"\nqueries = "g"\n'
    )
    (engine / "systems" / "planted.toml").write_text(f'description = "x"\n{text}')
    launcher = WithGpus()
    path = bench.suite(profiles=["cpu1-mem1", "gpu1-cpu1-mem4"])
    if build_gpus:
        path.write_text(path.read_text().replace('build_profile = "cpu1-mem1"', 'build_profile = "gpu1-cpu1-mem4"'))
    bench.run(launcher, path)
    used = [
        (job.spec.kind, job.spec.envelope.gpus, job.prepared.reference, *job.spec.params.values())
        for job in launcher.launched
    ]
    documents = "g" if build_gpus else "c"
    assert sorted(used) == [
        ("build", build_gpus, "planted-cuda" if build_gpus else "planted", documents, documents),
        ("search", 0, "planted", documents, "c"),
        ("search", 1, "planted-cuda", documents, "g"),
    ]
    assert bench.run(launcher, path).done_before == 2


def test_a_profile_larger_than_the_host_is_not_applicable(bench: Bench) -> None:
    from harness.launch.process import ProcessLauncher

    cpus = len(os.sched_getaffinity(0))
    larger = f'[hardware.larger]\ncpus = {cpus + 1}\nmemory = "4GiB"\n'
    (result, _), *_ = bench.run(ProcessLauncher(bench.cache), bench.suite(larger, profiles=["larger"])).jobs
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert result.detail == f"profile larger needs {cpus + 1} CPUs, this host gives {cpus}"


# What is there while an index is built, and while a job runs.
_BUILD, _JOB = "cache/indexes/*/job/log", "results/test-suite/.staging/*/log"


@pytest.mark.slow
def test_next_run_continues_after_sigkill(bench: Bench) -> None:
    """A real orchestrator with real child processes, killed in a build, in the first job and in the second."""
    bench.plant("steady", service_s=0.05)
    path = bench.suite(systems=["steady"], profiles=["cpu1-mem1", "cpu1-mem4", "cpu1-mem256m"])
    command = [sys.executable, "-m", "harness", "run", str(path), "--launcher", "process"]
    command += ["--results", str(bench.results), "--cache", str(bench.cache)]
    finished: set[str] = set()
    for phase, stored in ((_BUILD, 0), (_JOB, 0), (_JOB, 1)):
        began = time.time()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(_jobs(bench.results)) < stored or not _made_since(bench.folder, phase, began):
            assert child.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.wait()
        after = {job.result.key for job in _jobs(bench.results)}
        assert finished <= after, "a finished job was lost"
        finished = after
    assert finished
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    jobs = read_jobs(bench.results)
    assert sorted(job.result.spec.cell.profile for job in jobs) == ["cpu1-mem1", "cpu1-mem256m", "cpu1-mem4"]
    assert finished <= {job.result.key for job in jobs}
    assert {job.result.outcome for job in jobs} == {Outcome.OK}
    assert not (bench.results / "test-suite" / ".staging").exists()
    assert not list((bench.cache / "indexes").glob("*.partial"))


def _made_since(folder: Path, pattern: str, since: float) -> bool:
    """Return whether a matching file was made since ``since``; killed runs leave older ones."""
    try:
        return any(path.stat().st_ctime >= since for path in folder.glob(pattern))
    except FileNotFoundError:
        return False


def _jobs(results: Path) -> tuple[StoredJob, ...]:
    return read_jobs(results) if results.is_dir() else ()


@pytest.mark.slow
def test_run_table_shows_the_suites_current_jobs(bench: Bench) -> None:
    text = '[protocol]\nname = "santhanam2023"\nwarmup_queries = 2\nrepeats = 0\nk = 3\ntrials = {}\n'
    for trials in (3, 2, 3):
        summary = bench.run(FakeLauncher(), bench.suite(text.format(trials)))
    assert summary.done_before == 1
    table = build_table(read_jobs(bench.results), snapshot=prices.snapshot(), keys=summary.keys)
    assert [row.trials for row in table.rows] == [3]
    (row,) = build_table(read_jobs(bench.results), snapshot=prices.snapshot()).rows
    assert row.trials == 2 and any("another spec" in note for note in row.notes)


INTERLEAVED = "[protocol]\nwarmup_queries = 2\nrepeats = 1\ntrials = 3\nk = 3\nseed = {}\n"


def _searches(launcher: FakeLauncher) -> list[tuple[str, int]]:
    """Profile and first trial of each search job, in the order in which they ran."""
    jobs = [job.spec for job in launcher.launched if job.spec.kind == "search"]
    return [(spec.envelope.name, spec.first_trial) for spec in jobs]


@dataclass(frozen=True)
class _Verdict:
    transient: bool


def _noisy_first(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Make the first profile's cell noisy ``times`` times; return the sizes of the checked sets."""
    looked: list[int] = []

    def verdicts(jobs: tuple[StoredJob, ...], keys: Collection[str]) -> dict[tuple[Cell, str], _Verdict]:
        looked.append(len(keys))
        verdicts: dict[tuple[Cell, str], _Verdict] = {}
        for cell in {job.result.spec.cell for job in jobs}:
            verdicts[cell, FAKE.name] = _Verdict(cell.profile == "cpu1-mem1" and len(looked) <= times)
            verdicts[cell, CONTAINER.name] = _Verdict(transient=True)  # not this run's to mend
        return verdicts

    monkeypatch.setattr(rows, "verdicts", verdicts)
    return looked


@pytest.mark.slow
def test_only_noisy_cells_are_measured_again_and_completely(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = _noisy_first(monkeypatch, times=1)
    launcher = FakeLauncher()
    path = bench.suite(INTERLEAVED.format(1), profiles=["cpu1-mem1", "cpu2-mem4"])
    summary = bench.run(launcher, path, retry_noisy=5)
    ran = _searches(launcher)
    assert len(ran) == 9 and sorted(ran[6:]) == [("cpu1-mem1", 0), ("cpu1-mem1", 1), ("cpu1-mem1", 2)]
    assert looked == [6, 6], "asked again after the repetition, and then it was quiet"
    assert "noisy: measuring 1 cell again (1 of at most 5 times)" in bench.screen.getvalue()
    stored = {job.result.key: job.result.spec for job in read_jobs(bench.results)}
    shown = [(stored[key].cell.profile, stored[key].repetition) for key in summary.keys]
    assert sorted(shown) == [("cpu1-mem1", 1)] * 3 + [("cpu2-mem4", 0)] * 3
    assert bench.run(FakeLauncher(), path).jobs == (), "all of it is done"


@pytest.mark.slow
def test_noisy_cell_of_an_earlier_run_is_measured_again_until_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.suite(INTERLEAVED.format(1), profiles=["cpu1-mem1", "cpu2-mem4"])
    bench.run(FakeLauncher(), path)
    _noisy_first(monkeypatch, times=99)
    launcher = FakeLauncher()
    summary = bench.run(launcher, path, retry_noisy=2)
    assert sorted(_searches(launcher)) == sorted(2 * [("cpu1-mem1", trial) for trial in range(3)])
    assert summary.unforeseen == []


@pytest.mark.parametrize("failing", [{5}, {4, 5, 6}])
def test_failed_repetition_is_not_mixed_with_earlier_results(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failing: set[int]
) -> None:
    _noisy_first(monkeypatch, times=1)
    launcher = FakeLauncher(lambda job: Outcome.CRASH if len(_searches(launcher)) in failing else Outcome.OK)
    summary = bench.run(launcher, bench.suite(INTERLEAVED.format(1), profiles=["cpu1-mem1"]), retry_noisy=1)
    stored = {job.result.key: job.result for job in read_jobs(bench.results)}
    assert [(stored[key].spec.repetition, stored[key].outcome) for key in summary.keys] == [(0, Outcome.OK)] * 3
    assert len(summary.unforeseen) == len(failing)


class _Stopping(FakeLauncher):
    """Launcher that raises an error in place of its n-th search."""

    def __init__(self, error: BaseException, at: int) -> None:
        super().__init__()
        self._error, self._at = error, at

    def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        if job.spec.kind == "search" and len(_searches(self)) + 1 == self._at:
            raise self._error
        return super().launch(job, progress)


@pytest.mark.slow
def test_stopped_retry_shows_the_earlier_measurement_whole_and_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after two of three jobs: the table keeps the old three, and the same command measures the third."""

    def shown() -> tuple[list[int], int]:
        (row,) = results_folder.read(bench.results, cache=bench.cache).table.rows
        jobs = {job.result.key: job.result.spec for job in read_jobs(bench.results)}
        return [jobs[key].repetition for key in row.keys], row.measured_again

    _noisy_first(monkeypatch, times=99)
    path = bench.suite(INTERLEAVED.format(1), profiles=["cpu1-mem1"])
    with pytest.raises(KeyboardInterrupt):
        bench.run(_Stopping(KeyboardInterrupt(), 6), path, retry_noisy=1)
    assert "  2 of 3 noisy jobs were measured again\n" in bench.screen.getvalue()
    assert shown() == ([0, 0, 0], 2)
    plain = bench.run(FakeLauncher(), path)
    assert plain.jobs == () and len(plain.keys) == 3
    assert {job.result.spec.repetition for job in read_jobs(bench.results) if job.result.key in plain.keys} == {0}
    launcher = FakeLauncher()
    done = bench.run(launcher, path, retry_noisy=1)
    assert [trial for _, trial in _searches(launcher)] == [2], "the others were measured again before"
    assert "noisy: measuring 1 cell again, 2 jobs of them before (1 of at most 1 times)" in bench.screen.getvalue()
    assert shown() == ([1, 1, 1], 0)
    assert done.keys == {job.result.key for job in read_jobs(bench.results) if job.result.spec.repetition == 1}


@pytest.mark.slow
def test_run_without_its_engine_says_what_is_kept_and_the_next_run_what_was_before(bench: Bench) -> None:
    path = bench.suite(INTERLEAVED.format(1), profiles=["cpu1-mem1", "cpu2-mem4"])
    with pytest.raises(EngineError) as caught:
        bench.run(_Stopping(EngineError("the engine is gone"), 5), path)
    message = "the engine is gone. 4 of 6 jobs are stored; then run the same command to go on"
    assert str(caught.value) == message and len(read_jobs(bench.results)) == 4
    assert bench.run(FakeLauncher(), path).done_before == 4
    assert bench.screen.getvalue().startswith("  4 of 6 jobs are stored from before\n")
    bench.run(FakeLauncher(), path)
    assert "from before" not in bench.screen.getvalue(), "nothing is left to run"
    with pytest.raises(EngineError) as caught:
        bench.run(_Stopping(EngineError("the engine is gone"), 5), path, fresh=True)
    assert str(caught.value).endswith("run the same command again: --fresh measures all jobs anew")


def test_failure_on_a_full_disk_is_not_the_systems_fault(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    failing = FakeLauncher(lambda job: Outcome.CRASH if job.spec.kind == "search" else Outcome.OK)
    with pytest.raises(StoreError, match=r"the disk is full \(0 KiB left\); make room, what was finished is kept"):
        bench.run(failing)
    assert read_jobs(bench.results) == ()
    with pytest.raises(StoreError, match="the disk is full"):
        bench.run(FakeLauncher(lambda job: Outcome.CRASH), fresh=True)


def test_containers_of_a_dead_run_are_removed_before_their_folders(bench: Bench) -> None:
    staged = bench.results / "test-suite" / ".staging" / "left"
    staged.mkdir(parents=True)
    there: list[bool] = []

    class Sweeping(FakeLauncher):
        def sweep(self) -> int:
            there.append(staged.exists())
            return 1

    bench.run(Sweeping())
    assert "removed 1 container that a dead run had left" in bench.screen.getvalue()
    assert there == [True, False], "again at the end: the engine may make a container after its run has died"


@pytest.mark.slow
def test_system_has_a_trial_as_soon_as_its_index_is_there(bench: Bench) -> None:
    for name in ("second", "third"):
        bench.plant(name, build_misdeed=name)
    names = ["planted", "second", "third"]
    path = bench.suite(INTERLEAVED.format(1), systems=names, profiles=["cpu1-mem1", "cpu2-mem4"])
    launcher = FakeLauncher()
    done = bench.run(launcher, path)
    ran = [(job.spec.kind, job.spec.system, job.spec.first_trial) for job in launcher.launched]
    early = [[("build", name, 0), ("search", name, 0), ("search", name, 0)] for name in names]
    assert ran[:7] == [*early[0], *early[1], early[2][0]]
    rest = [("search", "third", 0), *[("search", name, trial) for name in names for trial in (1, 2)]]
    assert sorted(ran[7:]) == sorted(rest * 2)
    assert (done.done_before, len(done.jobs), len(done.keys), done.unforeseen) == (0, 18, 18, [])


def test_early_trial_that_fails_is_measured_once(bench: Bench) -> None:
    bench.plant("other", form="b")
    path = bench.suite(INTERLEAVED.format(1), systems=["planted", "other"])
    failing = FakeLauncher(lambda job: Outcome.CRASH if job.spec.system == "planted" else Outcome.OK)
    done = bench.run(failing, path)
    assert len(done.jobs) == 6 and len(done.unforeseen) == 3


@pytest.mark.slow
def test_trials_are_mixed_from_the_first_on_where_all_is_made(bench: Bench) -> None:
    bench.plant("other", form="b")
    path = bench.suite(INTERLEAVED.format(1), systems=["planted", "other"], profiles=["cpu1-mem1", "cpu2-mem4"])
    bench.run(FakeLauncher(), path)
    again = FakeLauncher()
    bench.run(again, path, fresh=True)
    first_round = [(job.spec.system, job.spec.envelope.name) for job in again.launched[:4]]
    assert len(set(first_round)) == 4, "one job of every cell, in the order of the seed"


class _Fetching(FakeLauncher):
    """Launcher that must fetch files before it can prepare a system."""

    fetches_files = True

    def __init__(self, cache: Path) -> None:
        super().__init__(cache=cache)
        self.prepared = list[str]()

    def find(self, system: System) -> Prepared | None:
        return super().find(system) if system.image in self.prepared else None

    def prepare(self, system: System) -> Prepared:
        self.prepared.append(system.image)
        return super().prepare(system)


def test_missing_weights_are_named_before_anything_is_made_and_others_are_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.plant("other")
    declared = (
        '[[assets]]\nfolder = "m"\nlicence = "MIT"\nhub = "a/m"\nrevision = "{}"\n[assets.sha256]\n"w.bin" = "{}"\n'
    )
    file = bench.folder / "engines" / "planted" / "systems" / "other.toml"
    file.write_text(f"{file.read_text()}{declared.format('a' * 40, '0' * 64)}")
    monkeypatch.setattr(assets, "_quiet_python", lambda *_: "no network")
    launcher = _Fetching(bench.cache)
    done = bench.run(launcher, bench.suite(systems=["planted", "other"]))
    lines = bench.screen.getvalue().splitlines()
    named = next(number for number, line in enumerate(lines) if "other: cannot find w.bin of 'm'" in line)
    assert named < next(number for number, line in enumerate(lines) if line.endswith(": image ..."))
    assert {result.spec.cell.system: result.outcome for result, _ in done.jobs} == {
        "planted": Outcome.OK,
        "other": Outcome.NOT_APPLICABLE,
    }
    (lacking,) = [result for result in done.unforeseen if result.spec.cell.system == "other"]
    assert str(lacking.detail).startswith("no weights: other: cannot find w.bin of 'm': the hub does not answer")
    assert len(launcher.prepared) == 1


@pytest.mark.slow
def test_system_whose_build_was_interrupted_is_built_last(bench: Bench) -> None:
    for name in ("second", "third", "ready"):
        bench.plant(name, form=name)
    names = ["planted", "second", "third", "ready"]
    bench.run(FakeLauncher(cache=bench.cache), bench.suite(INTERLEAVED.format(2), systems=["ready"]))

    class Stopped(FakeLauncher):
        """A launcher whose user stops it in the first index build, half-way."""

        def launch(self, job: LaunchRequest, progress: Progress) -> LaunchEnd:
            if job.spec.kind == "build":
                (job.index_dir / ".building").mkdir()
                raise KeyboardInterrupt
            return super().launch(job, progress)

    path = bench.suite(INTERLEAVED.format(1), systems=names)
    stopped = Stopped(cache=bench.cache)
    with pytest.raises(KeyboardInterrupt):
        bench.run(stopped, path)
    assert [job.spec.system for job in stopped.launched] == ["ready"], "it waits for no index of another system"
    launcher = FakeLauncher(cache=bench.cache)
    done = bench.run(launcher, path)
    ran = [(job.spec.kind, job.spec.system) for job in launcher.launched]
    early = [*[("build", "second"), ("search", "second")], *[("build", "third"), ("search", "third")]]
    assert ran[: len(early) + 1] == [*early, ("build", "planted")]
    assert done.unforeseen == [] and len(done.keys) == 12
