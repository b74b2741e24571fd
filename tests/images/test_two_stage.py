"""A first stage finds, a reranker orders: ranking, stages, counts, and failures that name their component."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import math
import re
import shutil
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.driver.adapter import Corpus
from harness.errors import FileError
from harness.launch.images import catalog
from harness.launch.process import ProcessLauncher
from harness.records import Envelope, Hit, Outcome
from harness.results.reader import StoredJob, read_jobs
from tests.conftest import Bench
from tests.images.test_fusion import PROTOCOL, declare, rankings

K = 3


def stage(bench: Bench, depth: object, first: str = "words", **letters: object) -> None:
    """Declare ``both``: ``first``, then ``letters`` over ``depth`` documents."""
    declare(bench, **letters)
    shutil.rmtree(bench.folder / "engines" / "fusion")
    systems = bench.folder / "engines" / "two-stage" / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    text = f'description = "two"\ncomponents = ["{first}", "letters"]\n[search_params]\ndepth = {json.dumps(depth)}\n'
    (systems / "both.toml").write_text(text)


def measured(bench: Bench, *systems: str, more: str = "") -> dict[str, StoredJob]:
    suite = bench.suite(PROTOCOL.format(10) + more, systems=list(systems), profiles=["cpu1-mem256m"])
    bench.run(ProcessLauncher(bench.cache), suite)
    return {job.result.spec.cell.system: job for job in read_jobs(bench.results)}


def first_stage(job: StoredJob) -> dict[str, list[str]]:
    assert job.first_stage_path is not None
    found: dict[str, list[str]] = {}
    for line in gzip.decompress(job.first_stage_path.read_bytes()).decode().splitlines():
        query_id, _, doc_id, *_ = line.split()
        found.setdefault(query_id, []).append(doc_id)
    return found


@pytest.mark.slow
def test_documents_above_depth_are_ordered_by_the_second_stage_and_the_rest_stays(bench: Bench) -> None:
    stage(bench, 2)
    jobs = measured(bench, "words", "letters", "both", more="[sweep.both]\ndepth = [0, 2, 1000]\n")
    assert {job.result.outcome for job in jobs.values()} == {Outcome.OK}, jobs["both-depth2"].result.detail
    assert len({job.result.spec.index_key for name, job in jobs.items() if "depth" in name}) == 1, "one index"
    ranked = rankings(bench.results)
    moved = 0
    for query_id, alone in ranked["words"].items():
        given, below = [hit.doc_id for hit in alone[:2]], alone[2]
        assert first_stage(jobs["both-depth2"])[query_id] == [hit.doc_id for hit in alone], "k is more than depth"
        top = [hit.doc_id for hit in ranked["both-depth2"][query_id][:2]]
        assert sorted(top) == sorted(given)
        assert ranked["both-depth2"][query_id][2] == Hit(below.doc_id, ranked["both-depth2"][query_id][1].score - 1)
        # Depth 0 is the first stage, score by score; a depth beyond the collection is the second stage's own search.
        assert ranked["both-depth0"][query_id] == alone
        moved += [hit.doc_id for hit in ranked["both-depth1000"][query_id]] != [hit.doc_id for hit in alone]
        assert [hit.score for hit in ranked["both-depth1000"][query_id]] == [
            hit.score for hit in ranked["letters"][query_id]
        ]
    assert moved, "else the second stage might do nothing"


@pytest.mark.slow
def test_sweep_of_the_second_stages_index_scores_by_each_and_keeps_the_first_stages_index(bench: Bench) -> None:
    stage(bench, 1000)
    swept = '[sweep.both]\n"letters.shared" = ["letters", "words"]\n'
    jobs = measured(bench, "words", "letters", "both", more=swept)
    assert {job.result.outcome for job in jobs.values()} == {Outcome.OK}, jobs
    ranked = rankings(bench.results)
    for shared in ("letters", "words"):
        point = f"both-letters.shared_{shared}"
        assert jobs[point].result.spec.params["letters.shared"] == shared
        for query_id, alone in ranked[shared].items():
            assert [hit.score for hit in ranked[point][query_id]] == [hit.score for hit in alone]
    built = {name: job.result.spec.index_key for name, job in jobs.items()}
    assert len(set(built.values())) == 4, "words, letters, and two joined ones"


@pytest.mark.slow
def test_stages_sum_to_the_latency_and_counts_are_stored(bench: Bench) -> None:
    stage(bench, 2)
    job = measured(bench, "both")["both"]
    assert job.result.outcome is Outcome.OK, job.result.detail
    rows = job.samples().to_pylist()
    names = {name for name in rows[0] if name.startswith("stage_")}
    assert names == {f"stage_{name}_ns" for name in ("retrieve", "retrieve.retrieve", "score", "fetch", "merge")}
    stages = [sum(row[f"stage_{name}_ns"] for name in ("retrieve", "fetch", "score", "merge")) for row in rows]
    outside = [row["latency_ns"] - each for row, each in zip(rows, stages, strict=True)]
    assert min(outside) >= 0 and all(row["count_pairs"] == 2 for row in rows)
    # A4, with room for a wake-up: the driver's call and the last reading of the clock lie outside.
    assert median(outside) <= median(stages) * 0.02 + 1e6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("misdeed", "outcome", "message"),
    [
        (
            "nan",
            Outcome.BAD_OUTPUT,
            "letters: the engine says: BadAnswer: score 2 of 2 is nan, not a finite plain number",
        ),
        ("short", Outcome.BAD_OUTPUT, "letters: the engine says: BadAnswer: score returned 1 scores for 2 documents"),
    ],
)
def test_wrong_scores_name_the_reranker(bench: Bench, misdeed: str, outcome: Outcome, message: str) -> None:
    stage(bench, 2, misdeed=misdeed)
    result = measured(bench, "both")["both"].result
    assert result.outcome is outcome and str(result.detail).startswith(message), result.detail


@pytest.mark.slow
def test_wrong_depth_is_refused(bench: Bench) -> None:
    stage(bench, depth := 1001)
    detail = str(measured(bench, "both")["both"].result.detail)
    assert f"depth is {depth!r}, must be a whole number of documents from 0 to 1000" in detail


def test_system_that_scores_nothing_is_no_second_stage(bench: Bench) -> None:
    stage(bench, 2)
    (bench.folder / "engines" / "toy" / "engine.toml").write_text('description = "toy"\n')
    with pytest.raises(FileError, match="'letters' scores no given documents; rerankers are: "):
        catalog.system("both")


def write_run(bench: Bench, lines: str) -> None:
    """Declare ``stored``: a run of the folder ``models/stored``."""
    folder = bench.folder / "models" / "stored"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.trec").write_text(lines)
    (folder / "queries.jsonl").write_text((bench.folder / "tiny" / "queries.jsonl").read_text())
    systems = bench.folder / "engines" / "fixed-run" / "systems"
    systems.mkdir(parents=True, exist_ok=True)
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    files = "".join(f'"{name}" = "{sha256}"\n' for name, sha256 in sums.items())
    (systems / "stored.toml").write_text(
        'description = "a run"\n[build_params]\nrun = "stored"\n[[assets]]\nfolder = "stored"\nlicence = "CC0-1.0"\n'
        f"[assets.sha256]\n{files}"
    )


@pytest.mark.slow
def test_stored_run_is_reranked_in_its_own_order(bench: Bench) -> None:
    """Its equal scores come as trec_eval takes them, the later id first."""
    ids = [json.loads(line)["_id"] for line in (bench.folder / "tiny" / "corpus.jsonl").read_text().splitlines()]
    queries = [json.loads(line)["_id"] for line in (bench.folder / "tiny" / "queries.jsonl").read_text().splitlines()]
    write_run(bench, "".join(f"{query} Q0 {doc_id} 1 0.5 x\n" for query in queries for doc_id in ids[:4]))
    stage(bench, 4, first="stored")
    launcher = ProcessLauncher(bench.cache, models=bench.folder / "models")
    suite = bench.suite(PROTOCOL.format(10), systems=["both"], profiles=["cpu1-mem256m"])
    bench.run(launcher, suite)
    (job,) = read_jobs(bench.results)
    assert job.result.outcome is Outcome.OK, job.result.detail
    assert set(map(tuple, first_stage(job).values())) == {tuple(sorted(ids[:4], reverse=True))}
    # A report says of it that nobody measured it.
    stage_of = build_rows([job], JobEvaluator(["RR@3"])).table.rows[0].first_stage
    assert stage_of is not None and (stage_of.system, stage_of.measured, stage_of.depth) == ("stored", False, 4)
    scores = [hit.score for hit in next(iter(rankings(bench.results)["both"].values()))]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 1 and all(map(math.isfinite, scores))


@pytest.mark.parametrize(
    ("lines", "queries", "message"),
    [
        ("q1 Q0 elsewhere 1 2.0 x\n", "", "run.trec ranks 1 documents that the corpus lacks, such as 'elsewhere'"),
        ("q1 Q0 d1 1\n", "", "run.trec, line 1: is no 'query Q0 document rank score tag'"),
        ("q1 Q0 d1 1 1_0 x\n", "", "run.trec, line 1: is no 'query Q0 document rank score tag'"),
        ("q1 Q0 d1 1 \u0661 x\n", "", "run.trec, line 1: is no 'query Q0 document rank score tag'"),
        ("q1 Q0 d1 1 nan x\n", "", "run.trec, line 1: is no 'query Q0 document rank score tag'"),
        ("q1 Q0 d1 1 2 x\u2028q1 Q0 d2 2 1 x\n", "", "run.trec, line 1: is no 'query Q0 document rank score tag'"),
        ("q1 Q0 d\u00a01 1 2 x\n", "", "run.trec ranks 1 documents that the corpus lacks, such as 'd\\xa01'"),
        ("q1 Q0 d1 1 2 x\nq1 Q0 d1 2 1 x\n", "", "run.trec, line 2: document 'd1' comes twice for query 'q1'"),
        ("q1 Q0 d1 1 2 x\n", '{"_id": "q1", "text": "another"}\n', "queries.jsonl has no query 'a text'"),
        ("q1 Q0 d1 1 2 x\n", "{}\n", 'queries.jsonl, line 1: is no {"_id": ..., "text": ...}'),
        (
            "q1 Q0 d1 1 2 x\n",
            '{"_id": "q1", "text": "a text"}\n{"_id": "q2", "text": "a text"}\n',
            "queries.jsonl, line 2: 'a text' comes twice, with different rankings",
        ),
    ],
)
def test_wrong_stored_run_is_refused_by_name(tmp_path: Path, lines: str, queries: str, message: str) -> None:
    engine = fixed_run(tmp_path, lines, queries)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):  # at one of the three verbs
        engine.build(Corpus(tmp_path / "corpus.jsonl", 1), tmp_path, lambda _: None)
        engine.load(tmp_path)
        engine.search("a text", 1)


def test_only_line_feeds_end_a_line_of_a_stored_run(tmp_path: Path) -> None:
    text = "one\u2028two\u0085three"
    queries = json.dumps({"_id": "q1", "text": text}, ensure_ascii=False)
    engine = fixed_run(tmp_path, "q1\tQ0 d1 1 +2.5e0 x\r\n", queries)
    engine.build(Corpus(tmp_path / "corpus.jsonl", 1), tmp_path, lambda _: None)
    engine.load(tmp_path)
    assert [(hit.doc_id, hit.score) for hit in engine.search(text, 1)] == [("d1", 2.5)]


def fixed_run(folder: Path, lines: str, queries: str) -> Any:
    """Make the engine over a run and its queries, beside a corpus of one document."""
    (folder / "mine").mkdir()
    (folder / "mine" / "run.trec").write_bytes(lines.encode())
    (folder / "mine" / "queries.jsonl").write_text(queries)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "x"}\n')
    spec = importlib.util.spec_from_file_location("fixed_run", catalog.images_dir() / "fixed-run" / "adapter.py")
    assert spec and spec.loader
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module.ENGINE({"run": "mine"}, Envelope("e", 1, 1 << 30), folder)
