"""Merged results: whole or absent, with separate origins, and with unchanged figures."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import api
from harness.analysis import axes
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.analysis.table import Cause
from harness.driver.records import Outcome
from harness.errors import FileError, StoreError, UsageError
from harness.report import render
from harness.report.verify import verify_results
from harness.results import merge as merge_results
from harness.results import merge as module
from harness.results import origins, reader, seals, suite_record
from harness.results.reader import read_jobs
from tests.support import sample_records
from tests.support.results_folders import change, job, put, relist, seal_files
from tests.support.stored_jobs import Maker


@pytest.fixture
def two(results: Path) -> tuple[Path, Path]:
    """The same suite of two people: same keys, another machine, another outcome of the clock."""
    ours, theirs = Path("ours"), Path("theirs")
    shutil.copytree(results, ours)
    shutil.copytree(results, theirs)
    for path in sorted(theirs.rglob(reader.RESULT)):
        change(path.parent, lambda raw: raw["environment"].update(cpu_model="Another CPU"))
    return ours, theirs


def merge(*texts: str, out: str = "out") -> tuple[origins.Origin, ...]:
    return merge_results.merge(merge_results.parse_sources(texts), Path(out))


def test_measures_of_the_suites_come_along(two: tuple[Path, Path]) -> None:
    for folder, measures in zip(two, (("P@1",), ("P@1", "AP")), strict=True):
        (suite,) = folder.iterdir()
        put(suite / suite_record.FILE, suite_record.SuiteRecord(measures=measures).text().encode())
        seal_files(suite)
    merge("ours", "theirs")
    assert suite_record.read_measures(Path("out")) == ("P@1", "AP")


@pytest.mark.slow
def test_positions_of_the_suites_come_along(two: tuple[Path, Path]) -> None:
    (suite,) = two[0].iterdir()
    dataset = read_jobs(suite)[0].result.spec.cell.dataset
    content = b'{"query": "q", "doc": "d", "start_token": 3}\n'
    sha256 = hashlib.sha256(content).hexdigest()
    path = suite_record.positions_path(suite, sha256)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    record = suite_record.SuiteRecord(measures=(), positions={dataset: sha256})
    put(suite / suite_record.FILE, record.text().encode())
    seal_files(suite)
    merge(*map(str, two))
    merged = suite_record.read_positions_path(Path("out") / two[0].name / suite.name, dataset)
    assert merged is not None and merged.read_bytes() == content
    path.write_bytes(b"other")
    with pytest.raises(FileError, match=sha256):
        merge(*map(str, two), out="again")


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_origins_are_named_by_folder_or_by_the_given_name(two: tuple[Path, Path]) -> None:
    made = merge("ours", "bob=theirs")
    assert [(origin.name, origin.jobs) for origin in made] == [("bob", 12), ("ours", 12)]
    for name, source in (("ours", two[0]), ("bob", two[1])):
        merged = tree(Path("out") / name)
        read = origins.read(Path("out") / name)
        assert read is not None and read.name == name
        del merged[origins.FILE]
        sealed = seals.read(Path("out") / name / "test-suite") or {}
        assert sealed.pop("../origin.toml") and sealed == seals.read(source / "test-suite")
        mine = {path: content for path, content in tree(source).items() if ".lock" not in path}
        del merged["test-suite/manifest.txt"], mine["test-suite/manifest.txt"]
        assert merged == mine
    assert str(Path.cwd()) not in (Path("out") / "bob" / origins.FILE).read_text()


@pytest.mark.slow
def test_rows_of_two_origins_are_separate_and_comparable(two: tuple[Path, Path]) -> None:
    merge("ours", "theirs")
    table = api.table("out")
    assert len(table.rows) == 12
    named = {(row.origin, row.system, row.scenario) for row in table.rows}
    assert len(named) == 12 and {row.attempts for row in table.rows} == {2}, "jobs of their own origin alone"
    assert len({axes.comparison_group(row) for row in table.rows}) == 3, "one place for each scenario"
    for row in table.rows:
        assert row.machine is not None and (row.machine.cpu_model == "Another CPU") == (row.origin == "theirs")
        assert not any("another environment" in note for note in row.notes)
    markdown = render(table, "md")
    assert "| system | scenario | origin |" in markdown
    assert "- Rows of 2 origins were measured on different machines (ours: " in markdown
    assert "; theirs: 2 CPUs of Another CPU): their times" in markdown.replace(
        f"{table.rows[0].machine.host_cpus} CPUs",
        "2 CPUs",
    )
    header = render(table, "csv").splitlines()[0].split(",")
    assert header[header.index("suite") + 1] == "origin"
    assert set(api.load("out").origin) == {"ours", "theirs"}


@pytest.mark.slow
def test_single_origin_is_named(two: tuple[Path, Path]) -> None:
    merge("ours", "theirs")
    assert set(api.load("out/ours").origin) == {"ours"}
    assert set(api.load("out/theirs/test-suite").origin) == {"theirs"}


@pytest.mark.slow
def test_per_query_values_of_two_origins_are_separate(two: tuple[Path, Path]) -> None:
    merge("ours", "theirs")
    built = build_rows(read_jobs(Path("out")), JobEvaluator())
    ok = [row for row in built.table.rows if row.outcome is Outcome.OK]
    assert len(built.per_query) == len(ok) == 6
    assert len({row.key for row in ok}) == 3, "their keys are the same"


@pytest.mark.slow
def test_slow_machine_is_judged_within_its_own_origin(make: Maker) -> None:
    """Judge each machine by its own canary: a machine that is always slow was not slow for a cell."""
    jobs = []
    for origin, cpu_s in (("ours", 0.010), ("theirs", 0.020)):
        for number in range(4):
            made = make(f"s{number}", changes={"canary": (sample_records.canary(cpu_s),) * 2})
            jobs.append(dataclasses.replace(made, origin=origin))
    assert not slow(jobs)
    assert slow([dataclasses.replace(each, origin=None) for each in jobs])


def slow(jobs: list[sample_records.FakeJob]) -> bool:
    found = build_rows(jobs, JobEvaluator()).table.rows
    return any(finding.cause is Cause.SLOW_MACHINE for row in found for finding in row.findings)


@pytest.mark.slow
def test_merged_folders_keep_their_origins(two: tuple[Path, Path]) -> None:
    merge("ours", "theirs")
    shutil.copytree("ours", "third/results")
    made = merge("out", "third/results", out="all")
    assert [origin.name for origin in made] == ["ours", "results", "theirs"]
    assert tree(Path("all/ours")) == tree(Path("out/ours"))
    assert len({row.origin for row in api.table("all").rows}) == 3


@pytest.mark.slow
def test_names_are_made_unique(two: tuple[Path, Path]) -> None:
    shutil.copytree("ours", "a/results")
    shutil.copytree("theirs", "b/results")
    assert [origin.name for origin in merge("a/results", "b/results")] == ["results", "results-2"]
    merge("results=ours", out="one")
    assert [origin.name for origin in merge("one", "b/results", out="two")] == ["results", "results-2"]
    assert [origin.name for origin in merge("ours", "./ours", out="three")] == ["ours"], "one folder given twice"


def test_equal_jobs_under_one_name_are_merged_once(two: tuple[Path, Path]) -> None:
    shutil.rmtree(job(Path("theirs")).parents[1])
    shutil.copytree("ours", "half")
    shutil.rmtree(job(Path("half"), scenario="server").parents[1])
    with pytest.raises(FileError, match=r"gone; follows: a job, by manifest\.txt.*nothing was written"):
        merge("lab=ours", "lab=half")
    relist(Path("half/test-suite"))
    made = merge("lab=ours", "lab=half")
    assert [(origin.name, origin.jobs) for origin in made] == [("lab", 12)]
    assert tree(Path("out/lab/test-suite/planted")) == tree(Path("ours/test-suite/planted"))


def test_different_jobs_of_one_key_under_one_name_are_an_error(two: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match=r"different jobs of one key under 'lab'; name one of them NAME=FOLDER"):
        merge("lab=ours", "lab=theirs")
    assert not Path("out").exists()


@pytest.mark.slow
def test_merged_folder_of_several_origins_cannot_be_renamed(two: tuple[Path, Path]) -> None:
    merge("ours", "theirs")
    with pytest.raises(UsageError, match=r"holds several origins \(ours, theirs\)"):
        merge("lab=out", out="all")
    assert [origin.name for origin in merge("lab=out/ours", out="all")] == ["lab"]


# Of each check one: tests/results/test_integrity.py has all that they find.
DAMAGE = {
    "samples": lambda folder: put(folder / reader.SAMPLES, b"x"),
    "judgements": lambda folder: put(next((folder.parents[4] / "qrels").iterdir()), b"x"),
    "link": lambda folder: ((folder / reader.LOG).unlink(), (folder / reader.LOG).symlink_to("/etc/passwd")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_source_stops_before_anything_is_written(two: tuple[Path, Path], damage: str) -> None:
    DAMAGE[damage](job(two[1]))
    with pytest.raises(FileError, match="nothing was written"):
        merge("ours", "theirs")
    assert {path.name for path in Path().iterdir()} == {"ours", "theirs", "results"}


def test_existing_target_is_left_unchanged(two: tuple[Path, Path]) -> None:
    merge("ours", out="out")
    with pytest.raises(FileError, match="exists already and holds files"):
        merge("ours", "theirs", out="out")
    Path("file").write_text("x")
    with pytest.raises(FileError, match="exists already and"):
        merge("ours", out="file")
    with pytest.raises(UsageError, match="is a folder within ours"):
        merge("ours", out="ours/out")
    with pytest.raises(FileError, match="none: does not exist"):
        merge("ours", "none", out="other")
    Path("empty").mkdir()
    with pytest.raises(UsageError, match="empty: holds no stored job"):
        merge("ours", "empty", out="other")
    with pytest.raises(UsageError, match=r"'no name' is not a valid name of an origin"):
        merge("no name=ours", out="other")


@pytest.mark.slow
def test_files_are_linked_or_copied(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    merge("ours")
    linked = job(Path("out")) / reader.SAMPLES
    assert linked.stat().st_ino == (job(two[0]) / reader.SAMPLES).stat().st_ino

    def no_links(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(module.os, "link", no_links)
    merge("ours", out="copied")
    assert tree(Path("copied")) == tree(Path("out"))
    assert (job(Path("copied")) / reader.SAMPLES).stat().st_nlink == 1


def test_full_disk_leaves_no_merged_folder(two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_take", full)
    with pytest.raises(StoreError, match="out: cannot be written: No space left"):
        merge("ours")
    assert {path.name for path in Path().iterdir()} == {"ours", "theirs", "results"}


_DIES = """
import os, signal, sys
from pathlib import Path
from harness.results import merge as module
take, taken = module._take, []
def slowly(source, target):
    taken.append(take(source, target))
    if len(taken) == 20:
        os.kill(os.getpid(), signal.SIGKILL)
module._take = slowly
module.merge(module.parse_sources(["ours", "theirs"]), Path("out"))
"""


@pytest.mark.slow
def test_killed_merge_leaves_no_complete_folder(two: tuple[Path, Path]) -> None:
    done = subprocess.run([sys.executable, "-c", _DIES], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not Path("out").exists() and list(Path().glob("out-*.partial"))
    merge("ours", "theirs")
    assert not list(Path().glob("out*.partial")), "what the dead one left is gone"
    assert not verify_results(Path("out")).mismatches


@pytest.mark.slow
def test_renamed_origin_rebuilds_rows(two: tuple[Path, Path]) -> None:
    merge("ours")
    assert set(api.load("out").origin) == {"ours"}
    path = Path("out/ours") / origins.FILE
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:  # the kernel's clock ticks every few milliseconds
        time.sleep(0.001)
        put(path, path.read_bytes().replace(b'"ours"', b'"mine"'))
        os.sync()
    assert set(api.load("out").origin) == {"mine"}


def test_two_folders_cannot_have_one_origin(two: tuple[Path, Path]) -> None:
    merge("ours")
    shutil.copytree("out/ours", "out/again")
    for content, fault in (
        (None, "'ours' is also the name of"),
        (b'name = "../x"\njobs = 1\nsha256 = ""\n', "not a valid name of"),
    ):
        if content:
            put(Path("out/again") / origins.FILE, content)
        jobs = read_jobs(Path("out"))
        (error,) = jobs.unreadable
        assert fault in str(error) and {job.origin for job in jobs} == {"ours", "again" if content else "out/ours"}
        with pytest.raises(FileError, match=fault):
            merge("out", out="more")
