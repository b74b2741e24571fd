"""The null system's row of `harness doctor`: what it says of harness and of the machine, and what it leaves behind."""

from __future__ import annotations

import gc
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.table import Cause, Finding, Validity
from harness.experiments import null_row
from harness.experiments.null_row import NullRow
from harness.launch.checks import Check, Level
from harness.report import writers
from harness.results.isolation import CONTAINER, PROCESS
from harness.stats import Estimate
from tests.support import sample_records

_TRIAL_MEANS_S = (0.40e-6, 0.43e-6, 0.41e-6)
_AGAIN = "end other work on this machine, then run `harness doctor` again"


def made(cpu_s: tuple[float, ...] = (0.0040, 0.0041), *findings: Finding, **changes: Any) -> NullRow:
    """Return a row whose canary read these times of the processor, and a memory that varied by 2 %."""
    row = sample_records.row(
        system="null",
        latency_mean_s=Estimate(0.41e-6, 0.40e-6, 0.43e-6),
        p95_s=Estimate(0.6e-6),
        trial_means_s=_TRIAL_MEANS_S,
        findings=findings,
        **changes,
    )
    memory_s = (0.0100, 0.0102)
    read = tuple(sample_records.canary(*times) for times in zip(cpu_s, memory_s, strict=True))
    result = sample_records.job(canary=read).result
    return NullRow("docker", row, (result,), 3.2)


def lines(row: NullRow) -> list[str]:
    return [f"{check.level.value} {check.text}" for check in row.checks]


def test_a_quiet_machine_is_trusted_down_to_what_it_varied_by() -> None:
    assert lines(made()) == [
        "ok overhead: 0.410 (0.400–0.430) µs a query, p95 0.600 µs",
        "ok CPU speed: 4.00 ms for fixed work, 2 readings within 2.5 %",
        "ok memory speed: 10.0 ms for fixed work, 2 readings within 2.0 %",
        "ok other work: none found in 0.00 s of trials",
        "ok trust: the machine may cause a latency difference below 2.5 %, as its CPU speed varied that much; harness"
        " may cause one below 0.0300 µs, as trials of the null system varied that much",
    ]


def test_a_machine_whose_speed_changes_is_a_warning() -> None:
    _, speed, _, work, trust = lines(made((0.0040, 0.0060)))
    assert speed == f"warn CPU speed: 4.00 ms for fixed work, 2 readings within 50 %; {_AGAIN}"
    assert work.startswith("ok ") and trust.startswith(
        "warn trust: the machine may cause a latency difference below 50 %"
    )


def test_other_work_is_named_by_the_doubts_of_the_row() -> None:
    taken = Finding(Cause.FOREIGN_CPU, Validity.NOISY, "other processes had 60%; stop them: run `harness run SUITE`")
    moved = Finding(Cause.CANARY, Validity.NOISY, "the machine changed its speed; stop other work")
    row = made((0.0040, 0.0041), taken, moved, validity=Validity.NOISY)
    _, _, _, work, trust = lines(row)
    assert work == f"warn other work: other processes had 60%; {_AGAIN}" and trust.startswith("warn ")
    assert row.numbers["disturbances"] == ["other processes had 60%", "the machine changed its speed"]


def test_counters_that_do_not_cover_the_trials_are_named() -> None:
    short = Finding(Cause.COUNTERS, Validity.CLEAN, "the trials were too short for the kernel's counters")
    *_, work, _ = lines(made((0.0040, 0.0041), short))
    assert work == "ok other work: none found in 0.00 s of trials, of which the counters miss some"


def test_numbers_are_whole_for_programs() -> None:
    numbers = made().numbers
    assert (numbers["mean_s"], numbers["p95_s"], numbers["canary_cpu_s"]) == (0.41e-6, 0.6e-6, 0.0040)
    assert numbers["trial_range_s"] == pytest.approx(0.03e-6) and numbers["canary_memory_spread"] == pytest.approx(0.02)
    assert (numbers["launcher"], numbers["validity"], numbers["isolation"]) == ("docker", "clean", CONTAINER.name)


@pytest.mark.slow
# The Docker SDK leaves its socket to the collector when its first request fails.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_next_launcher_measures_where_one_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    measured, (failed,) = null_row.measure(["docker", "process"])
    assert measured is not None and (measured.launcher, measured.row.isolation) == ("process", PROCESS)
    assert len(measured.results) == 5 and len(measured.readings) == 10
    mean_s = measured.row.latency.mean_s.value
    assert mean_s is not None and 0 < mean_s < 1e-3
    assert list(tmp_path.iterdir()) == [], "results, corpus and index are removed"
    assert failed.level is Level.WARN and failed.fact.startswith("docker could not measure it: the Docker engine")
    assert failed.fact.endswith("; process did")
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_machine_on_which_no_launcher_measures_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    measured, (failed,) = null_row.measure(["docker"])
    assert measured is None and failed == replace(
        failed, level=Level.FAIL, remedy="`harness conformance null --launcher docker` shows more"
    )
    gc.collect()


@pytest.mark.docker
def test_docker_measures_the_null_system_within_limits() -> None:
    measured, failed = null_row.measure(["docker"])
    assert failed == () and measured is not None and measured.row.isolation is CONTAINER
    assert [check.what for check in measured.checks] == [
        "overhead",
        "CPU speed",
        "memory speed",
        "other work",
        "trust",
    ]


def test_a_remedy_that_a_check_has_is_not_repeated() -> None:
    engine = Check(Level.FAIL, "engine", "no engine: refused", "start it")
    other = Check(Level.FAIL, "ec2", "no AWS credentials", "set them")
    document = null_row.doctor_document([engine], [replace(engine, what="docker", fact="no engine"), other], made())
    _, launchers, figures = document.sections(str)
    assert launchers.grids[0].cells == (
        ("docker", "no", "no engine; see above"),
        ("ec2", "no", "no AWS credentials; set them"),
    )
    assert figures.grids[0].headers == ("null system", "by docker, in 3 s") and len(figures.grids[0].cells) == 4
    assert max(map(len, writers.plain_table(figures.grids[0]))) <= 80
    assert figures.notes[0].startswith("ok    trust: the machine may cause a latency difference below 2.5 %")
