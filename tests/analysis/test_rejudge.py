"""Stored runs are judged by other judgements where those hold all that was stored; the rows say by which."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis import rejudge
from harness.analysis.rejudge import QrelsOverride
from harness.analysis.stored_runs import read_stored_runs
from harness.cli.stored_results import RunSelection
from harness.errors import UsageError
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Run
from harness.pricing.prices import Snapshot
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made
from tests.support.stored_jobs import QUERIES, Maker, build_table, one

PUBLISHED = str(Path(__file__).resolve().parents[2] / "results" / "published" / "santhanam2023")


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside stored results: every second query's judged document is not found by ``late``."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    publisher.put(tmp_path / "results", Made("early", 2.0, (1,)), Made("late", 2.0, (1, 0)))
    more = "".join(f"{query} 0 right 1\n{query} 1 wrong1 1\n" for query in publisher.QUERIES)
    Path("more.trec").write_text(more)
    Path("fewer.trec").write_text("q000 0 right 1\n")
    Path("other.trec").write_text("x 0 y 1\n")
    return call


def rows(harness: Call, *options: str) -> dict[str, dict[str, str]]:
    done = harness("report", "--format", "csv", *options)
    assert done.exit_code == 0, done.output
    return {row["system"]: row for row in csv.DictReader(io.StringIO(done.stdout))}


def test_other_judgements_replace_the_stored_ones_only_if_they_cover_them() -> None:
    instead = QrelsOverride("more.trec", "a" * 64, {"q1": {"d1": 0, "d2": 2}, "q2": {"d9": 1}})
    whole = rejudge.judgement_basis({"q1": {"d1": 1}}, instead)
    assert (whole.qrels, whole.sha256, whole.notes) == (instead.qrels, instead.sha256, ())
    message = "instead of the 1 stored judgements, with 2 more and 1 other grades"
    assert whole.changes == (f"by more.trec (SHA-256 aaaaaaaaaaaa) {message}",)
    stored = {"q1": {"d1": 1}, "q2": {"d8": 1}}
    part = rejudge.judgement_basis(stored, instead)
    assert (part.qrels, part.sha256, part.changes) == (stored, None, ())
    assert part.notes == ("judged by the stored judgements: more.trec lacks 1 of the 2",)
    assert rejudge.judgement_basis({"z": {"d1": 1}}, instead).notes == (), "another dataset's"


@pytest.mark.slow
def test_report_uses_other_judgements_and_notes_it(harness: Call) -> None:
    before = rows(harness)
    assert float(before["late"]["RR@10"]) == 0.5 and float(before["late"]["unjudged_share"]) == pytest.approx(0.95)
    after = rows(harness, "--qrels", "more.trec")
    assert float(after["late"]["RR@10"]) == 1.0 and float(after["late"]["unjudged_share"]) == pytest.approx(0.9)
    assert "instead of the 140 stored judgements, with 140 more and 0 other grades" in after["late"]["rejudged"]
    assert before["late"]["rejudged"] == ""
    assert rows(harness) == before, "what is kept of one is not taken for the other"
    assert rows(harness, "--qrels", "more.trec") == after
    text = harness("report", "--wide", "--qrels", "more.trec").stdout
    assert "- scifact is judged by more.trec (SHA-256 " in text
    assert "- Unjudged among the first 10 hits on scifact: early 90%, late 90%. They count as not relevant" in text


@pytest.mark.slow
def test_changed_qrels_file_of_the_same_name_is_read_again(harness: Call) -> None:
    assert float(rows(harness, "--qrels", "more.trec")["late"]["RR@10"]) == 1.0
    more = "".join(f"{query} 0 right 1\n{query} 0 wrong2 1\n" for query in publisher.QUERIES)
    Path("more.trec").write_text(more)
    assert float(rows(harness, "--qrels", "more.trec")["late"]["RR@10"]) == 0.75


@pytest.mark.slow
def test_leaderboard_and_comparison_note_other_judgements(harness: Call) -> None:
    board = harness("leaderboard", "--wide", "--qrels", "more.trec", "--rank-by", "accuracy")
    assert board.exit_code == 0 and "scifact is judged by more.trec" in board.stdout
    assert "Unjudged among the first 10 hits on scifact" in board.stdout
    compared = harness("compare", "early", "late", "--qrels", "more.trec", "--format", "json")
    (found,) = json.loads(compared.stdout)["comparisons"]
    assert any("is judged by more.trec" in note for note in found["notes"])
    assert next(line for line in found["differences"] if line["metric"] == "RR@10")["b"] == 1.0
    page = harness("report", "--qrels", "more.trec", "--format", "html", "-o", "page.html")
    assert page.exit_code == 0 and "is judged by more.trec" in Path("page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fewer.trec", "other.trec"])
def test_qrels_that_cover_no_result_are_refused(harness: Call, name: str) -> None:
    done = harness("report", "--qrels", name)
    assert done.exit_code == 2 and done.stderr.count("\n") == 1
    assert f"{name}: lacks judgements that were stored with each of these results" in done.stderr


@pytest.mark.slow
def test_queries_are_left_out_of_measures_and_kept_in_latencies(harness: Call) -> None:
    before = rows(harness)["late"]
    Path("leaked.txt").write_text("\ufeffq000\nq002\r\n\nstranger\n")  # late finds the documents of even queries
    after = rows(harness, "--without-queries", "leaked.txt")["late"]
    assert (before["queries_judged"], after["queries_judged"]) == ("140", "138")
    assert float(after["RR@10"]) == pytest.approx(68 / 138) and after["queries"] == "140"
    also = "leaked.txt, which also names 1 (stranger) outside the sample"
    assert after["rejudged"] == f"without 2 of its 140 queries ({also}; latencies are over all)"
    assert {after[name] == before[name] for name in ("latency_mean_ms", "p95_ms", "usd_per_million_queries")} == {True}
    assert rows(harness)["late"] == before
    both = harness("report", "--wide", "--without-queries", "leaked.txt", "--qrels", "more.trec")
    assert "other grades, without 2 of its 140 queries (leaked.txt" in both.stdout
    compared = harness("compare", "early", "late", "--without-queries", "leaked.txt", "--format", "json")
    (found,) = json.loads(compared.stdout)["comparisons"]
    assert next(line for line in found["differences"] if line["metric"] == "RR@10")["queries"] == 138
    Path("leaked.txt").write_text("q000\nq002\n")
    without = rows(harness, "--without-queries", "leaked.txt")["late"]["rejudged"]
    assert without == "without 2 of its 140 queries (leaked.txt; latencies are over all)"
    Path("leaked.txt").write_text("stranger\n")
    done = harness("report", "--wide", "--without-queries", "leaked.txt")
    assert done.exit_code == 2 and "leaked.txt: no sample here contains any of its 1 queries" in done.stderr
    done = harness("report", "--without-queries", "none.txt")
    assert done.exit_code == 2 and "none.txt: this file does not exist" in done.stderr


def test_published_figures_are_not_rejudged(harness: Call) -> None:
    done = harness("report", PUBLISHED, "--qrels", "more.trec")
    assert done.exit_code == 2 and "no runs that can be judged again" in done.stderr


def test_stored_runs_are_rejudged(harness: Call, tmp_path: Path) -> None:
    (found,) = RunSelection((Path("results"),), tmp_path, Path("more.trec")).judged()
    assert found.qrels["q000"] == {"right": 1, "wrong1": 1} and set(found.runs) == {"early", "late"}
    with pytest.raises(UsageError, match="lacks judgements"):
        RunSelection((Path("results"),), tmp_path, Path("other.trec")).judged()
    with pytest.raises(UsageError, match=r"--only needs stored results|--queries needs run files"):
        RunSelection((Path("results"),), tmp_path, Path("more.trec"), Path("queries")).judged()


@pytest.mark.slow
def test_rows_of_other_datasets_are_unchanged(harness: Call, tmp_path: Path) -> None:
    publisher.put(tmp_path / "both", Made("early", 2.0, (2,)), suite="one")
    (extra,) = read_stored_runs(Path("both"))
    assert extra.qrels["q000"] == {"right": 1}
    publisher.put(tmp_path / "both", Made("small", 2.0, (2,), dataset="nfcorpus"), suite="two", queries=("a", "b"))
    found = {row["dataset"]: row for row in rows_of("both")}
    assert found["scifact"]["rejudged"] and not found["nfcorpus"]["rejudged"]


def rows_of(folder: str) -> list[dict[str, str]]:
    done = call("report", folder, "--qrels", "more.trec", "--format", "csv")
    assert done.exit_code == 0, done.output
    return list(csv.DictReader(io.StringIO(done.stdout)))


def test_judged_answers_are_not_rejudged() -> None:
    instead = QrelsOverride("more.trec", "a" * 64, {"q1": {"d1": 1, "d2": 1}})
    runs = {"bm25": Run({"q1": ("d1",)}, ())}
    alone = JudgedRuns("set", {"q1": ""}, {"q1": {"d1": 1}}, runs, hits_alone=True)
    (again, left) = rejudge.override_runs([replace(alone, hits_alone=False), alone], instead)
    assert (again.qrels, left.qrels) == (instead.qrels, alone.qrels)
    with pytest.raises(UsageError, match="lacks judgements"):
        rejudge.override_runs([alone], instead)


@pytest.mark.slow
def test_row_without_hits_has_no_unjudged_share(make: Maker, snapshot: Snapshot) -> None:
    job = make()
    job.rank({QUERIES[0]: ("right", "wrong"), QUERIES[1]: ("wrong",)})
    row = one([job], snapshot)
    assert (row.judged.unjudged_share, row.judged.unjudged_depth) == (0.75, 10), (
        "138 queries without hits have none that is unjudged"
    )
    job.rank({})
    row = one([job], snapshot)
    assert (row.judged.unjudged_share, row.judged.unjudged_depth) == (None, 10)
    assert not any(note.startswith("Unjudged") for note in build_table([job], snapshot=snapshot).notes)


@pytest.mark.slow
def test_depth_is_that_of_the_first_measure_with_a_cutoff(make: Maker, snapshot: Snapshot) -> None:
    def depth(*measures: str) -> tuple[int | None, float | None]:
        (row,) = build_table([made], snapshot=snapshot, measures=measures).rows
        assert list(row.measures) == list(measures), "what is asked for beside them is not shown"
        return row.judged.unjudged_depth, row.judged.unjudged_share

    made = make()
    assert depth("AP", "P@1", "RR@10") == (1, 1.0)
    assert depth("AP") == depth("nDCG@50") == (10, 0.5), "10 hits were asked for"
    assert depth("Judged@10") == (10, 0.5)
