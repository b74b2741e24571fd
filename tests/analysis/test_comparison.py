"""Two rows compared query by query: intervals, verdicts, and how many queries would show a difference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from harness.analysis import comparison
from harness.analysis.paired_differences import Difference
from harness.analysis.table import Cause, Finding, Row, Validity
from harness.analysis.verdict import ComparisonVerdict
from harness.driver.records import Outcome
from harness.errors import UsageError
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.untrusted import ForeignText
from tests.support import sample_records

RNG = np.random.default_rng(3)
COUNT = 300
HARD = RNG.lognormal(0, 0.8, COUNT) / 100  # seconds: queries differ far more than systems
IDS = tuple(f"q{number:03}" for number in range(COUNT))


def row(system: str, **changes: Any) -> Row:
    fields = {
        "system": system,
        "key": system,
        "latency_mean_s": Estimate(0.02),
        "measures": {"RR@10": Estimate(0.5)},
        "trial_means_s": (0.02, 0.0201, 0.0199),
        "jobs": 3,
    }
    return sample_records.row(**{**fields, **changes})


def query(system: str, latency_s: np.ndarray, rr: np.ndarray | None = None) -> PerQuery:
    return PerQuery(system, IDS, latency_s, {} if rr is None else {"RR@10": rr})


def compare(a: PerQuery | None, b: PerQuery | None, **changes: Any) -> tuple[Difference, Difference]:
    made = comparison.compare(row("a"), row("b", **changes), a, b, ("RR@10",))
    ((latency, rr),) = (each.differences for each in comparison.corrected([made]))
    return latency, rr


def test_pairing_shows_a_difference_that_single_intervals_hide() -> None:
    noise = RNG.normal(0, 2e-4, COUNT)
    latency, _ = compare(query("a", HARD), query("b", HARD + 4e-4 + noise), trial_means_s=(0.0205, 0.0206, 0.0204))
    found = latency.over_queries
    assert latency.verdict is ComparisonVerdict.SLOWER
    assert found.low is not None and found.high is not None and 3.5e-4 < found.low < 4e-4 < found.high < 4.5e-4
    faster, _ = compare(query("a", HARD), query("b", HARD - 4e-4 + noise), trial_means_s=(0.0195, 0.0196, 0.0194))
    assert faster.verdict is ComparisonVerdict.FASTER


def test_difference_is_not_claimed_if_repeated_trials_do_not_show_it() -> None:
    b = query("b", HARD + 4e-4)
    unsteady, _ = compare(query("a", HARD), b, trial_means_s=(0.025, 0.018, 0.0184))
    assert unsteady.verdict is ComparisonVerdict.UNREPEATED
    assert unsteady.again is not None and unsteady.again.low is not None and unsteady.again.low < 0
    twice, _ = compare(query("a", HARD), b, trial_means_s=(0.0204, 0.0204), jobs=2)
    assert twice.verdict is ComparisonVerdict.UNREPEATED
    assert twice.interval.low is None and twice.interval.reason == "an interval needs 3 whole processes, there are 2"


def test_latency_interval_covers_other_queries_and_other_processes() -> None:
    noise = RNG.normal(0, 2e-3, COUNT)
    latency, rr = compare(query("a", HARD), query("b", HARD + 4e-4 + noise), trial_means_s=(0.0205, 0.0206, 0.0204))
    one, queries, again = latency.interval, latency.over_queries, latency.again
    assert again is not None
    reaches = [(each.high or 0) - (each.low or 0) for each in (one, queries, again)]
    assert reaches[0] == pytest.approx(math.hypot(*reaches[1:]), rel=0.01) and one.value == queries.value
    assert rr.interval == rr.over_queries


def ratio_of(a: np.ndarray, b: np.ndarray, jobs: int = 3, spread: float = 0.0) -> Estimate:
    """Return B / A of two systems whose processes differ by up to a share of their mean."""
    columns = [PerQuery(name, IDS, values, {}) for name, values in (("a", a), ("b", b))]
    rows = [
        row(
            each.key,
            latency_mean_s=Estimate(float(each.latency_s.mean())),
            trial_means_s=tuple(each.latency_s.mean() * np.linspace(1 - spread, 1 + spread, jobs)),
            jobs=jobs,
        )
        for each in columns
    ]
    return comparison.compare(*rows, *columns, ()).differences[0].ratio


@pytest.mark.slow
def test_interval_of_a_latency_ratio_covers_that_of_all_queries() -> None:
    # A generator of its own, so that the order of tests changes nothing.
    rng, draws, covered, below = np.random.default_rng(2), 400, 0, 0
    for _ in range(draws):
        a, more = rng.lognormal(0, 0.8, COUNT), rng.gamma(4, 0.02, COUNT)
        found = ratio_of(a, 0.3 * a + more)
        true = 0.3 + 0.08 / math.exp(0.32)
        assert found.low is not None and found.high is not None
        covered += found.low <= true <= found.high
        below += found.high < true
    # Latencies are skewed, so misses are more often below than above.
    assert 0.92 < covered / draws < 0.97 and 0.01 < below / draws < 0.055


def test_interval_of_a_latency_ratio_is_wider_where_processes_differ() -> None:
    b = 0.3 * HARD + RNG.gamma(4, 2e-4, COUNT)
    quiet, noisy, few = ratio_of(HARD, b), ratio_of(HARD, b, spread=0.05), ratio_of(HARD, b, jobs=2)
    assert quiet.value == noisy.value == pytest.approx(b.mean() / HARD.mean())
    assert quiet.value is not None and quiet.high is not None and noisy.high is not None
    # Of both systems three processes spread by 5 % of the mean: Welch has four degrees of freedom.
    reach = 2.776 * math.sqrt(2 / 3) * 0.05 * quiet.value
    assert noisy.high - quiet.value == pytest.approx(math.hypot(quiet.high - quiet.value, reach), rel=0.1)
    assert noisy.low is not None and noisy.high - quiet.value > quiet.value - noisy.low, "a ratio's is skewed (Fieller)"
    assert (few.low, few.reason) == (None, "an interval needs 3 whole processes, there are 2")


@pytest.mark.slow
def test_verdict_interval_and_ratio_of_a_latency_are_one_test_also_among_many() -> None:
    """Twelve pairs, tested alone and together, near the edge of being shown."""
    rng, pairs = np.random.default_rng(21), []
    for number in range(12):
        slower = HARD + rng.normal(1e-5 * number, 2e-4, COUNT)
        means = (
            [HARD.mean() * each for each in (1, 1.0005, 0.9995)],
            [slower.mean() * each for each in (1, 1.001, 0.999)],
        )
        rows = [
            row(name, latency_mean_s=Estimate(float(values.mean())), trial_means_s=tuple(trials))
            for name, values, trials in (("a", HARD, means[0]), (f"b{number}", slower, means[1]))
        ]
        pairs.append(comparison.compare(*rows, query("a", HARD), query("b", slower), ()))
    alone = [comparison.corrected([each])[0].differences[0] for each in pairs]
    among = [each.differences[0] for each in comparison.corrected(pairs)]
    for item in (*alone, *among):
        low, high, ratio = item.interval.low, item.interval.high, item.ratio
        assert low is not None and high is not None and ratio.low is not None and ratio.high is not None
        shown = item.verdict in (ComparisonVerdict.FASTER, ComparisonVerdict.SLOWER)
        assert shown == (not low <= 0 <= high) == (not ratio.low <= 1 <= ratio.high)
    assert {each.verdict for each in among} >= {ComparisonVerdict.SLOWER, ComparisonVerdict.UNCORRECTED}
    assert all((b.interval.high or 0) >= (a.interval.high or 0) for a, b in zip(alone, among, strict=True))


def test_jobs_not_trials_are_repetitions_if_there_are_several() -> None:
    b = query("b", HARD + 4e-4)
    # Three processes of three trials each: trials agree, processes do not.
    trials = (0.0300, 0.0301, 0.0299, 0.0110, 0.0111, 0.0109, 0.0180, 0.0181, 0.0179)
    several, _ = compare(query("a", HARD), b, trial_means_s=trials, jobs=3, trials=9)
    assert several.again is not None and several.again.low is not None and several.again.low < -0.02
    cut_short, _ = compare(query("a", HARD), b, trial_means_s=trials[:4], jobs=3, trials=9)
    assert cut_short.again is None  # whose trial is missing is not told


@pytest.mark.slow
def test_measures_are_better_when_larger() -> None:
    rr = RNG.uniform(0, 0.5, COUNT)
    assert compare(query("a", HARD, rr), query("b", HARD, rr + 0.1))[1].verdict is ComparisonVerdict.BETTER
    assert compare(query("a", HARD, rr), query("b", HARD, rr - 0.1))[1].verdict is ComparisonVerdict.WORSE
    assert compare(query("a", HARD, rr), query("b", HARD, rr))[1].verdict is ComparisonVerdict.EQUAL
    other = np.where(np.arange(COUNT) % 2, rr + 0.2, rr - 0.2)
    found = compare(query("a", HARD, rr), query("b", HARD, other))[1]
    assert found.verdict is ComparisonVerdict.NONE


def test_needed_queries_follow_from_effect_and_spread() -> None:
    rr = RNG.uniform(0, 0.5, COUNT)
    apart = RNG.normal(0.02, 0.2, COUNT)
    needed = compare(query("a", HARD, rr), query("b", HARD, rr + apart))[1].needed
    assert needed == pytest.approx((2.8015852 * apart.std(ddof=1) / apart.mean()) ** 2, abs=1)


def test_only_queries_that_both_have_are_compared() -> None:
    fewer = PerQuery("b", IDS[100:], HARD[100:] + 1, {})
    latency, rr = compare(query("a", HARD), fewer)
    assert latency.queries == 200 and latency.over_queries.value == pytest.approx(1.0)
    assert (rr.verdict, rr.queries) == (ComparisonVerdict.UNKNOWN, 0)


def test_published_rows_have_a_ratio_and_no_verdict() -> None:
    latency, _ = compare(None, None, latency_mean_s=Estimate(0.05))
    assert (latency.ratio, latency.verdict, latency.needed) == (Estimate(2.5), ComparisonVerdict.UNKNOWN, None)
    assert latency.over_queries.value is None and latency.over_queries.reason


def test_notes_name_doubts_about_the_comparison() -> None:
    doubt = Finding(Cause.DRIFT, Validity.NOISY, "drift: 1.5 times", transient=True)
    machine = sample_records.replace(sample_records.MACHINE, cpu_model=ForeignText("Another CPU"))
    b = row("b", machine=machine, findings=(doubt,), profile="cpu2-mem4", outcome=Outcome.OOM, detail="killed")
    message = "\n".join(comparison.compare(row("a"), b, None, None, ()).notes)
    assert "B ended oom: killed" in message and "B is noisy: drift: 1.5 times" in message
    noted = row("b", findings=(doubt,), notes=("RR@10: looks deeper", "ties", doubt.text))
    message = "\n".join(comparison.compare(row("a", notes=("ties",)), noted, None, None, ()).notes)
    assert message == "B is noisy: drift: 1.5 times\nA and B: ties\nB: RR@10: looks deeper"
    message = "\n".join(comparison.compare(row("a"), b, None, None, ()).notes)
    assert "cpu_model AMD EPYC 9B14 against Another CPU" in message and "cpu1-mem1 against cpu2-mem4" in message


def test_pairs_share_dataset_and_profile() -> None:
    rows = [row(name, profile=profile) for name in "ab" for profile in ("p1", "p2", f"only-{name}")]
    found = comparison.pairs(rows, rows, "a", "b")
    assert [(one.profile, other.profile) for one, other in found] == [("p1", "p1"), ("p2", "p2")]
    ((one, other),) = comparison.pairs(rows, rows, "a/*/p1", "b/*/p2")
    assert (one.system, one.profile, other.system, other.profile) == ("a", "p1", "b", "p2")


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        ("nothing", "b", "'nothing' matches no stored row; systems there: a, b"),
        ("a", "c", "'c' matches no stored row"),
        ("a", "a", "'a' matches one row; name a second system"),
        ("?", "*", "both match 2 rows, but no two of them can be compared"),
    ],
)
def test_globs_without_pairs_are_refused(a: str, b: str, why: str) -> None:
    rows = [row("a"), row("b", sample_sha256="other")]
    with pytest.raises(UsageError, match=why):
        comparison.pairs(rows, rows, a, b)
    with pytest.raises(UsageError, match="have no dataset, query sample and profile in common"):
        comparison.pairs(rows, rows, "a", "b")
