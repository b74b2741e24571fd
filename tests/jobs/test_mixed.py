"""Scenario ``mixed``, from a suite to a row: what an engine does wrong with updates is seen."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.row_pricing import saturated, sequential
from harness.analysis.rows import build_rows
from harness.analysis.table import Row
from harness.driver.records import Cpuset, Outcome, Query, ScenarioParams, Updates, updates_from_json
from harness.driver.update_plan import planned_updates
from harness.errors import FileError
from harness.jobs.suite import load
from harness.launch.process import ProcessLauncher
from harness.report.columns import Column
from harness.report.row_figures import table_columns
from harness.results import updates
from harness.results.integrity import check_job
from harness.results.integrity_samples import Runs
from harness.results.origins import JobOrigins
from harness.results.reader import UPDATED_RUN, UPDATES, StoredJob, read_jobs
from harness.results.updates import Update
from tests.conftest import Bench, protocol, write_dataset
from tests.jobs.test_collect import MEASURED, SPEC, Left, line

_MIXED = "[mixed]\nquery_qps = 40\nupdate_qps = 20\ndeleted_share = 0.4\n"


def run(bench: Bench, system: str = "planted", trials: int = 1, **params: Any) -> tuple[list[StoredJob], Row]:
    """Measure a planted system on forty queries; a search for a document's own words finds it."""
    write_dataset(bench.folder / "tiny", 10)
    texts = [json.dumps({"_id": f"q{n}", "text": f"all about the {n}"}) + "\n" for n in range(40)]
    texts += [json.dumps({"_id": f"w{n}", "text": "what is warm"}) + "\n" for n in range(2)]
    (bench.folder / "tiny" / "queries.jsonl").write_text("".join(texts), encoding="utf-8")
    (bench.folder / "tiny" / "qrels.trec").write_text("".join(f"q{n} 0 d{n % 10} 1\n" for n in range(40)))
    if system != "planted":
        bench.plant(system, **params)
    path = bench.suite(protocol(trials) + _MIXED, systems=[system], scenarios=["mixed"])
    bench.run(ProcessLauncher(bench.cache), path)
    jobs = list(read_jobs(bench.results))
    (row,) = build_rows(jobs, JobEvaluator(("RR@10",))).table.rows
    return jobs, row


def verified(job: StoredJob) -> list[str]:
    folder = job.folder
    checked = check_job(folder, JobOrigins(folder.parents[4]), "job", Runs())
    return [str(mismatch) for mismatch in checked.mismatches]


@pytest.mark.slow
def test_a_row_has_the_figures_of_its_updates_and_no_price(bench: Bench) -> None:
    jobs, row = run(bench, trials=2)
    assert [job.result.outcome for job in jobs] == [Outcome.OK] * 2, jobs[0].result.detail
    assert [verified(job) for job in jobs] == [[], []]
    figures = row.updates
    assert figures is not None and row.trials == 2 and row.queries == 40
    assert figures.insert.count + figures.delete.count > 10 and not figures.failed and not figures.unsent
    assert 0 < (figures.found.p50_s.value or 0) < 1 and figures.found.missing == 0
    assert figures.recall.value == 1.0 and figures.lost == 0 and figures.checked == 2 * 4
    assert 20 < (figures.query_qps or 0) < 80 and (figures.update_qps or 0) > 5
    assert row.latency.mean_s.value and figures.idle_mean_s.value and row.latency.service_s is not None
    assert row.throughput_qps.value is None and "fixed rate" in str(row.throughput_qps.reason)
    assert sequential(row, None, None).value is None and saturated(row, None, None).value is None
    table = build_rows(jobs, JobEvaluator(("RR@10",))).table
    columns: dict[str, Column[Any]] = {column.name: column for column in table_columns(table)}
    assert columns["insert_p50_ms"].get(row) > 0 and columns["updated_recall"].get(row) == 1.0
    assert columns["not_found"].get(row) == 0 and columns["not_found_of"].get(row) > 0
    # The index in the cache is as it was built: the job wrote into a copy.
    (words,) = bench.cache.glob("indexes/*/data/words.json")
    assert len(json.loads(words.read_text())) == 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "note"),
    [
        ("lost", "cannot be found"),
        ("failing", "updates failed"),
        ("stalled", "were not sent"),
    ],
)
def test_engine_that_updates_wrongly_is_seen(bench: Bench, how: str, note: str) -> None:
    (job,), row = run(bench, "wrong", updates=how)
    assert job.result.outcome is Outcome.OK, job.result.detail
    figures = row.updates
    assert figures is not None and any(note in each for each in row.notes), row.notes
    if how == "lost":
        assert figures.lost > 0 and figures.found.missing > 0 and (figures.recall.value or 1) < 1


@pytest.mark.slow
def test_engine_without_updates_is_a_crash_that_says_so(bench: Bench) -> None:
    (job,), row = run(bench, "wrong", updates="unknown")
    assert job.result.outcome is Outcome.CRASH and "Planted knows no updates;" in str(job.result.detail)
    assert row.updates is None


def test_protocol_with_one_process_for_all_trials_is_refused(bench: Bench) -> None:
    path = bench.suite(protocol(2, name="santhanam2023"), scenarios=["mixed"])
    with pytest.raises(FileError, match="mixed needs a fresh process for each trial; santhanam2023 has one for all"):
        load(path)


_DOCUMENTS = tuple({"_id": f"d{n}", "title": "", "text": f"word{n}"} for n in range(3))
_UPDATES = Updates(1.0, 20.0, _DOCUMENTS)
MIXED_SPEC = replace(
    SPEC,
    scenario="mixed",
    trials=3,
    updates=_UPDATES,
    repeats=0,
    sample=(Query("q0", "x"), Query("q1", "y")),
)
_TURNS = [(-1, "w0"), (0, "q0"), (0, "q1"), (1, "q1"), (1, "q0"), (2, "q0"), (2, "q1")]


def good_lines() -> list[dict[str, Any]]:
    """What an honest driver writes."""
    plan = planned_updates(MIXED_SPEC.seed, 0, _UPDATES, 2)
    lines: list[dict[str, Any]] = [
        {
            "kind": each.kind,
            "doc_id": f"d{each.place}",
            "scheduled_ns": each.scheduled_ns,
            "latency_ns": 9,
            "service_ns": 5,
        }
        for each in plan
    ]
    assert len(lines) > 4
    return [*lines, {"kind": "check", "doc_id": "d0", "seen_ns": 7}, {"kind": "check", "doc_id": "d2", "seen_ns": None}]


@pytest.fixture
def left(tmp_path: Path) -> Left:
    made = Left(tmp_path)
    made.job = replace(made.job, spec=MIXED_SPEC)
    made.wrote(*(line(trial, query_id) for trial, query_id in _TURNS))
    return made


def write(left: Left, lines: list[Any]) -> None:
    text = "".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in lines)
    (left.job.out / "updates.jsonl").write_text(text)


def test_honest_updates_are_kept(left: Left) -> None:
    left.measured(MEASURED)
    write(left, good_lines())
    collected = left.collect()
    assert (collected.outcome, collected.detail) == (Outcome.OK, None)
    assert len(collected.updates) == len(good_lines()) and collected.updates[-2].watched
    assert collected.answers(2, changing=True).ranking_disagreements is None
    run = (collected.updated_run("bm25") or b"").decode().splitlines()
    assert run[0] == "q0 Q0 d1 1 2.0 bm25" and len(run) == 4


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        (0, "no JSON", "updates.jsonl: line 1"),
        (0, ["a list"], "updates.jsonl: line 1"),
        (0, {"kind": "upsert"}, "kind 'upsert'"),
        (0, {"doc_id": "d2"}, "update 1 is not the delete of document 'd0' that was due"),
        (1, {"scheduled_ns": 3}, "update 2 is not the"),
        (0, {"latency_ns": 0}, "longer than latency_ns"),
        (0, {"latency_ns": -1}, "latency_ns -1 is not a whole number"),
        (0, {"latency_ns": True}, "latency_ns True is not a whole number"),
        (0, {"latency_ns": 1 << 61}, "after the trial began"),
        (0, {"service_ns": 10}, "service_ns 10 is longer"),
        (0, {"seen_ns": 9}, "it was seen, and not watched"),
        (0, {"watched": 1, "seen_ns": 1 << 61}, "a change was seen later than"),
        (0, {"failed": 9}, "failed '9'"),
        (0, {"failed": 1, "watched": 1}, "a failed update cannot be seen"),
        (0, {"more": 9}, "unknown key 'more'"),
        (0, {"doc_id": "d\n0"}, "blanks or control characters"),
        (0, {"doc_id": "x" * 5000}, "updates.jsonl: line 1"),
        (-1, {"doc_id": "d0"}, "the checks after the updates are not one for each document"),
        (-1, {"doc_id": "d9"}, "the checks after the updates are not one for each document"),
        (-1, {"latency_ns": 5}, "a check has the time"),
    ],
)
def test_wrong_updates_are_bad_output(left: Left, place: int, change: Any, words: str) -> None:
    lines: list[Any] = good_lines()
    lines[place] = {**lines[place], **change} if isinstance(change, dict) else change
    write(left, lines)
    left.ends(Outcome.BAD_OUTPUT, words)


def test_missing_and_surplus_updates_are_bad_output(left: Left) -> None:
    left.ends(Outcome.BAD_OUTPUT, "updates are missing")
    write(left, good_lines()[2:])
    left.ends(Outcome.BAD_OUTPUT, "update 1 is not the")
    write(left, good_lines() * 4)
    left.ends(Outcome.BAD_OUTPUT, "more than")
    (left.job.out / "updates.jsonl").unlink()
    (left.job.out / "updates.jsonl").symlink_to("/etc/passwd")
    left.ends(Outcome.BAD_OUTPUT, "updates are missing")


def test_stored_updates_are_read_as_they_were_written(tmp_path: Path) -> None:
    made = (
        Update("insert", "d1", 5, 9, 4, watched=True, seen_ns=None),
        Update("delete", "d2", 6, 9, 4, failed=3),
        Update("check", "d1", watched=True, seen_ns=12),
    )
    path = tmp_path / UPDATES
    path.write_bytes(gzip.compress(updates.render(made)))
    assert updates.read(path) == made
    for wrong in (b"insert\td1\n", b"insert\td1\t5\tx\t4\t-\t-\t0\n", b"insert\td1\t5\t9\t4\t-\t-\t2\n", b"\xff\n"):
        path.write_bytes(gzip.compress(wrong))
        with pytest.raises(FileError, match=r"updates\.tsv\.gz:1: damaged: "):
            updates.read(path)
    with pytest.raises(FileError, match="does not exist"):
        updates.read(tmp_path / UPDATED_RUN)


def test_spec_of_a_mixed_job_is_one_that_an_older_driver_can_read(left: Left) -> None:
    params = ScenarioParams(query_qps=20.0, update_qps=5.0, deleted_share=0.05)
    job = replace(left.job, spec=replace(MIXED_SPEC, scenario_params=params, pause=True))
    job.write_spec(Cpuset((0,)))
    raw = json.loads((job.folder / "spec.json").read_text())
    assert "updates" not in raw and raw["scenario_params"].keys() == {
        "batch_size",
        "latency_target_s",
        "latency_percentile",
    }
    assert updates_from_json((job.folder / "updates.json").read_text()) == _UPDATES


def test_job_changes_a_copy_of_the_index(left: Left) -> None:
    (index := left.job.folder / "built").mkdir()
    (index / "segment").write_text("as built")
    copied = replace(left.job, index_dir=index).with_copied_index()
    assert copied.may_write_index and copied.index_dir != index
    (copied.index_dir / "segment").write_text("changed")
    assert (index / "segment").read_text() == "as built"
