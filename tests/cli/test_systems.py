"""`harness systems`, `doctor` and `conformance`, as a person types them."""

from __future__ import annotations

import gc
import json
import tempfile
from pathlib import Path

import pytest

from harness.cli.launchers import usable
from harness.filesystem import this_process
from harness.launch.checks import Check, Level
from harness.launch.images import catalog
from harness.launch.process import ProcessLauncher
from harness.remote import slurm_queue
from harness.report import systems, writers
from harness.report.systems import systems_section
from tests.conftest import Bench
from tests.support.command_line import Call
from tests.support.foreign_distribution import install


@pytest.mark.slow
def test_systems_lists_shipped_and_user_systems(harness: Call) -> None:
    done = harness("systems")
    names = {line.split("|")[1].split()[0] for line in done.stdout.splitlines() if line.startswith("| ")}
    assert {"bm25", "minilm", "planted"} <= names and "| ance * " in done.stdout and "| dpr-msmarco * † " in done.stdout
    assert "| dpr * " in done.stdout and "| dpr * †" not in done.stdout, "the published weights, without a revision"
    assert "- parameters, weights, where it runs: harness systems SYSTEM" in done.stdout
    assert "- Neural Model 1 (Boytsov & Kolter 2021) is not built: code withheld, a patent filed" in done.stdout
    assert "- CITADEL (Li et al. 2022) is not built: its weights are on no hub" in done.stdout
    listed = json.loads(harness("systems", "--format", "json").stdout)["systems"]
    assert names - {"system", "------"} >= {system["system"] for system in listed if len(system["system"]) < 9}
    assert len(harness("systems", "--format", "csv").stdout.splitlines()) == len(listed) + 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100, 160])
def test_list_of_systems_has_one_line_each_and_fits_the_terminal(width: int) -> None:
    declared = list(catalog.systems().values())
    section = systems_section(declared, writers.plain_escape, width)
    lines = writers.plain_table(section.grids[0])
    assert len(lines) == len(declared) + 1 and max(map(len, lines)) <= width
    assert "licence" not in lines[0] or width == 160


def test_description_is_cut_between_clauses_or_words() -> None:
    text = "ANCE (RoBERTa-base, 768 dimensions), linear layer and norm"
    assert systems.shortened(text, 80) == text
    assert systems.shortened(text, 30) == "ANCE (RoBERTa-base, 768 ..."


def test_one_system_is_shown_with_everything(harness: Call) -> None:
    text = harness("systems", "hybrid").stdout
    for words in (
        "Joins  bm25 and colbertv2-m",
        "rrf_k = 60",
        "Languages  the dataset's, else en: en, ar, bn,",
        "Runs on  linux/amd64, linux/arm64, with NVIDIA GPUs too",
        "licence MIT",
        "Check it  harness conformance hybrid",
    ):
        assert words in text
    assert "Did you mean 'hybrid'" in harness("systems", "hybird").stderr


def test_doctor_has_a_level_and_a_fact_on_every_line(harness: Call) -> None:
    done = harness("doctor", "--quick", "--wide")
    levels = {line.split()[1] for line in done.stdout.splitlines()}
    assert levels <= {"ok", "warn", "fail"}
    assert done.exit_code == (1 if "fail" in levels else 0)
    assert all(word in done.stdout for word in ("engine:", "cgroup:", "CPUs:", "memory:", "swap:", "load:"))


def test_doctor_shows_failures_then_warnings_then_how_many_are_ok(
    harness: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = (
        Check(Level.WARN, "load", "2.67 on 2 CPUs", "end it"),
        Check(Level.OK, "swap", "none"),
        Check(Level.FAIL, "engine", "none", "start it"),
    )
    monkeypatch.setattr("harness.launch.doctor.examine", lambda _launcher: iter(checks))
    done = harness("doctor", "--quick")
    assert done.exit_code == 1 and done.stdout.splitlines() == [
        "- fail  engine: none; start it",
        "- warn  load: 2.67 on 2 CPUs; end it",
        "- 1 of 3 ok   all: --wide",
    ]
    assert [
        check["level"] for check in json.loads(harness("doctor", "--quick", "--format", "json").stdout)["checks"]
    ] == [
        "warn",
        "ok",
        "fail",
    ]
    assert harness("doctor", "--quick", "--format", "csv").stdout.splitlines()[3] == "fail,engine,none,start it"


@pytest.mark.slow
# The Docker SDK leaves its socket to the collector when its first request fails.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_doctor_measures_by_process_where_no_engine_answers(
    harness: Call, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{bench.folder}/absent.sock")
    monkeypatch.setattr(slurm_queue, "COMMANDS", ("absent-sbatch",))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(bench.folder / "absent"))
    done = harness("doctor")
    lines = done.stdout.splitlines()
    assert done.exit_code == 1 and lines[0].startswith("- fail  engine: no Docker engine answers: No such file")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert [row[:2] for row in rows[2:10]] == [
        ["docker", "no"],
        ["apptainer", "no"],
        ["process", "yes"],
        ["attached", "yes"],
        ["ec2", "no"],
        ["batch", "no"],
        ["--on slurm", "no"],
        ["--work FOLDER", "yes"],
    ]
    assert rows[2][2] == "no Docker engine answers; see above"
    assert rows[6][2] == rows[7][2] == "no AWS credentials; set AWS_PROFILE (aws configure sso)"
    assert rows[10][0] == "null system" and rows[10][1].startswith("by process, in ")
    assert [row[0] for row in rows[12:]] == ["overhead", "CPU speed", "memory speed", "other work"]
    assert "trust: the machine may cause a latency difference below " in lines[-1]
    # Two columns of 13 and 5 characters are in front of it on a terminal of 80.
    assert max(len(row[2]) for row in rows[2:10]) <= 58
    del done  # it holds the frames that hold the socket
    gc.collect()


def test_doctor_takes_the_launcher_that_works_and_fails_only_by_checks(
    harness: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = (Check(Level.FAIL, "docker", "no engine", "start it"), Check(Level.OK, "process", "plain processes"))
    asked: list[list[str]] = []

    def measure(names: list[str]) -> tuple[None, tuple[Check, ...]]:
        asked.append(names)
        return None, failed

    monkeypatch.setattr("harness.launch.doctor.examine", lambda _launcher: iter([Check(Level.OK, "swap", "none")]))
    monkeypatch.setattr("harness.cli.systems.usable", lambda: iter(listed))
    monkeypatch.setattr("harness.experiments.null_row.measure", measure)
    failed: tuple[Check, ...] = ()
    done = harness("doctor", "--format", "csv")
    assert asked == [["process"]] and done.exit_code == 0, "a launcher that does not work here fails nothing"
    assert done.stdout.splitlines() == [
        "level,check,finding,remedy",
        "ok,swap,none,",
        "fail,launcher docker,no engine,start it",
        "ok,launcher process,plain processes,",
    ]
    shown = json.loads(harness("doctor", "--format", "json").stdout)
    assert [each["check"] for each in shown["launchers"]] == ["docker", "process"] and shown["null"] is None
    failed = (Check(Level.FAIL, "null system", "process could not measure it", "look closer"),)
    done = harness("doctor")
    assert done.exit_code == 1 and done.stdout.startswith("- fail  null system: process could not measure it")


# The Docker SDK leaves its socket to the collector when its first request fails.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_launchers_of_other_packages_are_listed_and_those_that_measure_nothing_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from harness.launch.process import ProcessLauncher
from harness.results.isolation import Isolation
class Nice(ProcessLauncher):
    isolation = Isolation("nice", "CPUs were pinned, at the lowest priority", ("cpus",))
"""
    install(tmp_path, "other_launcher", code, {"nice": "other_launcher:Nice", "absent": "other_launcher:Absent"})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///absent.sock")
    monkeypatch.setattr(slurm_queue, "COMMANDS", ("absent-sbatch",))  # sinfo asks an absent controller for 9 s
    found = {check.what: check for check in usable()}
    own = ["docker", "apptainer", "process", "attached"]
    assert [*found] == [*own, "absent", "nice", "ec2", "batch", "--on slurm", "--work FOLDER"]
    assert found["nice"] == Check(Level.OK, "nice", "CPUs were pinned, at the lowest priority")
    assert found["absent"].level is Level.FAIL and found["absent"].fact.endswith("; reinstall it")
    gc.collect()


def test_doctor_lists_launchers_of_a_bare_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "EC2, AWS Batch and S3 need boto3: pip install 'ir-harness[aws]'"
    monkeypatch.setattr("harness.extras.missing", lambda package: text if package == "boto3" else "")
    monkeypatch.setenv("DOCKER_HOST", "unix:///absent.sock")
    monkeypatch.setattr(slurm_queue, "COMMANDS", ("absent-sbatch",))  # sinfo asks an absent controller for 9 s
    found = {check.what: check for check in usable()}
    own = ["docker", "apptainer", "process", "attached"]
    assert [*found] == [*own, "ec2", "batch", "--on slurm", "--work FOLDER"]
    fact, _, remedy = text.partition(": ")
    for name in ("ec2", "batch"):
        assert found[name] == Check(Level.FAIL, name, fact, remedy)
    gc.collect()


@pytest.mark.slow
def test_conformance_prints_fail_only_for_a_broken_contract(harness: Call, bench: Bench) -> None:
    good = harness("conformance", "planted", "--launcher", "process")
    assert good.exit_code == 0 and good.stdout.splitlines() == [
        "- 10 of 10 ok   all: --wide",
        "- next: `harness viable planted` finds the smallest memory that works; a suite that names the system measures"
        " it beside others: harness run SUITE",
    ]
    bench.plant("bad", misdeed="duplicate")
    bad = harness("conformance", "bad", "--launcher", "process")
    first, *_, last, then = bad.stdout.splitlines()
    assert bad.exit_code == 1 and first.startswith("- fail  verifies its envelope") and "comes twice" in bad.stdout
    assert last == "- 2 of 3 ok   all: --wide"
    assert then == "- next: correct what failed, then check again: harness conformance bad"
    assert "next" not in json.loads(harness("conformance", "bad", "--launcher", "process", "--format", "json").stdout)


@pytest.mark.slow
def test_conformance_sweeps_dead_runs_before_it_deletes_their_folders(
    harness: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / f"harness-conformance-1.{this_process().rpartition('_')[0]}_1.partial"
    left.mkdir()
    seen: list[bool] = []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ProcessLauncher, "sweep", lambda _: seen.append(left.exists()))
    assert harness("conformance", "planted", "--launcher", "process").exit_code == 0
    assert seen == [True] and not left.exists()
