"""`harness run`, as a person types it."""

from __future__ import annotations

import csv
import gc
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.published import TimedSystem
from harness.analysis.table import processors
from harness.config import data_root
from harness.launch.base import LaunchEnd, LaunchRequest
from harness.launch.docker import DockerLauncher
from harness.launch.fake import FakeLauncher
from harness.launch.images.systems import System
from harness.pricing.instances import PRICES_VARIABLE
from harness.progress import Progress
from harness.results.isolation import CONTAINER
from harness.results.schema import CanaryReading
from tests.conftest import Bench, protocol
from tests.support import publisher
from tests.support.command_line import Call
from tests.support.published import shipped
from tests.support.publisher import Made


@pytest.mark.slow
def test_run_prints_the_table_and_the_paths(harness: Call, bench: Bench) -> None:
    bench.suite()
    done = harness("run", "test-suite.toml", "--launcher", "fake")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("tiny, on 1 CPU, 256 MiB (fake)") and "| planted " in done.stdout
    assert "1 job run, 0 done before" in done.stderr
    folder = bench.folder / "results" / "test-suite"
    more = "all columns and notes: harness report results/test-suite --wide"
    assert f"- page: results/test-suite/report.html   {more}" in done.stdout
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert done.stdout.startswith((folder / "report.md").read_text().rstrip())
    again = harness("run", "test-suite.toml", "--launcher", "fake")
    assert again.stdout == done.stdout and "0 jobs run, 1 done before" in again.stderr


@pytest.mark.slow
def test_latency_is_over_all_timed_queries_and_quality_over_the_judged_ones(harness: Call, bench: Bench) -> None:
    """Of 240 queries 40 are judged; 20 others warm up.  The fake finds d0 first, and no other judged document."""
    topics = "".join(f'{{"_id": "q{n:03}", "text": "where is number {n}"}}\n' for n in range(240))
    (bench.folder / "tiny" / "queries.jsonl").write_text(topics, encoding="utf-8")
    judgements = "".join(f"q{n:03} 0 d{0 if n < 30 else 9} 1\n" for n in range(40))
    (bench.folder / "tiny" / "qrels.trec").write_text(judgements, encoding="utf-8")
    bench.plant("other")
    keys = {"systems": ["planted", "other"], "measures": ["nDCG@3", "R@1"]}
    bench.suite(protocol(3, unjudged=True, warmup_queries=20), **keys)
    planned = harness("plan", "test-suite.toml", "--launcher", "fake")
    assert "  tiny: 220 queries timed, 40 judged" in planned.stderr
    done = harness("run", "test-suite.toml", "--launcher", "fake")
    assert done.exit_code == 0, done.output
    assert "220 queries timed x 3 trials, 40 judged, " in done.stdout
    rows = list(csv.DictReader(io.StringIO(harness("report", "--format", "csv").stdout)))
    assert {(row["queries"], row["queries_judged"], row["nDCG@3"], row["R@1"]) for row in rows} == {
        ("220", "40", "0.75", "0.75")
    }
    assert all(row["p95_ms"] and row["p95_at_most_ms"] for row in rows), "it takes 130 queries"
    records = json.loads(harness("report", "--format", "json").stdout)["rows"]
    assert {(record["queries"], record["judged"]["queries"]) for record in records} == {(220, 40)}
    wide = harness("report", "--wide").stdout
    assert "Timed: 220 queries in 3 trials (3 processes), 3 hits asked for; measures over 40 judged queries." in wide
    assert "180 (q040, q041, q042, ...) of 220 queries have no judgements, left out of the measures" in wide
    compared = json.loads(harness("compare", "planted", "other", "--format", "json").stdout)
    tested = compared["comparisons"][0]["differences"]
    assert {line["metric"]: line["queries"] for line in tested} == {"latency": 220, "nDCG@3": 40, "R@1": 40}
    pool = harness("pool", "--depth", "3", "--no-texts", "--format", "jsonl")
    assert {json.loads(line)["query_id"] for line in pool.stdout.splitlines()} == {f"q{n:03}" for n in range(40)}
    assert "tiny: 180 queries without judgements left out" in pool.stderr
    assert harness("verify", "results").exit_code == 0


PAPER = [str(data_root() / "suites" / f"santhanam2023-{name}.toml") for name in ("msmarco", "xortydi")]


@pytest.mark.slow
def test_whole_quote_of_the_paper_needs_no_account_no_data_and_no_engine(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All 52 cells of Table 3, each with the machine that it is launched on."""
    monkeypatch.setattr("ir_datasets.util.home_path", lambda: tmp_path / "none")
    monkeypatch.setattr("harness.aws.clients.Connections.client", None)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    for name in ("HARNESS_WORK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    done = harness("run", *PAPER, "--launcher", "ec2", "--dry-run")
    assert done.exit_code == 0, done.output
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "GiB" in line]
    assert len(rows) == 52
    published = shipped()
    paper = {
        (dataset.shipped(line.system), *_words(line)): line
        for dataset in published.about.datasets
        for line in published.table3[dataset.name]
    }
    for system, hardware, machine, _, _, _, why in rows:
        line = paper[system, hardware.partition(" (limit")[0]]
        if line.gpu:
            assert machine.endswith("*") and why == f"for {line.instance_type}, no longer rented"
        else:
            assert (machine, why) == (line.instance_type, "")
    assert "- 52 cells: 52 accepted, 26 of them on a substitute (*), 0 refused" in done.stdout.replace("\\", "")
    assert "p3.8xlarge is no longer rented: the aws list of types of 2026-07-20 lacks it" in done.stdout
    assert not (bench.folder / "results").exists()


def _words(line: TimedSystem) -> tuple[str]:
    return (f"{processors(line.cpu, line.gpu)}, {line.ram_gib} GiB",)


def test_quote_says_why_a_cell_has_no_machine(harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_WORK", raising=False)
    bench.suite(profiles=["cpu1-mem1", "cpu16-mem32"])
    done = harness("run", "test-suite.toml", "--launcher", "ec2", "--dry-run", "--instance", "m6i.large")
    assert "refused: m6i.large cannot run profile cpu16-mem32: fewer than 16 vCPUs" in done.stdout
    assert "- 2 cells: 1 accepted, 1 refused" in done.stdout and done.exit_code == 0
    assert re.search(r"about [\d. a-z]+ and US\$ 0\.\d\d for 1 of 2 cells \(", done.stdout), "the others have no price"
    assert "this host" not in done.stdout and "not on this machine" not in done.stdout


def test_quote_ends_with_the_command_of_its_own_options(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_WORK", raising=False)
    bench.suite(profiles=["cpu1-mem1", "cpu16-mem32"])
    chosen = ("--only", "planted/*/*/cpu1-mem1", "--instance", "m6i.large", "--spot", "--max-usd", "3")
    done = harness("run", "test-suite.toml", "--launcher", "ec2", "--dry-run", *chosen)
    assert done.exit_code == 0, done.output
    assert "- spot capacity costs at most that" in done.stdout
    (following,) = (line for line in done.stdout.splitlines() if line.startswith("- next: "))
    given = shlex.split(following)[2:]
    for each in (*chosen[:-1], "ec2", "s3://BUCKET"):
        assert each in given, each
    assert "--dry-run" not in given


def test_quote_refuses_what_the_launch_would_refuse(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_WORK", raising=False)
    types = '[ec2.instances]\ncpu1-mem1 = "m6g.large"\ncpu16-mem32 = "m6i.8xlarge"\n'
    path = bench.suite(types, profiles=["cpu1-mem1", "cpu16-mem32"])
    path.write_text(path.read_text().replace('build_profile = "cpu1-mem1"\n', ""))
    quote = ("run", "test-suite.toml", "--dry-run", "--launcher")
    assert "--fresh-index is not for --launcher ec2" in harness(*quote, "ec2", "--fresh-index").stderr
    assert "--retry-noisy is not for --launcher ec2" in harness(*quote, "ec2", "--retry-noisy", "2").stderr
    assert "--spot is for --launcher ec2, this is --launcher batch" in harness(*quote, "batch", "--spot").stderr
    assert "- indexes: refused: test-suite has machines of two architectures" in harness(*quote, "ec2").stdout


@pytest.mark.slow
def test_several_suites_run_one_after_the_other(harness: Call, bench: Bench) -> None:
    first = bench.suite()
    (bench.folder / "second.toml").write_text(first.read_text())
    done = harness("run", "test-suite.toml", "second.toml", "--launcher", "fake")
    assert done.exit_code == 0 and done.stderr.count("1 job run, 0 done before") == 2
    assert {path.name for path in (bench.folder / "results").iterdir()} >= {"test-suite", "second"}


@pytest.mark.slow
def test_row_of_a_whole_machine_shows_both_figures_of_memory(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host of 4 GiB, whose kernel shows 3.85 of them, runs a profile of 4 GiB within what it leaves."""
    monkeypatch.setattr("harness.launch.host.memory_bytes", lambda: int(3.85 * 2**30))
    bench.suite(profiles=["cpu1-mem4"])
    done = harness("run", "test-suite.toml", "--launcher", "fake")
    assert "1 CPU, 4 GiB (limit 3.3) (fake)" in done.stdout
    (path,) = (bench.folder / "results" / "test-suite").rglob("result.json")
    stored = json.loads(path.read_text())
    assert stored["provenance"]["nominal_memory_bytes"] == 4 * 2**30 > stored["spec"]["envelope"]["memory_bytes"]
    (row,) = json.loads(harness("report", "results/test-suite", "--format", "json").stdout)["rows"]
    assert row["price"]["memory_bytes"] == 4 * 2**30, "it costs the whole machine"
    assert "0 jobs run, 1 done before" in harness("run", "test-suite.toml", "--launcher", "fake").stderr


@pytest.mark.slow
def test_a_stored_failure_is_exit_code_1(harness: Call, bench: Bench) -> None:
    bench.plant("bad", misdeed="nan")
    bench.suite(systems=["bad"])
    done = harness("run", "test-suite.toml", "--launcher", "process")
    assert done.exit_code == 1
    assert "harness: bad tiny cpu1-mem256m ended bad_output: rank 1: the score is nan" in done.stderr
    assert "bad output" in done.stdout


@pytest.mark.slow
def test_a_suite_of_which_nothing_can_be_measured_is_exit_code_1(harness: Call, bench: Bench) -> None:
    bench.suite(
        '[[expect]]\nsystem = "planted"\nprofile = "gpu1-cpu1-mem4"\noutcome = "not_applicable"\n',
        profiles=["gpu1-cpu1-mem4"],
        overhead=True,
    )
    done = harness("run", "test-suite.toml", "--launcher", "process")
    assert done.exit_code == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("harness: nothing could be measured: 1 not applicable: no GPU on this host")
    assert last.endswith("; choose other hardware, or fix the systems")


def test_judgements_that_match_nothing_are_one_line_before_anything_is_measured(harness: Call, bench: Bench) -> None:
    bench.suite()
    (bench.folder / "tiny" / "qrels.trec").write_text("q1 0 D1 1\n")
    done = harness("run", "test-suite.toml", "--launcher", "fake")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("harness: ")]
    assert done.exit_code == 1 and "qrels name 'D1', the corpus has 'd0'" in line
    assert not list((bench.folder / "results").rglob("result.json"))


@pytest.mark.slow
def test_finished_cell_is_one_line_without_control_characters_in_a_pipe(harness: Call, bench: Bench) -> None:
    bench.suite(protocol(3))
    done = harness("run", "test-suite.toml", "--launcher", "fake")
    lines = [line for line in done.stderr.splitlines() if "planted tiny" in line]
    assert len(lines) == 1 and lines[0].startswith("  [3/3 jobs] planted tiny cpu1-mem256m 3 trials: ok"), done.stderr
    assert all(character.isprintable() or character == "\n" for character in done.stderr)


@pytest.mark.slow
def test_busy_machine_is_told_once_and_as_soon_as_a_trial_met_it(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = FakeLauncher.launch

    def disturbed(self: FakeLauncher, job: LaunchRequest, progress: Progress) -> LaunchEnd:
        def reading(when: str, cpu_s: float) -> CanaryReading:
            return CanaryReading(when=when, t_ns=0, took_s=0.1, cpu_s=cpu_s, memory_s=0.01, disk_s=None)

        return replace(launch(self, job, progress), canary=(reading("before", 0.004), reading("after", 0.012)))

    monkeypatch.setattr(FakeLauncher, "launch", disturbed)
    bench.suite(protocol(3))
    lines = harness("run", "test-suite.toml", "--launcher", "fake").stderr.splitlines()
    (told,) = (line for line in lines if "the machine changed its speed" in line)
    assert told.startswith(
        "  noisy: planted, 1 CPU, 256 MiB (fake): the machine changed its speed: fixed processor work"
    )
    assert told.endswith(" Stop other work on this machine, then run the suite again with --retry-noisy 3.")
    (first,) = (line for line in lines if "preliminary" in line)
    assert lines.index(told) == lines.index(first) + 1


@pytest.mark.slow
def test_first_screen_says_why_the_default_measure_is_shown(harness: Call, bench: Bench) -> None:
    bench.suite()
    why = "RR@10, the first measure of the paper that harness follows, is shown because the suite names none"
    other = "another: harness report results/test-suite --measures nDCG@10"
    assert f"- {why}; {other}\n" in harness("run", "test-suite.toml", "--launcher", "fake").stdout
    assert f"- {why}; another: harness report results --measures nDCG@10\n" in harness("report").stdout
    assert "is shown because" not in harness("report", "--measures", "P@1").stdout
    bench.suite(measures=["P@1"])
    assert "is shown because" not in harness("run", "test-suite.toml", "--launcher", "fake").stdout


@pytest.mark.slow
def test_suite_of_a_command_whose_data_is_wrong_is_not_left_behind(harness: Call, bench: Bench) -> None:
    (bench.folder / "tiny" / "qrels.trec").rename(bench.folder / "kept.trec")
    (bench.folder / "tiny" / "qrels.trec").write_text("q1 0 D1 1\n")
    for verb in ("plan", "run"):
        done = harness(verb, "planted", "--dataset", "./tiny", "--launcher", "fake")
        assert done.exit_code and "none of 1 judged documents is in the corpus" in done.stderr
        assert not list((bench.folder / "results").glob("*.toml"))
    (bench.folder / "kept.trec").rename(bench.folder / "tiny" / "qrels.trec")
    assert harness("run", "planted", "--dataset", "./tiny", "--launcher", "fake").exit_code == 0
    assert (bench.folder / "results" / "tiny.toml").is_file()
    (bench.folder / "tiny" / "qrels.trec").write_text("q1 0 D1 1\n")
    assert harness("run", "planted", "--dataset", "./tiny", "--launcher", "fake").exit_code
    assert (bench.folder / "results" / "tiny.toml").is_file(), "it has results"


@pytest.mark.slow
def test_row_is_shown_after_its_first_and_its_last_trial(harness: Call, bench: Bench) -> None:
    bench.suite(protocol(3), measures=["P@1", "AP"])
    done = harness("run", "test-suite.toml", "--launcher", "fake")
    first, last = [line for line in done.stderr.splitlines() if "P@1" in line]
    shown = r"  planted, 1 CPU, 256 MiB \(fake\): P@1 0\.\d+, [\d.]+ ms, .*US\$ [\d.]+\*? per 1M queries"
    assert re.fullmatch(rf"{shown} \(preliminary: 1 of 3 trials\)", first), first
    assert re.fullmatch(rf"{shown} \(3 trials\)", last), last
    assert done.stderr.index(last) < done.stderr.index("[3/3 jobs]")
    assert "preliminary" not in harness("run", "test-suite.toml", "--launcher", "fake").stderr


@pytest.mark.slow
def test_unpinned_system_is_one_line_and_the_others_run(harness: Call, bench: Bench) -> None:
    bare = 'description = "bare"\n[[assets]]\nfolder = "m"\nlicence = "MIT"\nhub = "a/m"\nfiles = ["w.bin"]\n'
    (bench.folder / "engines/planted/systems/bare.toml").write_text(bare)
    bench.suite(systems=["bare", "planted"])
    message = "bare: cannot find w.bin of 'm': the hub does not answer for a/m; no local models folder was given"
    planned = harness("plan", "test-suite.toml", "--launcher", "process")
    assert planned.exit_code == 0 and "- pinned at first use, by harness run: bare" in planned.stdout
    done = harness("run", "test-suite.toml", "--launcher", "process")
    assert done.exit_code == 1
    assert done.stderr.startswith(f"  {message}"), "it is named before anything is made"
    assert f"harness: bare tiny cpu1-mem256m ended not_applicable: no weights: {message}" in done.stderr
    assert "harness: planted" not in done.stderr and "2 jobs run" in done.stderr
    assert "to publish a pin: harness pin bare" in " ".join(harness("systems", "bare").stdout.split())
    checked = harness("conformance", "bare", "--launcher", "process")
    assert checked.exit_code == 1 and "harness: the hub does not answer for a/m" in checked.stderr


class _AsDocker(FakeLauncher):
    """Launcher whose jobs count as the jobs of the Docker launcher."""

    isolation = CONTAINER

    def recipe(self, system: System) -> str:
        return DockerLauncher(self.cache).recipe(system)


@pytest.mark.slow
def test_run_that_is_done_asks_no_engine_and_writes_no_page_again(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(bench.folder))
    monkeypatch.setattr("harness.launch.connection.connect", None)
    path = bench.suite(protocol(3))
    bench.run(_AsDocker(cache=bench.cache), path)
    first = harness("run", "test-suite.toml")
    assert first.exit_code == 0 and "0 jobs run, 3 done before" in first.stderr, first.output
    pages = [bench.results / "test-suite" / name for name in ("report.md", "report.html")]
    written = [page.stat().st_ino for page in pages]
    assert harness("run", "test-suite.toml").stdout == first.stdout
    assert [page.stat().st_ino for page in pages] == written
    pages[1].write_text("edited")
    assert harness("run", "test-suite.toml").exit_code == 0
    assert pages[1].read_text().startswith("<!doctype html>"), "an edited page is written again"
    prices = bench.folder / "prices" / "prices"
    prices.mkdir(parents=True)
    monkeypatch.setenv(PRICES_VARIABLE, str(prices.parent))
    written = [page.stat().st_ino for page in pages]
    (prices / "SHA256SUMS").touch()
    assert harness("run", "test-suite.toml").exit_code == 0
    assert [page.stat().st_ino for page in pages] != written, "prices are newer"
    planned = harness("plan", "test-suite.toml")
    assert planned.stdout.endswith("- next: harness report results/test-suite   all cells: --wide\n")


# The Docker SDK leaves its socket to the collector when its first request fails.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_missing_engine_is_one_line_with_the_remedy(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bench.folder}/absent.sock")
    bench.suite()
    done = harness("run", "test-suite.toml")
    assert done.exit_code == 1 and done.stderr.count("\n") == 1
    assert f"No such file or directory (unix://{bench.folder}/absent.sock)" in done.stderr
    assert "harness doctor" in done.stderr and "--launcher process" in done.stderr
    checked = harness("doctor", "--quick")
    assert checked.exit_code == 1 and "- fail  engine: no Docker engine answers" in checked.stdout
    del done, checked  # they hold the frames that hold the socket
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_signal_stops_the_job_with_a_message(harness: Call, bench: Bench, number: signal.Signals) -> None:
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
    _, message = child.communicate(timeout=60)
    assert child.returncode == 130
    assert message.splitlines()[-1].startswith("harness: stopped; what was finished is kept")
    assert not _processes_with(str(bench.folder))


def _processes_with(text: str) -> list[str]:
    result = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                text in (process / "environ").read_bytes().decode("utf-8", "replace")
                and int(process.name) != os.getpid()
            ):
                result.append((process / "comm").read_text().strip())
        except OSError:
            continue
    return result


PUBLISHED = str(Path(__file__).resolve().parents[2] / "results" / "published" / "santhanam2023")


@pytest.mark.slow
def test_only_contested_cells_are_measured_again(harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "far"):
        bench.plant(name)
    suite = bench.suite(systems=["one", "two", "far"])
    publisher.put(
        bench.folder / "stored",
        Made("one", 2.0, (1, 2, 0), dataset="tiny", profile="cpu1-mem256m"),
        Made("two", 2.001, (1, 0, 2), dataset="tiny", profile="cpu1-mem256m"),
        Made("far", 90.0, (0, 9, 0), dataset="tiny", profile="cpu1-mem256m"),
        suite="test-suite",
    )
    monkeypatch.delenv("HARNESS_WORK", raising=False)
    quote = harness("run", str(suite), "--contested", "stored", "--launcher", "ec2", "--dry-run")
    assert "- 1 cell: 1 accepted" in quote.stdout and "--contested stored --launcher ec2" in quote.stdout, quote.output
    done = harness("run", str(suite), "--contested", "stored", "--launcher", "fake")
    assert done.exit_code == 0, done.output
    assert {path.name for path in (bench.results / "test-suite").iterdir() if (path / "tiny").is_dir()} == {"two"}
    nothing = harness("run", "--contested", PUBLISHED)
    assert nothing.exit_code == 0 and "nothing in" in nothing.stderr
    unnamed = harness("run", "--contested", "stored")
    assert unnamed.exit_code == 2 and "suites/test-suite.toml does not exist; name its SUITE" in unnamed.stderr
    assert harness("run").exit_code == 2


@pytest.mark.slow
def test_systems_and_a_dataset_are_measured_without_a_file(harness: Call, bench: Bench) -> None:
    bench.plant("other")
    for typed in (["planted"], ["other"]):
        done = harness("run", *typed, "--dataset", "tiny", "--launcher", "fake")
        assert done.exit_code == 0, done.output
        told = "suite is results/tiny.toml: to change what is measured, edit it, then `harness run results/tiny.toml`"
        assert told in done.stderr
    assert (bench.folder / "results" / "tiny.toml").read_text() == (
        "# Written by harness. Edit it, then: harness run results/tiny.toml\n"
        'systems = ["planted", "other"]\ndatasets = ["../tiny"]\nprofiles = ["cpu1-mem1"]\n'
    )
    assert "| planted " in done.stdout and "| other " in done.stdout, "a second command adds a row"
    again = harness("run", "results/tiny.toml", "--launcher", "fake")
    assert "0 jobs run, 11 done before" in again.stderr and again.stdout == done.stdout
    listed = harness("plan", "other", "planted", "--dataset", "./tiny", "--launcher", "fake")
    assert listed.exit_code == 0 and "to do" not in listed.stdout, listed.output


def test_hardware_that_no_profile_has_is_written_into_the_suite(harness: Call, bench: Bench) -> None:
    done = harness("plan", "planted", "--dataset", "./tiny", "--cpus", "2", "--memory", "1536MiB", "--launcher", "fake")
    assert done.exit_code == 0, done.output
    assert (
        (bench.folder / "results" / "tiny-cpu2-mem1536m.toml")
        .read_text()
        .endswith('profiles = ["cpu2-mem1536m"]\n\n[hardware.cpu2-mem1536m]\ncpus = 2\nmemory = "1536MiB"\n')
    )


def test_edited_suite_keeps_its_keys_and_another_one_is_refused(harness: Call, bench: Bench) -> None:
    bench.plant("other")
    typed = ["--dataset", "./tiny", "--launcher", "fake"]
    assert harness("plan", "planted", *typed).exit_code == 0
    file = bench.folder / "results" / "tiny.toml"
    file.write_text(f"{file.read_text()}\n[protocol]\ntrials = 2  # quick\n")
    assert harness("plan", "other", *typed).exit_code == 0
    assert 'systems = ["planted", "other"]' in file.read_text() and "trials = 2  # quick" in file.read_text()
    file.write_text(file.read_text().replace("cpu1-mem1", "cpu2-mem4"))
    refused = harness("plan", "other", *typed)
    assert (refused.exit_code, refused.stderr) == (
        2,
        "harness: results/tiny.toml: it has other profiles by now; run it as a suite, or move it away\n",
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["planted"], "no suite planted; for systems, name the documents too: harness run planted --dataset ./my-data"),
        (["a.toml", "--dataset", "./tiny"], "--dataset is for systems, e.g. harness run bm25 minilm"),
        (["a.toml", "--cpus", "2"], "--cpus is for systems with --dataset; a suite's file names its own profiles"),
        (["plantid", "--dataset", "./tiny"], "unknown system 'plantid'. Did you mean 'planted'?"),
        (["planted", "--dataset", "tinny"], "unknown dataset 'tinny'; known: a folder such as ./my-data"),
        (
            ["planted", "--dataset", "./none"],
            "/none: this folder does not exist; give one with corpus, queries and qrels",
        ),
        (["planted", "--dataset", "./tiny", "--memory", "lots"], "--memory: "),
        (["planted", "--dataset", "./tiny", "--results", "s3://bucket/r"], "next to its results; name a folder"),
    ],
)
def test_wrong_words_for_a_run_are_one_line_and_write_nothing(
    harness: Call, bench: Bench, arguments: list[str], words: str
) -> None:
    refused = harness("run", *arguments, "--launcher", "fake")
    assert refused.exit_code == 2 and words in refused.stderr and refused.stderr.count("\n") == 1, refused.output
    assert not (bench.folder / "results").exists()
