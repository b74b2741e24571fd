"""One record that cannot be read is named and left out: every command shows the rest, and a run goes on."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.launch.fake import FakeLauncher
from harness.report.verify import verify_results
from harness.results import origins, reader, suite_record
from harness.results.reader import RESULT, RUN, SAMPLES, read_jobs
from tests.conftest import Bench, protocol
from tests.support import publisher
from tests.support.command_line import call
from tests.support.publisher import Made
from tests.support.results_folders import change, job, put

_LARGEST = 1 << 63


@pytest.fixture(autouse=True)
def _own_process() -> None:
    """Forget what other tests made harness say: it says each thing once in a process."""
    reader._log_once.cache_clear()


@pytest.fixture
def ranked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two suites, in which every command finds something."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    cells = Made("fast", 2.0, (1, 2, 0)), Made("good", 20.0, (1, 1, 2)), Made("slow", 30.0, (1,))
    publisher.put(Path("results"), *cells, suite="early", measures=("P@1", "RR@10"), exact={"fast": "good"})
    return publisher.put(Path("results"), *cells[:2], suite="late", measures=("P@1", "RR@10"), exact={"fast": "good"})


def _replace(path: Path, way: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    way(path)


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        # The path of a socket has at most 107 bytes.
        before = Path.cwd()
        os.chdir(path.parent)
        try:
            bound.bind(path.name)
        finally:
            os.chdir(before)


def _hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


# What may take the place of any file.
_FILES: dict[str, Callable[[Path], object]] = {
    "nothing in it": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(b'{"a": [1, '),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": _bind,
    "a terabyte": _hole,
    "a folder": Path.mkdir,
}
# Records that are JSON, and that no reader takes.
_RECORDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a number beyond 64 bits": lambda raw: raw.update(wall_s=_LARGEST),
    "a parameter beyond 64 bits": lambda raw: raw["spec"]["params"].update(x=10**23),
    "megabytes of libraries": lambda raw: raw["measured"].update(libraries={"x": "y" * 2_500_000}),
    "a negative fact": lambda raw: raw["measured"].update(load_s=-1.0),
    "no time": lambda raw: raw.update(started_at="noon"),
    "a name that is a path": lambda raw: raw["spec"]["cell"].update(system="../x"),
    "a long name": lambda raw: raw["spec"]["cell"].update(system="x" * 300),
    "a repetition beyond any": lambda raw: raw["spec"].update(repetition=_LARGEST - 1),
    "thousands of parameters": lambda raw: raw["spec"]["params"].update({f"x{n}": 1 for n in range(5000)}),
    "thousands of phases": lambda raw: raw["measured"].update(
        phases=[{"name": "x", "start_ns": 1, "end_ns": 2}] * 5000
    ),
    "a rate whose price is infinite": lambda raw: raw["measured"].update(rate_qps=5e-324),
    "another version": lambda raw: raw.update(schema_version=99),
}
_TABLES = (
    "report",
    "report --format json",
    "report --wide",
    "leaderboard results/early",
    "explain",
    "compare fast good --results results/early",
    "export --format csv -o out.csv",
    "export --format sqlite --samples -o out.sqlite",
    "recall",
    "reprice",
)
_COMMANDS = (*_TABLES, "robustness results/early", "export --format ir_metadata -o out")


def _in_turn(commands: tuple[str, ...], way: str) -> tuple[str, ...]:
    """Return a third of the commands, so that each meets a third of the ways: all open files by the same readers."""
    return commands[list(_FILES).index(way) % 3 :: 3]


def _check(commands: tuple[str, ...], fault: str) -> None:
    """Run commands: each names the fault, and shows the rest."""
    for command in commands:
        reader._log_once.cache_clear()
        done = call(*command.split())
        assert done.exit_code == 0, (command, done.output)
        assert "left out: " in done.stderr and fault in done.stderr, (command, done.stderr)
        assert "fast" in done.stdout or "-o" in command, (command, done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("way", _FILES)
def test_record_in_any_state_costs_its_job_alone(results: Path, way: str) -> None:
    before, folder = read_jobs(results), job(results)
    _replace(folder / RESULT, _FILES[way])
    jobs = read_jobs(results)
    assert [each.folder for each in jobs] == [each.folder for each in before if each.folder != folder]
    assert jobs.taken == {folder.name} and len(jobs.unreadable) == 1
    frame = harness.load(results, "P@1")
    assert set(frame.system) == {"planted", "greedy"}
    assert [note for note in frame.attrs["notes"] if note.startswith(f"left out: {folder / RESULT}: ")]
    # A second table comes from the cache, with the same notes.
    assert harness.load(results, "P@1").attrs["notes"] == frame.attrs["notes"]
    assert verify_results(results).mismatches


@pytest.mark.slow
@pytest.mark.parametrize("record", _RECORDS)
def test_record_that_no_reader_takes_costs_its_job_alone(results: Path, record: str) -> None:
    folder = job(results)
    change(folder, _RECORDS[record])
    jobs = read_jobs(results)
    assert jobs.taken == {folder.name} and len(jobs) == 11
    assert call("report").exit_code == 0
    assert call("verify").exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["report", "report --at-least P@1=.1", "report --at-least P@1=.99", "leaderboard results/early"]
)
def test_short_answer_says_that_a_record_is_left_out(ranked: Path, command: str) -> None:
    note = "1 record cannot be read and is left out; `harness verify` names each."
    assert note not in call(*command.split()).stdout
    change(job(ranked / "early", "slow"), _RECORDS["no time"])
    assert note in call(*command.split()).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda folder: change(folder, _RECORDS["megabytes of libraries"]), "bytes, at most 2,097,152 make sense"),
        (lambda folder: (folder / RESULT).unlink(), f"{RESULT}: does not exist; restore it, or move its folder away"),
    ],
)
def test_every_command_names_an_unreadable_record_and_shows_the_rest(
    ranked: Path, damage: Callable[[Path], object], fault: str
) -> None:
    damage(job(ranked, "good", number=1))
    _check(_COMMANDS, fault)


@pytest.mark.slow
@pytest.mark.parametrize("name", [SAMPLES, RUN])
@pytest.mark.parametrize("way", _FILES)
def test_damaged_file_of_a_job_costs_what_needs_it(ranked: Path, name: str, way: str) -> None:
    for number in range(3):
        _replace(job(ranked, "slow", number=number) / name, _FILES[way])
    for command in _in_turn(_COMMANDS, way):
        done = call(*command.split())
        assert done.exit_code == 0 and ("fast" in done.stdout or "-o" in command), (command, done.output)
    rows = {row["system"]: row for row in json.loads(call("report", "--format", "json").stdout)["rows"]}
    reasons = [rows["slow"]["latency"]["mean_s"]["reason"], rows["slow"]["measures"]["P@1"]["reason"]]
    assert ["cannot be" in (reason or "") for reason in reasons] == [name == SAMPLES, name == RUN]


@pytest.mark.slow
@pytest.mark.parametrize("way", _FILES)
def test_damaged_record_of_a_suite_costs_what_it_names_alone(ranked: Path, way: str) -> None:
    record = ranked / "early" / suite_record.FILE
    _replace(record, _FILES[way])
    commands = tuple(command for command in _TABLES if "results/early" not in command)
    _check(_in_turn(commands, way), f"{record}: damaged: ")


@pytest.mark.slow
@pytest.mark.parametrize("way", _FILES)
def test_stray_origin_costs_no_job(results: Path, way: str) -> None:
    _replace(results / origins.FILE, _FILES[way])
    jobs = read_jobs(results)
    assert {each.origin for each in jobs} == {"results"} and len(jobs.unreadable) == 1 and len(jobs) == 12
    assert call("report").exit_code == 0
    assert call("verify").exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("way", _FILES)
def test_stray_published_tables_cost_no_job(results: Path, way: str) -> None:
    before = call("report", "--format", "csv").stdout
    _replace(results / "published.toml", _FILES[way])
    assert call("report", "--format", "csv").stdout == before
    (note,) = json.loads(call("report", "--format", "json").stdout)["unreadable"]
    assert note.startswith("left out: results/published.toml: is in a folder of stored jobs; ")
    assert call("verify").exit_code == 1


def test_folders_that_are_too_deep_are_named(results: Path) -> None:
    (job(results).parent / Path(*["deep"] * 80)).mkdir(parents=True)
    done = call("report")
    assert done.exit_code == 0 and "is a folder more than 64 levels deep; remove it" in done.stderr


def test_many_faults_are_counted_and_all_in_json(results: Path) -> None:
    folders = [path.parent for path in results.rglob(RESULT)]
    for folder in folders[1:]:
        put(folder / RESULT, b"{")
    done = call("report", "--format", "json")
    assert done.exit_code == 0 and len(done.stderr.splitlines()) == 6
    assert f"left out: {len(folders) - 6} records more that cannot be read; harness verify names all" in done.stderr
    content = json.loads(done.stdout)
    assert len(content["unreadable"]) == len(folders) - 1 and set(content["unreadable"]) < set(content["notes"])


@pytest.mark.slow
def test_folder_without_a_readable_job_is_one_line(ranked: Path) -> None:
    for path in ranked.rglob(RESULT):
        put(path, b"{")
    for command in _COMMANDS:
        done = call(*command.split())
        (line,) = done.stderr.splitlines()
        assert done.exit_code == 2 and "damaged: " in line and "records more cannot be read" in line, (command, line)


@pytest.mark.slow
def test_run_measures_a_damaged_job_again_and_plan_says_so(bench: Bench) -> None:
    path = bench.suite(protocol(3))
    bench.run(FakeLauncher(), path)
    damaged = job(bench.results, number=1)
    change(damaged, _RECORDS["a parameter beyond 64 bits"])
    reader._log_once.cache_clear()
    done = call("plan", str(path), "--results", str(bench.results), "--cache", str(bench.cache), "--launcher", "fake")
    assert done.exit_code == 0 and "left out: " in done.stderr and " 2 of 3 " in done.stdout
    summary = bench.run(FakeLauncher(), path)
    ((again, _),) = summary.jobs
    assert summary.done_before == 2 and (again.spec.job, again.spec.repetition) == (1, 1)
    assert not bench.run(FakeLauncher(), path).jobs
    assert (damaged / RESULT).is_file()


_PLAN_EACH = """
import json, sys
from click.testing import CliRunner
from harness.cli import main
for name in sys.argv[1:]:
    done = CliRunner().invoke(main, ["plan", name], catch_exceptions=False)
    print(json.dumps([done.exit_code, done.stderr]), flush=True)
"""


@pytest.mark.slow
def test_suite_that_is_no_regular_file_is_one_line(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.folder)
    names = [f"{way.replace(' ', '-')}.toml" for way in _FILES]
    for name, way in zip(names, _FILES.values(), strict=True):
        way(bench.folder / name)
    # A read that hangs would hang the tests: so it is in a process of its own, which the kernel ends.
    command = [sys.executable, "-c", _PLAN_EACH, *names]
    limited = ["prlimit", "--as=8000000000", "timeout", "60", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(told)) == (0, len(names)), (told, done.stderr)
    for name, (code, message) in zip(names, told, strict=True):
        assert code == 2 and len(message.splitlines()) == 1 and message.startswith(f"harness: {name}: "), message


def test_suite_behind_a_link_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.folder)
    (bench.folder / "linked.toml").symlink_to(bench.suite(protocol(1)))
    done = call("plan", "linked.toml", "--cache", str(bench.cache), "--launcher", "fake")
    assert done.exit_code == 0, done.output


def _below(folder: Path, name: bytes) -> Path:
    return folder / os.fsdecode(name)


@pytest.mark.slow
def test_broken_record_in_a_folder_whose_name_is_not_utf8_costs_itself_alone(ranked: Path) -> None:
    for name in (b"\xff", b"\x1b[31m"):
        folder = _below(ranked, name)
        folder.mkdir()
        (folder / RESULT).write_bytes(b"{")
    for command in ("report", "report --format json", "explain", "export --format sqlite -o out.sqlite", "recall"):
        done = call(*command.split())
        assert done.exit_code == 0 and "\x1b" not in done.output, (command, done.output)
    assert len([note for note in harness.load(ranked).attrs["notes"] if "\\udcff" in note]) == 1


def test_origin_whose_folder_is_not_utf8_has_a_name_that_files_can_hold(tmp_path: Path) -> None:
    job_origins, names = origins.JobOrigins([]), set()
    for parent in (_below(tmp_path, b"\xff"), _below(tmp_path, b"\\udcff")):
        folder = parent / "a" / "b" / "c" / "d" / "e" / "f"
        folder.mkdir(parents=True)
        (parent / origins.FILE).write_bytes(b"broken")
        name = job_origins.of_job(folder)
        assert name is not None and name.encode("utf-8")
        names.add(name)
    assert len(names) == 2


@pytest.mark.slow
def test_note_on_the_remains_of_a_job_goes_with_them(ranked: Path) -> None:
    folder = job(ranked, "good", number=1)
    for path in folder.iterdir():
        if path.name != reader.LOG:
            path.unlink()
    assert [note for note in harness.load(ranked).attrs["notes"] if "does not exist" in note]
    shutil.rmtree(folder)
    assert not [note for note in harness.load(ranked).attrs["notes"] if "does not exist" in note]


@pytest.mark.slow
def test_verify_names_files_of_a_suite_in_other_places(ranked: Path) -> None:
    strays = [ranked / "early" / "good" / "scifact" / suite_record.FILE, ranked / "early" / origins.FILE]
    for path in strays:
        path.write_text("{}")
    (note,) = (note for note in verify_results(ranked).notes if note.startswith("not checked: "))
    assert all(str(path.relative_to(ranked)) in note for path in strays)
