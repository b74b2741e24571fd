"""The plot of order flips: its numbers and bytes, the rows that count as one system, the reasons for no plot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.analysis import robustness
from harness.analysis.leaderboard import LeaderboardQuery
from harness.analysis.robustness import Condition, ConditionKind, QueryScores, RankedSystem, Robustness
from harness.analysis.table import Row, Table, Validity
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.report.plots import order_flips, style
from harness.report.plots.select import NoPlot, PlotRows
from tests.report.plots.conftest import made, row

QUERIES = tuple(f"q{number:02}" for number in range(40))


def board(count: int, conditions: int = 3, name: str = "system with a long name {}") -> Robustness:
    """Of systems i and j, the share is (i + j) / (2 count)."""
    shares = tuple(
        tuple(None if one == two else (one + two) / (2 * count) for two in range(count)) for one in range(count)
    )
    causes = [*ConditionKind][:conditions]
    return Robustness(
        "made up",
        "nDCG@10",
        50,
        tuple(RankedSystem(name.format(each), 1 - each / 50, each + 1, None, None, None) for each in range(count)),
        tuple(Condition(cause, "at most 1 relevant a query", 100, shares, Estimate(0.5, 0, 1)) for cause in causes),
        (),
    )


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 15])
def test_every_number_is_drawn_in_its_cell_and_none_is_clipped(count: int) -> None:
    found = board(count)
    figure = order_flips.draw_flips(found)
    style.settle(figure)
    panels = figure.axes[:3]
    for panel, condition in zip(panels, found.conditions, strict=True):
        numbers = {text.get_position(): text.get_text() for text in panel.texts}
        assert len(numbers) == count * (count - 1) / 2
        assert numbers[(0, count - 1)] == f"{100 * (count - 1) / (2 * count):.0f}"
        assert condition.cause.value in panel.get_title(loc="left")
    assert panels[0].get_yticklabels()[0].get_text().endswith(" 1")
    renderer = figure.canvas.get_renderer()
    width, height = figure.canvas.get_width_height()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes if axes.axison]
    assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)
    for panel in panels:
        cell = panel.transData.transform([(0, 0), (1, 1)])
        room = abs(cell[1] - cell[0])
        sizes = [text.get_window_extent(renderer) for text in panel.texts]
        assert all(size.width < room[0] and size.height < room[1] for size in sizes)
    others = [panel.get_tightbbox(renderer) for panel in panels]
    assert not any(one.overlaps(two) for place, one in enumerate(others) for two in others[:place])


@pytest.mark.slow
def test_best_of_many_systems_are_drawn_in_colours_only() -> None:
    figure = order_flips.draw_flips(board(40))
    assert not figure.axes[0].texts and len(figure.axes[0].get_yticklabels()) == 30
    assert any("The 30 best; 10 more are in the table." in " ".join(text.get_text().split()) for text in figure.texts)


@pytest.mark.slow
def test_equal_systems_have_a_sign_and_hostile_names_are_harmless() -> None:
    shares = ((None, None), (None, None))
    condition = Condition(
        ConditionKind.QUERIES, "resampled", 10, shares, Estimate(None, reason="all systems are equal")
    )
    standings = tuple(RankedSystem(name, 0.5, 1.5, 1, 2, 0.5) for name in ("$x^2", "\x1b[31m中文🦀"))
    figure = order_flips.draw_flips(Robustness("_d", "RR@10", 20, standings, (condition,), ()))
    assert [text.get_text() for text in figure.axes[0].texts] == ["="]
    assert "(tau" not in figure.axes[0].get_title(loc="left")
    figure.draw_without_rendering()


@pytest.mark.slow
def test_files_have_distinct_names_and_identical_bytes_each_time(tmp_path: Path) -> None:
    nothing = Robustness("none", "RR@10", 5, board(2).standings, (), ())
    found = [board(3), nothing, board(2)]
    first = [*style.save_each(order_flips.pictures(found), tmp_path / "one", "png")]
    again = [*style.save_each(order_flips.pictures(found), tmp_path / "two", "png")]
    assert len({path.name for path in first}) == 2 and all(path.name.startswith("made-up") for path in first)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]


def values(seed: int, mean: float) -> np.ndarray[Any, Any]:
    return np.clip(np.random.default_rng(seed).normal(mean, 0.3, len(QUERIES)), 0, 1)


def of(row: Row, ids: tuple[str, ...] = QUERIES, **measures: Any) -> PerQuery:
    """``RR`` stands for RR@10 and so on."""
    return PerQuery(
        row.per_query_key, ids, np.zeros(0), {f"{each}@10": np.asarray(of) for each, of in measures.items()}
    )


def rows_of(table: Table, *found: PerQuery, measure: str = "RR@10") -> PlotRows:
    return PlotRows(table, {each.key: each for each in found}, LeaderboardQuery("scifact", measure), {}, "scifact")


def drawn(rows: PlotRows) -> tuple[list[str], str, Any]:
    """The systems' labels, all small print in one line, and the figure."""
    figure = order_flips.make_flips(rows)()
    labels = [each.get_text() for each in figure.axes[0].get_yticklabels()]
    return labels, " ".join(" ".join(each.get_text() for each in figure.texts).split()), figure


def numbers(axes: Any) -> dict[tuple[float, float], str]:
    return {text.get_position(): text.get_text() for text in axes.texts}


A, B, C = (row(system, "cpu1-mem1", 0) for system in ("a", "b", "c"))
A2 = row("a", "cpu1-mem2", 0)


@pytest.mark.slow
def test_matrix_equals_that_of_the_values() -> None:
    rr = [values(seed, mean) for seed, mean in ((1, 0.4), (2, 0.5), (3, 0.45))]
    ndcg = [values(seed, mean) for seed, mean in ((4, 0.6), (5, 0.5), (6, 0.4))]
    table = replace(made([A, B, C]), measures=("RR@10", "nDCG@10"))
    found = [of(each, RR=one, nDCG=other) for each, one, other in zip((A, B, C), rr, ndcg, strict=True)]
    _, _, figure = drawn(rows_of(table, *found))
    columns = {"RR@10": np.stack(rr, axis=1), "nDCG@10": np.stack(ndcg, axis=1)}
    expected = robustness.of_values(
        "x", QueryScores(("a", "b", "c"), columns), robustness.RobustnessOptions("RR@10", ("nDCG@10",))
    )
    assert [each.cause.value for each in expected.conditions] == ["other queries", "another measure"]
    for axes, condition in zip(figure.axes, expected.conditions, strict=False):
        shares = {at: float(text) / 100 for at, text in numbers(axes).items()}
        assert len(shares) == 3
        for (other, one), share in shares.items():
            assert share == pytest.approx(condition.flips[int(one)][int(other)], abs=0.0051)
        assert axes.get_title(loc="left").endswith(condition.name)
    assert not np.allclose(*(np.asarray(each.flips, dtype=float) for each in expected.conditions), equal_nan=True), (
        "both panels would look alike"
    )


@pytest.mark.slow
def test_profiles_with_equal_values_are_one_system_and_others_are_not() -> None:
    one, other = values(1, 0.4), values(2, 0.6)
    labels, text, _ = drawn(rows_of(made([A, A2, B]), of(A, RR=one), of(A2, RR=one), of(B, RR=other)))
    assert labels == ["b  1", "a  2"]
    assert "Rows of a system that are worth the same for every query are one." in text
    labels, text, _ = drawn(rows_of(made([A, A2, B]), of(A, RR=one), of(A2, RR=one * 0.5), of(B, RR=other)))
    assert labels == ["b  1", "a on cpu1-mem1  2", "a on cpu1-mem2  3"]
    assert "are one." not in text
    # Alike by one measure, apart by another: two rankings.
    table = replace(made([A, A2, B]), measures=("RR@10", "P@10"))
    found = [of(A, RR=one, P=one), of(A2, RR=one, P=other), of(B, RR=other, P=one)]
    labels, _, figure = drawn(rows_of(table, *found))
    assert labels == ["b  1", "a on cpu1-mem1  2", "a on cpu1-mem2  3"]
    assert numbers(figure.axes[0])[1, 2] == "="


def test_rows_of_one_name_are_distinguished() -> None:
    again = [replace(A, suite="other", key="k1"), replace(A, suite="other", key="k2")]
    found = [of(each, RR=values(seed, 0.2 * seed)) for seed, each in enumerate((A, *again), start=1)]
    rows = rows_of(made([A, *again]), *found)
    names = order_flips._unique_names(rows.table.rows)
    assert names == (f"a on cpu1-mem1, {A.suite}", "a on cpu1-mem1, k1", "a on cpu1-mem1, k2")
    assert len({*drawn(rows)[0]}) == 3
    assert len({*order_flips._unique_names([A, A])}) == 2


def test_omitted_rows_are_named_with_their_reason() -> None:
    oom = row("a", "cpu4-mem16", 0, outcome=Outcome.OOM, detail="killed", measures={}, latency_mean_s=Estimate(None))
    invalid = row("c", "cpu1-mem1", 0, validity=Validity.INVALID)
    unknown = row("d", "cpu1-mem1", 0)
    found = [of(each, RR=values(seed, 0.5)) for seed, each in enumerate((A, B, invalid))]
    labels, text, _ = drawn(rows_of(made([A, B, oom, invalid, unknown]), *found))
    assert sorted(label[0] for label in labels) == ["a", "b"]
    assert "a on cpu4-mem16 (oom); c on cpu1-mem1 (invalid: see its notes); d on cpu1-mem1 (no RR@10 by query)" in text
    assert "Fewer judgements, which also change orders: see harness robustness." in text


@pytest.mark.slow
def test_measure_without_an_order_by_query_is_named_and_others_are_drawn() -> None:
    table = replace(made([A, B]), measures=("RR@10", "P@10", "NumRet", "R@10"))
    one, other = (of(each, RR=values(seed, 0.5), P=values(seed, 0.5)) for seed, each in enumerate((A, B)))
    for each in (one, other):
        each.measures["NumRet"] = np.full(len(QUERIES), 10.0)
    one.measures["R@10"] = values(5, 0.5)
    _, text, figure = drawn(rows_of(table, one, other))
    panels = [axes.get_title(loc="left").rpartition("\n")[2] for axes in figure.axes]
    assert [each for each in panels if each] == ["resampled", "P@10"]
    assert "no picture of another measure: NumRet: it is not a mean over queries." in text
    assert "no picture of another measure: R@10: b on cpu1-mem1 has none by query." in text


@pytest.mark.slow
def test_queries_not_judged_for_every_system_are_left_out_for_all() -> None:
    """Unjudged queries are no number and play no part; nor does the order in which rows hold their queries."""
    one, other = values(1, 0.4), values(2, 0.5)
    holes = other.copy()
    holes[[3, 7]] = np.nan
    backwards = of(B, QUERIES[::-1], RR=holes[::-1])
    _, text, figure = drawn(rows_of(made([A, B]), of(A, RR=one), backwards))
    assert "over 38 queries" in text and "Not judged for every system, left out: 2 queries." in text
    kept = np.isfinite(holes)
    found = [
        of(A, tuple(np.asarray(QUERIES)[kept]), RR=one[kept]),
        of(B, tuple(np.asarray(QUERIES)[kept]), RR=holes[kept]),
    ]
    _, text, whole = drawn(rows_of(made([A, B]), *found))
    assert "Not judged" not in text
    assert numbers(figure.axes[0]) == numbers(whole.axes[0]) != {}
    # A query that nobody judged is not said to be left out: its row says so.
    gone = [of(each, RR=np.where(kept, every, np.nan)) for each, every in ((A, one), (B, other))]
    assert "Not judged" not in drawn(rows_of(made([A, B]), *gone))[1]


SAME = values(1, 0.4)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (rows_of(made([A, B])), r"no row has what it takes \(a on cpu1-mem1: no RR@10 by query; 1 more\)"),
        (rows_of(made([A, A2]), of(A, RR=SAME), of(A2, RR=SAME)), "an order needs two systems, there is a alone"),
        (
            rows_of(made([A, B]), of(A, QUERIES[:5], RR=SAME[:5]), of(B, QUERIES[:5], RR=SAME[5:10])),
            "resampling needs 11 queries, there are 5",
        ),
        (
            rows_of(made([A, B]), of(A, QUERIES[:20], RR=SAME[:20]), of(B, QUERIES[20:], RR=SAME[20:])),
            "no query is judged for every system",
        ),
        (
            rows_of(made([replace(A, qrels_sha256="x"), B]), of(A, RR=SAME), of(B, RR=SAME[::-1])),
            "rows were judged by 2 different sets of judgements",
        ),
        (
            rows_of(
                replace(made([A, B]), measures=("SetF@10", "NumRet")),
                *(PerQuery(each.per_query_key, QUERIES, np.zeros(0), {"NumRet": SAME}) for each in (A, B)),
                measure="NumRet",
            ),
            "NumRet makes no order of them: it is not a mean over queries",
        ),
    ],
)
def test_missing_picture_of_orders_has_a_reason(rows: PlotRows, why: str) -> None:
    with pytest.raises(NoPlot, match=f"^how often two systems change places: {why}"):
        order_flips.make_flips(rows)


def test_few_queries_show_only_the_order_of_another_measure() -> None:
    table = replace(made([A, B]), measures=("RR@10", "P@10"))
    found = [of(A, ("q1", "q2"), RR=[1, 1], P=[0, 0]), of(B, ("q1", "q2"), RR=[0, 0], P=[1, 1])]
    _, text, figure = drawn(rows_of(table, *found))
    assert numbers(figure.axes[0]) == {(0, 1): "100"}
    assert "no picture of other queries: resampled: resampling needs 11 queries, there are 2." in text
