"""The page's costs, exchange rates, scores, ranks and fronts equal those of Python, row by row."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page

from harness import stats
from harness.analysis import axes, dynascore, leaderboard, pareto_front, row_pricing
from harness.analysis.dynascore import DynascoreOptions, Entry
from harness.analysis.leaderboard import Leaderboard, LeaderboardQuery
from harness.analysis.row_pricing import Tariff
from harness.analysis.table import Row
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.pricing import prices
from harness.report.page import PageSource
from harness.report.page.rows import all_tariffs
from tests.report.page import made
from tests.report.page.conftest import Open
from tests.support.chance import chance

pytestmark = pytest.mark.browser

# In the order of the page.
SNAPSHOTS = all_tariffs(row_pricing.tariff(prices.snapshot()))
WEIGHTS = ((0.5, 0.25, 0.25), (0.9, 0.05, 0.05), (0.1, 0.8, 0.1), (0.35, 0, 0.65), (1, 0, 0), (0, 0.5, 0.5))
# Of each row: rank, score, front.
_SHOWN = """() => {
  const view = harnessPage.view();
  const none = (value) => (Number.isNaN(value) ? null : value);
  return Object.fromEntries(view.rows.map((row) => [
    harnessPage.content.rows[row].key,
    [none(view.rank[row]), none(view.score[row]), view.frontOf[row]],
  ]));
}"""


def choose(page: Page, **changes: Any) -> None:
    """``snapshot=None``: the one that the page opens with."""
    if changes.get("snapshot", 0) is None:
        changes["snapshot"] = page.evaluate("harnessPage.content.snapshot")
    page.evaluate("(changes) => harnessPage.change(changes)", changes)


def board(results: PageSource, found: dict[str, PerQuery], at: Tariff, **asked: Any) -> Leaderboard:
    question = LeaderboardQuery(
        dataset="scifact", measure=asked.pop("measure", "RR@10"), front=("cost", "accuracy"), **asked
    )
    return leaderboard.build(row_pricing.price(results.measured, at), found, question)


def agree(shown: dict[str, list[Any]], board: Leaderboard) -> None:
    ranked = {each.row.key for each in board.ranked_rows if each.rank is not None}
    assert ranked == {key for key, (rank, _, _) in shown.items() if rank is not None} != set()
    for each in board.ranked_rows:
        rank, score, state = shown[each.row.key]
        assert state == (None if each.state is None else each.state.value), each.row.key
        if each.rank is not None:
            assert (rank, score) == (each.rank, pytest.approx(each.score, rel=1e-12)), each.row.key


@pytest.mark.parametrize("weights", WEIGHTS)
def test_ranks_scores_and_front(shared: Page, results: PageSource, rows: Any, weights: tuple[float, ...]) -> None:
    mode = chance(f"mode with {weights}").choice(dynascore.MODES)
    names = dict(zip(("accuracy", "cost", "latency"), weights, strict=True))
    choose(shared, weights=[round(1000 * each) for each in weights], mode=mode, snapshot=None, measure=0)
    agree(shared.evaluate(_SHOWN), board(results, rows[1], results.tariff, weights=names, mode=mode))


def test_table_shows_new_scores_after_a_slider_moves(page: Page, results: PageSource, rows: Any) -> None:
    slider = page.locator("#weight-cost")
    slider.focus()
    for _ in range(10):
        slider.press("ArrowRight")
    values = [page.locator(f"#weight-{axis}-value").inner_text() for axis in ("accuracy", "cost", "latency")]
    assert values == ["43.3 %", "35 %", "21.7 %"]
    weights = {"accuracy": 0.433, "cost": 0.35, "latency": 0.217}
    standings = board(results, rows[1], results.tariff, weights=weights).ranked_rows[:40]
    cells = [page.locator(f'#body [data-column="{name}"]:not(button)') for name in ("rank", "system", "score")]
    ranks, systems, scores = ([text.split("\n")[0] for text in cell.all_inner_texts()] for cell in cells)
    assert ranks[: len(standings)] == [str(each.rank) for each in standings]
    assert systems[: len(standings)] == [each.row.system for each in standings]
    assert scores[: len(standings)] == [f"{each.score:.2f}" for each in standings]


def test_every_measure_has_its_ranks_at_any_prices(shared: Page, results: PageSource, rows: Any) -> None:
    """Compare ranks only: the next test compares the costs of every snapshot."""
    group = shared.evaluate("harnessPage.view().groups[0].cutoffs")
    for place, measure in enumerate(made.MEASURES):
        number = chance(f"prices for {measure}").randrange(len(SNAPSHOTS))
        choose(shared, snapshot=number, measure=place, mode="robust", weights=[500, 250, 250])
        asked = {"measure": measure, "mode": "robust", "cutoff": group[measure]}
        # The picture's front may hold more rows than the leaderboard's: each with an accuracy and a cost.
        agree(shared.evaluate(_SHOWN), board(results, rows[1], SNAPSHOTS[number], **asked))


def costs(page: Page, snapshot: int) -> dict[str, list[Any]]:
    """Return the page's costs by row: value, low, high, reason."""
    return page.evaluate(
        """(snapshot) => Object.fromEntries(harnessPage.content.rows.map((row) => {
          const { value, low, high, reason } = harnessPage.read("cost", row, { snapshot });
          return [row.key, [value, low, high, reason]];
        }))""",
        snapshot,
    )


def agree_on_costs(shown: dict[str, list[Any]], rows: Sequence[Row], at: Tariff) -> list[Estimate]:
    figures = [axes.OTHERS["cost"].read(row_pricing.price_row(row, at)) for row in rows]
    for row, figure in zip(rows, figures, strict=True):
        wanted = [figure.value, figure.low, figure.high]
        assert shown[row.key][:3] == [None if each is None else pytest.approx(each, rel=1e-12) for each in wanted]
        assert shown[row.key][3] == figure.reason, row.key
    return figures


def test_page_costs_equal_those_of_the_pricing_package(shared: Page, results: PageSource) -> None:
    assert shared.evaluate("harnessPage.content.snapshots.length") == len(SNAPSHOTS) > 3
    for number, at in enumerate(SNAPSHOTS):
        agree_on_costs(costs(shared, number), results.measured.rows, at)


def test_saturated_costs_exist_only_for_whole_instances(open_rows: Open) -> None:
    rate = Estimate(812.25, 800.0, 825.0, reason="over 5 jobs")
    served = [
        replace(
            row,
            scenario="server" if number % 2 else "offline",
            throughput_qps=rate if row.latency.mean_s.value else Estimate(None),
            latency_target_s=0.1 if number % 2 else None,
            latency_percentile=95.0 if number % 2 else None,
        )
        for number, row in enumerate(made.rows(40, seed=5)[0])
    ]
    page = open_rows(served)
    shown = costs(page, page.evaluate("harnessPage.content.snapshot"))
    figures = agree_on_costs(shown, served, row_pricing.tariff(prices.snapshot()))
    assert any(figure.value is not None for figure in figures)
    assert any("was measured on" in (figure.reason or "") for figure in figures)
    assert page.locator('th[data-column="throughput"]').count() == 1


def _entries(rng: random.Random) -> list[Entry]:
    """Many ties, near ties and equal metrics."""
    return [
        Entry(
            "a",
            "p",
            f"{number:03}",
            rng.choice((0.0, 30.0, 30.001, 31.0, rng.uniform(0, 50))),
            {"latency": rng.choice((5.0, rng.uniform(1, 100))), "throughput": rng.choice((7.0, rng.uniform(1, 9)))},
        )
        for number in range(rng.randrange(0, 12))
    ]


@pytest.mark.parametrize("mode", dynascore.MODES)
def test_exchange_rates_of_many_ties(shared: Page, mode: str) -> None:
    rng = random.Random(7)
    for _ in range(150):
        entries, cutoff = _entries(rng), rng.choice((0.0, 0.5, 5.0))
        weights = {"accuracy": 0.5, "latency": 0.25, "throughput": 0.25}
        weighing = DynascoreOptions(weights, frozenset({"throughput"}), mode, cutoff)
        rates = dynascore.rates(entries, weighing)
        values = {name: [entry.values[name] for entry in entries] for name in rates}
        found = shared.evaluate(
            """({ accuracy, values, mode, cutoff }) => {
              const rows = accuracy.map((_, at) => at);
              const metrics = Object.entries(values).map(([name, value]) => {
                const metric = { name, value, higher: name === "throughput", weight: 0.25, given: null };
                return { ...metric, rate: harnessPage.exchangeRate(rows, accuracy, metric, mode, cutoff) };
              });
              const scores = harnessPage.scores(rows, accuracy, 0.5, metrics);
              const rates = Object.fromEntries(metrics.map(({ name, rate }) => [name, rate]));
              return { rates, scores: scores && [...scores], ranks: scores && [...harnessPage.ranksOf(scores)] };
            }""",
            {"accuracy": [entry.accuracy for entry in entries], "values": values, "mode": mode, "cutoff": cutoff},
        )
        for name, rate in rates.items():
            shown = found["rates"][name]
            assert (shown["status"], shown["pairs"]) == (rate.status.value, rate.pairs)
            assert shown["value"] == (None if rate.value is None else pytest.approx(rate.value, rel=1e-12))
        scores = [dynascore.score(entry, weighing, rates) for entry in entries]
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
        figures = [[vars(point.figures[axis.name]) for point in points] for axis in on]
        found = shared.evaluate(
            """([systems, higher, figures]) => {
              const axes = figures.map((all, axis) => {
                const numbers = (name) => Float64Array.from(all, (figure) => figure[name] ?? NaN);
                const column = { value: numbers("value"), low: numbers("low"), high: numbers("high") };
                return harnessPage.turned(column, higher[axis], null);
              });
              return harnessPage.frontStates([...systems.keys()], axes, systems);
            }""",
            [[point.system for point in points], [axis.higher for axis in on], figures],
        )
        wanted = pareto_front.states_of_points(points, on)
        assert found == [wanted[point.key].value for point in points]


def _point(rng: random.Random, number: int) -> pareto_front.FrontPoint:
    def figure() -> Estimate:
        value, kind = float(rng.randrange(1, 6)), rng.random()
        if kind < 0.3:
            return Estimate(value)
        low, high = (rng.choice((0.2, 1.5)) for _ in range(2))
        return Estimate(value, value - low, None if kind < 0.4 else value + high)

    names = ("accuracy", "latency", "throughput")
    return pareto_front.FrontPoint(f"{number:03}", rng.choice("ab"), {name: figure() for name in names})


def test_given_rates_replace_the_computed_ones(page: Page, results: PageSource, rows: Any) -> None:
    page.locator("#rate-latency").fill("33.0507")
    page.locator("#rate-latency").press("Tab")
    page.locator("#rate-cost").fill("not a rate")
    page.locator("#rate-cost").press("Tab")
    wanted = board(results, rows[1], results.tariff, amrs={"latency": 33.0507})
    agree(page.evaluate(_SHOWN), wanted)
    assert "33.1 ms (given)" in page.locator("#summary").inner_text()
    fragment = page.evaluate("window.location.hash")
    assert "rlatency=33.0507" in fragment and "rcost" not in fragment


def test_map_of_winners_names_the_winners(shared: Page) -> None:
    """Scores are linear: a row that wins at each corner of its region wins in all of it; the regions fill the map."""
    choose(shared, snapshot=None, measure=0, mode="robust")
    regions = shared.evaluate(
        """() => {
          const { state, groups: [group] } = harnessPage.view();
          const lost = (row, polygon) => polygon.map((corner) => {
            const middle = [0, 1, 2].map((axis) => polygon.reduce((sum, each) => sum + each[axis], 0) / polygon.length);
            const weights = corner.map((weight, axis) => 999 * weight + middle[axis]); // not on the edge of the map
            const { rows, scores } = harnessPage.rankingOf(group, { ...state, weights });
            return Math.max(...scores) - scores[rows.indexOf(row.number)];
          });
          const regions = harnessPage.winnerRegions(group, state);
          return regions.map(({ row, polygon, share }) => [share, lost(row, polygon)]);
        }"""
    )
    assert len(regions) > 3 and sum(share for share, _ in regions) == pytest.approx(1)
    assert max(each for _, lost in regions for each in lost) < 1e-9
    tied = shared.evaluate("() => harnessPage.regionsOf([[30, -1, -1], [9, -2, -2], [30, -1, -1]])")
    assert [(region["row"], region["equal"]) for region in tied] == [(0, 1)]


def _spans(page: Page) -> dict[str, dict[str, Any]]:
    return page.evaluate("""() => {
      const view = harnessPage.view();
      const { content, rankSpans } = harnessPage;
      const ranked = view.rankings.flatMap((each) => each.rows);
      return Object.fromEntries(ranked.map((row) => [content.rows[row].key, rankSpans(row, view)]));
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
