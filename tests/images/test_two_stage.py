"""A first stage finds, a reranker orders: ranking, stages, counts, and failures that name their component."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.util
import json
import math
import re
import shutil
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.driver.adapter import Corpus
from harness.driver.component import Ranking
from harness.driver.records import Envelope, Hit, Outcome, Scalar
from harness.errors import FileError
from harness.launch.images import catalog
from harness.launch.process import ProcessLauncher
from harness.results.reader import FIRST_STAGE, StoredJob, read_jobs
from tests.conftest import Bench
from tests.images.test_fusion import PROTOCOL, declare, rankings
from tests.images.toy import Toy

K = 3
ENVELOPE = Envelope("e", 1, 1 << 30)
IMAGES = Path(__file__).parents[2] / "images"
COMPONENTS = ("words", "letters")


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
    path = job.file(FIRST_STAGE)
    assert path is not None
    found: dict[str, list[str]] = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        query_id, _, doc_id, *_ = line.split()
        found.setdefault(query_id, []).append(doc_id)
    return found


class Here(Toy):
    """A component in this process."""

    named = staticmethod(nullcontext)
    scored = Toy.score

    def __init__(self, facts: Any, params: dict[str, Scalar], envelope: Envelope, assets: Path, *, last: Any) -> None:
        super().__init__(params, envelope, assets)
        self.name = facts.name

    def ranked(self, query: str, k: int) -> Ranking:
        """Return ids and scores of the hits."""
        hits = self.search(query, k)
        return [hit.doc_id for hit in hits], [hit.score for hit in hits]

    def counts(self) -> dict[str, int]:
        """Count the model's parameters too."""
        return {**super().counts(), "parameters": 5}


@dataclass(frozen=True)
class Engines:
    """Makes engines in this process, over an index of the tiny dataset."""

    index: Path

    def one(self, shared: str) -> Toy:
        """Make the toy."""
        toy = Toy({"shared": shared}, ENVELOPE, self.index)
        toy.load(self.index / "words")
        return toy

    def two(self, depth: int, second: str = "letters", *, matches: bool = False) -> Any:
        """Make two stages: the first counts words."""
        params = {"depth": depth, "words.shared": "words", "words.matches": matches, "letters.shared": second}
        engine = adapter("two-stage").ENGINE(params, ENVELOPE, self.index)
        engine.load(self.index)
        return engine


@pytest.fixture
def engines(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Engines:
    monkeypatch.syspath_prepend(str(IMAGES / "shared"))
    component = importlib.import_module("joined.component")
    monkeypatch.setattr(component, "Component", Here)
    monkeypatch.setattr(component, "read_components", lambda: [SimpleNamespace(name=name) for name in COMPONENTS])
    index = bench.folder / "made"
    for name in COMPONENTS:
        (index / name).mkdir(parents=True)
        Toy({"shared": "words"}, ENVELOPE, index).build(tiny(bench), index / name, lambda _: None)
    adapter("two-stage").ENGINE({"depth": 0}, ENVELOPE, index).build(tiny(bench), index, lambda _: None)
    return Engines(index)


def tiny(bench: Bench) -> Corpus:
    return Corpus(bench.folder / "tiny" / "corpus.jsonl", 10)


def queries(bench: Bench) -> dict[str, str]:
    lines = (bench.folder / "tiny" / "queries.jsonl").read_text().splitlines()
    return {each["_id"]: each["text"] for each in map(json.loads, lines)}


def test_documents_above_depth_are_ordered_by_the_second_stage_and_the_rest_stays(
    bench: Bench, engines: Engines
) -> None:
    words, letters = engines.one("words"), engines.one("letters")
    none, two, every = (engines.two(depth) for depth in (0, 2, 1000))
    moved = 0
    for query in queries(bench).values():
        alone, reranked = words.search(query, K), two.search(query, K)
        assert two.first_stage() == alone, "k is more than depth"
        top = [hit.doc_id for hit in reranked[:2]]
        assert sorted(top) == sorted(hit.doc_id for hit in alone[:2])
        assert [hit.score for hit in reranked[:2]] == letters.score(query, top)
        assert reranked[2] == Hit(alone[2].doc_id, reranked[1].score - 1)
        # Depth 0 is the first stage, score by score; a depth beyond the collection is the second stage's own search.
        assert none.search(query, K) == alone
        found = every.search(query, K)
        moved += [hit.doc_id for hit in found] != [hit.doc_id for hit in alone]
        assert [hit.score for hit in found] == [hit.score for hit in letters.search(query, K)]
    assert moved, "else the second stage might do nothing"


@pytest.mark.slow
def test_job_of_a_swept_second_stage_stores_what_its_engine_ranks(bench: Bench, engines: Engines) -> None:
    """The sweep is of a parameter that the second stage's index has."""
    stage(bench, 2)
    (job,) = measured(bench, "both", more='[sweep.both]\n"letters.shared" = ["words"]\n').values()
    assert job.result.outcome is Outcome.OK, job.result.detail
    assert (job.result.spec.cell.system, job.result.spec.params["letters.shared"]) == (
        "both-letters.shared_words",
        "words",
    )
    swept, unswept = engines.two(2, "words"), engines.two(2)
    ranked, given = rankings(bench.results)[job.result.spec.cell.system], first_stage(job)
    asked = {query_id: text for query_id, text in queries(bench).items() if query_id in ranked}
    assert len(asked) == 4
    for query_id, text in asked.items():
        assert ranked[query_id] == swept.search(text, K) != unswept.search(text, K)
        assert given[query_id] == [hit.doc_id for hit in swept.first_stage()]


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


def test_query_without_candidates_reports_no_time_and_no_work_of_the_second_stage(
    bench: Bench, engines: Engines
) -> None:
    engine = engines.two(2, matches=True)
    assert engine.search("unheard", 2) == [] and "pairs" not in engine.counts(), "nothing was scored yet"
    assert len(engine.search(next(iter(queries(bench).values())), 2)) == 2
    busy, counts = engine.stages_s(), engine.counts()
    assert busy["score"] > 0 and counts == {"pairs": 2, "parameters": 10}
    assert engine.search("unheard", 2) == []
    idle = engine.stages_s()
    assert idle.keys() == busy.keys() and idle["score"] == 0 and idle["retrieve"] > 0
    assert engine.counts() == {"pairs": 0, "parameters": 10}, "the models stay as large"


@pytest.mark.slow
def test_wrong_scores_name_the_reranker(bench: Bench) -> None:
    stage(bench, 2, misdeed="nan")
    result = measured(bench, "both")["both"].result
    message = "letters: the engine says: BadAnswer: score 2 of 2 is nan, not a finite plain number"
    assert result.outcome is Outcome.BAD_OUTPUT and str(result.detail).startswith(message), result.detail


@pytest.mark.parametrize("depth", [1001, -1, True, 2.0, "2", None])
def test_wrong_depth_is_refused(engines: Engines, depth: Any) -> None:
    message = re.escape(f"depth is {depth!r}, must be a whole number of documents from 0 to 1000")
    with pytest.raises(ValueError, match=f"^{message}$"):
        engines.two(depth)


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
    return adapter("fixed-run").ENGINE({"run": "mine"}, ENVELOPE, folder)


def adapter(engine: str) -> ModuleType:
    """Load the adapter of a shipped engine."""
    path = IMAGES / engine / "adapter.py"
    spec = importlib.util.spec_from_file_location(engine.replace("-", "_"), path)
    assert spec and spec.loader
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module
