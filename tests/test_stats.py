import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from harness import stats
from harness.estimate import MIN_QUERIES, Estimate, best_of
from harness.stats import kendall_p, kendall_tau


def summarise(values: Sequence[Sequence[float]]) -> stats.LatencySummary:
    """Trials x queries -> summary; each trial is a process."""
    rows = [(f"q{q}", t, value) for t, trial in enumerate(values) for q, value in enumerate(trial)]
    trials = [r[1] for r in rows]
    return stats.summarise([r[0] for r in rows], trials, [r[2] for r in rows], jobs=trials)


def test_summary_equals_a_hand_calculation() -> None:
    summary = summarise([[1.0, 2.0, 6.0], [3.0, 4.0, 8.0]])
    assert (summary.queries, summary.trials) == (3, 2)
    assert summary.mean_s.value == pytest.approx(4.0)
    assert summary.trial_means_s == pytest.approx((3.0, 5.0))
    assert summary.trial_spread_s == pytest.approx(math.sqrt(2.0))
    assert summary.mean_s.low is None
    assert summary.mean_s.reason == "an interval needs 30 queries, there are 3"


def test_incomplete_trial_has_no_trial_mean() -> None:
    summary = stats.summarise(["a", "b", "a"], [0, 0, 1], [1.0, 3.0, 5.0])
    assert summary.trials == 2
    assert summary.trial_means_s == (2.0,)
    assert summary.trial_spread_s is None
    # Query a: (1 + 5) / 2, query b: 3.
    assert summary.mean_s.value == pytest.approx(3.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_interval_inverts_halls_cubic(sign: int) -> None:
    values = sign * np.random.default_rng(5).lognormal(0.0, 1.0, 200)
    found = stats.mean(values)
    assert found.value is not None and found.low is not None and found.high is not None
    error = float(values.std(ddof=1)) / 200**0.5
    skew = float(scipy.stats.skew(values, bias=False)) / 200**0.5
    for end, side in ((found.low, 1), (found.high, -1)):
        t = (found.value - end) / error
        # Hall 1992: this cubic of Student's t is nearly symmetric.
        straight = t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6
        assert straight == pytest.approx(side * scipy.stats.t.ppf(0.975, 199))
    longer = (found.high - found.value, found.value - found.low)[::sign]
    assert longer[0] > 1.2 * longer[1]


def test_interval_without_skew_is_students() -> None:
    values = np.concatenate([np.arange(-20.0, 0), np.arange(1.0, 21)])
    found = stats.mean(values)
    assert (found.low, found.high) == pytest.approx(stats.student(values))


def test_combined_interval_adds_the_squares_of_both_half_widths() -> None:
    level = np.random.default_rng(2).lognormal(0.0, 0.5, 300)
    jobs = np.repeat(np.arange(3), 300)
    latency = np.concatenate([level, 1.1 * level, 0.95 * level])
    found = stats.summarise([f"q{n}" for n in range(300)] * 3, jobs, latency, jobs=jobs)
    for name, figure in {"mean": found.mean_s, "p50": found.percentiles_s["p50"]}.items():
        like, these = found.like_queries_s[name], found.these_queries_s[name]
        assert figure.value == like.value == these.value
        assert None not in (figure.low, figure.high, like.low, like.high, these.low, these.high)
        value, reach = figure.value, these.high - these.value
        assert figure.low == pytest.approx(value - math.hypot(value - like.low, reach))
        assert figure.high == pytest.approx(value + math.hypot(like.high - value, reach))
    three = np.array([1.0, 1.1, 0.95]) * level.mean()
    assert found.these_queries_s["mean"].high - found.mean_s.value == pytest.approx(
        scipy.stats.t.ppf(0.975, 2) * three.std(ddof=1) / 3**0.5
    )


@pytest.mark.parametrize(("processes", "trials"), [(1, 1), (1, 5), (2, 1), (2, 3)])
def test_fewer_than_three_processes_have_no_interval_over_processes(processes: int, trials: int) -> None:
    count = processes * trials
    latency = np.random.default_rng(2).lognormal(0.0, 0.5, 300 * count)
    trial = np.repeat(np.arange(count), 300)
    found = stats.summarise(list(range(300)) * count, trial, latency, jobs=trial // trials)
    of = f"{'is' if processes == 1 else 'are'} {processes}"
    for name, figure in {"mean": found.mean_s, **found.percentiles_s}.items():
        if figure.value is not None:
            for empty in (figure, found.these_queries_s[name]):
                assert (empty.low, empty.high) == (None, None)
                assert empty.reason == f"an interval needs 3 whole processes, there {of}"
            assert found.like_queries_s[name].low is not None


def test_median_is_p50_of_the_same_values() -> None:
    for size in (11, 12, 299, 300):
        values = np.random.default_rng(size).lognormal(0.0, 0.5, size)
        assert stats.median(values) == stats.percentile(values, "p50", size).value
        assert stats.median(values) == stats.quantiles(values, np.linspace(0, 1, 51))[25]
    assert stats.median([1.0, math.nan, 3.0, 2.0]) == 2.0
    assert stats.medians([[1.0, 2.0], [math.nan, math.nan]], axis=1).tolist() == pytest.approx(
        [1.0, math.nan], nan_ok=True
    )


def test_latencies_of_fewer_than_30_queries_have_no_interval() -> None:
    values = np.random.default_rng(2).lognormal(0.0, 0.5, 30)
    assert stats.latency_mean(values).low is not None
    assert stats.latency_mean(values[:29]).reason == "an interval needs 30 queries, there are 29"


def test_proportion_is_scipys_exact_interval() -> None:
    for succeeded, count in ((0, 11), (11, 11), (49, 50), (7, 30)):
        found = stats.proportion(succeeded, count)
        theirs = scipy.stats.binomtest(succeeded, count).proportion_ci(method="exact")
        assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.slow
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
    # With the 120 samples taken as independent, some 69 %.
    assert 0.92 <= covered / repetitions <= 0.99


def test_repeating_trials_does_not_narrow_the_interval() -> None:
    values = np.random.default_rng(3).lognormal(0.0, 0.5, 150).tolist()
    once, often = summarise([values] * 3), summarise([values] * 5)
    assert often.mean_s.low == pytest.approx(once.mean_s.low)
    assert often.mean_s.high == pytest.approx(once.mean_s.high)
    assert often.percentiles_s == once.percentiles_s


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.1, 3.0])
def test_equal_times_have_a_zero_width_interval(value: float) -> None:
    figure = summarise([[value] * 300] * 5).mean_s
    assert figure.value == pytest.approx(value)
    assert figure.low == figure.value == figure.high


def test_smallest_n_follows_from_loadgens_rule() -> None:
    def proves(n: int, share: float) -> bool:
        return bool(scipy.stats.binom.cdf(1, n, 1 - share) <= 0.01)

    for name, least in MIN_QUERIES.items():
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
        assert found[name].reason == f"{name} needs {MIN_QUERIES[name]:,} queries, timed {queries:,}"


def test_percentiles_are_observed_values_by_nearest_rank() -> None:
    found = summarise([[float(value) for value in range(1, 201)]]).percentiles_s
    assert found["p50"].value == 100.0
    assert found["p90"].value == 180.0
    assert found["p95"].value == 190.0


def test_percentile_interval_uses_order_statistics() -> None:
    # Conover, Practical Nonparametric Statistics: ranks r, s with P(r <= below < s) >= 0.95, each tail at most 2.5 %.
    found = summarise([[float(value) for value in range(1, 201)]]).like_queries_s["p50"]
    assert (found.low, found.high) == (86.0, 115.0)
    theirs = scipy.stats.quantile_test(np.arange(1.0, 201.0), p=0.95).confidence_interval(0.95)
    ours = summarise([[float(value) for value in range(1, 201)]]).like_queries_s["p95"]
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


@pytest.mark.parametrize(
    ("name", "queries", "slower"),
    [("p50", 11, 1), ("p90", 64, 1), ("p95", 130, 1), ("p99", 662, 1), ("p50", 200, 83), ("p95", 1000, 34)],
)
def test_bound_equals_loadgens(name: str, queries: int, slower: int) -> None:
    share = 1 - float(name[1:]) / 100
    assert scipy.stats.binom.cdf(slower, queries, share) <= 0.01 < scipy.stats.binom.cdf(slower + 1, queries, share)
    latency = np.random.default_rng(1).permutation(np.arange(1.0, queries + 1))
    assert stats.at_most(latency, name, queries).value == queries - slower
    # Trials that repeat the same latencies prove nothing new.
    assert stats.at_most(np.tile(latency, 5), name, queries).value == queries - slower


def test_no_bound_below_the_smallest_n() -> None:
    assert stats.at_most(np.ones(661), "p99", 661) == Estimate(None, reason="p99 needs 662 queries, timed 661")


@pytest.mark.parametrize("noise", [0.0, 0.05, 1.0])
def test_bound_holds_in_99_of_100(noise: float) -> None:
    rng = np.random.default_rng(17)
    truth = math.exp(math.hypot(0.6, noise) * scipy.stats.norm.ppf(0.95))
    held = 0
    for _ in range(1000):
        latency = rng.lognormal(0.0, 0.6, 200)[:, None] * rng.lognormal(0.0, noise, (200, 5))
        bound = stats.at_most(latency.ravel(), "p95", 200).value
        assert bound is not None
        held += truth <= bound
    assert held >= 980  # 990 on average


def test_interval_for_these_queries_is_students_over_processes() -> None:
    figure = summarise([[1.0, 2.0, 6.0], [3.0, 4.0, 8.0], [2.0, 3.0, 7.0]]).these_queries_s["mean"]
    theirs = scipy.stats.t.interval(0.95, 2, loc=4.0, scale=1.0 / math.sqrt(3))
    assert figure.value == pytest.approx(4.0)
    assert (figure.low, figure.high) == pytest.approx(theirs)


def test_interval_for_these_queries_counts_processes_not_their_trials() -> None:
    ids, trials, jobs = ["a", "b"] * 6, np.repeat(np.arange(6), 2), np.repeat(np.arange(3), 4)
    latency = [1.0, 3.0, 1.2, 3.2, 2.0, 4.0, 2.2, 4.2, 6.0, 8.0, 6.2, 8.2]
    figure = stats.summarise(ids, trials, latency, jobs=jobs).these_queries_s["mean"]
    theirs = scipy.stats.t.interval(0.95, 2, loc=12.3 / 3, scale=np.std([2.1, 3.1, 7.1], ddof=1) / math.sqrt(3))
    assert (figure.low, figure.high) == pytest.approx((0.0, theirs[1]))  # no time is less than none


def test_no_samples_is_missing_not_zero() -> None:
    summary = stats.summarise([], [], [])
    assert summary.queries == 0
    assert summary.mean_s.value is None
    assert summary.mean_s.reason == "no timed samples"
    assert all(figure.value is None for figure in summary.percentiles_s.values())


@pytest.mark.parametrize(
    ("ties", "descending", "expected"),
    [
        ("min", False, [3, 1, 3, np.nan, 2, 5]),
        ("min", True, [2, 5, 2, np.nan, 4, 1]),
        ("mean", False, [3.5, 1, 3.5, np.nan, 2, 5]),
        ("mean", True, [2.5, 5, 2.5, np.nan, 4, 1]),
    ],
)
def test_ranks_shares_ties(ties: Literal["min", "mean"], descending: bool, expected: list[float]) -> None:
    values = np.array([3.0, -1.0, 3.0, np.nan, 0.0, np.inf])
    found = stats.ranks(values, ties=ties, descending=descending)
    np.testing.assert_array_equal(found, expected)
    grid = stats.ranks(np.stack([values, values[::-1]]), ties=ties, descending=descending)
    np.testing.assert_array_equal(grid, [expected, expected[::-1]])


def test_ranks_ties_values_within_a_tolerance() -> None:
    values = np.array([1.0, 1.0 + 5e-13, 2.0])
    assert stats.ranks(values, ties="mean", equal_within=1e-12).tolist() == [1.5, 1.5, 3.0]
    assert stats.ranks(values, ties="mean").tolist() == [1.0, 2.0, 3.0]
    assert stats.ranks(np.array([np.inf, np.inf, -np.inf]), ties="min").tolist() == [2.0, 2.0, 1.0]
    assert stats.ranks(np.zeros((2, 0)), ties="mean").shape == (2, 0)


def test_ranks_agrees_with_scipy() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        values = rng.integers(0, 6, size=(3, 12)).astype(float)
        np.testing.assert_array_equal(stats.ranks(values, ties="mean"), scipy.stats.rankdata(values, axis=1))
        np.testing.assert_array_equal(stats.ranks(values, ties="min"), scipy.stats.rankdata(values, "min", axis=1))


def test_competition_ranks_leaves_missing_values_without_a_rank() -> None:
    assert stats.competition_ranks([3.0, None, 5.0, 3.0, 1.0]) == [2, None, 4, 2, 1]
    assert stats.competition_ranks([]) == []


Floats = NDArray[np.float64]


def crossed_latencies(rng: np.random.Generator, queries: int, jobs: int, trials: int, **deviations: float) -> Floats:
    """Latencies of 100 plus normal parts of queries, jobs, trials and the rest; shape (queries, jobs x trials)."""
    query = rng.normal(0, deviations["query"], (queries, 1))
    job = np.repeat(rng.normal(0, deviations["job"], jobs), trials)
    trial = rng.normal(0, deviations["trial"], jobs * trials)
    return 100 + query + job + trial + rng.normal(0, deviations["residual"], (queries, jobs * trials))


@pytest.mark.slow
def test_variance_components_are_unbiased() -> None:
    rng = np.random.default_rng(9)
    truth = {"query": 3.0, "job": 1.0, "trial": 0.5, "residual": 0.8}
    squares: dict[str, list[float]] = {name: [] for name in truth}
    for _ in range(400):
        found = stats.variance_components(crossed_latencies(rng, 60, 8, 4, **truth), np.repeat(range(8), 4).tolist())
        for name in truth:
            squares[name].append(found[name].value ** 2)
    for name, deviation in truth.items():
        assert np.mean(squares[name]) == pytest.approx(deviation**2, rel=0.06), name


@pytest.mark.slow
def test_query_variance_excludes_the_residual() -> None:
    rng = np.random.default_rng(4)
    truth = {"query": 0.5, "job": 0.0, "trial": 0.0, "residual": 2.0}
    squares = []
    for _ in range(200):
        value = stats.variance_components(crossed_latencies(rng, 2000, 2, 1, **truth), [0, 1])["query"].value
        assert value is not None
        squares.append(value**2)
    assert np.mean(squares) == pytest.approx(0.25, abs=0.05)


def test_one_job_gives_no_job_component() -> None:
    latency = crossed_latencies(np.random.default_rng(2), 300, 1, 50, query=3.0, job=0.0, trial=0.5, residual=0.8)
    found = stats.variance_components(latency, [0] * 50)
    assert found["trial"].value == pytest.approx(0.5, rel=0.2)
    assert (found["job"].value, found["job"].reason) == (None, "one job only: nothing to compare")


def test_one_trial_per_job_gives_job_and_trial_together() -> None:
    latency = crossed_latencies(np.random.default_rng(2), 300, 50, 1, query=3.0, job=0.4, trial=0.3, residual=0.8)
    found = stats.variance_components(latency, list(range(50)))
    assert found["job"].value == pytest.approx(0.5, rel=0.2)
    assert found["job"].reason == "holds the trial's part too"
    assert (found["trial"].value, found["trial"].reason) == (None, "each job ran one trial: the two coincide")


def test_variance_components_are_never_negative() -> None:
    rng = np.random.default_rng(3)
    none = {"query": 0.0, "job": 0.0, "trial": 0.0, "residual": 1.0}
    for _ in range(50):
        found = stats.variance_components(crossed_latencies(rng, 30, 3, 2, **none), [0, 0, 1, 1, 2, 2])
        for name in none:
            assert found[name].value >= 0
    constant = stats.variance_components(np.full((20, 4), 0.25), [0, 0, 1, 1])
    assert [constant["query"].value, constant["trial"].value, constant["job"].value, constant["residual"].value] == [
        0.0
    ] * 4


@pytest.mark.parametrize(("shape", "why"), [((1, 5), "2 queries"), ((5, 1), "2 whole trials"), ((5, 0), "2 whole")])
def test_too_small_design_gives_no_components_and_a_reason(shape: tuple[int, int], why: str) -> None:
    found = stats.variance_components(np.ones(shape), list(range(shape[1])))
    assert found["query"].value is None
    assert why in str(found["query"].reason)
    assert found["residual"] == found["query"]


def test_jobs_with_unequal_trials_give_only_the_query_component() -> None:
    latency = crossed_latencies(np.random.default_rng(2), 300, 1, 5, query=3.0, job=0.0, trial=0.0, residual=0.8)
    found = stats.variance_components(latency, [0, 0, 0, 1, 1])
    assert found["query"].value == pytest.approx(3.0, rel=0.15)
    assert found["job"].value is None and found["trial"].value is None
    assert "unequal" in str(found["job"].reason)


def test_tau_of_agreeing_reversed_and_tied_orders() -> None:
    a = {"x": 0.1, "y": 0.2, "z": 0.3}
    assert kendall_tau(a, a) == pytest.approx(1)
    assert kendall_tau(a, {name: -value for name, value in a.items()}) == pytest.approx(-1)
    assert kendall_tau(a, {"x": 1, "y": 3, "z": 2}) == pytest.approx(1 / 3)
    # Two pairs agree, one is tied in b: (2 - 0) / sqrt(3 * 2).
    assert kendall_tau(a, {"x": 1, "y": 1, "z": 2}) == pytest.approx(2 / 6**0.5)


def test_tau_is_over_common_systems() -> None:
    assert kendall_tau({"x": 1, "y": 2, "z": 0}, {"x": 1, "y": 2, "w": 9}) == pytest.approx(1)


@pytest.mark.parametrize(("a", "b"), [({}, {}), ({"x": 1.0}, {"x": 1.0}), ({"x": 1.0, "y": 1.0}, {"x": 1.0, "y": 2.0})])
def test_tau_is_missing_without_an_order(a: dict[str, float], b: dict[str, float]) -> None:
    assert kendall_tau(a, b) is None
    assert kendall_tau(b, a) is None


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=8))
def test_kendalls_tau_agrees_with_scipy(values: list[tuple[int, int]]) -> None:
    ours, theirs = ([pair[side] for pair in values] for side in (0, 1))
    tau = kendall_tau(*({str(n): float(value) for n, value in enumerate(order)} for order in (ours, theirs)))
    if len(set(ours)) < 2 or len(set(theirs)) < 2:
        assert tau is None
    else:
        assert tau == pytest.approx(scipy.stats.kendalltau(ours, theirs, variant="b").statistic)


def test_p_of_kendalls_tau_is_exact_and_missing_without_an_order() -> None:
    order = {name: float(place) for place, name in enumerate("abcd")}
    assert kendall_p(order, order) == pytest.approx(2 / 24), "one of 24 orders agrees, and one disagrees, as much"
    assert kendall_p(order, dict.fromkeys("abcd", 1.0)) is None


def test_best_of_returns_all_that_tie_and_no_missing_value() -> None:
    values = {"a": 0.1 + 0.2, "b": 0.3, "c": 0.0, "d": None, "e": -1.0}
    assert best_of(values, values.get) == ["a", "b"]
    assert best_of(values, values.get, least=True) == ["e"]
    assert best_of("cde", values.get) == ["c"], "0 is above a negative value"
    assert best_of("d", values.get) == []
