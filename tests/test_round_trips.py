"""Names, ids, texts and grades of all of Unicode: what one part writes the others read back equal, or it is refused."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from harness import datasets
from harness.analysis import rejudge
from harness.analysis.stored_runs import read_stored_runs
from harness.cli import main
from harness.datasets import Dataset
from harness.errors import FileError, HarnessError, UsageError
from harness.evaluation import evaluate_runs, judged_runs, measure_names, pool, qrels_merge, trec
from harness.evaluation.judged_runs import JudgedRuns
from harness.jobs.collect import _trec_run
from harness.launch.fake import FakeLauncher
from harness.report import writers
from harness.report.evaluation import evaluation_document
from harness.results.schema import Cell, job_key
from harness.results.store import Store
from tests.aws.results.conftest import Bucket
from tests.aws.results.conftest import bucket as bucket  # a fixture
from tests.conftest import make_bench, protocol
from tests.support import sample_records

MEASURES = ("RR@10", "nDCG@10", "ERR@10")
# Characters that some reader, writer, shell or spreadsheet treats in a way of its own.
_ODD = "#'\"=+-@,;|*?[]~`$\\/<>&%.:09aZ"
_ODD += "\u00a0\u0085\u2028\u3000\u200b\u202e\ufeff\u00e9e\u0301\u1e9e\u0130\U0001f600\x1c\t\n\r\0"
_any = st.characters(exclude_categories=())
_character = st.one_of(st.sampled_from(_ODD), _any)
# Most characters of an id are such as datasets take: one that is refused tries nothing more.
_id = st.text(
    st.one_of(st.characters(exclude_categories=["C", "Z"]), st.sampled_from("#'\"=+-@,;|{")), min_size=1, max_size=6
)
_any_id = st.text(_character, min_size=1, max_size=6)
# Of a folder: printable ones, as the records of results have them.
_names = st.text(
    st.one_of(st.characters(exclude_categories=["C", "Z"], exclude_characters="/"), st.sampled_from(" #[]*?'\"~$.-")),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in (".", ".."))
_text = st.text(_character, max_size=12)
_grade = st.one_of(st.integers(-2, 4), st.integers(-(2**16), 2**16))


@dataclass(frozen=True)
class Collection:
    """Documents and queries by id, and grades of each query's documents."""

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]

    def write(self, folder: Path) -> Path:
        """Write it as JSON, which can hold any text, with judgements as people write them."""
        folder.mkdir(parents=True)
        for name, texts in (("corpus", self.documents), ("queries", self.queries)):
            lines = (json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items())
            (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        judged = [f"{q} 0 {d} {grade}\n" for q, grades in self.grades.items() for d, grade in grades.items()]
        (folder / "qrels.trec").write_bytes("".join(judged).encode("utf-8", "surrogatepass"))
        return folder


@st.composite
def collections(draw: st.DrawFn, ids: st.SearchStrategy[str] = st.one_of(_id, _id, _id, _any_id)) -> Collection:  # noqa: B008
    """Draw a collection; by default any character may be in one of four ids."""
    documents = draw(st.dictionaries(ids, _text, min_size=2, max_size=4))
    queries = draw(st.dictionaries(ids, _text, min_size=1, max_size=3))
    grades = {query: {document: draw(_grade) for document in documents if draw(st.booleans())} for query in queries}
    return Collection(documents, queries, grades)


def _one(query: str, document: str = "d", grade: int = 1) -> Collection:
    """Return a collection in which one query has a judged document."""
    return Collection({document: "text", "other": "text"}, {query: "text"}, {query: {document: grade}})


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="round-trip-") as folder:
        yield Path(folder)


def _load(collection: Collection, folder: Path, name: str = "data") -> Dataset:
    """Read a dataset and check it against what was written; one that is refused tries nothing more."""
    try:
        dataset = datasets.load(collection.write(folder / "sets" / name), folder / "cache")
        assert dataset.faults is not None
    except HarnessError:
        assume(False)
        raise
    read = {document["_id"]: document["text"] for document in dataset.corpus}
    assert read == {key: _encodable(text) for key, text in collection.documents.items()}
    assert {query.query_id: query.text for query in dataset.queries} == {
        key: _encodable(text) for key, text in collection.queries.items()
    }
    return dataset


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _rankings(collection: Collection) -> dict[str, list[tuple[str, float]]]:
    """Return a run over all queries: all documents, in the order of their ids."""
    hits = [(document, 10.0 - rank) for rank, document in enumerate(sorted(collection.documents))]
    return dict.fromkeys(collection.queries, hits)


def _store(dataset: Dataset, run: bytes, root: Path, cell: Cell) -> None:
    """Store a finished job as a run does."""
    store = Store(root, cell.suite)
    names = tuple(query.query_id for query in dataset.queries)
    sample = json.dumps([{"query_id": query.query_id, "text": query.text} for query in dataset.queries])
    with store.held():
        store.keep_inputs(dataset.qrels, "a" * 64, {"b" * 64: sample})
        made = sample_records.result(
            cell=cell, sample_size=len(names), qrels_sha256="a" * 64, sample_sha256="b" * 64, trials=1, k=10
        )
        made = sample_records.nested(made, {"key": job_key(made.spec), "corpus_documents": dataset.corpus.size})
        samples = sample_records.samples(np.full((1, len(names)), 0.01), names=names)
        store.put(made, samples, run, b"")


def _by_query(runs: JudgedRuns) -> dict[str, dict[str, float]]:
    (evaluation,) = evaluate_runs.evaluate_runs(runs, measure_names.parse(MEASURES)).evaluations.values()
    return {**evaluation.per_query}


_CELL = Cell("suite", "bm25", "data", "single_stream", "cpu1-mem1")
_settings = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@settings(_settings, max_examples=40)
@given(collections(), _names)
@example(_one("q#", "#"), "#")
@example(_one("é", unicodedata.normalize("NFD", "é")), "a b")
@example(_one("=1", "-2", grade=-1), "[a]*?")
@example(_one("'+", "'"), ".a")
@example(_one("\U000e0100", "\ufe0f"), "a")
@example(Collection({"d": "", "e": ""}, {"q": "", "r": "#"}, {"q": {"d": -1, "e": -2}, "r": {"d": 3}}), "a#b")
def test_a_dataset_that_is_read_keeps_its_ids_through_all_parts(collection: Collection, name: str) -> None:
    with _scratch() as folder:
        dataset = _load(collection, folder, name)
        judged = {query: grades for query, grades in collection.grades.items() if grades}
        assume(judged)
        rankings = _rankings(collection)
        run = _trec_run(rankings, "bm25")
        _store(dataset, run, folder / "results", replace(_CELL, dataset=dataset.name))
        (stored,) = read_stored_runs(folder / "results")
        assert stored.dataset == dataset.name
        assert stored.runs["bm25"].rankings == {q: tuple(d for d, _ in hits) for q, hits in rankings.items()}
        assert dict(stored.queries) == {query.query_id: query.text for query in dataset.queries}
        assert stored.qrels == judged
        # The same files, as someone evaluates them elsewhere.
        for file, content in (("qrels", dataset.qrels), ("bm25.run", run)):
            (folder / file).write_bytes(content)
        texts = judged_runs.read_queries(folder / "sets" / name / "queries.jsonl")
        files = judged_runs.read_runs(folder / "qrels", [folder / "bm25.run"], texts)
        assert (files.qrels, files.queries, files.runs["bm25"].rankings) == (
            stored.qrels,
            stored.queries,
            stored.runs["bm25"].rankings,
        )
        assert _by_query(files) == _by_query(stored)
        _check_reports(files)
        _check_pool(files, folder)


def _check_reports(runs: JudgedRuns) -> None:
    """Check that reports by query name the queries as they are."""
    evaluated = evaluate_runs.evaluate_runs(runs, measure_names.parse(MEASURES))
    document = evaluation_document(evaluated, by_query=True)
    (values,) = (run["per_query"]["RR@10"] for run in json.loads(writers.write_json(document))["runs"])
    assert set(values) == set(evaluated.queries)
    header, *lines = csv.reader(io.StringIO(writers.write_csv(document)))
    column = header.index("query_id")
    # A cell has escapes where a terminal would show nothing, and a quote before a formula; JSON has the ids themselves.
    assert {line[column] for line in lines} == {writers.csv_cell(query) for query in values}


def _check_pool(runs: JudgedRuns, folder: Path) -> None:
    """Write the unjudged hits, grade them, add them to the qrels, and read these."""
    made = pool.build_pool([runs], 10, 7)
    expected = {query: dict(grades) for query, grades in runs.qrels.items()}
    for query, document in made.pairs:
        expected.setdefault(query, {})[document] = 2
    for form in ("jsonl", "tsv"):
        stream = io.StringIO()
        try:
            pool.write_pool(made, {}, form, stream)
        except UsageError:
            assert form == "tsv"
            continue
        lines = stream.getvalue().splitlines(keepends=True)
        graded = [line.replace('"grade": null', '"grade": 2') for line in lines]
        if form == "tsv":
            graded = [lines[0], *(f"{line[:-1]}2\n" for line in lines[1:])]
        path = folder / f"pool.{form}"
        path.write_text("".join(graded), encoding="utf-8", newline="\n")
        pairs = pool.read_graded_pool(path)
        assert pairs is not None or not made.pairs
        base = qrels_merge.read_base(folder / "qrels")
        merged = qrels_merge.merge_qrels(base, pairs or (), "refuse", source="us", date="2026-11-20", file=path)
        target = folder / f"merged.{form}"
        qrels_merge.write_merged(target, merged)
        assert trec.read_qrels(target) == expected


@pytest.mark.slow
@settings(_settings, max_examples=60)
@given(_any_id, _any_id, st.sampled_from(["run", "qrels", "queries", "leaked"]))
@example("#", "d", "qrels")
@example("#", "0", "run")
@example("q\ufeff", "d", "run")
@example("q\u00a0", "d", "leaked")
@example("\x1cq", "d\x85", "leaked")
@example("id", "text", "queries")
@example("BZh9", "d", "qrels")
@example("q", "score", "qrels")
@example("{", "d", "queries")
def test_an_id_of_a_file_is_read_as_it_is_written_or_refused(query: str, document: str, kind: str) -> None:
    """Files that other tools wrote have ids that no dataset here may have."""
    parts = [_encodable(name) for name in (query, document)]
    assume(all(name.encode().split() == [name.encode()] for name in parts))
    assume(not parts[0].startswith("\ufeff"))  # at the start of a file, it is a mark
    query, document = parts
    content = {
        "run": f"{query} Q0 {document} 1 2.0 x\n",
        "qrels": f"{query} 0 {document} 1\n",
        "queries": f"{query}\t{document}\n",
        "leaked": f"other\n{query}\n",
    }[kind]
    with _scratch() as folder:
        path = folder / "file"
        path.write_text(content, encoding="utf-8", newline="\n")
        try:
            if kind == "run":
                assert trec.read_scored_run(path).rankings == {query: (document,)}
            elif kind == "qrels":
                assert trec.read_qrels_file(path).qrels == {query: {document: 1}}
            elif kind == "queries":
                assert judged_runs.read_queries(path) == {query: document}
            else:
                override = rejudge.read(None, path)
                assert override is not None and override.without == {"other", query}
        except FileError as error:
            assert str(path) in str(error) and "\n" not in str(error)


# More than one query, because one of two may warm systems up.
_runnable = collections(_id).filter(lambda each: sum(map(bool, each.grades.values())) > 1)


@pytest.mark.cloud
@settings(_settings, max_examples=6)
@given(_runnable, _names)
@example(
    Collection({"=1": "x", "'a": "\x1b[1m", "é": "<b>"}, {"q#": "#", "-1": "'"}, {"q#": {"=1": 1}, "-1": {"é": -1}}),
    "a b[c]*'\"$",
)
def test_commands_on_disk_and_in_s3_hand_a_collection_on(
    bucket: Bucket, environments: Path, collection: Collection, name: str
) -> None:
    with _scratch() as folder, pytest.MonkeyPatch.context() as patch:
        bench = make_bench(folder)
        (bench.cache / "process").symlink_to(environments)
        patch.setenv("HARNESS_IMAGES", str(folder / "engines"))
        data = collection.write(folder / "sets" / name)
        try:
            bench.run(FakeLauncher(), bench.suite(protocol(1), datasets=[f"./sets/{name}"]))
        except HarnessError:
            assert not list(bench.results.rglob("result.json")), "a part that refuses it comes before any measurement"
            assume(False)
        call("verify", bench.results)
        bucket.fill(bench.results, folder.name)
        remote = f"s3://bucket/{folder.name}"
        measured, pairs = _answers(bench.results)
        assert _answers(remote) == (measured, pairs)
        _check_exports(bench.results, folder, collection, measured)
        # The pool, filled in, makes the judgements of all hits.
        graded = pairs.replace('"grade": null', '"grade": 3')
        (folder / "graded.jsonl").write_text(graded, encoding="utf-8", newline="\n")
        call("qrels", "add", folder / "graded.jsonl", "--to", data / "qrels.trec", "-o", folder / "merged")
        merged = trec.read_qrels(folder / "merged")
        for query, judged in collection.grades.items():
            hits = dict.fromkeys(list(collection.documents)[:3], 3) if judged else {}
            assert merged.get(query, {}) == {**hits, **judged}


def call(*arguments: object) -> str:
    """Return what a command prints."""
    done = CliRunner().invoke(main, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == 0, (arguments, done.output)
    return done.stdout


def _answers(results: Path | str) -> tuple[dict[str, float], str]:
    """Return the measures of the only row, and its pool."""
    (row,) = json.loads(call("report", results, "--format", "json", "--measures", " ".join(MEASURES)))["rows"]
    pairs = call("pool", results, "--no-texts", "--format", "jsonl")
    return {name: each["value"] for name, each in row["measures"].items()}, pairs


def _check_exports(results: Path, folder: Path, collection: Collection, measured: Mapping[str, float]) -> None:
    """Check that another program finds the ids in every export, and the measures again by the exported run."""
    call("export", results, "--format", "sqlite", "--samples", "-o", folder / "export.db")
    with closing(sqlite3.connect(folder / "export.db")) as database:
        found = {query_id for (query_id,) in database.execute("SELECT query_id FROM samples")}
        assert found and found <= set(collection.queries)
    call("export", results, "--format", "ir_metadata", "-o", folder / "metadata")
    (run,) = (folder / "metadata").rglob("run.txt.gz")
    (qrels,) = (results / "test-suite" / "qrels").iterdir()
    judged = {query: dict(grades) for query, grades in collection.grades.items() if grades}
    assert trec.read_qrels(qrels) == judged
    rankings = trec.read_scored_run(run).rankings
    assert rankings == {query: tuple(collection.documents)[:3] for query in judged}
    evaluated = json.loads(call("evaluate", qrels, run, "--format", "json", "--measures", " ".join(MEASURES)))
    values = {name: each["value"] for name, each in evaluated["runs"][0]["figures"].items()}
    assert values == pytest.approx(measured)
