"""`harness history`: a figure over results of several commits, as a person sees it, and for Apache Otava."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from harness.cli.output import PICTURES
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made

_LATENCY_MS = (2.0, 2.01, 1.99, 2.0, 2.4, 2.41, 2.39, 2.4)


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside the results of eight commits: the fifth is slower."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not _has_otava(p)))
    for number, latency in enumerate(_LATENCY_MS):
        publisher.put(
            tmp_path / "results" / f"c{number}",
            Made("tantivy", latency, started=number),
            Made("bm25", 3.0, started=number, canary_s=0.010 if number < 6 else 0.020),
        )
    return call


def _has_otava(folder: str) -> bool:
    return (Path(folder) / "otava").exists()


@pytest.mark.slow
def test_the_newest_results_are_shown_with_their_changes(harness: Call) -> None:
    done = harness("history", "results", "--only", "tantivy")
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith("tantivy scifact single_stream cpu1-mem1, ")
    assert next(line for line in lines if "| c4 |" in line).startswith(
        "| 2026-11-20 10:04 | c4 | 2.52 (2.51–2.53) | +20.0 %"
    )
    assert "uv tool install apache-otava" in lines[-1]


@pytest.mark.slow
def test_programs_get_each_point(harness: Call) -> None:
    lines = list(
        csv.DictReader(io.StringIO(harness("history", "results", "--figure", "RR@10", "--format", "csv").stdout))
    )
    assert len(lines) == 16 and {line["figure"] for line in lines} == {"RR@10"}
    found = json.loads(harness("history", "results/c0", "results/c4", "--format", "json").stdout)
    assert found["history_version"] == 1 and found["change_points_by"] is None
    point = next(each for each in found["points"] if each["system"] == "tantivy" and each["results"] == "c4")
    assert point["value"] == pytest.approx(2.4 * 1.0496, rel=1e-3) and point["change"] == pytest.approx(0.2, rel=1e-3)


@pytest.mark.slow
def test_scaled_times_are_divided_by_the_speed_of_the_machine(harness: Call) -> None:
    found = json.loads(harness("history", "results", "--only", "bm25", "--scaled", "--format", "json").stdout)
    plain, scaled = found["points"][0], found["points"][-1]
    assert (plain["scale"], scaled["scale"]) == (pytest.approx(1.0), pytest.approx(0.5))
    assert scaled["value"] == pytest.approx(plain["value"] / 2, rel=1e-3)
    shown = harness("history", "results", "--only", "bm25", "--scaled").stdout
    assert "| scaled |" in " ".join(shown.split()) and "scaled: by the speed of fixed processor work" in shown


@pytest.mark.slow
@pytest.mark.parametrize("form", PICTURES)
def test_a_picture_of_each_dataset_and_profile(harness: Call, tmp_path: Path, form: str) -> None:
    done = harness("history", "results", "--format", form, "-o", "pictures")
    (path,) = (tmp_path / "pictures").iterdir()
    assert done.exit_code == 0 and path.name.endswith(f"latency-history.{form}") and path.stat().st_size > 5_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nowhere"], "nowhere"),
        (["results", "--figure", "latncy"], "no figure 'latncy'. Did you mean 'latency'?"),
        (["results", "--only", "colbert"], "--only 'colbert' matches no row"),
        (["results", "--figure", "memory", "--scaled"], "--scaled scales times of queries, and memory is not one"),
        (["results", "--format", "otava"], "name a folder for them with -o"),
    ],
)
def test_a_mistake_is_one_line(harness: Call, given: list[str], said: str) -> None:
    done = harness("history", *given)
    assert done.exit_code == 2 and said in done.stderr and done.stderr.count("\n") <= 3, done.output


@pytest.mark.slow
def test_a_mean_that_was_0_has_no_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otava's answer is read whatever it holds: JSON has no word for an infinite change."""
    program = tmp_path / "bin" / "otava"
    program.parent.mkdir()
    change = {"index": 4, "mean_before": "0.0", "mean_after": "2.4"}
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'series-0': [{'changes': [change]}]})}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    for number in range(5):
        publisher.put(tmp_path / "results" / f"c{number}", Made("tantivy", 2.0, started=number))
    found = json.loads(call("history", "results", "--format", "json").stdout)
    assert found["change_points_by"] == "Apache Otava" and found["points"][4]["change_point"] is None
    program.write_text("#!/bin/sh\necho '{\"series-0\": [{}]}'\n")
    done = call("history", "results")
    assert done.exit_code == 1 and "gave an answer of another form" in done.stderr and "Traceback" not in done.output


@pytest.mark.slow
def test_otava_s_files_have_a_test_for_each_series(harness: Call, tmp_path: Path) -> None:
    done = harness("history", "results", "--format", "otava", "-o", "otava")
    assert done.exit_code == 0, done.output
    tests = yaml.safe_load((tmp_path / "otava" / "otava.yaml").read_text())["tests"]
    assert sorted(tests) == ["series-0", "series-1"] and tests["series-1"]["metrics"]["latency"]["direction"] == -1
    lines = list(csv.DictReader((tmp_path / "otava" / "series-1.csv").read_text().splitlines()))
    assert [line["results"] for line in lines] == [f"c{number}" for number in range(8)]


@pytest.mark.slow
def test_the_real_otava_finds_the_slower_commit(harness: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an environment of its own: it pins other versions of numpy and scipy."""
    uv, environment = Path(sys.executable).with_name("uv"), tmp_path / "otava-env"
    assert uv.exists()
    for words in (["venv", "-q", str(environment)], ["pip", "install", "-q", "apache-otava==0.8.0"]):
        subprocess.run([uv, *words], check=True, env={**os.environ, "VIRTUAL_ENV": str(environment)})
    monkeypatch.setenv("PATH", f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}")
    found = json.loads(harness("history", "results", "--format", "json").stdout)
    assert found["change_points_by"] == "Apache Otava"
    points = [
        (each["system"], each["results"], each["change_point"]) for each in found["points"] if each["change_point"]
    ]
    assert points == [("tantivy", "c4", pytest.approx(0.2, abs=0.01))]
    assert "the mean changed" in harness("history", "results").stdout
    assert harness("history", "results", "--format", "png", "-o", "pictures").exit_code == 0
