"""The same rows at two dates' prices: costs, ranks, verdicts that flip, types that are gone."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import published as published_tables
from harness.analysis import reprice, row_pricing
from harness.analysis.reprice import CHEAPEST, SAME, TOKENS, Repricing
from harness.analysis.table import CpuUse, Row, Table, Validity
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.estimate import Estimate
from harness.pricing import prices, serverless
from harness.pricing.carbon import CarbonFactors, CarbonRates, Electricity, ProcessorWatts
from harness.pricing.instances import TypeChoice
from harness.pricing.token_prices import ModelPrice, TokenSnapshot
from harness.report import writers
from harness.report.repricing import repricing_document
from harness.results.isolation import CONTAINER, PROCESS, PUBLISHED
from tests.support import price_fixtures, sample_records

GIB = 2**30
DAY = datetime.date
BEFORE, NOW = DAY(2024, 6, 1), DAY(2026, 6, 1)
# Against 2024: a.tie is dearer, plain.four cheaper, c.tie gone, and a new cheapest machine for one GPU.
LATER = {
    "small.one": "0.02",
    "m1.two": "0.05",
    "b.tie": "0.05",
    "a.tie": "0.08",
    "plain.four": "0.02",
    "g.four": "0.4",
    "t3.big": "0.01",
}
# Two systems that flip on their own instances: US$ 1.00 -> 1.33 against 1.11.
PAIR = (("a", 2, 8, 0.06), ("b", 1, 1, 0.2))


def render(found: Repricing, form: str) -> str:
    return writers.write(repricing_document(found), form)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = price_fixtures.write(tmp_path)
    price_fixtures.add_prices(folder, "x_here_2026-01-01.csv", {"on-demand": LATER})
    return folder


def row(system: str, cpus: int, gib: float, mean_s: float, **changes: Any) -> Row:
    fields = {
        "system": system,
        "profile": f"cpu{cpus}-mem{gib:g}",
        "cpus": cpus,
        "memory_limit_bytes": int(gib * GIB),
        "latency_mean_s": Estimate(mean_s, mean_s * 0.9, mean_s * 1.1),
        "measures": {"RR@10": Estimate(0.5)},
    }
    return sample_records.row(**{**fields, **changes})


def rows() -> tuple[Row, ...]:
    return (
        row("bm25", 2, 8, 0.060),  # a.tie 0.06, then b.tie 0.05
        row("dense", 4, 8, 0.070),  # c.tie 0.06, gone; then plain.four 0.02
        row("late", 4, 16, 0.100),  # plain.four 0.2, then 0.02
        row("gpu", 4, 8, 0.005, gpus=1, published_type="g.one", profile="g.one"),  # gone; g.four
        row("huge", 40, 100, 0.1),  # never provided
        row("huge", 40, 100, 0.1, profile="broken", outcome=Outcome.OOM, latency_mean_s=Estimate(None)),
        row("bm25", 2, 8, 0.001, profile="doubtful", validity=Validity.INVALID),
    )


def compare(root: Path, *some: Row, now: DAY = NOW, before: DAY = BEFORE) -> Repricing:
    # On any type, so that its dates differ by more than one cheapest type.
    choice = TypeChoice("any", "any")
    sides = [row_pricing.tariff(prices.snapshot(each, root=root), root, choice) for each in (before, now)]
    return reprice.compare(Table(some or rows(), ("RR@10",)), *sides)


def usd(mean_s: float, price: float) -> object:
    return pytest.approx(mean_s * price / 3600 * 1e6)


def test_each_row_is_priced_in_three_ways(root: Path) -> None:
    bm25, dense, late, gpu, huge, _ = compare(root).changes
    assert bm25.before.cost.value == usd(0.060, 0.06)
    assert (bm25.same.price.instance_type, bm25.same.cost.value) == ("a.tie", usd(0.060, 0.08))
    assert bm25.cheapest.price.instance_type == "plain.four", "larger, and cheaper by now"
    assert dense.same.price is None, "c.tie is gone, and no other arm64 type is as large"
    assert dense.cheapest.cost.value == usd(0.070, 0.02)
    assert (late.same.cost.value, late.cheapest.cost.value) == (usd(0.1, 0.02), usd(0.1, 0.02))
    assert gpu.before.cost.value == usd(0.005, 0.5)
    assert (gpu.same.price.instance_type, gpu.same.price.substitutes) == ("g.four", "g.one")
    assert (gpu.cheapest.price.instance_type, gpu.cheapest.cost) == ("g.four", gpu.same.cost)
    assert (huge.before.price, huge.same.price, huge.cheapest.price) == (None, None, None)


def test_instance_type_of_another_architecture_is_marked(root: Path) -> None:
    repricing = compare(root, *(replace(example, machine=sample_records.MACHINE) for example in rows()[:3]))
    answer = repricing_document(repricing).answer
    assert answer is not None
    (section,) = answer(str)
    (grid,) = section.grids
    shown = grid.headers.index("instance type")
    assert [cells[shown] for cells in grid.cells] == ["a.tie (arm64)", "c.tie (arm64)", "plain.four"]


def test_only_valid_rows_with_a_cost_have_ranks(root: Path) -> None:
    found = compare(root).changes
    ranks = [(each.before.rank, each.same.rank, each.cheapest.rank) for each in found]
    assert ranks == [
        (2, 3, 1),  # US$ 1.00, 1.33, 0.33
        (3, None, 2),  # 1.17, gone, 0.39
        (4, 1, 3),  # 5.56, 0.56, 0.56: equal costs share a rank
        (1, 1, 3),  # 0.69, 0.56, 0.56
        (None, None, None),  # no machine
        (None, None, None),  # numbers that are invalid
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"k": 1000},
        {"sample_sha256": "another"},
        {"corpus_sha256": "another"},
        {"latency_target_s": 0.5},
        {"latency_percentile": 95.0},
        {"isolation": PROCESS},
        {"dataset": "other"},
    ],
)
def test_each_group_has_its_own_ranks(root: Path, other: dict[str, Any]) -> None:
    # Together, the two would flip: a.tie gets dearer, small.one stays.
    one, two = (row(*each, latency_target_s=0.05, latency_percentile=99.0) for each in PAIR)
    assert compare(root, one, two).flips
    found = compare(root, one, replace(two, **other))
    assert [each.before.rank for each in found.changes] == [1, 1]
    assert (found.flips, found.best) == ((), ())


def test_published_tables_are_ranked_separately(root: Path) -> None:
    paper = {"isolation": PUBLISHED, "validity": Validity.UNKNOWN}
    one, two = row("a", 2, 8, 0.06, suite="t2", **paper), row("b", 1, 1, 0.2, suite="t3", **paper)
    assert [each.before.rank for each in compare(root, one, two).changes] == [1, 1]
    mine = (replace(each, isolation=CONTAINER) for each in (one, two))
    assert [each.before.rank for each in compare(root, *mine).changes] == [1, 2], "two suites, one measurement"


def test_sentences_name_the_properties_that_distinguish_groups(root: Path) -> None:
    some = [row(name, cpus, gib, mean, k=k) for k in (10, 1000) for name, cpus, gib, mean in PAIR]
    found = compare(root, *some)
    text = render(found, "md")
    assert "Verdict flips on scifact, single_stream, top 10 (same instance)" in text
    assert "Verdict flips on scifact, single_stream, top 1000 (same instance)" in text
    flips = json.loads(render(found, "json"))["flips"]
    assert [(each["dataset"], each["k"]) for each in flips if each["way"] == SAME] == [
        ("scifact", 10),
        ("scifact", 1000),
    ]


def test_verdicts_that_flip_are_named_with_both_costs(root: Path) -> None:
    found = compare(root)
    flips = {(each.way, each.was_cheaper, each.is_cheaper) for each in found.flips}
    assert flips == {(SAME, "bm25", "late"), (CHEAPEST, "gpu", "bm25"), (CHEAPEST, "gpu", "dense")}
    one = found.flips[0]
    assert one.before_usd == (usd(0.060, 0.06), usd(0.100, 0.2))
    assert one.now_usd == (usd(0.060, 0.08), usd(0.100, 0.02))
    assert not one.overlap
    # On the same instance the gpu's row is still as cheap as any.
    assert [(each.way, each.was, each.now) for each in found.best] == [
        (CHEAPEST, (("gpu", "g.one"),), (("bm25", "cpu2-mem8"),))
    ]


def test_cheapest_rows_that_tie_are_all_named(root: Path) -> None:
    # a.tie 0.06 -> 0.08: both were cheaper than "last", and are dearer.
    found = compare(root, row("one", 2, 8, 0.06), row("two", 2, 8, 0.06), row("last", 1, 1, 0.2))
    (change,) = [each for each in found.best if each.way == SAME]
    assert change.was == (("one", "cpu2-mem8"), ("two", "cpu2-mem8")) and [name for name, _ in change.now] == ["last"]
    assert "one on cpu2-mem8 and two on cpu2-mem8, then last on" in render(found, "md")


def test_flip_within_the_intervals_is_marked(root: Path) -> None:
    # a.tie 0.06 -> 0.08, small.one 0.02 and 0.02: US$ 1.00 -> 1.33 against 1.11.
    (flip,) = [each for each in compare(root, row("a", 2, 8, 0.06), row("b", 1, 1, 0.2)).flips if each.way == SAME]
    assert (flip.was_cheaper, flip.is_cheaper, flip.overlap) == ("a", "b", True)


@pytest.mark.parametrize("seed", range(10))
def test_flips_match_those_of_a_direct_comparison(root: Path, seed: int) -> None:
    rng = random.Random(seed)
    shapes = [(1, 1.0), (2, 8.0), (4, 8.0), (4, 16.0)]
    some = [row(f"s{rng.randrange(12)}", *rng.choice(shapes), rng.choice((0.01, 0.02, 0.04))) for _ in range(30)]
    found = compare(root, *some)
    for way, name in ((SAME, "same"), (CHEAPEST, "cheapest")):
        least: dict[str, tuple[float, float]] = {}
        for each in found.changes:
            costs = (each.before.cost.value, getattr(each, name).cost.value)
            pair = tuple(math.inf if usd is None else usd for usd in costs)
            known = least.get(each.row.system, pair)
            least[each.row.system] = (min(pair[0], known[0]), min(pair[1], known[1]))
        least = {system: pair for system, pair in least.items() if math.inf not in pair}
        plain = {(a, b) for a in least for b in least if least[a][0] < least[b][0] and least[a][1] > least[b][1]}
        assert {(each.was_cheaper, each.is_cheaper) for each in found.flips if each.way == way} == plain


def test_equal_prices_change_nothing(root: Path) -> None:
    found = compare(root, now=DAY(2024, 6, 1))
    assert (found.flips, found.best, found.gone, found.no_longer_provided) == ((), (), (), ())
    assert all(each.before.cost == each.same.cost == each.cheapest.cost for each in found.changes)


def test_discontinued_types_and_unavailable_profiles_are_listed(root: Path) -> None:
    gone = {each.instance_type: (each.rows, each.successor) for each in compare(root).gone}
    assert gone == {"c.tie": (1, None), "g.one": (1, "g.four")}
    smaller = {name: price for name, price in LATER.items() if name not in ("g.four", "plain.four")}
    price_fixtures.add_prices(root, "x_here_2027-01-01.csv", {"on-demand": smaller})
    found = compare(root, now=DAY(2027, 6, 1))
    assert found.no_longer_provided == ("cpu4-mem16", "cpu4-mem8", "g.one")
    assert compare(root, now=DAY(2024, 6, 1), before=DAY(2027, 6, 1)).newly_provided == found.no_longer_provided


def test_summary_compares_only_comparable_rows(root: Path) -> None:
    assert compare(root).summary == (
        "On the same instance at both dates: of 3 rows 2 cost more and 1 less; 3 ranks changed; 1 verdict flipped; "
        "0 datasets with another cheapest row.",
        "On the cheapest type of each date: of 5 rows 0 cost more and 5 less; 4 ranks changed; 2 verdicts flipped; "
        "1 dataset with another cheapest row.",
        "Another type than its own is cheaper for 0 rows at 2024-05-01 and 2 rows at 2026-01-01.",
        "2 instance types gone, of 1 row that a substitute prices; 0 profiles no type provides any more.",
    )


def test_more_expensive_own_type_is_not_a_change_between_dates(root: Path) -> None:
    """The row's published type costs five times the cheapest at both dates: only choosing another gains."""
    one = row("late", 2, 8, 0.1, published_type="plain.four", profile="plain.four")
    (found,) = compare(root, one, now=BEFORE).changes
    assert found.before.cost == found.same.cost != found.cheapest.cost
    assert found.cheapest_before.cost == found.cheapest.cost == found.pairs[CHEAPEST][0].cost
    summary = compare(root, one, now=BEFORE).summary
    assert [each for each in summary if " 1 row" in each and "cost more" not in each] == [
        "Another type than its own is cheaper for 1 row at 2024-05-01 and 1 row at 2024-05-01."
    ]
    assert all("0 cost more and 0 less; 0 ranks changed" in each for each in summary[:2])


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
def test_paper_at_two_dates_gives_the_same_counts_in_both_directions(turned: bool) -> None:
    """p3 is gone by 2026, so that 29 rows have a substitute; else one row (a GPU type's cheapest) costs less now."""
    dates = [DAY(2022, 12, 5), DAY(2026, 7, 20)]
    then, now = (row_pricing.tariff(prices.snapshot(each)) for each in (dates[::-1] if turned else dates))
    published = published_tables.read(Path(__file__).parents[2] / "results" / "published" / "santhanam2023")
    rows = published_tables.published_table(published, published.follows())
    compared = reprice.compare(rows, then, now)
    same, cheapest, gain, gone = compared.summary
    assert "of 33 rows 0 cost more and 0 less; 29 ranks changed; 2 verdicts flipped" in same
    types = [(each.instance_type, each.rows, each.successor) for each in compared.gone]
    assert types == ([] if turned else [("p3.2xlarge", 9, "g4dn.4xlarge"), ("p3.8xlarge", 20, "g6.24xlarge")])
    assert (
        "0 instance types gone;" if turned else "2 instance types gone, of 29 rows that a substitute prices;"
    ) in gone
    assert ("1 cost more and 0 less" if turned else "0 cost more and 1 less") in cheapest
    assert "0 ranks changed; 0 verdicts flipped" in cheapest
    assert "38 rows at 2022-12-05" in gain and "36 rows at 2026-07-20" in gain


def test_other_prices_are_the_newest_or_of_the_given_date(root: Path) -> None:
    def other(now: DAY | None, against: DAY | None = None) -> str:
        snapshot = prices.snapshot(now, root=root)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(reprice.prices, "snapshot", lambda *a, **k: real(*a, **k, root=root))
            return str(reprice.other_prices(snapshot, against).as_of)

    real = prices.snapshot
    assert other(DAY(2024, 6, 1)) == "2026-01-01", "the newest"
    assert other(None) == "2024-05-01", "the newest is asked for: the one before"
    assert other(None, DAY(2025, 1, 1)) == "2024-05-01"
    with pytest.raises(UsageError, match="here has no prices from 2020-01-01 or before"):
        other(None, DAY(2020, 1, 1))
    (root / "prices" / "x_here_2026-01-01.csv").unlink()
    with pytest.raises(UsageError, match="of 2024-05-01 are the only on-demand prices of here: nothing"):
        other(None)


@pytest.mark.parametrize(("format", "name"), [("md", "reprice.md"), ("csv", "reprice.csv"), ("json", "reprice.json")])
def test_reprice_renders_the_golden_files(root: Path, format: str, name: str) -> None:
    served = row("bm25", 2, 8, 0.06, scenario="server", throughput_qps=Estimate(50.0, 40.0, 60.0), profile="cpu2-mem8")
    found = compare(root, *rows(), replace(served, stand_in="another model"))
    assert render(found, format).encode() == (Path(__file__).parents[1] / "golden" / name).read_bytes()


def test_verdicts_between_language_models_flip_with_the_prices_of_their_tokens(root: Path) -> None:
    long = row("long", 2, 8, 0.06, token_model="m1", counts={"prompt_tokens": 3000, "completion_tokens": 10})
    wordy = row("wordy", 2, 8, 0.06, token_model="m2", counts={"prompt_tokens": 200, "completion_tokens": 900})
    listed = {
        date: TokenSnapshot(
            date=str(date),
            source="a list",
            licence="MIT",
            models={name: model_price(*each) for name, each in models.items()},
        )
        for date, models in {
            BEFORE: {"m1": (0.1, 0.4), "m2": (0.1, 0.4)},  # 304 against 380 US$
            NOW: {"m1": (0.1, 0.4), "m2": (0.1, 0.2)},  # 304 against 200 US$
        }.items()
    }
    sides = [
        replace(row_pricing.tariff(prices.snapshot(each, root=root), root), tokens=listed[each])
        for each in (BEFORE, NOW)
    ]
    found = reprice.compare(Table((long, wordy, row("bm25", 2, 8, 0.06)), ("RR@10",)), *sides)
    costs = [(each.tokens_before.cost.value, each.tokens.cost.value) for each in found.changes]
    assert costs == [(pytest.approx(304), pytest.approx(304)), (pytest.approx(380), pytest.approx(200)), (None, None)]
    (flip,) = [flip for flip in found.flips if flip.way == TOKENS]
    assert (flip.was_cheaper, flip.is_cheaper) == ("long", "wordy")
    assert found.token_dates == (str(BEFORE), str(NOW))
    assert found.summary[-1] == "By token prices: of 2 rows 0 cost more and 1 less; 1 verdict flipped."
    assert f"tokens US$/1M, {BEFORE}" in render(found, "md")
    assert "tokens_before_usd_per_million_queries" in render(found, "csv").splitlines()[0]


def test_metered_prices_are_compared_at_both_dates(root: Path) -> None:
    now = serverless.FILES.newest()
    assert now is not None
    dearer = {name: offer.model_copy(update={"usd_per_million_requests": 1.2}) for name, offer in now.offers.items()}
    before = now.model_copy(update={"date": str(BEFORE), "offers": dearer})
    sides = [
        replace(row_pricing.tariff(prices.snapshot(each, root=root), root), serverless=listed)
        for each, listed in ((BEFORE, before), (NOW, now))
    ]
    small = row("bm25", 1, 1, 0.0095)
    found = reprice.compare(Table((small, row("gpu", 4, 8, 0.005, gpus=1)), ("RR@10",)), *sides)
    # 10 ms x 1.7275390625 GiB x 0.0000166667 x 1e6 = 0.287924, with 1.2 or 0.2 for the requests.
    costs = [(each.metered_before.cost.value, each.metered.cost.value) for each in found.changes]
    assert costs == [(pytest.approx(1.487924), pytest.approx(0.487924)), (None, None)]
    assert found.serverless_dates == (str(BEFORE), "2026-11-29")
    assert found.summary[-1] == "By serverless prices: of 1 row 0 cost more and 1 less; 0 verdicts flipped."
    assert f"metered US$/1M, {BEFORE}" in render(found, "md")
    header, line, _ = list(csv.reader(io.StringIO(render(found, "csv"))))
    assert line[header.index("metered_usd_per_million_queries")].startswith("0.4879")


def test_co2e_is_shown_at_both_dates_where_their_factors_differ(root: Path) -> None:
    def rates(date: str, grams: float) -> CarbonRates:
        factors = CarbonFactors(
            date=date,
            source="a list",
            licence="MIT",
            spread=2,
            pue=1.2,
            memory_w_per_gib=0.5,
            grid={"x/here": grams},
            processors={"any": ProcessorWatts(architecture="x86_64", idle_w=1, busy_w=3)},
        )
        return CarbonRates(factors, Electricity("x/here", grams))

    def repriced(*both: CarbonRates) -> Repricing:
        tariffs = [row_pricing.tariff(prices.snapshot(BEFORE, root=root), root, rates=each) for each in both]
        return reprice.compare(Table((busy, row("idle", 2, 4, 0.02)), ("RR@10",)), *tariffs)

    # As in tests/pricing/test_carbon.py: 5 to 28 g at 300 g per kWh; 150 g halve them.
    busy = row("busy", 2, 4, 0.02, cpu=CpuUse(per_query_s=Estimate(0.03)))
    old, new = rates("2026-01-01", 300), rates("2026-06-01", 150)
    found = repriced(old, new)
    assert found.carbon_dates == ("2026-01-01", "2026-06-01")
    assert found.summary[-1] == (
        "By the carbon factors of 2026-06-01 against 2026-01-01: of 1 row 0 emit more and 1 less."
    )
    (line, other) = csv.DictReader(io.StringIO(render(found, "csv")))
    ends = [f"{way}_gco2e_per_million_{end}" for way in ("carbon_before", "carbon") for end in ("low", "high")]
    assert [float(line[name]) for name in ends] == pytest.approx([5, 28, 2.5, 14])
    assert [other[name] for name in ends] == [""] * 4 and line["carbon_factors_date"] == "2026-06-01"
    assert "5.00–28.0" in render(found, "md") and "gCO2e/1M, 2026-06-01" in render(found, "md")
    assert repriced(new, new).carbon_dates == () and "gCO2e" not in render(repriced(new, new), "md")


def model_price(cost_in: float, cost_out: float) -> ModelPrice:
    return ModelPrice.model_validate({"in": cost_in, "out": cost_out, "page": "p"})
