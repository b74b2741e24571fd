"""The measure by position: values computed by hand, limits of shipped systems, and shares that are unseen."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis.positions import (
    DatasetPositions,
    ReadLimit,
    UnseenPassages,
    first_passages,
    histogram,
    published_histograms,
    read_limit,
    share_before,
    slope,
    unseen_passages,
)
from harness.datasets.passage_positions import POSITIONS, RelevantPosition
from harness.driver.records import Outcome
from harness.launch.fake import FakeLauncher
from harness.launch.images import catalog
from harness.report.plots import positions as plots
from harness.report.plots import style
from harness.report.verify import verify_results
from harness.results import suite_record
from tests.conftest import Bench
from tests.support import publisher
from tests.support.command_line import SCREEN_LINES, assert_refused, call
from tests.support.publisher import QUERIES, Made

PNG = b"\x89PNG"


def is_row(line: str) -> bool:
    return line.startswith("|")


def position(query: str, start: int, size: int = 20, doc: str = "right", **placed: Any) -> RelevantPosition:
    return RelevantPosition(query, doc, start, start + size, 0, 1, 4096, **placed)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Store two systems over 140 queries whose passages start in bin 0, 1, 2 and 6 in turn, and a dataset ``far``."""
    folder = tmp_path_factory.mktemp("positions")
    (folder / "far").mkdir()
    bins, depths = (0, 1, 2, 6), (0.0, 0.2, 0.5, 1.0)
    lines = [
        position(
            query, 256 * bins[number % 4] + 100, depth=depths[number % 4], target_length=512 * (1 + number // 4 % 2)
        )
        for number, query in enumerate(QUERIES)
    ]
    (folder / "far" / POSITIONS).write_bytes(b"".join(each.to_line() for each in lines))
    limits = {"aggregation": "first", "document_tokens": 4096, "window": 477}
    cells = (
        Made("firstp", 1.0, (1, 2, 0, 0), dataset="far", params=limits),
        Made("bm25", 1.0, (2, 2, 2, 2), dataset="far", params={"k1": 1}),
        Made("gone", 1.0, outcome=Outcome.OOM, dataset="far"),
        Made("elsewhere", 1.0, dataset="scifact"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HARNESS_CACHE", str(folder / "cache"))
        yield publisher.put(folder / "results", *cells, measures=("RR@10",))


@pytest.mark.slow
def test_measure_by_position_is_that_computed_by_hand(stored: Path) -> None:
    done = call("positions", str(stored), "--format", "json")
    assert done.exit_code == 0, done.output
    assert "scifact: left out, because its positions" in done.stderr
    (made,) = json.loads(done.stdout)["datasets"]
    assert made["histogram"] == [35, 35, 35, 0, 0, 0, 35]
    assert made["length_histogram"] == [0] * 16 + [140], "all documents have 4,096 tokens"
    assert [made["shares_before"][bound]["value"] for bound in ("256", "512", "1024")] == [0.25, 0.5, 0.75]
    found = {each["system"]: each for each in made["systems"]}
    first = found["firstp"]
    assert [(each["start"], each["queries"], each["value"]["value"]) for each in first["bins"]] == [
        (0, 35, 1.0),
        (256, 35, 0.5),
        (512, 35, 0.0),
        (1536, 35, 0.0),
    ]
    # x = 0, 1, 2, 6 around 9/4; y = 1, 1/2, 0, 0 around 3/8: (-9/4 - 5/8) / 4 bins of covariance over 83/4.
    covariance = (-9 / 4) * (5 / 8) + (-5 / 4) * (1 / 8) + (-1 / 4) * (-3 / 8) + (15 / 4) * (-3 / 8)
    assert first["slope"]["value"] == pytest.approx(covariance / (83 / 4))
    assert first["slope"]["low"] < first["slope"]["value"] < first["slope"]["high"] < 0
    assert first["unseen"] == {"starts": 0.5, "ends": 0.5} and first["limit"]["tokens"] == 477
    assert found["bm25"]["slope"]["value"] == pytest.approx(0) and found["bm25"]["unseen"]["starts"] == 0
    assert found["gone"]["reason"] and found["gone"]["bins"] == []
    # Depth 0 is always bin 0.
    placed = {(each["depth"], each["length"]): each["value"]["value"] for each in first["placed"]}
    assert placed == {(d, n): {0.0: 1.0, 0.2: 0.5}.get(d, 0.0) for d in (0, 0.2, 0.5, 1) for n in (512, 1024)}


@pytest.mark.slow
def test_first_screen_and_csv_and_pictures(stored: Path, tmp_path: Path) -> None:
    done = call("positions", str(stored))
    lines = done.stdout.splitlines()
    assert len(lines) <= SCREEN_LINES and max(map(len, filter(is_row, lines))) <= 100, done.stdout
    assert "0.500" in done.stdout and "Intervals of shares" not in done.stdout
    wide = call("positions", str(stored), "--wide").stdout
    assert "Intervals of shares" in wide and "cut or unseen" in wide and "cut or unseen" not in done.stdout
    written = call("positions", str(stored), "--format", "csv").stdout
    assert len({len(line) for line in csv.reader(io.StringIO(written))}) == 1, "every line has every column"
    rows = list(csv.DictReader(io.StringIO(written)))
    assert {row["kind"] for row in rows} == {"passages", "all", "bin", "placed"}
    assert [row["documents"] for row in rows if row["kind"] == "passages"] == ["0"] * 16 + ["140"]
    assert [row["value"] for row in rows if row["kind"] == "bin" and row["system"] == "firstp"][:2] == ["1.0", "0.5"]
    drawn = call("positions", str(stored), "--format", "png", "-o", str(tmp_path / "pictures"))
    assert drawn.exit_code == 0, drawn.output
    paths = sorted((tmp_path / str(tmp_path / "pictures")).iterdir())
    assert [path.name for path in paths] == ["far-by-position.png", "far-depth-length.png", "far-positions.png"]
    assert all(path.read_bytes().startswith(PNG) for path in paths)


@pytest.mark.slow
def test_picture_has_starts_and_document_lengths_in_the_same_bins() -> None:
    firsts = [RelevantPosition(f"q{n}", "d", 100 * n, 100 * n + 20, 0, 1, 700 + 300 * (n % 2)) for n in range(4)]
    made = DatasetPositions(first_passages("far", "by hand", firsts), 256)
    with style.settings(9):
        (axes,) = plots.draw_histogram(made).axes
    ends, starts = ([round(bar.get_height()) for bar in bars] for bars in axes.containers)
    assert (starts, ends) == ([75, 25], [0, 0, 50, 50])
    assert histogram(made.passages.lengths) == (0, 0, 2, 2)


@pytest.mark.slow
def test_dataset_alone_says_what_is_unseen_before_anything_runs(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(
        'systems = ["firstp", "bm25-ms-marco-minilm-l6", "bm25"]\ndatasets = ["./far"]\nprofiles = ["cpu1-mem4"]\n'
    )
    done = call("positions", "far", "--reads", "300", "--suite", str(tmp_path / "one.toml"), "--format", "json")
    assert done.exit_code == 0, done.output
    (made,) = json.loads(done.stdout)["datasets"]
    unseen = {each["name"]: (each["limit"]["tokens"], each["unseen"]["starts"]) for each in made["readers"]}
    assert unseen == {
        "300 tokens": (300, 0.75),
        "firstp": (477, 0.5),
        "bm25-ms-marco-minilm-l6": (509, 0.5),
        "bm25": (None, 0.0),
    }
    assert_refused(call("positions", str(stored), "--reads", "300"), "--reads and --suite need a DATASET")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / POSITIONS).write_bytes(position("q000", 5, doc="other").to_line())
    wrong = call("positions", str(stored), "--dataset", str(tmp_path / "far"))
    assert_refused(wrong, "no passage of it is relevant for a query of these results; name their dataset")
    assert_refused(call("positions", str(tmp_path / "mistyped")), "mistyped: this folder does not exist")
    assert_refused(call("positions", "scifact"), "has no positions.jsonl; name judged passages with --passages")
    assert_refused(call("positions", str(stored), "--dataset", "./missing"), "has no results of the dataset missing")
    both = call("positions", "far", "--passages", "x", "--chunks", "y")
    assert_refused(both, "--passages and --chunks both give positions; name one of them")


@pytest.mark.slow
def test_run_stores_positions_with_the_results(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(position(f"q{n}", 256 * n, doc=f"d{n}").to_line() for n in range(4))
    (bench.folder / "tiny" / f"{POSITIONS}.gz").write_bytes(gzip.compress(lines))
    bench.run(FakeLauncher(), bench.suite())
    shutil.rmtree(bench.folder / "tiny")
    monkeypatch.chdir(bench.folder)
    done = call("positions", "results", "--cache", str(bench.cache), "--format", "json")
    assert done.exit_code == 0, done.output
    (made,) = json.loads(done.stdout)["datasets"]
    assert (made["histogram"], made["origin"]) == ([1, 1, 1, 1], "stored with the results")
    assert [each["queries"] for each in made["systems"]] == [4]
    assert verify_results(bench.results).mismatches == ()
    (record,) = bench.results.glob(f"*/{suite_record.FILE}")
    record.write_text('{"measures": ["P@1"], "positions": {"tiny": "../../x"}}')
    wrong = call("positions", "results", "--cache", str(bench.cache))
    left_out, refused = [line for line in wrong.stderr.splitlines() if not line.endswith(": corpus ...")]
    assert wrong.exit_code == 2 and "has no positions of tiny" in refused
    assert left_out.startswith("left out: results/test-suite/suite.json: key 'positions.tiny' is")


@pytest.mark.parametrize(
    ("system", "tokens"),
    [
        ("bm25", None),
        ("firstp", 477),
        ("longformer-firstp", 477),
        ("longformer", 1431),  # in one window, of an index of 4,096
        ("bge-reranker-v2-m3", 512),
        ("maxp", 1431),
        ("bm25-ms-marco-minilm-l6", 509),
        ("minilm", 256),
        ("bm25-minilm", 256),
        ("hybrid", None),  # BM25 reads all of it
        ("smollm2-rankgpt", 130),  # 100 words
    ],
)
def test_limit_follows_from_parameters(system: str, tokens: int | None) -> None:
    assert read_limit(catalog.system(system).params).tokens == tokens


def test_override_of_a_component_counts() -> None:
    params = {"depth": 100, "bm25.k1": 0.9, "maxp.aggregation": "max", "maxp.document_tokens": 231}
    assert read_limit(params) == ReadLimit(231)
    assert read_limit({"llm.passage_words": "none", "llm.model": "x", "depth": 20}) == ReadLimit(None)


def test_first_passage_of_a_document_counts_and_edges_are_exact() -> None:
    records = [position("q", 600), position("q", 511), position("q", 512, doc="other"), position("p", 500)]
    passages = first_passages("far", "", records)
    assert passages.starts == [511, 512, 500] and passages.of_query["q"].start_token == 511
    assert histogram(passages.starts) == (0, 2, 1)
    assert share_before(passages, 512).value == pytest.approx(2 / 3)
    assert unseen_passages(passages, ReadLimit(512)) == UnseenPassages(pytest.approx(1 / 3), 1.0)
    assert unseen_passages(passages, ReadLimit(None, known=False)) is None


def test_slope_needs_two_places_and_eleven_queries() -> None:
    assert slope(np.ones(20), np.arange(20.0)).value is None
    few = slope(np.arange(5.0), 2 * np.arange(5.0))
    assert few.value == pytest.approx(2) and few.low is None and few.reason
    line = slope(np.arange(30.0), 1 - np.arange(30.0))
    assert (line.low, line.high) == (pytest.approx(-1), pytest.approx(-1))


def test_published_shares_are_those_of_the_study() -> None:
    shares = [[round(100 * each.share_before(bound), 1) for bound in (1, 2)] for each in published_histograms()[1]]
    assert shares == [[70.0, 85.6], [73.7, 85.3]]
