"""Reading on against FirstP: gains, ratios and fronts computed by hand, what is refused, and the picture."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from harness.analysis import long_documents, published_measures, results_folder
from harness.analysis.long_documents import LongDocuments, ReadingOn
from harness.analysis.pareto_front import FrontState
from harness.analysis.table import Row, Table, Validity
from harness.analysis.verdict import ComparisonVerdict
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.report import writers
from harness.report.document import MOST_LINES
from harness.report.long_documents import answer, long_documents_document
from harness.report.plots import long_documents as plots
from harness.report.plots import style
from harness.results import suite_record
from harness.untrusted import ForeignText
from tests.support import publisher
from tests.support.command_line import assert_refused, call
from tests.support.publisher import Made

FRONT, CONTESTED, DOMINATED = FrontState.FRONT, FrontState.CONTESTED, FrontState.DOMINATED
READ_ON = ("maxp", "avgp", "longp", "uncounted", "failed")
FIRSTP = {**dict.fromkeys(READ_ON, "firstp"), "alone": "never-measured"}


def made(system: str, latency_ms: float, ranks: tuple[int, ...], flop: int = 0, tokens: int = 0, **other: str) -> Made:
    counts = {"flop": flop, "tokens": tokens} if flop else {}
    return Made(system, latency_ms, ranks, first=(5, 9, 14, 20), dataset="far", counts=counts, **other)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Store systems whose figures are easy to divide: FirstP takes 10 ms, 1,000 FLOP and 500 tokens, and has .0875."""
    folder = tmp_path_factory.mktemp("long")
    cells = (
        Made("bm25", 1.0, (5, 9), dataset="far"),
        made("firstp", 10.0, (4, 10, 0, 0), 1000, 500),
        made("maxp", 26.0, (1, 2, 1, 4), 4740, 2590),
        made("avgp", 20.0, (2, 4, 1, 0), 3000, 1550),
        made("longp", 30.0, (4, 10, 0, 1), 3400, 1450),
        made("uncounted", 15.0, (4, 10, 0, 0)),
        made("alone", 15.0, (4, 10, 0, 0), 1, 1),
        Made("failed", 1.0, outcome=Outcome.OOM, dataset="far"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(folder / "cache"))
        yield publisher.put(folder / "results", *cells, measures=("RR@10",), firstp=FIRSTP)


@pytest.fixture(scope="module")
def table(results: Path) -> Table:
    return results_folder.read(results).table


@pytest.fixture(scope="module")
def per_query(results: Path) -> dict[str, PerQuery]:
    return results_folder.read(results).per_query


@pytest.fixture(scope="module")
def compared(results: Path, table: Table, per_query: dict[str, PerQuery]) -> LongDocuments:
    return long_documents.build(table, per_query, suite_record.read_pairs(results, "firstp"), "RR@10")


def systems(compared: LongDocuments) -> dict[str, ReadingOn]:
    (group,) = compared.groups
    return {each.row.system: each for each in group.systems}


def ratios(each: ReadingOn) -> dict[str, float | None]:
    return {name: ratio.value and round(ratio.value, 6) for name, ratio in each.ratios.items()}


@pytest.mark.slow
def test_gains_and_ratios_are_those_computed_by_hand(compared: LongDocuments) -> None:
    found = systems(compared)
    maxp = found["maxp"]
    # (1 + 1/2 + 1 + 1/4) / 4 - (1/4 + 1/10) / 4
    assert maxp.gain is not None and maxp.gain.interval.value == pytest.approx(0.6)
    assert maxp.relative.value == pytest.approx(100 * 0.6 / 0.0875)
    interval = maxp.gain.interval
    assert interval.low is not None and interval.high is not None and 0.5 < interval.low < 0.6 < interval.high < 0.7
    assert maxp.gain.verdict is ComparisonVerdict.BETTER
    assert ratios(maxp) == {"latency": 2.6, "score": 2.6, "flop": 4.74, "tokens": 5.18}
    assert ratios(found["longp"]) == {"latency": 3.0, "score": 3.0, "flop": 3.4, "tokens": 2.9}
    low, high = found["longp"].ratios["latency"].low, found["longp"].ratios["latency"].high
    assert low is not None and high is not None and low < 3.0 < high
    # The same order of documents gains nothing, and that is no missing figure.
    assert found["uncounted"].relative.value == 0


@pytest.mark.slow
def test_front_is_that_of_each_ratio(compared: LongDocuments) -> None:
    found = systems(compared)
    assert found["maxp"].front == dict.fromkeys(("latency", "score", "flop", "tokens"), FRONT)
    # LongP gains less than AvgP for more time and FLOP, and reads fewer tokens.
    assert [found["longp"].front[name] for name in ("latency", "tokens")] == [DOMINATED, FRONT]
    assert found["longp"].front["flop"] in (CONTESTED, DOMINATED)
    assert set(found["uncounted"].front) == {"latency", "score"}, "no place without a ratio"
    assert found["uncounted"].front["latency"] is not FRONT, "FirstP has the same gain for less"


def test_mean_gain_over_datasets_counts_each_dataset_once(compared: LongDocuments) -> None:
    assert compared.mean_gains() == [], "one dataset has no mean"
    (group,) = compared.groups
    first = systems(compared)["maxp"]
    assert first.relative.value is not None
    halved = replace(first, relative=Estimate(first.relative.value / 2))
    near = replace(group, place=group.place._replace(dataset="near"), systems=(halved,))
    (mean,) = (both := replace(compared, groups=(group, near))).mean_gains()
    assert mean.percent == pytest.approx(0.75 * first.relative.value)
    assert (mean.system, mean.datasets) == ("maxp", ("far", "near"))
    assert replace(both, groups=(group, near, near)).mean_gains() == [], "two samples of one dataset have no one gain"
    document = long_documents_document(both)
    assert f"| {mean.percent:+.1f} |" in " ".join(writers.write(document, "md").split())


def test_missing_parts_say_why(compared: LongDocuments) -> None:
    found = systems(compared)
    assert found["alone"].reason == "no FirstP measured (never-measured)"
    assert (found["failed"].reason or "").startswith("oom")
    assert found["uncounted"].ratios["flop"].reason == "not counted (uncounted)"
    assert compared.unnamed == ("bm25",)


@pytest.mark.slow
def test_times_of_two_machines_are_never_divided(table: Table, per_query: dict[str, PerQuery]) -> None:
    def of(**changes: object) -> ReadingOn:
        rows = [replace(row, **changes) if row.system == "firstp" else row for row in table.rows]
        return systems(long_documents.build(replace(table, rows=tuple(rows)), per_query, FIRSTP, "RR@10"))["maxp"]

    (first,) = (row for row in table.rows if row.system == "firstp")
    assert first.machine is not None and first.first_stage is not None
    elsewhere = of(machine=replace(first.machine, cpu_model=ForeignText("another CPU")))
    assert ratios(elsewhere) == {"latency": None, "score": None, "flop": 4.74, "tokens": 5.18}
    assert elsewhere.ratios["latency"].reason == "measured on different machines"
    assert elsewhere.gain is not None and elsewhere.gain.interval.value == pytest.approx(0.6)
    assert ratios(of(profile="cpu2-mem4"))["latency"] is None
    assert of(validity=Validity.INVALID).ratios["latency"].reason == "invalid: firstp"
    other = of(first_stage=replace(first.first_stage, depth=50))
    assert other.reason == "FirstP orders bm25, depth 50; this one bm25, depth 20"
    none = of(measures={"RR@10": Estimate(0.0)})
    assert (none.relative.value, none.relative.reason) == (None, "FirstP has RR@10 0")


@pytest.mark.parametrize("width", [80, 100])
def test_first_screen_fits_and_says_the_answer(compared: LongDocuments, width: int) -> None:
    section = answer(compared, writers.plain_escape, width)
    (grid,) = section.grids
    assert max(map(cell_len, writers.plain_table(grid))) <= width
    assert len(section.notes) <= MOST_LINES
    (sentence,) = section.after
    assert sentence.startswith("Reading on pays most in maxp: +60.0 (")
    assert sentence.endswith("points RR@10, +685.7 % over firstp, at 2.60x its time, 4.74x its FLOP, 5.18x its tokens.")
    assert [line[0] for line in grid.cells] == ["firstp", "maxp", "avgp", "longp", "uncounted", "alone", "failed"]
    assert grid.cells[-2][1] == "no FirstP measured (never-measured)"
    text = " ".join(section.notes)
    assert "no ratio of FLOP and tokens for uncounted: not counted" in text


@pytest.mark.slow
def test_command_writes_all_formats(results: Path, tmp_path: Path) -> None:
    usual = ["report", str(results), "--layout", "long-documents"]
    lines = [*csv.DictReader(io.StringIO(call(*usual, "--format", "csv").stdout))]
    assert len(lines) == 6
    maxp = next(line for line in lines if line["system"] == "maxp")
    assert (maxp["firstp"], float(maxp["flop_ratio"]), maxp["front_latency"]) == ("firstp", 4.74, "front")
    content = json.loads(call(*usual, "--format", "json").stdout)
    (maxp,) = (each for each in content["groups"][0]["systems"] if each["system"] == "maxp")
    assert (maxp["flop_ratio"], maxp["front_flop"], len(maxp["keys"])) == (4.74, "front", 3)
    drawn = call(*usual, "--format", "png", "-o", str(tmp_path)).stdout.split()
    assert [Path(path).name for path in drawn] == ["far-long-documents.png"]
    refused = call("report", str(published_measures.long_documents().folder), "--layout", "long-documents")
    assert_refused(refused, "a paper's figures have no times or queries to compare; leave --layout out")


@pytest.mark.slow
def test_results_whose_suite_names_no_firstp_say_so(results: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(results, tmp_path / "results")
    (copied / "quick" / "suite.json").write_text('{"measures": ["RR@10"]}')
    usual = ["report", str(copied), "--layout", "long-documents"]
    assert "no suite of these results names the FirstP of alone, avgp, bm25" in call(*usual).stdout
    drawn = call(*usual, "--format", "png", "-o", str(tmp_path))
    assert (drawn.exit_code, drawn.stderr) == (1, "no picture: no suite of these results names a FirstP ([firstp])\n")


def test_picture_has_a_panel_for_each_ratio_with_its_points(compared: LongDocuments) -> None:
    (group,) = compared.groups
    rows: list[Row] = [each.row for each in group.systems]
    frame = plots._frame(group, "RR@10", style.system_styles(row.system for row in rows))
    with style.settings(9):
        figure = plots.draw(group, frame, "RR@10")
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == [f"{name}, x FirstP" for name in ("mean latency", "time of stage score", "FLOP", "tokens")]
    drawn = {(round(x, 3), round(y, 1)) for line in figure.axes[2].lines for x, y in line.get_xydata()}
    assert {(1.0, 0.0), (4.74, 685.7), (3.4, 285.7)} <= drawn
    assert "alone (no FirstP measured" in frame.notes[0]
