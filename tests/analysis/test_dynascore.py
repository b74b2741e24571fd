"""Dynascores: rates by hand, undefined cases by name, and what does not change them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.analysis import dynascore
from harness.analysis.dynascore import DynascoreOptions, Entry, Rate, RateStatus
from harness.errors import UnknownName

WEIGHTS = {"accuracy": 0.5, "cost": 0.25, "latency": 0.25}
NONE: frozenset[str] = frozenset()


def entry(system: str, accuracy: float, latency: float, cost: float = 1.0, profile: str = "p", key: str = "k") -> Entry:
    return Entry(system, profile, key, accuracy, {"latency": latency, "cost": cost})


def weighing(mode: str = "reference", **changes: object) -> DynascoreOptions:
    return DynascoreOptions(**{"weights": WEIGHTS, "higher": NONE, "mode": mode, **changes})


def latency_rate(entries: Sequence[Entry], mode: str, cutoff: float = 0.0) -> Rate:
    return dynascore.rates(entries, weighing(mode, cutoff=cutoff, weights={"accuracy": 0.5, "latency": 0.5}))["latency"]


def test_reference_is_the_mean_over_neighbours() -> None:
    found = latency_rate([entry("c", 40, 100), entry("a", 20, 10), entry("b", 30, 30)], "reference")
    assert found == Rate((20 / 10 + 70 / 10) / 2, RateStatus.OK, 2)


def test_reference_leaves_out_neighbours_that_are_nearly_tied() -> None:
    tied = entry("d", 40 - 40e-4, 5000)
    found = latency_rate([entry("a", 20, 10), entry("b", 30, 30), entry("c", 40, 100), tied], "reference")
    assert (found.pairs, found.value) == (2, pytest.approx((20 / 10 + 4970 / (10 - 40e-4)) / 2))
    just_above = entry("d", 40 - 41e-4, 5000)
    more = latency_rate([entry("a", 20, 10), entry("b", 30, 30), entry("c", 40, 100), just_above], "reference")
    assert more.pairs == 3 and more.value is not None and more.value > 1e5  # one such pair decides everything


def test_reference_orders_equal_accuracies_by_name() -> None:
    rows = [entry("a", 20, 10), entry("b", 30, 30, profile="p2"), entry("b", 30, 90, profile="p1"), entry("c", 40, 100)]
    # a, b on p1, b on p2, c
    assert latency_rate(rows, "reference").value == pytest.approx((80 / 10 + 70 / 10) / 2)
    for shuffled in itertools.permutations(rows):
        assert latency_rate(shuffled, "reference") == latency_rate(rows, "reference")


def test_robust_takes_the_best_row_of_each_group_and_the_median() -> None:
    rows = [
        entry("a", 20, 10),
        entry("a", 20, 400, profile="slow"),
        entry("b", 30, 30),
        entry("b'", 30.2, 31),
        entry("c", 40, 100),
        entry("d", 50, 1000),
    ]
    assert latency_rate(rows, "robust", cutoff=0.5) == Rate(70 / 10, RateStatus.OK, 3)


@pytest.mark.parametrize("mode", dynascore.MODES)
def test_undefined_rates_have_a_status(mode: str) -> None:
    for rows in ([], [entry("a", 20, 10)], [entry("a", 20, 10), entry("b", 20, 30)]):
        assert latency_rate(rows, mode) == Rate(None, RateStatus.NO_PAIR)
    same = [entry("a", 20, 10), entry("b", 30, 10)]
    assert latency_rate(same, mode) == Rate(None, RateStatus.NO_DIFFERENCE, 1)
    whole = weighing(mode)
    assert dynascore.score(same[0], whole, dynascore.rates(same, whole)) is None
    assert latency_rate([entry("a", 0, 10), entry("b", 0, 30)], mode).status is RateStatus.NO_PAIR


def test_given_rate_is_used() -> None:
    given_rates = weighing(given={"latency": 33.0507, "cost": 10.4392})
    row = entry("ColBERTv2-S", 39.40, 51, 8.19)
    found = dynascore.rates([row], given_rates)
    assert found == {"cost": Rate(10.4392, RateStatus.GIVEN), "latency": Rate(33.0507, RateStatus.GIVEN)}
    assert dynascore.score(row, given_rates, found) == pytest.approx(19.118, abs=5e-4)


def test_metric_without_weight_is_ignored() -> None:
    alone = weighing(weights={"accuracy": 1.0, "cost": 0.0, "latency": 0.0})
    assert dynascore.rates([entry("a", 20, 10)], alone) == {}
    assert dynascore.score(entry("a", 20, 10), alone, {}) == 20


def test_more_throughput_is_better() -> None:
    rows = [Entry("a", "p", "k", 20, {"throughput": 50}), Entry("b", "p", "k", 30, {"throughput": 10})]
    by = DynascoreOptions({"accuracy": 0.5, "throughput": 0.5}, frozenset({"throughput"}))
    rates = dynascore.rates(rows, by)
    assert [dynascore.score(row, by, rates) for row in rows] == [10 + 0.5 * 50 / 4, 15 + 0.5 * 10 / 4]


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UnknownName, match="mode"):
        dynascore.rates([], weighing("best"))


# Accuracies on a grid far coarser than floats, so that sums and differences are exact.
ROWS = st.lists(
    st.builds(
        entry,
        st.sampled_from("abcdef"),
        st.integers(0, 800).map(lambda points: points / 8),
        st.integers(1, 10_000).map(float),
        st.integers(1, 10_000).map(float),
        st.sampled_from(["p1", "p2", "p3"]),
        st.uuids().map(str),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(ROWS, st.sampled_from(dynascore.MODES), st.sampled_from([0.0, 0.5, 3.0]), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rows: list[Entry], mode: str, cutoff: float, rng: random.Random) -> None:
    shuffled = rows.copy()
    rng.shuffle(shuffled)
    by = weighing(mode, cutoff=cutoff)
    assert dynascore.rates(shuffled, by) == dynascore.rates(rows, by)


def stands_for_a_group(row: Entry, rows: Sequence[Entry], cutoff: float) -> bool:
    """By the definition: no better row stands for a group within the cut-off of it."""
    leaders: list[Entry] = []
    for each in sorted(rows, key=lambda each: (each.values["latency"], -each.accuracy)):
        if all(abs(each.accuracy - leader.accuracy) > cutoff for leader in leaders):
            leaders.append(each)
    return row in leaders


@pytest.mark.slow
@given(ROWS, st.data(), st.sampled_from([0.5, 3.0]))
def test_robust_ignores_a_near_tied_row_that_is_not_better(
    rows: list[Entry], data: st.DataObject, cutoff: float
) -> None:
    leaders = [row for row in rows if stands_for_a_group(row, rows, cutoff)]
    assume(leaders)
    beside = data.draw(st.sampled_from(leaders))
    away = data.draw(st.integers(-round(8 * cutoff), round(8 * cutoff)).map(lambda eighths: eighths / 8))
    slower = data.draw(st.integers(1, 10_000))
    added = entry("new", beside.accuracy + away, beside.values["latency"] + slower)
    assert latency_rate([*rows, added], "robust", cutoff) == latency_rate(rows, "robust", cutoff)


@pytest.mark.slow
@given(ROWS, st.sampled_from([0.125, 0.5, 3.0]))
def test_robust_never_divides_by_less_than_the_cutoff(rows: list[Entry], cutoff: float) -> None:
    found = latency_rate(rows, "robust", cutoff)
    if found.value is not None:
        values = [row.values["latency"] for row in rows]
        assert found.value <= (max(values) - min(values)) / cutoff
