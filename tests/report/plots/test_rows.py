"""Plots of rows: points, intervals, quantiles and failures are drawn as given."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.analysis.leaderboard import RankedRow
from harness.analysis.pareto_front import FrontState
from harness.analysis.table import Row
from harness.driver.records import Outcome
from harness.estimate import Estimate, too_few_processes
from harness.evaluation.per_query import SHARES
from harness.report.plots import curves, style
from harness.report.plots import rows as row_plots
from harness.results.schema import SweepPoint
from tests.report.plots.conftest import MIB, axes_of, dots, frame, lines, ranked, words
from tests.support import sample_records


@pytest.mark.slow
def test_pictures_do_not_depend_on_user_settings_or_a_display(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\ntext.usetex: True\n", encoding="utf-8")
    code = (
        "import hashlib, pathlib, sys\n"
        "from harness.report.plots import rows, style\n"
        "from harness.report.plots.style import Frame\n"
        "from harness.estimate import Estimate\n"
        "from tests.support import sample_records\n"
        "price = sample_records.price('m', 1.0, 1, 2**30)\n"
        "row = sample_records.row(system='a', price=price, usd_per_million=Estimate(2.0))\n"
        "with style.settings(9):\n"
        "    around = Frame('t', ('n',), style.system_styles(['a']))\n"
        "    figure = rows.draw_instances([row], around, 'c')\n"
        "    path = style.save(figure, pathlib.Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "print(hashlib.sha256(path.read_bytes()).hexdigest())\n"
    )
    (odd := tmp_path / "odd").mkdir()
    os.mkfifo(odd / "matplotlibrc")
    prints, here = set(), Path.cwd()
    settings = {"MATPLOTLIBRC": str(tmp_path), "DISPLAY": ":77", "MPLBACKEND": "TkAgg"}
    for number, (changes, folder) in enumerate((({}, here), (settings, here), ({}, odd))):
        command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / f"{number}.svg")]
        environment = {**os.environ, "PYTHONPATH": str(here), **changes}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        prints.add(done.stdout)
    assert len(prints) == 1


def point(system: str, profile: str, cost: Estimate, accuracy: Estimate, state: FrontState) -> RankedRow:
    row = sample_records.row(system=system, profile=profile)
    return ranked(row, figures={"cost": cost, "accuracy": accuracy}, state=state)


@pytest.mark.slow
def test_cost_draws_each_point_with_its_interval_and_the_front_as_steps() -> None:
    points = [
        point("a", "one", Estimate(1.0, 0.8, 1.5), Estimate(30.0, 29.0, 31.0), FrontState.FRONT),
        point("b", "two", Estimate(4.0), Estimate(40.0), FrontState.FRONT),
        point("b", "three", Estimate(5.0), Estimate(39.0), FrontState.CONTESTED),
        point("a", "four", Estimate(90.0), Estimate(30.0), FrontState.DOMINATED),
    ]
    figure = row_plots.draw_accuracy(points, frame("a", "b"), "cost, US$", "RR@10, points")
    (axes,) = axes_of(figure)
    assert dots(axes) == [(1, 30), (4, 40), (5, 39), (90, 30)]
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cost, US$", "RR@10, points")
    ((costs, accuracies),) = lines(axes, "the front")
    assert (costs, accuracies) == ([1, 4], [30, 40])
    (steps,) = [line for line in axes.lines if line.get_gid() == "the front"]
    assert steps.get_drawstyle() == "steps-post"
    first = axes.containers[0]
    (ends,) = first.lines[2][0].get_segments()
    assert ends[:, 0].tolist() == pytest.approx([0.8, 1.5])
    assert [each.lines[0].get_markerfacecolor() == "white" for each in axes.containers] == [False, False, True, False]
    assert "one" in words(figure) and "two" in words(figure) and "three" not in words(figure)


def swept(params: dict[str, str | int], cost: float, accuracy: float, profile: str = "one") -> RankedRow:
    name = "-".join(["deep", *map(str, params.values())])
    row = sample_records.row(system=name, profile=profile, sweep=SweepPoint("deep", params))
    figures = {"cost": Estimate(cost), "accuracy": Estimate(accuracy)}
    return ranked(row, figures=figures, state=FrontState.CONTESTED if accuracy < 31 else FrontState.FRONT)


def test_points_of_a_sweep_are_one_curve_in_order_of_cost() -> None:
    points = [
        point("a", "one", Estimate(1.0), Estimate(20.0), FrontState.FRONT),
        swept({"depth": 50}, 9.0, 35.0),
        swept({"depth": 10}, 2.0, 30.0),
        swept({"depth": 20}, 5.0, 33.0),
        swept({"depth": 10}, 3.0, 30.0, "two"),
        swept({"depth": 20}, 7.0, 33.0, "two"),
    ]
    figure = row_plots.draw_accuracy(points, frame("a", "deep"), "cost", "accuracy")
    (axes,) = axes_of(figure)
    assert lines(axes, "sweep deep") == [([2, 5, 9], [30, 33, 35]), ([3, 7], [30, 33])]
    assert [each.get_text() for each in figure.legends[0].get_texts()][:2] == ["a", "deep (depth)"]
    shown = [each.get_text() for each in axes.texts]
    assert {"10", "20, one", "50, one", "20, two"} <= set(shown) and "deep-" not in words(figure)
    # Each point keeps its state: the front is over points.
    assert lines(axes, "the front") == [([1, 5, 7, 9], [20, 33, 33, 35])]


def test_each_text_of_a_grid_has_a_curve_of_its_own() -> None:
    grid = [
        swept({"backend": backend, "tokens": tokens}, cost, 32.0 + tokens / 64)
        for backend, tokens, cost in (("torch", 64, 4.0), ("int8", 64, 1.0), ("torch", 128, 6.0), ("int8", 128, 5.0))
    ]
    drawn = [
        [at for _, at in each]
        for each in curves.curves((each.row, (each.figures["cost"].value or 0, 0.0)) for each in grid)
    ]
    assert drawn == [[(4.0, 0.0), (6.0, 0.0)], [(1.0, 0.0), (5.0, 0.0)]]
    backends = [swept({"backend": name}, cost, 32.0) for name, cost in (("torch", 4.0), ("int8", 1.0))]
    assert len(curves.curves((each.row, (1.0, 2.0)) for each in backends)) == 1, "texts alone are joined"
    assert curves.curves([(backends[0].row, (1.0, 2.0))]) == [], "one point is no curve"
    assert curves.legend_names(each.row for each in grid) == {"deep": "deep (backend, tokens)"}


def test_a_number_without_an_interval_has_no_bar() -> None:
    few = Estimate(2.0, reason=too_few_processes(2))
    below, above = style.bars_of([Estimate(1.0, 0.5, 1.5), few]) or ([], [])
    assert (below[0], above[0]) == (0.5, 0.5) and math.isnan(below[1]) and math.isnan(above[1])
    assert style.bars_of([few]) is None and row_plots._bar_notes([few]) == []
    assert "fewer than 3 processes" in row_plots._bar_notes([few, Estimate(1.0, 0.5, 1.5)])[0]


@pytest.mark.slow
def test_labels_of_the_front_do_not_overlap() -> None:
    points = [
        point("a", f"hardware number {n}", Estimate(1 + n / 50), Estimate(30 + n / 10), FrontState.FRONT)
        for n in range(30)
    ]
    figure = row_plots.draw_accuracy(points, frame("a"), "cost", "accuracy")
    (axes,) = axes_of(figure)
    figure.draw_without_rendering()
    boxes = [each.get_window_extent() for each in axes.texts]
    assert 2 <= len(boxes) < 30
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_distributions_draw_the_quantiles_of_each_row() -> None:
    fast, slow = (
        tuple(float(each) for each in np.linspace(low, high, 51)) for low, high in ((0.001, 0.002), (0.01, 0.05))
    )
    rows = [
        (sample_records.row(system=system, profile=profile), quantiles)
        for system, profile, quantiles in (("a", "one", fast), ("b", "one", slow), ("a", "two", slow))
    ]
    figure = row_plots.draw_distributions(rows, frame("a", "b"))
    first, second = axes_of(figure)
    ((x, y),) = lines(first, "a")
    assert x == pytest.approx([each * 1e3 for each in fast]) and y == pytest.approx(list(SHARES))
    assert lines(first, "b") == lines(second, "a") != [] and lines(second, "b") == []
    assert first.get_xscale() == "log" and second.get_xlabel() == "latency, ms"
    dashes = {line.get_gid(): line._unscaled_dash_pattern for line in first.lines}
    assert dashes["a"] != dashes["b"]
    (narrow,) = axes_of(row_plots.draw_distributions(rows[:1], frame("a")))
    assert narrow.get_xscale() == "linear"


def test_failed_limits_are_crosses_and_never_a_latency() -> None:
    rows = [
        sample_records.row(system=system, memory_limit_bytes=limit * MIB, latency_mean_s=mean_s, outcome=outcome)
        for system, limit, mean_s, outcome in (
            ("a", 64, Estimate(None), Outcome.OOM),
            ("a", 256, Estimate(0.004, 0.003, 0.006), Outcome.OK),
            ("a", 128, Estimate(0.009), Outcome.OK),
            ("b", 64, Estimate(None), Outcome.TIMEOUT),
            ("b", 128, Estimate(None), Outcome.OOM),
        )
    ]
    figure = row_plots.draw_memory(rows, frame("a", "b"))
    (axes,) = axes_of(figure)
    assert [(list(bar.lines[0].get_xdata()), list(bar.lines[0].get_ydata())) for bar in axes.containers] == [
        ([128, 256], [9, 4])
    ]
    crosses = {gid: lines(axes, gid) for gid in ("a: oom", "b: timeout", "b: oom")}
    assert {gid: [x for x, _ in each] for gid, each in crosses.items()} == {
        "a: oom": [[64]],
        "b: timeout": [[64]],
        "b: oom": [[128]],
    }
    for line in axes.lines:
        if line.get_marker() == "x":
            assert line.get_transform() == axes.get_xaxis_transform()  # a share of the panel, not a latency
            assert 0.8 < line.get_ydata()[0] < 1
    top = axes.transData.inverted().transform(axes.transAxes.transform((0, 0.86)))[1]
    assert top > 9  # the lines stay below the crosses
    assert "no answer (oom, timeout)" in words(figure)


def priced(system: str, instance_type: str, usd_per_hour: float, usd_per_million: float) -> Row:
    price = sample_records.price(instance_type, usd_per_hour, 1, 1024 * MIB)
    return sample_records.row(system=system, price=price, usd_per_million=Estimate(usd_per_million))


def test_instances_are_sorted_by_price_with_a_dot_for_each_row() -> None:
    rows = [priced("a", "dear", 2.0, 30.0), priced("b", "cheap", 0.1, 7.0), priced("a", "cheap", 0.1, 2.0)]
    figure = row_plots.draw_instances(rows, frame("a", "b"), "cost, US$")
    (axes,) = axes_of(figure)
    assert [each.get_text() for each in axes.get_yticklabels()] == ["cheap (0.1)", "dear (2)"]
    assert lines(axes, "a") == [([30, 2], [1, 0])] and lines(axes, "b") == [([7], [0])]
    assert axes.get_xscale() == "log" and axes.yaxis_inverted()
