"""`harness compare`, as a person types it."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from tests.support import publisher
from tests.support.command_line import Call
from tests.support.publisher import Made


@pytest.fixture
def harness(four_systems: Call) -> Call:
    return four_systems


@pytest.mark.slow
def test_comparison_of_several_pairs_is_a_line_for_each(harness: Call) -> None:
    lines = harness("compare", "*/scifact/*/cpu1-mem1", "fast").stdout.splitlines()
    assert lines[0].startswith("3 pairs, by RR@10") and sum(line.startswith("| ") for line in lines) == 2 + 3


@pytest.mark.slow
def test_compare_prints_one_sentence_and_a_table(harness: Call) -> None:
    done = harness("compare", "--wide", "good", "bad")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("**A: good scifact single_stream cpu1-mem1; B: bad scifact single_stream cpu1-mem1**")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(
        line.startswith("| latency, ms | 21.0 | 31.5 |") and "| 1.50 (1.49–1.51) | slower | 140 |" in line
        for line in lines
    )
    assert any(line.startswith("| RR@10 |") and "| worse | 140 |" in line for line in lines)
    assert lines[2] == "B costs 1.5x [1.49, 1.51] and loses 16.8 points RR@10 [11.8, 21.8]."
    assert any(line.startswith("| RR@10 | 0.0001 | 0.0004 |") and "| 0 | 47 | 93 |" in line for line in lines)
    assert "corrected for all 4 comparisons made here (Holm 1979)" in done.stdout
    assert [line for line in lines if line.startswith("| q")] == [
        "| query | text | A | B | B - A |",
        *(f"| q{number:03} | q{number:03} | 1.000 | 0.500 | -0.500 |" for number in (0, 3, 6, 9, 12)),
    ]
    result = json.loads(harness("compare", "--wide", "good", "bad", "--format", "json").stdout)
    (one,) = result["comparisons"]
    assert one["differences"][0]["over_queries"]["value"] == pytest.approx(0.0105, rel=0.01)
    assert (result["comparison_version"], result["comparisons_tested"]) == (1, 4)
    assert one["changed_most"]["by"] == "RR@10" and one["summary"].startswith("B costs 1.5x [1.49, 1.51] and loses")
    lines = list(csv.DictReader(io.StringIO(harness("compare", "--wide", "good", "bad", "--format", "csv").stdout)))
    assert [line["metric"] for line in lines] == ["latency", "RR@10", "Success@10", "nDCG@10"]
    assert [(line["won"], line["lost"], line["tied"]) for line in lines] == [
        ("0", "140", "0"),
        ("0", "47", "93"),
        ("0", "0", "140"),
        ("0", "47", "93"),
    ]
    assert [line["p_holm"] for line in lines] == ["0.0004", "0.0004", "1.0", "0.0004"]


@pytest.mark.slow
def test_compare_without_query_texts_if_the_sample_is_damaged(harness: Call, tmp_path: Path) -> None:
    assert "| q000  | q000 | 1.000 | 0.500 | -0.500 |" in harness("compare", "--wide", "good", "bad").stdout
    stored = (tmp_path / "results").readlink()
    (tmp_path / "results").unlink()
    shutil.copytree(stored, tmp_path / "results")
    for path in (tmp_path / "results" / "quick" / "samples").iterdir():
        path.write_text("[{}]")
    done = harness("compare", "--wide", "good", "bad")
    assert done.exit_code == 0 and "B costs 1.5x [1.50, 1.50], with no RR@10 to compare." in done.stdout
    assert "The queries that changed most" not in done.stdout


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two runs of 20 queries, of which one is not judged; B has one more."""
    folder = tmp_path / "files"
    folder.mkdir()
    names = [f"q{number:02}" for number in range(20)]
    (folder / "qrels.txt").write_text("".join(f"{name} 0 right 1\n" for name in names[1:]))
    (folder / "queries.tsv").write_text("".join(f"{name}\twhat is *{name}*?\n" for name in names))
    for system, rank in (("one", 2), ("two", 1)):
        hits = ["right" if place == rank else f"wrong{place}" for place in (1, 2, 3)]
        lines = [f"{name} Q0 {hit} {place} {-place} x\n" for name in names for place, hit in enumerate(hits, 1)]
        (folder / f"{system}.run").write_text("".join(lines))
    with (folder / "two.run").open("a") as stream:
        stream.write("stray Q0 right 1 1.0 x\n")
    return folder


@pytest.mark.slow
def test_compare_reads_run_files(harness: Call, files: Path) -> None:
    options = ("compare", "--wide", str(files / "one.run"), str(files / "two.run"), "--qrels", str(files / "qrels.txt"))
    done = harness(*options, "--queries", str(files / "queries.tsv"), "--measures", "RR@10 AP", "--changed", "1")
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "**A: one qrels.txt; B: two qrels.txt**"
    assert lines[2] == "B wins 50.0 points RR@10 (every query differs by the same: no interval)."
    assert any(line.startswith("| RR@10 | 0.500 | 1.000 |") and "| better | 19 |" in line for line in lines)
    assert r"| q01 | what is \*q01\*? | 0.500 | 1.000 | +0.500 |" in lines
    assert "- 1 (q00) of 20 queries have no judgements, left out of the measures" in lines
    message = "- two: 1 (stray) queries of the run are not to be judged and are left out; the first is in "
    assert any(line.startswith(message) and "two.run:" in line for line in lines)
    (result,) = json.loads(harness(*options, "--queries", str(files / "queries.tsv"), "--format", "json").stdout)[
        "comparisons"
    ]
    assert (result["a"]["system"], result["b"]["system"]) == ("one/qrels.txt", "two/qrels.txt")
    assert result["a"]["flagged"]["unjudged"] == result["b"]["flagged"]["unjudged"] == ["q00"]
    assert (result["a"]["flagged"]["unknown"], result["b"]["flagged"]["unknown"]) == ([], ["stray"])
    missing = harness("compare", "--wide", "none.run", str(files / "two.run"), "--qrels", str(files / "qrels.txt"))
    assert missing.exit_code == 2 and missing.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one.run", "none.run", "--qrels", "qrels.txt"), "none.run: no such file; name a run file for B"),
        (("none.run", "no.run", "--qrels", "qrels.txt"), "none.run: no such file; name a run file for A"),
        (("one.run", "folder", "--qrels", "qrels.txt"), "folder: is a folder; name a run file for B"),
        (("one.run", "two.run"), "one.run, two.run: run files need their judgements; name them with --qrels"),
        (("one.run", "none.run"), "none.run: no such file"),
        (("one", "none", "--qrels", "qrels.txt", "--results", "none"), "--results needs stored results"),
        (("one", "none"), "'one' matches no stored row"),
        (("one.run", "./one.run", "--qrels", "qrels.txt"), "one.run and one.run are the same file"),
        (("one.run", "two.run", "--qrels", "qrels.txt", "--with", "results"), "--with needs stored results"),
        (("one.run", "two.run", "--qrels", "qrels.txt", "--as-of", "2026-01-01"), "--as-of needs stored results"),
        (("one.run",), "one.run and one.run are the same file"),
        (("one.run", "none*.run"), "none*.run: no such file; name a run file for B"),
        (("one.run", "two.run", "none.run"), "none.run: no such file; name a run file, or stored rows"),
        (("good", "bad", "dead"), "name stored rows by A and B, not by 3 names; put globs in quotes"),
        (("good", "good"), "'good' matches one row; name a second system"),
    ],
)
def test_incomparable_arguments_are_one_line(
    harness: Call, files: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(files)
    (files / "results").symlink_to(files.parent / "results")
    (files / "folder").mkdir()
    (files / "one").write_bytes((files / "one.run").read_bytes())  # called like a system
    done = harness("compare", "--wide", *arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert message in done.stderr


@pytest.mark.slow
def test_run_files_of_any_name_are_compared(harness: Call, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    for name in ("good", "bad"):  # stored systems are called so too
        (files / name).write_bytes((files / "one.run").read_bytes())
    assert harness("compare", "--wide", "good", "bad", "--qrels", "qrels.txt").stdout.startswith(
        "**A: good qrels.txt; B: bad"
    )
    (files / "results").symlink_to(files.parent / "results")
    assert harness("compare", "--wide", "good", "bad").stdout.startswith("**A: good scifact single_stream")


@pytest.mark.slow
def test_many_run_files_are_one_family(harness: Call, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    for name in ("three", "four", "five"):
        text = (files / "one.run").read_text()
        (files / f"{name}.run").write_text(text.replace(" -1 x", " -3 x") if name != "four" else text)
    options = ("--qrels", "qrels.txt", "--measures", "RR@10", "--format", "json")

    def pairs(*named: str) -> list[tuple[str, str]]:
        done = harness("compare", "--wide", *named, *options)
        assert done.exit_code == 0, done.output
        result = json.loads(done.stdout)["comparisons"]
        return [tuple(each[side]["system"].partition("/")[0] for side in "ab") for each in result]

    assert pairs("one.run", "t*.run") == [("one", "three"), ("one", "two")]
    assert pairs("t*.run") == [("three", "two")]
    assert pairs("one.run", "two.run", "one.run", "three.run") == [("one", "two"), ("one", "three"), ("two", "three")]
    assert len(pairs("*.run")) == len(pairs("*.run", "*.run")) == 10
    content = json.loads(harness("compare", "--wide", "*.run", *options).stdout)
    (tested,) = {content["comparisons_tested"]}
    smallest = min(each["tested"]["p"] for one in content["comparisons"] for each in one["differences"])
    claimed = [each for one in content["comparisons"] for each in one["differences"] if each["tested"]["p"] == smallest]
    assert tested == 10 and claimed[0]["p_holm"] == pytest.approx(10 * smallest), "one family"
    assert sum("equal scores" in note for note in content["notes"]) == 1
    table = harness("compare", "--wide", "*.run", "--qrels", "qrels.txt", "--measures", "RR@10").stdout
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert table.startswith("**10 pairs of runs**\n") and len(lines) == 2 + 10
    assert table.count("have equal scores") + table.count("with equal scores") == 1
    assert table.count("Unjudged among") == 1


@pytest.mark.slow
def test_compare_takes_two_result_folders(harness: Call, tmp_path: Path) -> None:
    publisher.put(tmp_path / "other", Made("good", 10.0, (1, 1, 2)))
    done = harness("compare", "--wide", "good", "good", "--with", "other")
    assert done.exit_code == 0 and "| faster" in done.stdout and "equal on every query" in done.stdout


def test_compare_names_the_outcome_of_a_failed_row(harness: Call) -> None:
    done = harness("compare", "--wide", "good", "dead")
    assert "cannot be compared" in done.stdout and "B ended oom" in done.stdout
    assert harness("compare", "--wide", "good", "none").exit_code == 2
