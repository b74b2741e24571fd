"""`harness run --part`: the part alone, each job uploaded once it is stored, whatever S3 does meanwhile."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.aws.objects import Objects
from harness.driver.records import Outcome
from harness.errors import FileError, RemoteError
from harness.jobs import orchestrator, suite
from harness.jobs.inputs import RunOptions, gather
from harness.launch.base import Launcher
from harness.launch.fake import FakeLauncher
from harness.remote import local_results, records, worker
from harness.remote.bundle import LOCAL_ONLY
from harness.remote.records import ShippedInput, WorkerPart, dump, read
from harness.remote.shipment import Fetcher
from harness.remote.worker import Assignment, Uploader, WorkerStatus
from harness.results.reader import StoredJob, read_jobs
from harness.results.schema import job_key
from harness.results.store import Store
from tests.conftest import Bench, protocol
from tests.images.test_fusion import declare
from tests.remote.planning import TYPE, WORKER_ID, Planning, uploaded


@pytest.fixture
def planning(bench: Bench, work: Objects) -> Planning:
    return Planning(
        bench, bench.suite(protocol(3), measures=["nDCG@10", "AP(rel=2)@100", "SetF@5", "R@2kt"]), FakeLauncher(), work
    )


class PartRun:
    """Does a part in this process, with results and a cache of its own."""

    def __init__(self, planning: Planning, part: WorkerPart, folder: Path) -> None:
        self.folder, self.planning = folder, planning
        self.assignment = Assignment(str(planning.work.place), WORKER_ID, part, str(folder / "status.json"))
        self.waited: list[float] = []
        folder.mkdir()

    def follower(self, work: Objects | None = None, attempts: int = 20) -> Uploader:
        where = work or self.planning.work
        made = Uploader(self.assignment, where, self.folder / "cache", attempts=attempts)
        made._sleep = self.waited.append
        return made

    def run(self, follower: Uploader, launcher: Launcher | None = None) -> None:
        bench = self.planning.bench
        usual = RunOptions(self.folder / "results", self.folder / "cache", bench.folder)
        loaded = suite.load(bench.folder / "test-suite.toml")
        options = worker.options(usual, loaded, self.assignment.part, follower)
        orchestrator.run_suite(gather(loaded, options), options, launcher or FakeLauncher())
        follower.finish()

    @property
    def status(self) -> WorkerStatus:
        return read(WorkerStatus, "status", (self.folder / "status.json").read_bytes())

    @property
    def stored(self) -> dict[str, StoredJob]:
        return {job.result.key: job for job in read_jobs(self.folder / "results")}


def arrived(planning: Planning) -> list[str]:
    return uploaded(planning.work)


def test_job_is_uploaded_before_the_next_one_starts(planning: Planning, tmp_path: Path) -> None:
    runner, seen = PartRun(planning, planning.part(), tmp_path / "worker"), []

    class Watching(Uploader):
        def starts(self, key: str) -> None:
            super().starts(key)
            seen.append(
                (len(runner.stored), len(arrived(planning)), runner.status.uploaded, runner.status.current == key)
            )

    runner.run(Watching(runner.assignment, planning.work, tmp_path / "cache"))
    assert seen == [(0, 0, 0, True), (1, 1, 1, True), (2, 2, 2, True)]
    assert arrived(planning) == sorted(planning.specs)
    assert (runner.status.phase, runner.status.uploaded, runner.status.troubles) == ("finishing", 3, ())


def test_uploaded_job_equals_the_stored_one(planning: Planning, tmp_path: Path) -> None:
    runner = PartRun(planning, planning.part(), tmp_path / "worker")
    runner.run(runner.follower())
    store = Store(tmp_path / "store", "test-suite")
    with store.held():
        for key, spec in planning.specs.items():
            with pytest.raises(RemoteError, match=r"planned for c7g\.large, it was measured on None"):
                local_results.fetch_job(planning.work, WORKER_ID, key, spec, store)  # this is no machine of EC2
    packed = {key: local_results.pack(job.folder) for key, job in runner.stored.items()}
    assert {key: planning.folder.get(records.job(key), 1 << 20) for key in packed} == packed
    assert not [each.name for each in planning.work.list() if records.INDEXES in each.name], "nobody asked for one"
    again = runner.follower()
    again.stored(next(iter(runner.stored.values())))
    assert again.status.uploaded == 1 and again.status.troubles == ()


def test_only_the_parts_jobs_are_done_each_with_the_number_of_its_attempt(planning: Planning, tmp_path: Path) -> None:
    whole = planning.part()
    job = whole.jobs[1]
    key = job_key(replace(planning.specs[job.key], repetition=5))
    runner = PartRun(planning, replace(whole, jobs=(replace(job, repetition=5, key=key),)), tmp_path / "worker")
    runner.run(runner.follower())
    assert list(runner.stored) == arrived(planning) == [key]
    assert runner.stored[key].result.spec.repetition == 5


def test_requested_index_is_uploaded_before_the_first_job(planning: Planning, tmp_path: Path) -> None:
    part = planning.part(builds=True)
    runner, there = PartRun(planning, part, tmp_path / "worker"), []

    class Watching(Uploader):
        def starts(self, key: str) -> None:
            there.append(planning.folder.size(f"{records.index(part.builds[0].key)}.json"))

    runner.run(Watching(runner.assignment, planning.work, runner.folder / "cache"))
    assert len(part.builds) == 1 and len(there) == 3 and None not in there


def test_part_of_builds_alone_uploads_its_indexes(planning: Planning, tmp_path: Path) -> None:
    part = planning.part(builds=True, jobs=())
    runner = PartRun(planning, part, tmp_path / "worker")
    runner.run(runner.follower())
    assert not arrived(planning) and runner.status.troubles == ()
    assert not list(planning.work.list(f"{records.INPUTS}/{records.INDEXES}/"))
    adopted = planning.shipper.adopt_index(WORKER_ID, part.builds[0].key)
    assert adopted and planning.shipper.find_index(part.builds[0].key) == adopted


def test_hybrid_builds_what_of_its_components_was_not_shipped(bench: Bench, work: Objects, tmp_path: Path) -> None:
    declare(bench)
    planning = Planning(bench, bench.suite(protocol(1), systems=["both"]), FakeLauncher(), work)
    part = planning.part(builds=True, jobs=())
    words, letters, both = part.builds
    assert [build.name for build in part.builds] == ["words", "letters", "both"]
    assert both.components == {"words": words.key, "letters": letters.key}
    first = PartRun(planning, replace(part, builds=(words,)), tmp_path / "first")
    first.run(first.follower())
    shipped = planning.shipper.adopt_index(WORKER_ID, words.key)
    assert shipped is not None and first.status.troubles == ()
    second = PartRun(planning, replace(part, builds=(letters, both)), tmp_path / "second")
    Fetcher(work, second.folder / "cache").index(words.key, shipped)
    launcher = FakeLauncher()
    second.run(second.follower(), launcher)
    assert [job.spec.system for job in launcher.launched] == ["letters", "both"]
    assert planning.shipper.adopt_index(WORKER_ID, letters.key) and planning.shipper.adopt_index(WORKER_ID, both.key)


def test_component_that_cannot_be_built_is_a_trouble_of_each_index(bench: Bench, work: Objects, tmp_path: Path) -> None:
    declare(bench)
    planning = Planning(bench, bench.suite(protocol(1), systems=["both"]), FakeLauncher(), work)
    runner = PartRun(planning, planning.part(builds=True, jobs=()), tmp_path / "worker")
    runner.run(
        runner.follower(),
        FakeLauncher(lambda job: Outcome.OOM if job.spec.system == "letters" else Outcome.OK),
    )
    (letters, both) = runner.status.troubles
    assert letters.startswith("the index of letters on tiny was not built: index build: the kernel killed")
    assert both.startswith("the index of both on tiny was not built: letters: index build: the kernel killed")


class Flaky(Objects):
    """S3 that is out of reach for so many writes."""

    failing = 0
    tried = 0

    def put_new(self, name: str, content: bytes) -> bool:
        type(self).tried += 1
        if type(self).tried <= self.failing:
            raise RemoteError("S3 is busy", "Busy")
        return super().put_new(name, content)

    def below(self, *names: str) -> Flaky:
        return type(self)(self.connections, self.place.below(*names))


def flaky(work: Objects, writes: int) -> Objects:
    made = type("Flaky", (Flaky,), {"failing": writes, "tried": 0})
    return made(work.connections, work.place)


@pytest.mark.parametrize("failing", [1, 2, 5, 9])
def test_jobs_are_uploaded_after_an_outage(logged: list[str], planning: Planning, tmp_path: Path, failing: int) -> None:
    runner = PartRun(planning, planning.part(), tmp_path / "worker")
    runner.run(runner.follower(flaky(planning.work, failing)))
    assert arrived(planning) == sorted(planning.specs) and runner.status.troubles == ()
    assert any("waits for its upload: S3 is busy" in line for line in logged)
    # Each of three jobs tries once, then the end as often as it takes, waiting longer each time.
    assert runner.waited == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0][: max(0, failing - 3)]


def test_lasting_outage_is_raised_and_jobs_stay_on_disk(planning: Planning, tmp_path: Path) -> None:
    runner = PartRun(planning, planning.part(), tmp_path / "worker")
    with pytest.raises(RemoteError, match="S3 is busy"):
        runner.run(runner.follower(flaky(planning.work, 10_000), attempts=7))
    assert len(runner.stored) == 3 and sum(runner.waited) >= 100 and not arrived(planning)
    assert len(runner.status.troubles) == 3 and runner.status.uploaded == 0


# Without the packages that a worker does not install.
_AS_ON_A_WORKER = """
import sys
absent = sys.argv.pop(1).split(",")
class Absent:
    def find_spec(name, path, target=None):
        if name in absent:
            raise ModuleNotFoundError(f"a worker has no {name}")
sys.meta_path.insert(0, Absent)
from harness.cli import main
main()
"""


def command(runner: PartRun, launcher: str = "fake") -> subprocess.CompletedProcess[str]:
    file = runner.folder / "part.json"
    file.write_bytes(dump(runner.assignment))
    (runner.folder / worker._DATASETS).mkdir()
    for name in runner.assignment.part.datasets:
        (runner.folder / worker._DATASETS / name).symlink_to(runner.planning.bench.folder / name)
    arguments = ["run", "--launcher", launcher, "--part", str(file)]
    arguments += ["--results", str(runner.folder / "results"), "--cache", str(runner.folder / "cache")]
    absent = [
        module
        for module, packages in importlib.metadata.packages_distributions().items()
        if LOCAL_ONLY.issuperset(name.lower().replace("_", "-") for name in packages)
    ]
    return subprocess.run(
        [sys.executable, "-c", _AS_ON_A_WORKER, ",".join(absent), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )


def test_the_command_does_the_part(planning: Planning, tmp_path: Path) -> None:
    runner = PartRun(planning, planning.part(), tmp_path / "worker")
    done = command(runner)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert arrived(planning) == sorted(planning.specs)


def _of_another_suite(part: WorkerPart) -> WorkerPart:
    return replace(part, jobs=(replace(part.jobs[0], cell=replace(part.jobs[0].cell, system="unknown")),))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda part: replace(part, jobs=(replace(part.jobs[0], key="0" * 16),)), "would be another job here"),
        (lambda part: replace(part, instance_type="m5.large"), "would be another job here"),
        (_of_another_suite, "the suite here does not declare it"),
    ],
)
def test_part_with_other_jobs_is_refused_before_anything_runs(
    planning: Planning, tmp_path: Path, change: Callable[[WorkerPart], WorkerPart], says: str
) -> None:
    runner = PartRun(planning, change(planning.part()), tmp_path / "worker")
    done = command(runner)
    assert done.returncode == 2 and re.search(rf"^harness: .*{says}.*$", done.stderr, re.M), done.stderr
    assert not arrived(planning) and not (runner.folder / "results" / "test-suite" / "planted").exists()


def test_wrong_part_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    with pytest.raises(RemoteError, match="no record of this harness"):
        worker.read_assignment(tmp_path / "x")
    with pytest.raises(FileError, match="cannot be read: No such file"):
        worker.read_assignment(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="is a pipe, no regular file"):
        worker.read_assignment(tmp_path / "pipe")


def test_suite_of_a_part_has_the_shipped_datasets(tmp_path: Path) -> None:
    raw = {
        "name": "s",
        "systems": ["a", "b"],
        "datasets": ["beir/x/test", "./my data#dev", "/elsewhere/else"],
        "profiles": ["cpu1-mem1"],
        "measures": ["nDCG@10"],
        "protocol": {"name": "santhanam2023", "warmup_queries": 10, "load_timeout_s": 1.5},
        "restrict": [{"profiles": ["cpu1-mem1"], "systems": ["a", "b"]}],
        "expect": [{"system": "a", "profile": "cpu1-mem1", "outcome": "oom"}],
        "overhead": False,
    }
    declared = suite.parse(raw, tmp_path / "s.toml")
    sent = ShippedInput("x", "0" * 64, 1)
    part = WorkerPart("1", TYPE, declared.model_dump(mode="json"), datasets={"my data-dev": sent, "beir-x-test": sent})
    found = worker.suite_of(part, tmp_path / "part.json")
    assert found.datasets == ("./datasets/beir-x-test", "./datasets/my data-dev")
    assert found.model_dump() == {**declared.model_dump(), "datasets": found.datasets}
    assert found.protocol.warmup_cap is None and found.expect[0].outcome.value == "oom" and not found.overhead
