"""`harness evaluate`: run files of others, judged."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.command_line import call


@pytest.fixture
def files(tmp_path: Path) -> Path:
    graded = "".join(f"q{n} 0 d{n} {1 + n % 2}\nq{n} 0 x{n} 0\n" for n in range(12))
    (tmp_path / "qrels.txt").write_text(graded + "none 0 d1 0\nnone 0 d2 -1\n")
    good = "".join(f"q{n} Q0 d{n} 1 2.0 good\nq{n} Q0 x{n} 2 1.0 good\n" for n in range(12))
    (tmp_path / "good.run").write_text(good + "none Q0 d2 1 1.0 good\n")
    # Best last by rank, first by score; a tie; one query without results; two that nobody judged.
    half = "".join(f"q{n} Q0 x{n} 1 1.0 half\nq{n} Q0 d{n} 2 {1 + n % 2}.0 half\n" for n in range(11))
    (tmp_path / "half.run").write_text("new Q0 d1 1 1.0 half\n" + half + "other Q0 d1 1 1.0 half\n")
    return tmp_path


def run(files: Path, *more: str, runs: tuple[str, ...] = ("good.run", "half.run")) -> Result:
    named = [str(files / name) for name in ("qrels.txt", *runs)]
    return call("evaluate", *named, *more)


def test_evaluate_prints_each_run_with_intervals_and_omissions(files: Path) -> None:
    done = run(files, "--measures", "RR@2 P@1 NumRel")
    assert done.exit_code == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    assert rows[0] == ["run", "queries", "RR@2 (95 %)", "P@1 (95 %)", "NumRel (95 %)"]
    assert rows[2][:2] == ["good", "13"] and rows[2][2].startswith("0.9231 (") and rows[2][4] == "12.0000 (—)"
    # q1, q3 ... by score; q0, q2 ... tie with x, which is larger; q11 has no results and none nothing relevant.
    assert rows[3][:2] == ["half", "13"] and rows[3][2].startswith(f"{(5 + 6 / 2) / 13:.4f} (")
    notes = [line.removeprefix("- ") for line in done.stdout.splitlines() if line.startswith("- ")]
    assert notes[:3] == [
        "half: 2 (none, q11) judged queries got no hits and count 0",
        f"half: 2 (new, other) queries of the run are not to be judged and are left out; the first is "
        f"in {files}/half.run:1",
        "half: 6 (q0, q10, q2, ...) queries have equal scores, ordered by document id, the largest first, as trec_eval "
        "does",
    ]
    assert notes[3:5] == [
        f"1 grade is below 0, in {files}/qrels.txt:26: no more relevant than 0 (Bpref and infAP treat them as "
        "unjudged)",
        "1 (none) of 13 judged queries have no relevant document; they count",
    ]


def test_per_query_output_has_every_value(files: Path) -> None:
    done = run(files, "--by-query", "--format", "csv", "--measures", "RR@10 Success@1", runs=("half.run",))
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(rows) == 2 * 13
    values = {(row["query_id"], row["measure"]): float(row["value"]) for row in rows}
    assert values["q1", "RR@10"] == 1.0 and values["q2", "RR@10"] == 0.5
    assert values["q11", "RR@10"] == values["none", "Success@1"] == 0.0
    shown = run(files, "--by-query", "--measures", "RR@10", runs=("half.run",)).stdout.splitlines()
    assert shown[0].split() == ["|", "run", "|", "query", "|", "measure", "|", "value", "|"]
    assert len(shown) == 2 + 13 and "| half | q2    | RR@10   | 0.5000 |" in shown


def test_json_and_csv_keep_all_digits_and_missing_values(files: Path) -> None:
    done = run(files, "--format", "json", "--measures", "P@1 R@2kt", "--by-query", runs=("good.run",))
    content: dict[str, Any] = json.loads(done.stdout)
    assert content["evaluation_version"] == 1
    (result,) = content["runs"]
    assert result["figures"]["P@1"]["value"] == pytest.approx(12 / 13) and result["queries"] == 13
    assert result["figures"]["P@1"]["low"] < 12 / 13 and result["per_query"]["P@1"]["q3"] == 1.0
    assert result["figures"]["R@2kt"]["value"] is None
    reason = "needs a dataset with answers; this one has judgements of documents"
    assert result["figures"]["R@2kt"]["reason"] == reason
    assert result["per_query"]["R@2kt"] == dict.fromkeys(result["per_query"]["P@1"])
    rows = list(csv.DictReader(io.StringIO(run(files, "--format", "csv", "--measures", "P@1 R@2kt").stdout)))
    assert [(row["run"], row["measure"], row["value"] == "", row["reason"]) for row in rows] == [
        ("good", "P@1", False, ""),
        ("good", "R@2kt", True, reason),
        ("half", "P@1", False, ""),
        ("half", "R@2kt", True, reason),
    ]


def test_queries_can_be_restricted_by_a_file(files: Path) -> None:
    (files / "queries.tsv").write_text("q1\tone\nq2\ttwo\nnobody\tthree\n")
    options = ("--queries", str(files / "queries.tsv"), "--measures", "RR@10", "-o", str(files / "out.md"))
    assert run(files, *options, runs=("half.run",)).stdout == ""
    text = (files / "out.md").read_text()
    assert "| half |       2 |   0.7500 (—) |" in text
    assert "- half: 1 (nobody) of 3 queries have no judgements, left out of the measures" in text
    assert "- no intervals: they need 11 judged queries, there are 2" in text


def test_evaluate_leaves_out_the_queries_of_a_file(files: Path) -> None:
    (files / "leaked.txt").write_text("q0\nq2\nnone\nnowhere\n")
    done = run(files, "--measures", "RR@10", "--without-queries", str(files / "leaked.txt"))
    assert "| half |      10 | " in done.stdout
    assert (
        "qrels.txt is judged without 3 of its 13 queries (leaked.txt, which also names 1 (nowhere) outside the sample)"
        in done.stdout
    )
    assert "- half: 2 (new, other) queries of the run are not to be judged" in done.stdout


def test_unjudged_hits_have_a_note(files: Path) -> None:
    (files / "half.run").write_text("".join(f"q{n} Q0 d{n} 1 2.0 x\nq{n} Q0 new 2 1.0 x\n" for n in range(12)))
    message = "- Unjudged among the first 2 hits on qrels.txt: half 50%, good 0%. They count as not relevant"
    assert message in run(files).stdout
    result = json.loads(run(files, "--format", "json").stdout)["runs"]
    assert [(each["unjudged_share"], each["unjudged_depth"]) for each in result] == [(0.0, 2), (0.5, 2)]
    rows = csv.DictReader(io.StringIO(run(files, "--format", "csv", "--measures", "RR@10").stdout))
    assert [(float(row["unjudged_share"]), row["unjudged_depth"]) for row in rows] == [(0.0, "2"), (0.5, "2")]


def test_disjoint_ids_have_a_note(files: Path) -> None:
    (files / "other.run").write_text("q1 Q0 doc-1 1 2.0 x\n")
    message = run(files, "--measures", "RR@10 nDCG@5", runs=("other.run",)).stdout
    assert "- other: none of its hits is in the judgements; check that both use the same ids" in message
    assert "- other: RR@10, nDCG@5: look deeper than the 1 hit retrieved" in message


@pytest.mark.parametrize("measures", ["", " "])
def test_empty_measures_are_refused(files: Path, measures: str) -> None:
    for command in (["evaluate", str(files / "qrels"), str(files / "good.run")], ["report", str(files)]):
        done = call(*command, "--measures", measures)
        assert done.exit_code == 2 and done.stdout == ""
        assert done.stderr == "harness: --measures is empty; name measures, e.g. 'RR@10 nDCG@10', or leave it out\n"
