"""The page's costs, exchange rates, scores, ranks and fronts equal those of Python, row by row."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from harness import stats
from harness.analysis import axes, dynascore, leaderboard, pareto_front, row_pricing
from harness.analysis.dynascore import DynascoreOptions, Entry
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.row_pricing import Tariff
from harness.evaluation.per_query import PerQuery
from harness.pricing import prices
from harness.report import page as pages
from harness.report.page import PageSource
from harness.stats import Estimate
from tests.report.page import made
from tests.report.page.conftest import Open
from tests.support.chance import chance

pytestmark = pytest.mark.browser

# In the order of the page.
SNAPSHOTS = [
    row_pricing.tariff(snapshot)
    for file in prices.snapshot_files()
    for snapshot in prices.read_snapshots(file).values()
]
WEIGHTS = ((0.5, 0.25, 0.25), (0.9, 0.05, 0.05), (0.1, 0.8, 0.1), (0.35, 0, 0.65), (1, 0, 0), (0, 0.5, 0.5))
# What stands of each row: rank, score, front.
_SHOWN = """() => {
  const view = harnessPage.main.view();
  const none = (value) => (Number.isNaN(value) ? null : value);
  return Object.fromEntries(view.rows.map((row) => [
    harnessPage.content.rows[row].key,
    [none(view.rank[row]), none(view.score[row]), view.frontOf[row]],
  ]));
}"""


@pytest.fixture(scope="module")
def rows() -> tuple[list[Any], dict[str, PerQuery]]:
    return made.rows(120, datasets=("scifact", "nfcorpus"))


def choose(page: Page, **changes: Any) -> None:
    """``snapshot=None``: the one that the page opens with."""
    if changes.get("snapshot", 0) is None:
        changes["snapshot"] = page.evaluate("harnessPage.content.snapshot")
    page.evaluate("(changes) => harnessPage.main.change(changes)", changes)


def board(results: PageSource, found: dict[str, PerQuery], at: Tariff, **asked: Any) -> Leaderboard:
    question = LeaderboardQuery(
        dataset="scifact", measure=asked.pop("measure", "RR@10"), front=("cost", "accuracy"), **asked
    )
    return leaderboard.build(row_pricing.price(results.measured, at), found, question)


def expected(board: Leaderboard) -> dict[str, tuple[int | None, float | None, str | None]]:
    return {
        each.row.key: (each.rank, each.score, None if each.state is None else each.state.value)
        for each in board.ranked_rows
    }


def agree(shown: dict[str, list[Any]], wanted: dict[str, tuple[int | None, float | None, str | None]]) -> None:
    ranked = {key for key, (rank, _, _) in shown.items() if rank is not None}
    assert ranked == {key for key, (rank, _, _) in wanted.items() if rank is not None}
    assert ranked
    for key in ranked:
        assert shown[key][0] == wanted[key][0], key
        assert shown[key][1] == pytest.approx(wanted[key][1], rel=1e-12), key
    for key, (_, _, state) in wanted.items():
        assert shown[key][2] == state, key


@pytest.mark.parametrize("weights", WEIGHTS)
def test_ranks_scores_and_front(shared: Page, results: PageSource, rows: Any, weights: tuple[float, ...]) -> None:
    mode = chance(f"mode with {weights}").choice(dynascore.MODES)
    names = dict(zip(("accuracy", "cost", "latency"), weights, strict=True))
    choose(shared, weights=[round(1000 * each) for each in weights], mode=mode, snapshot=None, measure=0)
    agree(shared.evaluate(_SHOWN), expected(board(results, rows[1], results.tariff, weights=names, mode=mode)))


def test_table_shows_new_scores_after_a_slider_moves(page: Page, results: PageSource, rows: Any) -> None:
    slider = page.locator("#weight-cost")
    slider.focus()
    for _ in range(10):
        slider.press("ArrowRight")
    assert [page.locator(f"#weight-{axis}-value").inner_text() for axis in ("accuracy", "cost", "latency")] == [
        "43.3 %",
        "35 %",
        "21.7 %",
    ]
    weights = {"accuracy": 0.433, "cost": 0.35, "latency": 0.217}
    standings = board(results, rows[1], results.tariff, weights=weights).ranked_rows
    lines = page.locator("#body tr").all()[: len(standings)]
    for line, standing in zip(lines, standings, strict=False):
        cells = {name: line.locator(f'[data-column="{name}"]').first for name in ("rank", "system", "score")}
        assert int(cells["rank"].inner_text()) == standing.rank
        assert cells["system"].inner_text().splitlines()[0] == standing.row.system
        assert standing.score is not None
        assert cells["score"].inner_text() == f"{standing.score:.2f}"


def test_every_measure_has_its_ranks_at_any_prices(shared: Page, results: PageSource, rows: Any) -> None:
    """Compare ranks only: the next test compares the costs of every snapshot."""
    group = shared.evaluate("harnessPage.main.view().groups[0].cutoffs")
    for place, measure in enumerate(made.MEASURES):
        number = chance(f"prices for {measure}").randrange(len(SNAPSHOTS))
        choose(shared, snapshot=number, measure=place, mode="robust", weights=[500, 250, 250])
        asked = {"measure": measure, "mode": "robust", "cutoff": group[measure]}
        # The picture's front holds whoever has a cost; the leaderboard's relations are of those it ranks.
        agree(shared.evaluate(_SHOWN), expected(board(results, rows[1], SNAPSHOTS[number], **asked)))


def test_page_costs_equal_those_of_the_pricing_package(shared: Page, results: PageSource) -> None:
    content = shared.evaluate(
        "harnessPage.content.snapshots.map(({provider, region, date}) => [provider, region, date])"
    )
    assert len(content) == len(SNAPSHOTS) > 3
    cost = axes.OTHERS["cost"]
    for number, at in enumerate(SNAPSHOTS):
        shown = shared.evaluate(
            f"""() => Object.fromEntries(harnessPage.content.rows.map((row) => {{
              const item = harnessPage.data.cost(row, {number});
              return [row.key, [item.value, item.low, item.high, item.reason]];
            }}))"""
        )
        for row in results.measured.rows:
            figure = cost.read(row_pricing.price_row(row, at))
            value, low, high, reason = shown[row.key]
            for mine, theirs in ((value, figure.value), (low, figure.low), (high, figure.high)):
                assert mine == (None if theirs is None else pytest.approx(theirs, rel=1e-12)), row.key
            assert reason == figure.reason, row.key


def test_saturated_costs_exist_only_for_whole_instances(open_file: Open, tmp_path: Path) -> None:
    served, _ = made.rows(40, seed=5)
    rate = Estimate(812.25, 800.0, 825.0, reason="over 5 jobs")
    served = [
        replace(
            row,
            scenario="server" if number % 2 else "offline",
            throughput_qps=rate if row.latency.mean_s.value else Estimate(None),
            latency_target_s=0.1 if number % 2 else None,
            latency_percentile=95.0 if number % 2 else None,
        )
        for number, row in enumerate(served)
    ]
    path = tmp_path / "served.html"
    path.write_text(made.html(served), encoding="utf-8")
    page = open_file(path)
    at = row_pricing.tariff(prices.snapshot())
    shown = page.evaluate(
        """() => Object.fromEntries(harnessPage.content.rows.map((row) => {
          const item = harnessPage.data.cost(row, harnessPage.content.snapshot);
          return [row.key, [item.value, item.low, item.high, item.reason]];
        }))"""
    )
    figures = {row.key: axes.OTHERS["cost"].read(row_pricing.price_row(row, at)) for row in served}
    assert any(figure.value is not None for figure in figures.values())
    assert any("alone" in (figure.reason or "") for figure in figures.values())
    for key, figure in figures.items():
        assert shown[key] == [
            None if each is None else pytest.approx(each, rel=1e-12) for each in (figure.value, figure.low, figure.high)
        ] + [figure.reason]
    assert page.locator('th[data-column="throughput"]').count() == 1


def _entries(rng: random.Random, count: int) -> list[Entry]:
    """Many ties, near ties and equal metrics."""
    return [
        Entry(
            rng.choice("abc"),
            "p",
            f"{number:03}",
            rng.choice((0.0, 30.0, 30.001, 31.0, rng.uniform(0, 50))),
            {"latency": rng.choice((5.0, rng.uniform(1, 100))), "throughput": rng.choice((7.0, rng.uniform(1, 9)))},
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("mode", dynascore.MODES)
def test_exchange_rates_of_many_ties(shared: Page, mode: str) -> None:
    rng = random.Random(7)
    for _ in range(150):
        entries = sorted(_entries(rng, rng.randrange(0, 12)), key=lambda entry: entry.name)
        cutoff = rng.choice((0.0, 0.5, 5.0))
        weighing = DynascoreOptions(
            {"accuracy": 0.5, "latency": 0.25, "throughput": 0.25}, frozenset({"throughput"}), mode, cutoff
        )
        rates = dynascore.rates(entries, weighing)
        scores = [dynascore.score(entry, weighing, rates) for entry in entries]
        asked = {
            "accuracy": [entry.accuracy for entry in entries],
            "latency": [entry.values["latency"] for entry in entries],
            "throughput": [entry.values["throughput"] for entry in entries],
            "mode": mode,
            "cutoff": cutoff,
        }
        found = shared.evaluate(
            """(asked) => {
              const rows = asked.accuracy.map((_, at) => at);
              const metrics = [["latency", false], ["throughput", true]].map(([name, higher]) => {
                const metric = { value: asked[name], higher, weight: 0.25, given: null };
                const { accuracy, mode, cutoff } = asked;
                return { ...metric, rate: harnessPage.dynascore.rate(rows, accuracy, metric, mode, cutoff) };
              });
              const scores = harnessPage.dynascore.scores(rows, asked.accuracy, 0.5, metrics);
              const ranks = scores && Array.from(harnessPage.dynascore.ranks(scores).ranks);
              return { rates: metrics.map((each) => each.rate), scores: scores && Array.from(scores), ranks };
            }""",
            asked,
        )
        for rate, name in zip(found["rates"], ("latency", "throughput"), strict=True):
            assert rate["status"] == rates[name].status.value
            assert rate["pairs"] == rates[name].pairs
            assert rate["value"] == (None if rates[name].value is None else pytest.approx(rates[name].value, rel=1e-12))
        if found["scores"] is None:
            assert None in scores or not entries
        else:
            assert found["scores"] == pytest.approx(scores, rel=1e-12)
            assert found["ranks"] == stats.competition_ranks(found["scores"], descending=True)


def test_fronts_of_many_intervals(shared: Page) -> None:
    rng = random.Random(11)
    on = [axes.accuracy("RR@10"), axes.OTHERS["latency"], axes.OTHERS["throughput"]]
    for _ in range(150):
        points = [_point(rng, number) for number in range(rng.randrange(1, 14))]
        wanted = pareto_front.states_of_points(points, on)
        asked = {
            "systems": [ord(point.system) for point in points],
            "axes": [
                {
                    "higher": axis.higher,
                    "values": [
                        [point.figures[axis.name].value, point.figures[axis.name].low, point.figures[axis.name].high]
                        for point in points
                    ],
                }
                for axis in on
            ],
        }
        found = shared.evaluate(
            """({ systems, axes }) => {
              const nan = (value) => (value === null ? NaN : value);
              const columns = axes.map(({ higher, values }) => {
                const [value, low, high] = [0, 1, 2].map((at) => Float64Array.from(values, (each) => nan(each[at])));
                return harnessPage.front.turned({ value, low, high }, higher, null);
              });
              return harnessPage.front.states(systems.map((_, at) => at), columns, systems);
            }""",
            asked,
        )
        assert found == [wanted[point.key].value for point in points]


def _point(rng: random.Random, number: int) -> pareto_front.FrontPoint:
    def figure() -> Estimate:
        value = float(rng.randrange(1, 6))
        kind = rng.random()
        if kind < 0.3:
            return Estimate(value)
        if kind < 0.4:
            return Estimate(value, value - 0.5, None)
        return Estimate(value, value - rng.choice((0.2, 1.5)), value + rng.choice((0.2, 1.5)))

    return pareto_front.FrontPoint(
        f"{number:03}", rng.choice("ab"), {name: figure() for name in ("accuracy", "latency", "throughput")}
    )


def test_given_rates_replace_the_computed_ones(page: Page, results: PageSource, rows: Any) -> None:
    page.locator("#rate-latency").fill("33.0507")
    page.locator("#rate-latency").press("Tab")
    page.locator("#rate-cost").fill("not a rate")
    page.locator("#rate-cost").press("Tab")
    wanted = board(results, rows[1], results.tariff, amrs={"latency": 33.0507})
    agree(page.evaluate(_SHOWN), expected(wanted))
    assert "33.1 ms (given)" in page.locator("#summary").inner_text()
    fragment = page.evaluate("window.location.hash")
    assert "rlatency=33.0507" in fragment and "rcost" not in fragment


def test_map_of_winners_names_the_winners(shared: Page, results: PageSource, rows: Any) -> None:
    """At any weights the region that holds them is of the row with the highest score."""
    choose(shared, snapshot=None, measure=0, mode="robust")
    found = shared.evaluate(
        """() => {
          const view = harnessPage.main.view();
          const axes = ["accuracy", "cost", "latency"];
          const group = view.groups[0];
          const { rows } = harnessPage.view.members(group, axes, view.settings);
          const rates = axes.slice(1).map((axis) => harnessPage.view.rate(group, rows, axes, axis, view.state).value);
          const value = (axis, row) => harnessPage.data.column(axis, view.settings).value[row];
          const terms = rows.map((row) => [
            value("accuracy", row), -value("cost", row) / rates[0], -value("latency", row) / rates[1],
          ]);
          return { terms, regions: harnessPage.winners.regions(terms) };
        }"""
    )
    terms, regions = found["terms"], found["regions"]
    rng = random.Random(3)
    inside = 0
    for _ in range(500):
        cuts = sorted((rng.random(), rng.random()))
        weights = (cuts[0], cuts[1] - cuts[0], 1 - cuts[1])
        scores = [sum(weight * term for weight, term in zip(weights, each, strict=True)) for each in terms]
        best = max(scores)
        holding = [region for region in regions if _holds(region["polygon"], weights)]
        inside += len(holding)
        assert holding, weights
        for region in holding:
            assert scores[region["row"]] == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert inside < 510, "regions do not lie on one another"
    tied = shared.evaluate("() => harnessPage.winners.regions([[30, -1, -1], [9, -2, -2], [30, -1, -1]])")
    assert [(region["row"], region["equal"]) for region in tied] == [(0, 1)]


def _holds(polygon: list[list[float]], weights: tuple[float, ...]) -> bool:
    """Return whether a convex polygon of weights contains a point."""
    sides = set()
    for here, then in zip(polygon, (*polygon[1:], polygon[0]), strict=True):
        cross = (then[1] - here[1]) * (weights[2] - here[2]) - (then[2] - here[2]) * (weights[1] - here[1])
        if abs(cross) > 1e-12:
            sides.add(cross > 0)
    return len(sides) < 2


def test_page_data_equal_the_rows(results: PageSource) -> None:
    content = json.loads(json.dumps(pages.page_content(results)))
    assert len(content["rows"]) == len(results.measured.rows)
    by_key = {row.key: row for row in results.measured.rows}
    latency = str([figure["name"] for figure in content["figures"]].index("latency"))
    for line in content["rows"]:
        row = by_key[line["key"]]
        assert content["texts"][line["system"]] == row.system
        assert content["texts"][line["profile"]] == row.profile
        assert (line["outcome"], line["validity"]) == (row.outcome.value, row.validity.value)
        if row.latency.mean_s.value is not None:
            mean = row.latency.mean_s.map(lambda seconds: seconds * 1e3)
            assert line["figures"][latency][:3] == [mean.value, mean.low, mean.high]
            assert len(line["quantiles"]) == 51


def _spans(page: Page) -> dict[str, dict[str, Any]]:
    return page.evaluate("""() => {
      const view = harnessPage.main.view();
      const { content, holds } = harnessPage;
      const ranked = view.rankings.flatMap((each) => each.rows);
      return Object.fromEntries(ranked.map((row) => [content.rows[row].key, holds.of(row, view)]));
    }""")


@pytest.mark.parametrize("mode", dynascore.MODES)
def test_rank_intervals_are_those_of_the_leaderboard(shared: Page, results: PageSource, rows: Any, mode: str) -> None:
    weights = {"accuracy": 0.5, "cost": 0.2, "latency": 0.3}
    choose(shared, weights=[500, 200, 300], mode=mode, snapshot=None, measure=0)
    wanted = board(results, rows[1], results.tariff, weights=weights, mode=mode)
    shown = _spans(shared)
    assert shown.keys() == {each.row.key for each in wanted.ranked_rows}
    count = len(shown)
    for each in wanted.ranked_rows:
        spans = shown[each.row.key]
        systems = each.by_systems
        if systems.best is None:
            assert "an exchange rate has no value" in str(spans["systems"])
        else:
            assert spans["systems"] == [systems.best, systems.worst]
        # A fifth of the draws: the ends of the inner 95 % lie where the others put them, give or take.
        for name, span in (("weights", each.by_weights), ("queries", each.by_queries)):
            if span.best is None or span.worst is None:
                assert isinstance(spans[name], str)
                continue
            best, worst = spans[name]
            assert best <= worst and abs(best - span.best) + abs(worst - span.worst) <= max(4, 0.2 * count), name


def test_no_system_reorders_others_at_given_rates(shared: Page) -> None:
    choose(shared, weights=[500, 250, 250], mode="reference", snapshot=None, measure=0, rates={"cost": 2, "latency": 9})
    shown, rank = _spans(shared), shared.evaluate(_SHOWN)
    assert all(spans["systems"] == [rank[key][0], rank[key][0]] for key, spans in shown.items())
    choose(shared, rates={"cost": None, "latency": None})


def test_evidence_of_a_rank_shows_its_interval(open_file: Open, file: Path) -> None:
    page = open_file(file)
    page.locator('#body tr:nth-child(1) button[data-column="rank"]').click()
    message = page.locator("#evidence").inner_text()
    for part in (
        "rank with other queries: ",
        "rank without each other system: ",
        "rank with weights moved by up to 0.1: ",
    ):
        assert part in message
    assert "too many rows" not in message and "set of systems: " in message
