import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.stats

from harness import stats
from harness.errors import StoreError


def summarise(values: Sequence[Sequence[float]], seed: int = 0) -> stats.Summary:
    """Trials x queries -> summary."""
    rows = [(f"q{q}", t, value) for t, trial in enumerate(values) for q, value in enumerate(trial)]
    return stats.summarise([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], seed)


def test_hand_computed_summary() -> None:
    summary = summarise([[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]])
    assert (summary.queries, summary.trials) == (3, 2)
    assert summary.mean_s.value == pytest.approx(4.0)
    assert summary.trial_means_s == pytest.approx((3.0, 5.0))
    assert summary.trial_spread_s == pytest.approx(math.sqrt(2.0))
    assert summary.mean_s.low is None
    assert summary.mean_s.reason == "an interval needs 11 queries, timed 3"


def test_a_trial_cut_short_gives_no_trial_mean() -> None:
    summary = stats.summarise(["a", "b", "a"], [0, 0, 1], [1.0, 3.0, 5.0])
    assert summary.trials == 2
    assert summary.trial_means_s == (2.0,)
    assert summary.trial_spread_s is None
    # Query a: (1 + 5) / 2, query b: 3.
    assert summary.mean_s.value == pytest.approx(3.0)


def test_interval_is_scipys_bca() -> None:
    values = np.random.default_rng(5).lognormal(0.0, 1.0, 200)
    ours = stats.bootstrap_mean(values)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1), batch=1000
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.04 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.04 * width)
    # Skewed to the right, so the upper bound is farther away: what the plain percentile interval underrates.
    assert ours.value is not None and ours.low is not None and ours.high is not None
    assert ours.high - ours.value > 1.05 * (ours.value - ours.low)


def test_interval_covers_the_true_mean() -> None:
    rng = np.random.default_rng(42)
    repetitions, true_mean = 200, math.exp(0.5 * 0.6**2)
    covered = 0
    for _ in range(repetitions):
        # Three trials of 40 queries: the query's own level carries nearly all of the spread.
        level = rng.lognormal(0.0, 0.6, 40)
        figure = summarise([level * rng.normal(1.0, 0.02, 40) for _ in range(3)]).mean_s
        assert figure.low is not None and figure.high is not None
        covered += figure.low <= true_mean <= figure.high
    # BCa on 40 skewed values covers some 92 %; with the 120 samples taken as independent, some 69 %.
    assert 0.88 <= covered / repetitions <= 0.99


def test_repeating_trials_does_not_narrow_the_interval() -> None:
    values = np.random.default_rng(3).lognormal(0.0, 0.5, 150).tolist()
    once, often = summarise([values]), summarise([values] * 5)
    assert often.mean_s.low == pytest.approx(once.mean_s.low)
    assert often.mean_s.high == pytest.approx(once.mean_s.high)
    assert often.percentiles_s == once.percentiles_s


def test_same_seed_same_interval_other_seed_other_interval() -> None:
    values = [np.random.default_rng(3).lognormal(0.0, 0.5, 50).tolist()]
    assert summarise(values, seed=1) == summarise(values, seed=1)
    assert summarise(values, seed=1).mean_s.low != summarise(values, seed=2).mean_s.low


def test_order_of_samples_plays_no_part() -> None:
    ids, trials = [f"q{i}" for i in range(20)] * 2, [0] * 20 + [1] * 20
    latency = np.random.default_rng(0).lognormal(0.0, 0.5, 40)
    order = np.random.default_rng(1).permutation(40)
    shuffled = stats.summarise([ids[i] for i in order], [trials[i] for i in order], latency[order])
    straight = stats.summarise(ids, trials, latency)
    assert shuffled.mean_s.low == pytest.approx(straight.mean_s.low, rel=1e-12)
    assert shuffled.percentiles_s == straight.percentiles_s


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.1, 3.0])
def test_equal_times_have_an_interval_of_no_width(value: float) -> None:
    figure = summarise([[value] * 300] * 5).mean_s
    assert figure.value == pytest.approx(value)
    assert figure.low == figure.value == figure.high


def test_smallest_n_follows_from_loadgens_rule() -> None:
    def proves(n: int, share: float) -> bool:
        return bool(scipy.stats.binom.cdf(1, n, 1 - share) <= 0.01)

    for name, least in stats.MIN_QUERIES.items():
        share = float(name[1:]) / 100
        assert proves(least, share)
        assert not proves(least - 1, share)


@pytest.mark.parametrize(
    ("queries", "shown"),
    [
        (10, set()),
        (11, {"p50"}),
        (63, {"p50"}),
        (64, {"p50", "p90"}),
        (129, {"p50", "p90"}),
        (130, {"p50", "p90", "p95"}),
        (661, {"p50", "p90", "p95"}),
        (662, {"p50", "p90", "p95", "p99"}),
    ],
)
def test_percentiles_below_their_smallest_n_are_missing(queries: int, shown: set[str]) -> None:
    # Ten trials: samples abound, but queries count.
    found = summarise([list(range(queries))] * 10).percentiles_s
    assert {name for name, figure in found.items() if figure.value is not None} == shown
    for name in set(found) - shown:
        assert found[name].reason == f"{name} needs {stats.MIN_QUERIES[name]:,} queries, timed {queries:,}"


def test_percentiles_are_observed_values_by_nearest_rank() -> None:
    found = summarise([[float(value) for value in range(1, 201)]]).percentiles_s
    assert found["p50"].value == 100.0
    assert found["p90"].value == 180.0
    assert found["p95"].value == 190.0


def test_percentile_interval_is_the_order_statistic_one() -> None:
    # Conover, Practical Nonparametric Statistics: ranks r, s with P(r <= below < s) >= 0.95, each tail at most 2.5 %.
    found = summarise([[float(value) for value in range(1, 201)]]).percentiles_s["p50"]
    assert (found.low, found.high) == (86.0, 115.0)
    theirs = scipy.stats.quantile_test(np.arange(1.0, 201.0), p=0.95).confidence_interval(0.95)
    ours = summarise([[float(value) for value in range(1, 201)]]).percentiles_s["p95"]
    assert (ours.low, ours.high) == (theirs.low, theirs.high)


def test_percentile_interval_covers() -> None:
    rng = np.random.default_rng(11)
    truth = math.exp(0.6 * scipy.stats.norm.ppf(0.95))
    covered = 0
    for _ in range(400):
        level = rng.lognormal(0.0, 0.6, 150)
        figure = stats.percentile(np.concatenate([level, level]), "p95", 150)
        assert figure.low is not None
        covered += figure.low <= truth <= (math.inf if figure.high is None else figure.high)
    assert 0.93 <= covered / 400 <= 1.0


def test_no_samples_is_missing_not_zero() -> None:
    summary = stats.summarise([], [], [])
    assert summary.queries == 0
    assert summary.mean_s.value is None
    assert summary.mean_s.reason == "no timed samples"
    assert all(figure.value is None for figure in summary.percentiles_s.values())


@pytest.mark.parametrize(
    ("ids", "trials", "latency", "message"),
    [
        (["a"], [0], [math.nan], "negative or no number"),
        (["a"], [0], [math.inf], "negative or no number"),
        (["a"], [0], [-1.0], "negative or no number"),
        (["a", "a"], [0, 0], [1.0, 2.0], "timed twice in one trial"),
        (["a", "b"], [0], [1.0, 2.0], "columns of 2, 1 and 2 values"),
    ],
)
def test_samples_that_cannot_be_are_refused(
    ids: list[str], trials: list[int], latency: list[float], message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        stats.summarise(ids, trials, latency)
