"""The commands as a person types them."""

from __future__ import annotations

import csv
import errno
import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from harness.cli import main, output
from harness.errors import FileError, StoreError
from harness.filesystem import this_process
from harness.launch import docker
from harness.launch.process import ProcessLauncher
from tests.conftest import Bench


@pytest.fixture
def harness(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    return call


def test_run_prints_the_table_and_the_paths(harness, bench: Bench) -> None:
    bench.suite()
    done = harness("run", "test-suite.toml", "--launcher", "fake")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("tiny, on 1 CPU, 256 MiB (fake)") and "| planted " in done.stdout
    assert "1 jobs run, 0 were done before" in done.stderr
    page = bench.folder / "results" / "test-suite" / "report.html"
    assert "page: results/test-suite/report.html   all columns and notes: harness report results/test-suite --wide" in (
        done.stdout
    )
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (bench.folder / "results" / "test-suite" / "report.md").read_text() == done.stdout
    again = harness("run", "test-suite.toml", "--launcher", "fake")
    assert again.stdout == done.stdout and "0 jobs run, 1 were done before" in again.stderr


def test_a_stored_failure_is_exit_code_1(harness, bench: Bench) -> None:
    bench.plant("bad", misdeed="nan")
    bench.suite(systems=["bad"])
    done = harness("run", "test-suite.toml", "--launcher", "process")
    assert done.exit_code == 1
    assert "harness: bad tiny cpu1-mem256m ended bad_output: rank 1: the score is nan" in done.stderr
    assert "bad output" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("run", "absent.toml"), "absent.toml: no such file; check the path"),
        (("report", "absent"), "absent: no results here; run a suite first, or give the folder that holds them"),
        (("conformance", "plantet"), "unknown system 'plantet'; did you mean 'planted'?"),
    ],
)
def test_usage_error_is_one_line_and_exit_code_2(harness, arguments: tuple[str, ...], line: str) -> None:
    done = harness(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"harness: {line}") and done.stderr.count("\n") == 1


def test_a_misspelt_key_is_named_with_its_nearest(harness, bench: Bench) -> None:
    bench.suite(sistems=["x"])
    done = harness("plan", "test-suite.toml", "--launcher", "fake")
    assert done.exit_code == 2
    assert "test-suite.toml: unknown key 'sistems'; did you mean 'systems'?" in done.stderr


def test_plan_lists_the_steps_and_changes_nothing(harness, bench: Bench) -> None:
    bench.suite(profiles=["cpu1-mem1", "cpu1-mem4"])
    before = harness("plan", "test-suite.toml", "--launcher", "fake")
    assert "0 of 2 jobs done" in before.stdout and not (bench.folder / "results").exists()
    harness("run", "test-suite.toml", "--launcher", "fake", "--only", "cpu1-mem4")
    after = harness("plan", "test-suite.toml", "--launcher", "fake")
    assert "1 of 2 jobs done" in after.stdout and "done (ok)" in after.stdout


def test_report_is_written_in_every_format(harness, bench: Bench) -> None:
    bench.suite()
    harness("run", "test-suite.toml", "--launcher", "fake")
    rows = list(csv.DictReader(io.StringIO(harness("report", "--format", "csv").stdout)))
    assert [row["system"] for row in rows] == ["planted"]
    table = json.loads(harness("report", "results/test-suite", "--format", "json").stdout)
    assert table["rows"][0]["profile"] == "cpu1-mem256m"
    assert harness("report", "-o", "table.md").stdout == ""
    assert (bench.folder / "table.md").read_text() == harness("report").stdout
    assert "P@3" in harness("report", "--measures", "P@3").stdout


def test_an_unknown_measure_is_one_line(harness, bench: Bench) -> None:
    bench.suite()
    harness("run", "test-suite.toml", "--launcher", "fake")
    done = harness("report", "--measures", "nDGC@10")
    assert done.exit_code == 2 and done.stderr.count("\n") == 1 and "nDGC@10" in done.stderr


def test_systems_lists_shipped_and_user_systems(harness) -> None:
    done = harness("systems")
    assert {"bm25", "minilm", "planted"} <= {line.split()[0] for line in done.stdout.splitlines()[1:]}


def test_unpinned_system_is_one_line_and_the_others_run(harness, bench: Bench) -> None:
    bare = 'description = "bare"\n[[assets]]\nfolder = "m"\nlicence = "MIT"\nhub = "a/m"\nfiles = ["w.bin"]\n'
    (bench.folder / "engines/planted/systems/bare.toml").write_text(bare)
    bench.suite(systems=["bare", "planted"])
    said = "system 'bare': files of m have no sha256 yet"
    planned = harness("plan", "test-suite.toml", "--launcher", "process")
    assert planned.exit_code == 0 and planned.stderr.startswith(said) and planned.stderr.count("\n") == 1
    done = harness("run", "test-suite.toml", "--launcher", "process")
    assert done.exit_code == 1
    assert f"harness: bare tiny cpu1-mem256m ended crash: no image: {said}" in done.stderr
    assert "harness: planted" not in done.stderr and "2 jobs run" in done.stderr
    assert "bare [not pinned: harness pin bare]" in harness("systems").stdout
    checked = harness("conformance", "bare", "--launcher", "process")
    assert checked.exit_code == 1 and f"harness: {said}" in checked.stderr


def test_doctor_has_a_level_and_a_fact_on_every_line(harness) -> None:
    done = harness("doctor")
    levels = {line.split()[0] for line in done.stdout.splitlines()}
    assert levels <= {"ok", "warn", "fail"}
    assert done.exit_code == (1 if "fail" in levels else 0)
    assert all(word in done.stdout for word in ("engine:", "cgroup:", "CPUs:", "memory:", "swap:", "load:"))


# The Docker SDK leaves its socket to the collector when its first request fails.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_missing_engine_is_one_line_with_the_remedy(harness, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bench.folder}/absent.sock")
    bench.suite()
    done = harness("run", "test-suite.toml")
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert f"No such file or directory (unix://{bench.folder}/absent.sock)" in done.stderr
    assert "harness doctor" in done.stderr and "--launcher process" in done.stderr
    checked = harness("doctor")
    assert checked.exit_code == 1 and "fail  engine: no Docker engine answers" in checked.stdout
    del done, checked  # they hold the frames that hold the socket
    gc.collect()


@pytest.mark.slow
def test_conformance_prints_fail_only_for_a_broken_contract(harness, bench: Bench) -> None:
    good = harness("conformance", "planted", "--launcher", "process")
    assert good.exit_code == 0 and "FAIL" not in good.stdout, good.stdout
    bench.plant("bad", misdeed="duplicate")
    bad = harness("conformance", "bad", "--launcher", "process")
    assert bad.exit_code == 1 and "FAIL" in bad.stdout and "comes twice" in bad.stdout


def test_conformance_sweeps_dead_runs_before_it_deletes_their_folders(
    harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / f"harness-conformance-1.{this_process().rpartition('_')[0]}_1.partial"
    left.mkdir()
    seen: list[bool] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ProcessLauncher, "sweep", lambda _: seen.append(left.exists()))
    assert harness("conformance", "planted", "--launcher", "process").exit_code == 0
    assert seen == [True] and not left.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_stops_the_job_with_a_message(harness, bench: Bench, number: signal.Signals) -> None:
    bench.plant("stuck", misdeed="hang")
    path = bench.suite(systems=["stuck"])
    command = [sys.executable, "-m", "harness", "run", str(path), "--launcher", "process"]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509  (under nohup SIGHUP is ignored, rightly)
    )
    samples = bench.folder / "results" / "test-suite" / ".staging"
    deadline = time.monotonic() + 60
    while not list(samples.glob("*/out/events.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(number)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert said.splitlines()[-1].startswith("harness: stopped; what was finished is kept")
    assert not _processes_with(str(bench.folder))


def _processes_with(text: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                text in (process / "environ").read_bytes().decode("utf-8", "replace")
                and int(process.name) != os.getpid()
            ):
                found.append((process / "comm").read_text().strip())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("option", ["--results", "--cache"])
@pytest.mark.parametrize(
    ("path", "said"), [("long/" * 700, "bytes; at most"), ("n" * 300, "bytes; at most"), ("\udcff", "is not UTF-8")]
)
def test_unusable_path_is_a_usage_error(harness, bench: Bench, option: str, path: str, said: str) -> None:
    done = harness("run", str(bench.suite()), "--launcher", "fake", option, path)
    assert done.exit_code == 2 and said in done.stderr and not list(bench.folder.rglob("result.json"))


def test_signals_wait_for_the_end_of_a_protected_section() -> None:
    ended = []
    with pytest.raises(KeyboardInterrupt), docker._deferred_interrupts():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        ended.append(True)
    assert ended and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """Ignore the signal, as nohup does, while a container is created."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with docker._deferred_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_output_to_a_pipe_or_device_does_not_replace_it(tmp_path: Path) -> None:
    """A rename onto /dev/null, as root, would leave the machine without one."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        output.write(pipe, "a table\n")
        assert os.read(reader, 100) == b"a table\n"
        assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]
    finally:
        os.close(reader)
    with pytest.raises(FileError, match="cannot be written"):
        output.write(tmp_path, "a table\n")


def test_full_disk_is_one_line_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text[:3].encode(encoding))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match=r"report\.md: cannot be written: No space left on device; make room"):
        output.write(tmp_path / "report.md", "a table\n")
    assert not list(tmp_path.iterdir())


def test_commands_are_imported_when_called() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom harness.cli import main\n"
        "assert 'leaderboard' in CliRunner().invoke(main, ['--help']).output\n"
        "print([name for name in sys.modules if name.startswith(('harness.analysis', 'harness.jobs', 'numpy'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_lists_each_command_with_its_help() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=100).stdout
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None and command.help and f"  {name} " in shown
        assert command.get_short_help_str(75)[:40] in shown
