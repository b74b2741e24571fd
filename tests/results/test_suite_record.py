"""The measures of suites, stored beside their results."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import harness
from harness.results import suite_record
from tests.support import publisher
from tests.support.command_line import call
from tests.support.publisher import Made

pytestmark = pytest.mark.slow


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    cells = Made("fast", 2.0, (1, 2, 0)), Made("good", 20.0, (1, 1, 2))
    publisher.put(tmp_path / "results", *cells, suite="early", measures=("P@1", "RR@10"))
    return publisher.put(tmp_path / "results", *cells, suite="late", measures=("RR@10", "AP"))


def test_measures_of_several_suites_are_their_union_in_order(results: Path) -> None:
    assert suite_record.read_measures(results) == ("P@1", "RR@10", "AP")
    assert suite_record.read_measures(results / "late") == ("RR@10", "AP")
    assert suite_record.read_measures(results / "late" / "fast" / "scifact") == ("RR@10", "AP")
    (results / "late" / suite_record.FILE).write_text('{"measures": "RR@10"}')
    assert suite_record.read_measures(results) == ("P@1", "RR@10")
    (error,) = suite_record.unreadable(results)
    assert "suite.json: key 'measures': expected a list" in str(error)


def test_commands_use_the_measures_that_the_suite_named(results: Path) -> None:
    assert " P@1 |" in call("report").stdout and " RR@10 |" not in call("report").stdout
    assert " AP " in call("report", "--wide").stdout
    assert " AP |" in call("report", "--measures", "AP").stdout
    assert " P@1 |" in call("leaderboard", "results/early").stdout
    assert " RR@10 |" in call("leaderboard", "results/late").stdout
    differences = call("compare", "fast", "good", "--results", "results/late", "--format", "csv").stdout
    assert [line["metric"] for line in csv.DictReader(io.StringIO(differences))] == ["latency", "RR@10", "AP"]
    assert "AP" not in harness.load(results / "early").columns
    assert {"P@1", "RR@10", "AP"} < set(harness.load(results).columns)


@pytest.mark.parametrize(
    ("measures", "fault"),
    [
        (["Foo@3"], "unknown measure 'Foo@3'"),
        (["P@1", "\x1b[31mP@1"], "unknown measure"),
        (["P@0"], "unknown measure 'P@0'"),
        ([f"P@{k}" for k in range(1, 20_001)], "key 'measures' has 20,000 names; the limit is 100"),
        ([f"P@{k}" for k in range(1, 101)], "makes 101 measures with the other suites'; the limit is 100"),
    ],
)
def test_measures_that_no_suite_can_name_cost_their_suite_alone(results: Path, measures: list[str], fault: str) -> None:
    path = results / "late" / suite_record.FILE
    path.unlink()
    path.write_text(json.dumps({"measures": measures}))
    assert suite_record.read_measures(results) == ("P@1", "RR@10")
    (error,) = suite_record.unreadable(results)
    assert fault in str(error)
    done = call("report")
    assert done.exit_code == 0 and " P@1 |" in done.stdout, done.output
    assert any(fault in note for note in harness.load(results).attrs["notes"])


def test_distance_of_one_suite_does_not_stop_a_leaderboard_of_all(results: Path) -> None:
    path = results / "late" / suite_record.FILE
    path.unlink()
    path.write_text(json.dumps({"measures": ["FD@10"]}))
    assert suite_record.read_measures(results) == ("P@1", "RR@10", "FD@10")
    dataset = harness.load(results)["dataset"].iloc[0]
    done = call("leaderboard", "--dataset", dataset)
    assert "FD@10" not in done.stderr and "FD@10" not in done.stdout, done.output
    done = call("export", "--format", "csv", "-o", "out.csv")
    assert done.exit_code == 0, done.output
