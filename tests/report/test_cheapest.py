"""The cheapest row that reaches a goal: chosen by hand-made costs and ranks, refused goals, every format."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from harness.analysis import cheapest, results_folder, row_pricing
from harness.analysis.cheapest import CheapestPoint, QualityGoal
from harness.analysis.table import Table, Validity
from harness.driver.records import Outcome
from harness.errors import UnknownName
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.pricing import prices
from harness.report import cheapest as cheapest_report
from harness.report import writers
from tests.support import publisher, sample_records
from tests.support.command_line import SCREEN_LINES, assert_refused, call
from tests.support.published import SHIPPED
from tests.support.publisher import Made

# RR@10 of each: .25, .5, .5107 (3 of 140 queries are better), .75 and .75.
CELLS = (
    Made("words", 1.0, (4,)),
    Made("small", 2.0, (2,)),
    Made("medium", 4.0, (1, *[2] * 49)),
    Made("large", 8.0, (1, 2)),
    Made("large", 16.0, (1, 2), profile="cpu2-mem4"),
    Made("dead", 0.5, outcome=Outcome.OOM),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cheapest")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(folder / "cache"))
        yield publisher.put(folder / "results", *CELLS, measures=("RR@10",))


@pytest.fixture(scope="module")
def table(results: Path) -> Table:
    return row_pricing.price(results_folder.read(results).table, row_pricing.tariff(prices.snapshot()))


@pytest.fixture(scope="module")
def per_query(results: Path) -> dict[str, PerQuery]:
    return results_folder.read(results).per_query


def goal_of(text: str) -> QualityGoal:
    goal = cheapest.parse_goal(text)
    assert goal is not None
    return goal


def found(table: Table, per_query: dict[str, PerQuery], text: str) -> CheapestPoint:
    (group,) = cheapest.find(table, per_query, goal_of(text))
    return group


def names(group: CheapestPoint) -> dict[str, str | None]:
    points = {"cheapest": group.cheapest, "cheaper": group.cheaper, "sure": group.sure}
    return {role: None if point is None else point.row.system for role, point in points.items()}


@pytest.mark.slow
def test_cheapest_reaches_and_the_next_cheaper_misses(table: Table, per_query: dict[str, PerQuery]) -> None:
    group = found(table, per_query, "RR@10=.505")
    assert [point.row.system for point in group.points] == ["words", "small", "medium", "large", "large"]
    assert [row.system for row, _ in group.left_out] == ["dead"]
    # The mean of medium reaches the goal, the lower end of its interval does not.
    assert names(group) == {"cheapest": "medium", "cheaper": "small", "sure": "large"}
    assert group.cheapest is not None and group.cheapest.gap.value == pytest.approx(0.5 + 3 / 140 / 2 - 0.505)
    assert group.cheaper is not None and group.cheaper.gap.value == pytest.approx(-0.005)
    assert names(found(table, per_query, "RR@10=.2")) == {"cheapest": "words", "cheaper": None, "sure": "small"}
    none = found(table, per_query, "RR@10=.9")
    assert (none.cheapest, none.cheaper, none.sure) == (None, None, None)
    assert none.best is not None and (none.best.row.system, none.best.row.profile) == ("large", "cpu1-mem1")


@pytest.mark.slow
def test_points_of_equal_cost_are_as_cheap_and_none_is_the_cheaper_one(
    table: Table, per_query: dict[str, PerQuery]
) -> None:
    equal = {"small", "medium", "large"}
    rows = [
        sample_records.row_with(row, usd_per_million=Estimate(0.5)) if row.system in equal else row
        for row in table.rows
    ]
    group = found(changed := replace(table, rows=tuple(rows)), per_query, "RR@10=.505")
    assert {point.row.system for point in group.equally_cheap} == {"medium", "large"}
    assert group.cheaper is not None and group.cheaper.row.system == "words", "small misses at the same cost"
    goal = goal_of("RR@10=.505")
    shown = cheapest_report.answer((group,), goal, changed, writers.plain_escape)
    (said,), scope = shown.after, shown.notes[0]
    assert scope.startswith("The interval is of each row's own mean") and "harness compare tests two systems" in scope
    assert said.count(" at the same cost). ") == 1
    none = found(table, per_query, "RR@10=.9")
    assert [point.row.profile for point in none.equally_good] == ["cpu1-mem1", "cpu2-mem4"]


def test_a_mean_equal_to_the_goal_reaches_it(table: Table, per_query: dict[str, PerQuery]) -> None:
    assert names(found(table, per_query, "RR@10=.75"))["cheapest"] == "large"
    assert names(found(table, per_query, "RR@10=.5"))["cheapest"] == "small"


@pytest.mark.slow
def test_relative_goal_pairs_queries_and_uses_their_difference(table: Table, per_query: dict[str, PerQuery]) -> None:
    # medium is .2393 below large in the mean; two intervals of means would overlap far more widely than this.
    group = found(table, per_query, "RR@10=large-.25")
    assert group.goal == pytest.approx(0.5)
    scope = cheapest_report.answer((group,), goal_of("RR@10=large-.25"), table, writers.plain_escape).notes[0]
    assert scope.startswith("The interval is of one difference, query by query (one measure, 95 %)")
    assert names(group) == {"cheapest": "small", "cheaper": "words", "sure": "large"}
    own = {point.row.profile: point for point in group.points if point.row.system == "large"}
    assert own["cpu1-mem1"].gap.low == own["cpu2-mem4"].gap.low == pytest.approx(0.25), "itself, on any hardware"
    wide = {point.row.system: point.gap for point in found(table, per_query, "RR@10=large-.4").points}
    assert wide["small"].low is not None and wide["small"].low > 0
    absolute = {point.row.system: point.gap for point in found(table, per_query, "RR@10=.35").points}
    assert absolute["small"].low is not None and absolute["small"].low < wide["small"].low, "queries are paired"
    assert names(found(table, per_query, "RR@10=small"))["cheapest"] == "small"
    assert found(table, per_query, "RR@10=small+.1").goal == pytest.approx(0.6)


@pytest.mark.slow
def test_names_that_end_like_numbers_are_not_split(table: Table, per_query: dict[str, PerQuery]) -> None:
    renamed = {"small": "bm25-2", "medium": "bm25", "large": "a-depth-10"}
    rows = tuple(replace(row, system=renamed.get(row.system, row.system)) for row in table.rows)
    changed = replace(table, rows=rows)
    assert found(changed, per_query, "RR@10=bm25-2").goal == pytest.approx(0.5)
    assert found(changed, per_query, "RR@10=bm25-2-.1").goal == pytest.approx(0.4)
    assert found(changed, per_query, "RR@10=a-depth-10-1e-2").goal == pytest.approx(0.74)


def test_invalid_and_unpriced_rows_do_not_count(table: Table, per_query: dict[str, PerQuery]) -> None:
    rows = [replace(row, validity=Validity.INVALID) if row.system == "medium" else row for row in table.rows]
    group = found(replace(table, rows=tuple(rows)), per_query, "RR@10=.505")
    assert names(group)["cheapest"] == "large" and {row.system for row, _ in group.left_out} == {"dead", "medium"}
    unpriced = found(unpriced_table(table), per_query, "RR@10=.505")
    assert unpriced.best is None and all("cost" in reason or "oom" in reason for _, reason in unpriced.left_out)
    goal = goal_of("RR@10=.505")
    section = cheapest_report.answer((unpriced,), goal, table, writers.plain_escape)
    assert section.after == ("No row has both RR@10 and a cost (no cost: no type provides this profile).",)
    failed = [replace(row, validity=Validity.INVALID) if row.system == "large" else row for row in table.rows]
    assert found(replace(table, rows=tuple(failed)), per_query, "RR@10=large-.1").reason == "large has no RR@10 here"


def unpriced_table(table: Table) -> Table:
    """Return the table without any cost."""
    none = Estimate(None, reason="no type provides this profile")
    return replace(table, rows=tuple(sample_records.row_with(row, usd_per_million=none) for row in table.rows))


@pytest.mark.slow
def test_answer_is_a_screen_and_none_is_one_line(results: Path) -> None:
    shown = call("report", str(results), "--at-least", "RR@10=.505").stdout
    lines = shown.splitlines()
    assert len(lines) <= SCREEN_LINES
    assert lines[0].startswith("Cheapest with RR@10 of at least .505, prices aws us-east-1")
    assert [line.split("|")[1].strip() for line in lines[4:7]] == ["next cheaper", "cheapest", "lower end too"]
    said = re.search(r"distance to the goal is (\S+) to (\S+) \(95 %\): the lower end misses the goal\. ", shown)
    assert said is not None and said[1] == "-0.0801"
    assert "The cheapest row whose lower end reaches it is large on 1 CPU, 1 GiB." in shown
    assert f"{said[1]} to {said[2]}" in shown.splitlines()[5], "the table has the same interval"
    assert "The next cheaper, small on 1 CPU, 1 GiB at US$ 0.0299, misses by 0.0050." in shown
    none = call("report", str(results), "--at-least", "RR@10=.9").stdout
    assert none.startswith("None reaches RR@10 0.9000; the best is large on 1 CPU, 1 GiB, the cheapest of 2, with")
    assert none.count("\n") == 1
    wide = call("report", str(results), "--at-least", "RR@10=large-0.002", "--wide").stdout
    paired = re.search(r"distance to the goal is (\+0.0020 to \+0.0020) \(95 %\): the lower end reaches the goal", wide)
    assert paired is not None and wide.count(paired[1]) == 3, "large against itself, in two rows and the sentence"
    assert wide.count("| large ") == 2 and "1 row left out: oom" in wide


def test_sentence_says_that_no_row_costs_less_reaches_it_surely_or_is_quiet(
    table: Table, per_query: dict[str, PerQuery]
) -> None:
    def said(text: str, **changes: object) -> str:
        rows = tuple(replace(row, **changes) if row.system == "large" else row for row in table.rows)
        changed = replace(table, rows=rows)
        group = found(changed, per_query, text)
        return cheapest_report.answer((group,), goal_of(text), changed, writers.plain_escape).after[0]

    assert said("RR@10=.2").endswith("reaches it is small on 1 CPU, 1 GiB. No other row costs less.")
    noisy = said("RR@10=.75", validity=Validity.NOISY)
    assert "the lower end misses the goal. No row reaches the goal with its lower end. The next cheaper, " in noisy
    assert noisy.endswith(" misses by 0.2393. The latency behind the cost of large is noisy.")
    assert "noisy" not in said("RR@10=.75")


def test_groups_of_one_dataset_are_told_apart(table: Table, per_query: dict[str, PerQuery]) -> None:
    other = [replace(row, k=100, key=f"{row.key}-deep") for row in table.rows if row.system != "large"]
    both = replace(table, rows=(*table.rows, *other))
    goal = goal_of("RR@10=.6")
    section = cheapest_report.answer(cheapest.find(both, per_query, goal), goal, both, writers.plain_escape)
    assert [line.partition(": ")[0] for line in section.after] == ["scifact, top 10", "scifact, top 100"]
    assert "None reaches RR@10 0.6000; the best is medium" in section.after[1]
    assert {line[0] for line in section.grids[0].cells} == {"scifact, top 10"}


@pytest.mark.parametrize("width", [80, 100])
def test_grid_fits_the_terminal(table: Table, per_query: dict[str, PerQuery], width: int) -> None:
    long = tuple(replace(row, system=f"{row.system}-of-a-long-name", validity=Validity.NOISY) for row in table.rows)
    goal = goal_of("RR@10=.505")
    found_points = cheapest.find(replace(table, rows=long), per_query, goal)
    (grid,) = cheapest_report.answer(found_points, goal, table, writers.plain_escape, width).grids
    assert max(map(cell_len, writers.plain_table(grid))) <= width and len(grid.cells) == 3


@pytest.mark.slow
def test_csv_and_json_hold_every_row(results: Path) -> None:
    options = ("report", str(results), "--at-least", "RR@10=.505", "--format")
    lines = list(csv.DictReader(io.StringIO(call(*options, "csv").stdout)))
    assert {line["system"]: line["role"] for line in lines if line["hardware_profile"] == "cpu1-mem1"} == {
        **{"words": "", "small": "cheaper", "medium": "cheapest", "large": "sure", "dead": ""}
    }
    assert {line["system"]: line["reaches"] for line in lines}["dead"] == ""
    content = json.loads(call(*options, "json").stdout)
    (group,) = content["groups"]
    assert [group["points"][group[name]]["system"] for name in ("cheapest", "cheaper", "sure", "best")] == [
        *("medium", "small", "large", "large")
    ]
    assert group["points"][group["cheapest"]]["lower_end_reaches"] is False
    assert (content["goal"], group["goal"], group["left_out"][0]["system"]) == ("RR@10=.505", 0.505, "dead")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("RR@10",), "--at-least RR@10: write MEASURE=VALUE or MEASURE=SYSTEM-VALUE"),
        (("RR@10=",), "--at-least RR@10=: write MEASURE=VALUE"),
        (("RR@10=50",), "RR@10 is between 0 and 1; write 0.68 for 68 points"),
        (("RR@10=-.5",), "RR@10 is between 0 and 1"),
        (("RR@10=nan",), "nan is not a finite number"),
        (("nDGC@10=.5",), "unknown measure 'nDGC@10'"),
        (("FD@10=2",), "less is better in a distance"),
        (("RR@10=smal-.1",), "unknown system 'smal'. Did you mean 'small'?"),
        (("RR@10=.5", "--format", "html"), "--at-least has its own columns"),
        (("RR@10=.5", "--measures", "RR@10"), "--at-least names its own measure"),
        (("RR@10=.5", "--layout", "long-documents"), "--at-least has its own columns"),
        (("RR@10=.5", "--sort", "cost"), "--at-least has its own columns"),
    ],
)
def test_wrong_goal_is_one_line(results: Path, options: tuple[str, ...], message: str) -> None:
    assert_refused(call("report", str(results), "--at-least", *options), message)


def test_parameters_of_a_measure_may_hold_an_equals_sign() -> None:
    goal = cheapest.parse_goal("AP(rel=2)@100=.3")
    assert goal is not None and (goal.measure, goal.value) == ("AP(rel=2)@100", 0.3)
    with pytest.raises(UnknownName, match="unknown system 'x'"):
        QualityGoal("RR@10", "x-.1").base(("y",))


def test_published_rows_have_a_cheapest_without_an_interval() -> None:
    options = ("report", str(SHIPPED), "--at-least", "RR@10=.37", "--as-of", "2022-12-05", "--format", "json")
    groups = json.loads(call(*options).stdout)["groups"]
    chosen = {(group["dataset"], group["suite"]): group["points"][group["cheapest"]] for group in groups}
    assert {place: point["system"] for place, point in chosen.items()} == {
        ("msmarco", "santhanam2023"): "BT-SPLADE-L",
        ("msmarco", "santhanam2023-table2"): "BT-SPLADE-M",
        ("xortydi", "santhanam2023"): "BT-SPLADE-L",
    }
    assert all(point["lower_end_reaches"] is None for point in chosen.values())
    shown = call("report", str(SHIPPED), "--at-least", "RR@10=.42").stdout
    assert "1 of 3 groups have a row that reaches RR@10=.42." in shown and "None reaches RR@10 0.4200" in shown
