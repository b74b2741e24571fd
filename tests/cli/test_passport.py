"""`harness export --format passport`, and the commands that read the file alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from harness.analysis import passport
from harness.results import seals
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made

EXPORT = ("export", "results", "--format", "passport", "-o", "bm25.yaml")


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside results, and a passport of one of their rows in another folder."""
    monkeypatch.chdir(tmp_path)
    publisher.put(tmp_path / "results", Made("bm25", 2.0, ranks=(1, 2, 0)), Made("minilm", 9.0))
    return call


@pytest.mark.slow
def test_reprice_and_report_read_the_file_alone(harness: Call, tmp_path: Path) -> None:
    assert harness(*EXPORT, "--only", "bm25").exit_code == 0
    dates = ("--as-of", "2026-07-20", "--against", "2022-12-05", "--format", "json")

    def costs(results: str) -> dict[str, object]:
        found = json.loads(harness("reprice", results, *dates).stdout)
        (row,) = (each for each in found["changes"] if each["system"] == "bm25")
        return {name: value for name, value in row.items() if isinstance(value, float)}

    whole = costs("results")
    shutil.rmtree(tmp_path / "results")
    alone = costs("bm25.yaml")
    assert alone.keys() == whole.keys() and alone and alone == pytest.approx(whole, rel=1e-3)
    shown = harness("report", "bm25.yaml").stdout
    assert "1 CPU, 1 GiB (passport)" in shown and "2.10 (" in shown and "names none" not in shown
    for words in (("leaderboard",), ("bill",), ("report", "--format", "html", "-o", "page.html")):
        assert harness(words[0], "bm25.yaml", *words[1:]).exit_code == 0, words


@pytest.mark.slow
def test_verify_says_what_a_passport_can_prove(harness: Call, tmp_path: Path) -> None:
    harness(*EXPORT)
    done = harness("verify", "bm25.yaml")
    assert done.exit_code == 0 and "2 passports, the seals alone: all follows" in done.stdout
    assert "a person can seal any figure" in done.stdout and "has the key" in done.stdout
    path = tmp_path / "bm25.yaml"
    path.write_text(path.read_text().replace("bm25: 2.1 ms", "bm25: 0.1 ms"))
    done = harness("verify", "bm25.yaml")
    assert (
        done.exit_code == 1 and "fail  bm25.yaml: entry 1: seal" in done.stdout and "1 does not follow" in done.stdout
    )
    assert "its seal is" in harness("reprice", "bm25.yaml").stderr


@pytest.mark.slow
def test_commands_that_need_samples_say_so(harness: Call) -> None:
    harness(*EXPORT)
    for words in (("recall",), ("merge", "-o", "x"), ("history",)):
        done = harness(words[0], "bm25.yaml", *words[1:])
        assert done.exit_code != 0 and "bm25.yaml: " in done.stderr and "Traceback" not in done.stderr, words
    assert "a file, and this command reads the samples or runs" in harness("recall", "bm25.yaml").stderr
    for words in (("compare", "bm25", "minilm"), ("compare", "bm25", "minilm", "--fail-if", "latency > +5%")):
        said = harness(*words, "--results", "bm25.yaml").stderr
        assert "a passport has no values by query or process" in said
    Path("qrels").write_text("q000 0 right 1\n")
    assert "a passport has no run to judge again" in harness("report", "bm25.yaml", "--qrels", "qrels").stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "csv", "--only", "bm25"), "go with --format passport"),
        (("--format", "csv", "--source", "x"), "go with --format passport"),
        (("--format", "passport", "--only", "colbert"), "--only 'colbert' matches no row"),
        (("--format", "passport", "--measures", "P@1", "--samples"), "--samples goes with --format sqlite"),
    ],
)
def test_a_mistake_is_one_line(harness: Call, words: tuple[str, ...], said: str) -> None:
    done = harness("export", "results", "-o", "out.yaml", *words)
    assert done.exit_code == 2 and said in done.stderr and not Path("out.yaml").exists()


@pytest.mark.slow
def test_a_stranger_s_texts_stay_inert(harness: Call, tmp_path: Path) -> None:
    harness(*EXPORT, "--only", "bm25")
    path = tmp_path / "bm25.yaml"
    (raw,) = yaml.safe_load(path.read_text())
    raw["harness"]["machine"]["cpu"] = "<script>alert(1)</script>\x1b[2J|"
    path.write_text(passport.written([{**raw, "seal": seals.of(raw)}]))
    assert "\x1b" not in harness("report", "bm25.yaml", "--wide").stdout
    assert harness("report", "bm25.yaml", "--format", "html", "-o", "page.html").exit_code == 0
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
