"""`harness import`: quality of others beside measured cost, marked, and in no rank."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import Result as CliResult

from harness.cli.output import PICTURES
from harness.results import foreign
from tests.results.test_foreign_formats import DATA, REVISION, mteb
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside results of three systems, and a result of MTEB."""
    monkeypatch.chdir(tmp_path)
    publisher.put(
        tmp_path / "results",
        Made("minilm", 5.0, ranks=(1, 1, 2), models=(f"{MODEL}@{REVISION}",)),
        Made("hybrid", 6.0, ranks=(1, 1, 2), models=(f"{MODEL}@{REVISION}", "other/model")),
        Made("bm25", 0.5, ranks=(1, 2, 0)),
    )
    mteb(tmp_path / "theirs")
    return call


def imported(harness: Call, *words: str) -> CliResult:
    done = harness("import", "mteb", "theirs", *words)
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.slow
def test_quality_of_a_model_is_beside_the_cost_of_its_system(harness: Call) -> None:
    said = imported(harness).stdout.splitlines()
    assert said == [
        "mteb: 1 figure in 1 file",
        "minilm: mteb SciFact nDCG@10 0.645°",
        "written: results/foreign.json",
        "harness report shows them, marked °",
    ]
    shown = harness("report").stdout
    assert "nDCG@10 SciFact (mteb)°" in shown and "0.645°" in shown and "not measured here, and in no rank" in shown
    assert shown.count("0.645°") == 1, "a system of two models is not what MTEB measured"
    wide = harness("report", "--wide").stdout
    assert f"mteb reports it of {MODEL} at {REVISION[:12]}, SciFact test, imported" in wide
    lines = {line["system"]: line for line in csv.DictReader(io.StringIO(harness("report", "--format", "csv").stdout))}
    assert lines["minilm"]["mteb SciFact nDCG@10"] == "0.64508" and lines["bm25"]["mteb SciFact nDCG@10"] == ""
    assert lines["minilm"]["RR@10"] != "0.64508"
    assert "Quality by others" in harness("explain", "minilm").stdout


@pytest.mark.slow
def test_nothing_that_was_measured_changes(harness: Call) -> None:
    def board() -> object:
        return json.loads(harness("leaderboard", "--amrs", "cost=1,latency=1", "--format", "json").stdout)

    before = board()
    imported(harness)
    assert board() == before


@pytest.mark.slow
def test_another_revision_is_said_and_its_user_decides(harness: Call, tmp_path: Path) -> None:
    other = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
    publisher.put(tmp_path / "again", Made("minilm", 5.0, models=(f"{MODEL}@{other}",)))
    said = imported(harness, "--results", "again").stdout
    assert "minilm: mteb" not in said
    wanted = f"--model minilm={MODEL}@{REVISION}"
    assert f"minilm has {MODEL} at c9745ed1d9f2, and these figures are of 8b3219a92973" in said and wanted in said
    assert "minilm: mteb SciFact nDCG@10 0.645°" in imported(harness, "--results", "again", *wanted.split()).stdout
    assert "0.645°" in harness("report", "again").stdout


@pytest.mark.slow
def test_a_second_file_joins_the_first(harness: Call, tmp_path: Path) -> None:
    imported(harness)
    mteb(tmp_path / "more", "NFCorpus")
    harness("import", "mteb", "more")
    shown = harness("report", "--format", "json").stdout
    assert "mteb SciFact nDCG@10" in shown and "mteb NFCorpus nDCG@10" in shown


@pytest.mark.slow
def test_more_than_a_report_can_read_is_refused(harness: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "_MOST_BYTES", 300)
    done = harness("import", "mteb", "theirs")
    assert done.exit_code == 2 and "import the folders of your own models alone" in done.stderr
    assert not Path("results/foreign.json").exists()


@pytest.mark.slow
def test_verify_checks_the_seal(harness: Call, tmp_path: Path) -> None:
    def faults() -> list[str]:
        # The other files have scripted hashes.
        found = json.loads(harness("verify", "--format", "json").stdout)["mismatches"]
        return [each["stored"] for each in found if each["place"] == foreign.FILE]

    imported(harness)
    assert faults() == []
    path = tmp_path / "results" / foreign.FILE
    path.write_text(path.read_text().replace("0.64508", "0.94508"))
    assert len(faults()) == 1 and faults()[0].startswith("its seal is")
    assert "its seal is" in harness("report").stderr


@pytest.mark.slow
@pytest.mark.parametrize("form", PICTURES)
def test_pictures_say_whose_quality_it_is(harness: Call, tmp_path: Path, form: str) -> None:
    imported(harness)
    assert harness("import", "vectordbbench", str(DATA)).exit_code == 0
    done = harness("report", "--format", form, "-o", "pictures")
    names = {path.name for path in (tmp_path / "pictures").iterdir()}
    assert f"scifact-foreign.{form}" in names, done.output
    assert sum(name.startswith("vectordbbench-1536d") for name in names) == 3
    if form == "svg":
        text = (tmp_path / "pictures" / f"scifact-foreign.{form}").read_text()
        assert "own cost, SciFact nDCG@10 by mteb (not measured here)" in text and "#7b2d8b" in text.lower()


@pytest.mark.slow
def test_the_page_marks_it(harness: Call, tmp_path: Path) -> None:
    imported(harness)
    assert harness("report", "--format", "html", "-o", "page.html").exit_code == 0
    assert "nDCG@10 SciFact (mteb)°" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("mteb", "nowhere.json"), "nowhere.json"),
        (("mteb", "theirs", "--measures", "P@5"), "no figure in 1 file of mteb: none has P@5; nothing was written"),
        (("mteb", "theirs", "--model", "minilm"), "write SYSTEM=MODEL"),
        (("mteb", "theirs", "--results", "nowhere"), "nowhere"),
        (("mteb", "theirs", "--results", "santhanam2023"), "import writes into a folder of your own results"),
        (("mteb", "theirs", "--results", "s3://bucket/results"), "name a local one with --results"),
    ],
)
def test_a_mistake_is_one_line(harness: Call, words: tuple[str, ...], said: str) -> None:
    done = harness("import", *words)
    assert done.exit_code == 2 and said in done.stderr and not Path("results/foreign.json").exists(), done.output
