"""Approximate systems against their exact search: overlaps computed by hand, and pairs that are refused by name."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis import recall, results_folder
from harness.analysis.recall import ExactPair, RecallTable
from harness.driver.records import Outcome
from harness.report import recall as report
from harness.results import reader, suite_record
from harness.results.reader import RUN
from tests.support import publisher
from tests.support.command_line import SCREEN_LINES, assert_refused, call
from tests.support.published import SHIPPED
from tests.support.publisher import Made

QUERIES = publisher.QUERIES[:40]
MINILM = {"model": "minilm", "document_tokens": 256}


def stored(system: str, ranks: tuple[int, ...], **params: object) -> Made:
    return Made(system, 1.0, ranks, params={**MINILM, **params}, k=100, jobs=1)  # type: ignore[arg-type]


# The list of rank r is wrong1 ... with the right document in the place of wrong{r}: two lists of other ranks share all
# but one document; of rank 0, without the right one, all but one too.
CELLS = (
    stored("flat", (1,)),
    stored("same", (1,)),
    stored("hnsw", (1, 2, 2, 50)),
    stored("int8", (1,), backend="onnxruntime-int8"),
    stored("other-model", (1,), model="e5"),
    Made("bm25", 1.0, (1,), k=100),
    Made("short", 1.0, (1,), params=MINILM, k=10),
    Made("lost", 1.0, outcome=Outcome.OOM),
    Made("away", 1.0, (1,), params=MINILM, k=100, dataset="far"),
)
EXACT = dict.fromkeys(("same", "hnsw", "lost"), "flat")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("recall")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(folder / "cache"))
        yield publisher.put(folder / "results", *CELLS, queries=QUERIES, measures=("RR@10",), exact=EXACT)


def compared(results: Path, named: str | None = None) -> RecallTable:
    return recall.compare_with_exact(
        reader.read_jobs(results),
        suite_record.read_pairs(results, "exact"),
        named,
        results_folder.read(results).table,
        results_folder.read(results).per_query,
    )


def pairs(results: Path, named: str | None = None) -> dict[str, ExactPair]:
    return {pair.system: pair for pair in compared(results, named).pairs}


@pytest.mark.slow
def test_overlaps_are_those_computed_by_hand(results: Path) -> None:
    found = pairs(results)
    assert list(found) == ["hnsw", "lost", "same"]
    assert [overlap.k for overlap in found["same"].overlaps] == [10, 100]
    same = found["same"].overlap(10)
    assert same is not None and (same.mean.value, same.whole) == (1.0, 1.0)
    assert same.mean.low is not None and 0.9 < same.mean.low < 1, "so few queries prove no overlap of 1"
    hnsw, deep = found["hnsw"].overlap(10), found["hnsw"].overlap(100)
    assert hnsw is not None and deep is not None
    # Of four queries one is the same, two miss a document of the top 10, one misses the right one among them.
    assert hnsw.mean.value == pytest.approx((1 + 0.9 + 0.9 + 0.9) / 4) and hnsw.whole == 0.25
    assert deep.mean.value == pytest.approx((1 + 0.99 + 0.99 + 0.99) / 4)
    assert list(hnsw.by_query.values())[:4] == pytest.approx([1, 0.9, 0.9, 0.9])
    assert found["hnsw"].change.value == pytest.approx((1 + 0.5 + 0.5 + 0) / 4 - 1)
    assert found["same"].change.value == 0


@pytest.mark.slow
def test_pairs_that_cannot_be_compared_say_why(results: Path) -> None:
    found = pairs(results, "flat")
    assert {name: pair.reason for name, pair in found.items() if pair.reason} == {
        "away": "dataset: flat was measured on scifact alone",
        "bm25": "model: model not set, exact minilm",
        "lost": "oom: killed by the kernel at the memory limit",
        "other-model": "model: model e5, exact minilm",
        "short": "k: top 10, flat top 100",
    }
    assert found["int8"].differs == ("backend onnxruntime-int8, exact not set",)
    assert found["int8"].overlap(10) is not None, "another backend of one model is named, not refused"
    assert pairs(results, "short")["flat"].reason == "k: top 100, short top 10"
    assert pairs(results, "lost")["flat"].reason == "lost: oom: killed by the kernel at the memory limit"


@pytest.mark.slow
def test_other_queries_and_documents_are_refused(results: Path) -> None:
    jobs = reader.read_jobs(results)
    flat, hnsw = (next(job for job in jobs if job.result.spec.cell.system == name) for name in ("flat", "hnsw"))

    def reason(**changes: str) -> str | None:
        changed = replace(hnsw, result=replace(hnsw.result, spec=replace(hnsw.result.spec, **changes)))  # type: ignore[arg-type]
        return recall._reason(changed, flat)

    assert reason() is None
    assert reason(sample_sha256="f" * 64) == "queries: another sample than flat's"
    assert reason(corpus_sha256="f" * 64) == "dataset: another version of its documents than flat's"


@pytest.mark.slow
def test_a_missing_or_damaged_run_spoils_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    cells = (stored("flat", (1,)), stored("damaged", (1,)), stored("gone", (2,)), stored("hnsw", (2,)))
    results = publisher.put(tmp_path / "results", *cells, queries=QUERIES)
    for path in results.glob(f"quick/gone/**/{RUN}"):
        path.unlink()
    for path in results.glob(f"quick/damaged/**/{RUN}"):
        path.write_bytes(b"q000 Q0 right 1 nan flat\n")
    found = pairs(results, "flat")
    assert found["gone"].reason == "no stored run; measure it again"
    assert (found["damaged"].reason or "").startswith("stored run cannot be read: ")
    assert found["hnsw"].overlap(10) is not None
    assert pairs(results, "gone")["flat"].reason == "gone: no stored run; measure it again"
    shown = call("recall", str(results), "--of", "flat")
    assert shown.exit_code == 0 and "no stored run; measure it again" in shown.stdout


@pytest.mark.slow
def test_queries_without_exact_hits_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    results = publisher.put(tmp_path / "results", stored("flat", (1,)), stored("hnsw", (2,)), queries=QUERIES)
    for path in results.glob(f"quick/flat/**/{RUN}"):
        kept = [line for line in gzip.decompress(path.read_bytes()).splitlines(True) if not line.startswith(b"q000")]
        # Of the second query the exact search ranks two documents alone: they are all that can be missing.
        kept = [line for line in kept if not line.startswith(b"q001") or b" wrong" not in line or b" wrong2 " in line]
        path.write_bytes(gzip.compress(b"".join(kept)))
    pair = pairs(results, "flat")["hnsw"]
    overlap = pair.overlap(10)
    assert overlap is not None and pair.unranked == 1 and len(overlap.by_query) == len(QUERIES) - 1
    assert overlap.by_query["q001"] == 0.5
    assert "scifact: flat ranks nothing for 1 query: left out" in call("recall", str(results), "--of", "flat").stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--of", "flat")])
def test_first_screen_fits_and_says_the_answer(results: Path, options: tuple[str, ...]) -> None:
    shown = call("recall", str(results), *options).stdout
    lines = shown.splitlines()
    assert len(lines) <= SCREEN_LINES and len([line for line in lines if line.startswith("- ")]) <= 5
    assert lines[0] == ("Share of flat's top 10 and top 100 that each system finds" + ("" if options else ", scifact"))
    assert "| hnsw " in shown and "0.925 (0.9" in shown and "out of memory" not in lines[0]
    assert "hnsw loses most: 7.5 % of flat's top 10; RR@10 changes by -50.0 (-" in shown
    if options:
        assert "- int8: not the search alone differs: backend onnxruntime-int8, exact not set" in lines


@pytest.mark.slow
def test_searches_that_lose_equally_are_all_named(results: Path) -> None:
    found = compared(results)
    (worst,) = (pair for pair in found.pairs if pair.system == "hnsw")
    twins = (worst, replace(worst, system="again"), *(pair for pair in found.pairs if pair.overlaps and pair != worst))
    (said, *_) = report.answer(replace(found, pairs=twins), str, 80).after
    assert said == "hnsw and again lose most, equally: 7.5 % of flat's top 10."
    whole = replace(found, pairs=tuple(pair for pair in found.pairs if pair.system == "same"))
    (said, *_) = report.answer(whole, str, 80).after
    assert said.startswith("None loses any of flat's top 10; RR@10 changes by 0.0")


@pytest.mark.slow
def test_csv_and_json_hold_the_same_values(results: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(call("recall", str(results), "--format", "csv").stdout)))
    assert [(line["system"], line["depth"], line["whole"]) for line in lines] == [
        *(("hnsw", "10", "0.25"), ("hnsw", "100", "0.25"), ("lost", "", ""), ("same", "10", "1.0")),
        ("same", "100", "1.0"),
    ]
    content = json.loads(call("recall", str(results), "--format", "json").stdout)
    (hnsw,) = [pair for pair in content["pairs"] if pair["system"] == "hnsw"]
    assert [float(line["overlap"]) for line in lines[:2]] == [each["mean"]["value"] for each in hnsw["overlaps"]]
    assert hnsw["overlaps"][0]["by_query"]["q001"] == 0.9 and len(hnsw["keys"]) == 1


@pytest.mark.slow
def test_wrong_requests_are_one_line(results: Path, tmp_path: Path) -> None:
    assert_refused(call("recall", str(results), "--of", "flatt"), "unknown system 'flatt'. Did you mean 'flat'?")
    assert_refused(call("recall", str(tmp_path)), "no finished job in it; run a suite first")
    assert_refused(call("recall", str(SHIPPED)), "a paper's figures have no ranked lists; name measured results")
    undeclared = publisher.put(tmp_path / "results", stored("flat", (1,)), queries=QUERIES)
    assert_refused(call("recall", str(undeclared)), "names an exact search ([exact] in its file); name one with --of")
    (undeclared / "quick" / "suite.json").write_text('{"measures": [], "exact": {"a": 1}}')
    done = call("recall", str(undeclared))
    assert done.exit_code == 2 and "key 'exact" in done.stderr
    assert done.stderr.endswith("names an exact search ([exact] in its file); name one with --of\n")
