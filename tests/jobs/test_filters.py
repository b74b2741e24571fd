"""Queries with filters, from a dataset's fields to a row's latency by selectivity."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from harness import datasets
from harness.analysis.evaluate_job import JobEvaluator
from harness.analysis.rows import build_rows
from harness.datasets.generate import kinds as generate
from harness.datasets.native import query_line
from harness.driver.records import Outcome, Query, corpus_line, digest
from harness.errors import FileError
from harness.launch.process import ProcessLauncher
from harness.report.columns import Column
from harness.report.row_figures import table_columns
from harness.results.reader import read_jobs
from tests.conftest import TOPICS, Bench, protocol


def write_filtered(folder: Path, **change: Any) -> None:
    """The tiny dataset with a colour for each document: one of ten is red, half of them are blue."""
    colours = ["red", *["blue"] * 5, *["green"] * 4]
    documents = [
        {"_id": f"d{n}", "title": topic, "text": f"all about the {topic}", "metadata": {"colour": colours[n], **change}}
        for n, topic in enumerate(TOPICS)
    ]
    queries = [
        {"_id": "q0", "text": f"where is the {TOPICS[0]}", "filter": {"colour": "red"}},
        {"_id": "q1", "text": f"where is the {TOPICS[1]}", "filter": {"colour": "blue"}},
        {"_id": "q2", "text": f"where is the {TOPICS[2]}", "filter": {"colour": "blue"}},
        {"_id": "q3", "text": f"where is the {TOPICS[3]}"},
        {"_id": "w0", "text": "what is warm", "filter": {"colour": "green"}},
        {"_id": "w1", "text": "what is warmer"},
    ]
    for name, lines in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.mark.slow
def test_a_row_has_its_latency_by_selectivity(bench: Bench) -> None:
    write_filtered(bench.folder / "tiny")
    launcher = ProcessLauncher(bench.cache)
    bench.run(launcher, bench.suite(protocol(2, name="santhanam2023"), overhead=True))
    null, job = sorted(read_jobs(bench.results), key=lambda job: job.result.spec.cell.system)
    assert null.result.spec.cell.system == "null"
    for each in (null, job):
        assert each.result.outcome is Outcome.OK, each.result.detail
    assert "matching" not in null.samples().column_names, "it answers without searching"
    samples = {row["query_id"]: row["matching"] for row in job.samples().to_pylist() if row["trial"] == 0}
    assert samples == {"q0": 1, "q1": 5, "q2": 5, "q3": None}
    table = build_rows([job], JobEvaluator(("RR@10",))).table
    (row,) = table.rows
    assert row.latency.selectivity_s.keys() == {"10 %", "50 %"} and row.measured("RR@10") == 1.0
    columns: dict[str, Column[Any]] = {column.name: column for column in table_columns(table)}
    assert columns["selectivity_10_mean_ms"].get(row) > 0 and "selectivity_50_p50_ms" in columns


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "outcome", "words"),
    [
        ("unknown", Outcome.CRASH, "Planted knows no filters, and"),
        ("ignored", Outcome.BAD_OUTPUT, "do not fit the filter colour = "),
        ("lost", Outcome.BAD_OUTPUT, "2 hits"),
    ],
)
def test_an_engine_that_filters_wrongly_has_no_figure(bench: Bench, filters: str, outcome: Outcome, words: str) -> None:
    write_filtered(bench.folder / "tiny")
    bench.plant("wrong", filters=filters)
    bench.run(ProcessLauncher(bench.cache), bench.suite(protocol(1), systems=["wrong"]))
    (job,) = read_jobs(bench.results)
    assert job.result.outcome is outcome and words in str(job.result.detail), job.result.detail


def test_hashes_of_queries_without_filters_stay_as_they_were() -> None:
    """So what was measured before filters stays done."""
    assert digest([Query("q", "text")]) == digest([{"query_id": "q", "text": "text"}])


@pytest.mark.parametrize(
    ("metadata", "fault"),
    [
        ("red", "key 'metadata' is not an object"),
        ({"colour": None}, "the value of 'colour' is not a text"),
        ({"colour": ["red"]}, "the value of 'colour' is not a text"),
        ({"colour": 1e300}, "the value of 'colour' is not a text, a number up to 2^53"),
    ],
)
def test_a_field_that_no_engine_could_hold_is_refused_with_its_line(
    tmp_path: Path, metadata: object, fault: str
) -> None:
    write_filtered(tmp_path)
    lines = (tmp_path / "corpus.jsonl").read_text().splitlines()
    lines[3] = json.dumps({**json.loads(lines[3]), "metadata": metadata})
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "qrels.trec").write_text("q0 0 d0 1\n")
    with pytest.raises(FileError) as raised:
        datasets.load(tmp_path, tmp_path / "cache")
    assert "corpus.jsonl: line 4: " in str(raised.value) and fault in str(raised.value)


def test_fields_that_no_query_filters_on_may_be_anything_and_change_nothing(tmp_path: Path) -> None:
    """BEIR's documents have lists of authors and more: their hashes stay, and so does what was measured."""
    write_filtered(tmp_path, authors=["Ada", {"name": "Bo"}])
    (tmp_path / "qrels.trec").write_text("q0 0 d0 1\n")
    filtered = datasets.load(tmp_path, tmp_path / "cache").corpus
    assert next(iter(filtered))["metadata"] == {"colour": "red"}
    queries = (tmp_path / "queries.jsonl").read_text().splitlines()
    plain = [{name: value for name, value in json.loads(line).items() if name != "filter"} for line in queries]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in plain))
    unfiltered = datasets.load(tmp_path, tmp_path / "cache").corpus
    assert "metadata" not in next(iter(unfiltered)) and unfiltered.sha256 != filtered.sha256
    content = b"".join(corpus_line(each["_id"], each["title"], each["text"]) for each in unfiltered)
    assert unfiltered.sha256 == hashlib.sha256(content).hexdigest()


def test_a_query_line_keeps_its_filter() -> None:
    line = query_line(Query("q", "text", (("colour", "red"),)))
    assert json.loads(line) == {"_id": "q", "text": "text", "filter": {"colour": "red"}}


@pytest.mark.slow
def test_a_generated_collection_has_filters_of_known_selectivities(tmp_path: Path) -> None:
    generate.generate("filtered", datasets.find("scifact-1200", tmp_path), tmp_path / "made", tmp_path / "cache")
    made = datasets.load(tmp_path / "made", tmp_path / "cache")
    counts = made.corpus.matching({query.filter for query in made.queries})
    assert set(counts.values()) == {12, 120, 600} and made.corpus.size == 1200
    assert [name for query in made.queries for name, _ in query.filter][:3] == ["of_100", "of_10", "of_2"]
    # Each judged query keeps a relevant document, and no judged document is outside of its filter.
    relevant: dict[str, set[str]] = {}
    for query_id, doc_id, _ in made.graded():
        relevant.setdefault(query_id, set()).add(doc_id)
    assert relevant.keys() == {query.query_id for query in made.queries}
    for query in made.queries:
        assert made.corpus.misfits(query.filter, relevant[query.query_id]) == set()
