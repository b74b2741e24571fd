"""Robustness of a leaderboard against enumeration, closed forms and trec_eval's way of counting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from harness.analysis import robustness
from harness.analysis.robustness import Condition, ConditionKind, RobustnessOptions
from harness.errors import UsageError
from harness.evaluation import evaluate, measure_names, qrels_subsample
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.qrels_subsample import KeepRule
from harness.evaluation.trec import Qrels, Run

QUERIES = tuple(f"q{number:02}" for number in range(24))


def runs_of(qrels: Qrels, **ranks: Sequence[int]) -> JudgedRuns:
    """Systems that rank the one relevant document of query i at ``ranks[i]``, repeated; 0: not at all."""
    runs = {}
    for system, placed in ranks.items():
        rankings = {}
        for number, query in enumerate(qrels):
            rank = placed[number % len(placed)]
            rankings[query] = tuple("right" if place == rank else f"wrong{place}" for place in range(1, 11))
        runs[system] = Run(rankings, ())
    return JudgedRuns("made", dict.fromkeys(qrels, ""), qrels, runs)


ONE = {query: {"right": 1} for query in QUERIES}


def condition(found: robustness.Robustness, cause: ConditionKind, name: str = "") -> Condition:
    (one,) = [each for each in found.conditions if each.cause is cause and name in each.name]
    return one


@pytest.mark.slow
def test_clear_order_never_flips_and_close_order_flips_by_its_distribution() -> None:
    # Each query is won by one of the two with 1 to 0: 13 by "a", 11 by "b".
    a = [1] * 13 + [0] * 11
    runs = runs_of(ONE, a=a, b=[1 - each for each in a], bad=[0])
    found = robustness.examine(runs, RobustnessOptions("Success@10", resamples=20_000))
    assert found.systems == ("a", "b", "bad")
    flips = condition(found, ConditionKind.QUERIES).flips
    # P(Binomial(24, 13/24) < 12) + P(= 12) / 2
    from scipy.stats import binom

    expected = binom.cdf(11, 24, 13 / 24) + binom.pmf(12, 24, 13 / 24) / 2
    assert flips[1][0] == flips[0][1] == pytest.approx(expected, abs=0.015)
    assert flips[2][0] == flips[2][1] == 0 and flips[0][0] is None
    first = [each.first for each in found.standings]
    assert first == pytest.approx([1 - expected, expected, 0], abs=0.015)
    assert [(each.low, each.high) for each in found.standings] == [(1, 2), (1, 2), (3, 3)]


def test_equal_systems_share_a_rank_and_have_no_flips() -> None:
    found = robustness.examine(runs_of(ONE, x=[1, 2], y=[2, 1], z=[3]), RobustnessOptions("RR@10", ("Success@10",)))
    assert [each.rank for each in found.standings] == [1.5, 1.5, 3]
    for each in found.conditions:
        assert each.flips[0][1] is None
    assert condition(found, ConditionKind.QUERIES).flips[2][0] == 0
    # By Success@10 all are equal: a tie in every draw counts half.
    success = condition(found, ConditionKind.MEASURE)
    assert success.flips[2][0] == 0.5 and success.tau_whole is None and success.tau.value is None


@pytest.mark.slow
def test_reversed_measure_flips_every_pair() -> None:
    # "deep" finds each at rank 3, "sharp" half of them at 1.
    found = robustness.examine(
        runs_of(ONE, deep=[3], sharp=[1, 0]), RobustnessOptions("Success@10", ("RR@1", "Success@5", "NumRet"))
    )
    assert found.systems == ("deep", "sharp")
    reversed_ = condition(found, ConditionKind.MEASURE, "RR@1")
    assert reversed_.tau_whole == -1 and reversed_.flips[1][0] == 1
    same = condition(found, ConditionKind.MEASURE, "Success@5")
    assert same.tau_whole == 1 and same.flips[1][0] == 0
    counts = condition(found, ConditionKind.MEASURE, "NumRet")
    assert counts.flips == () and counts.reason == "it is not a mean over queries"


def test_fewer_judgements_match_all_possible_draws() -> None:
    """Two queries with two relevant documents each: four remainders of one each, all as likely."""
    qrels: Qrels = {"q1": {"a": 1, "b": 2, "n": 0}, "q2": {"a": 1, "b": 1}}
    rankings = {"x": ("a", "n", "b"), "y": ("b", "a", "n")}
    runs = JudgedRuns(
        "two",
        dict.fromkeys(qrels, ""),
        qrels,
        {name: Run(dict.fromkeys(qrels, hits), ()) for name, hits in rankings.items()},
    )
    (measure,) = measure_names.parse(["RR@10"])
    drawn = qrels_subsample.draw_qrels(qrels, runs.query_ids, KeepRule(relevant=1, any_grade=True), 400, seed=1)
    assert len(drawn.qrels) == 4 and all(len(kept) == 1 and "n" not in kept for kept in drawn.qrels.values())
    found = qrels_subsample.mean_per_draw(runs, drawn, measure)
    expected = {}
    for one, two in itertools.product("ab", repeat=2):
        rr = [[1 / (hits.index(document) + 1) for document in (one, two)] for hits in rankings.values()]
        expected[one + two] = tuple(float(np.mean(each)) for each in rr)
    seen = {tuple(np.round(line, 9)): 0 for line in found}
    assert seen.keys() == {tuple(np.round(each, 9)) for each in expected.values()}
    for (one, two), values in expected.items():
        same = [key for key, each in expected.items() if np.allclose(each, values)]
        share = np.mean(np.all(np.isclose(found, values), axis=1))
        assert share == pytest.approx(len(same) / 4, abs=0.1), (one, two)


def test_best_grades_are_kept_first_and_equal_ones_at_random() -> None:
    """The study's order: perfectly relevant ones, then highly relevant ones until there are enough."""
    qrels: Qrels = {"q1": {"n": 0, "d": 1, "b": 3, "c1": 2, "c2": 2, "a": 3}}

    def kept(most: int, **options: bool) -> set[frozenset[str]]:
        drawn = qrels_subsample.draw_qrels(qrels, ["q1"], KeepRule(relevant=most, **options), 60, seed=3)
        return {frozenset(each) for each in drawn.qrels.values()}

    assert kept(1) == {frozenset("a"), frozenset("b")}
    assert kept(2) == {frozenset("ab")}
    assert kept(3) == {frozenset({"a", "b", "c1"}), frozenset({"a", "b", "c2"})}
    assert kept(9) == {frozenset({"a", "b", "c1", "c2", "d"})}
    assert kept(1, any_grade=True) == {frozenset({each}) for each in ("a", "b", "c1", "c2", "d")}


def test_each_draw_matches_an_evaluation_with_its_judgements() -> None:
    rng = np.random.default_rng(6)
    qrels: Qrels = {
        query: {
            f"d{each}": int(grade) for each, grade in zip(rng.permutation(20)[:6], rng.integers(0, 3, 6), strict=True)
        }
        for query in QUERIES
    }
    rankings = {query: tuple(f"d{each}" for each in rng.permutation(20)[:12]) for query in QUERIES[1:]}
    runs = JudgedRuns("r", dict.fromkeys(QUERIES, ""), qrels, {"s": Run(rankings, ())})
    for keep, name in itertools.product(
        (KeepRule(relevant=1), KeepRule(relevant=2, any_grade=True), KeepRule(share=0.3)), ("nDCG@5", "AP", "RR@3")
    ):
        (measure,) = measure_names.parse([name])
        drawn = qrels_subsample.draw_qrels(qrels, QUERIES, keep, 5, seed=2)
        found = qrels_subsample.mean_per_draw(runs, drawn, measure)
        for number, columns in enumerate(drawn.columns):
            names = list(drawn.qrels)
            kept = {drawn.query_of[names[column]]: drawn.qrels[names[column]] for column in columns if column >= 0}
            judged = evaluate.evaluate(Run(rankings, ()), kept, QUERIES, [measure])
            assert found[number, 0] == pytest.approx(judged.values[str(measure)]), (keep, name)
            if keep.share is not None:
                assert sum(map(len, kept.values())) == round(0.3 * 6 * len(QUERIES))


def test_judged_only_measure_reads_the_whole_ranking() -> None:
    qrels: Qrels = {query: {"d9": 1, "d8": 1} for query in QUERIES}
    run = Run({query: tuple(f"d{each}" for each in range(10)) for query in QUERIES}, ())
    runs = JudgedRuns("r", dict.fromkeys(QUERIES, ""), qrels, {"s": run})
    (measure,) = measure_names.parse(["P(judged_only=True)@1"])
    drawn = qrels_subsample.draw_qrels(qrels, QUERIES, KeepRule(relevant=1), 2, seed=0)
    assert qrels_subsample.mean_per_draw(runs, drawn, measure).tolist() == [[1.0], [1.0]]


def test_block_size_does_not_change_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of({query: {"right": 1, "wrong1": 1} for query in QUERIES}, a=[1, 2], b=[3])
    asked = RobustnessOptions("AP", keeps=(KeepRule(relevant=1),), draws=20)
    whole = robustness.examine(runs, asked)
    monkeypatch.setattr(evaluate, "_MAX_ROWS", 30)
    assert robustness.examine(runs, asked) == whole


def test_one_draw_is_enough_if_all_draws_are_equal() -> None:
    found = robustness.examine(runs_of(ONE, a=[1], b=[2]), RobustnessOptions("RR@10", keeps=(KeepRule(relevant=1),)))
    once = condition(found, ConditionKind.JUDGEMENTS)
    assert (once.draws, once.flips[1][0]) == (1, 0)


def test_impossible_conditions_have_a_reason() -> None:
    few = {query: {"right": 0} for query in QUERIES[:5]}
    found = robustness.examine(
        runs_of(few, a=[1], b=[2]), RobustnessOptions("Judged@1", ("RR@10",), (KeepRule(relevant=1),))
    )
    assert condition(found, ConditionKind.QUERIES).reason == "resampling needs 11 queries, there are 5"
    assert condition(found, ConditionKind.JUDGEMENTS).reason == "no relevant document is judged"
    assert condition(found, ConditionKind.MEASURE).draws == 1, "the one order that there is"
    assert all(each.low is each.first is None for each in found.standings)
    alone = JudgedRuns("xor", dict.fromkeys(ONE, ""), ONE, runs_of(ONE, a=[1], b=[2]).runs, hits_alone=True)
    by_answers = robustness.examine(alone, RobustnessOptions("RR@10", ("AP",), (KeepRule(share=0.5),)))
    assert "judged by the answers in their texts" in (condition(by_answers, ConditionKind.JUDGEMENTS).reason or "")
    assert "needs all relevant documents" in (condition(by_answers, ConditionKind.MEASURE).reason or "")
    with pytest.raises(UsageError, match=r"nDCG@10 makes no leaderboard: it needs all relevant documents"):
        robustness.examine(alone, RobustnessOptions("nDCG@10"))
    with pytest.raises(UsageError, match="NumRet makes no leaderboard: it is not a mean over queries"):
        robustness.examine(runs_of(ONE, a=[1], b=[2]), RobustnessOptions("NumRet"))
    with pytest.raises(UsageError, match="an order needs two systems, but only a is here"):
        robustness.examine(runs_of(ONE, a=[1]), RobustnessOptions("RR@10"))
    with pytest.raises(UsageError, match="the judgements cover none of the 2 queries"):
        robustness.examine(
            JudgedRuns("x", {"y": "", "z": ""}, ONE, {"a": Run({}, ()), "b": Run({}, ())}), RobustnessOptions("RR@10")
        )


def test_measure_missing_for_one_system_gives_no_order() -> None:
    qrels = {query: {"right": 1, "no": 0} for query in QUERIES[:12]}
    runs = runs_of(qrels, a=[1], b=[2])
    judged = robustness.evaluate_runs.evaluate_runs(runs, measure_names.parse(["RR@10", "AP"]))
    evaluations = dict(judged.evaluations)
    lacking = evaluations["b"].per_query.keys() - {"AP"}
    evaluations["b"] = replace(
        evaluations["b"],
        reasons={"AP": "cannot be computed"},
        per_query={name: evaluations["b"].per_query[name] for name in lacking},
    )
    assert robustness._unfit(replace(judged, evaluations=evaluations), "AP") == "it cannot be computed"
    graded = {query: {"right": 5} for query in QUERIES[:12]}
    with pytest.raises(UsageError, match="ERR@5 makes no leaderboard: it knows grades up to 4"):
        robustness.examine(runs_of(graded, a=[1], b=[2]), RobustnessOptions("ERR@5"))


def test_measure_that_fails_with_fewer_judgements_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = evaluate.ProviderValues(reasons={"RR@10": "cannot be computed"})
    monkeypatch.setattr(qrels_subsample, "compute_runs", lambda *_: [lacking])
    found = robustness.examine(
        runs_of(ONE, a=[1], b=[2]), RobustnessOptions("RR@10", (), (KeepRule(share=0.5),), draws=2)
    )
    assert condition(found, ConditionKind.JUDGEMENTS).reason == "RR@10 cannot be computed"
    assert condition(found, ConditionKind.QUERIES).draws == 1000, "the rest stands"


@pytest.mark.slow
def test_same_seed_gives_same_results_and_progress_stays_within_its_total() -> None:
    runs = runs_of({query: {"right": 1, "wrong2": 1} for query in QUERIES}, a=[1, 3], b=[2, 1])
    asked = RobustnessOptions("nDCG@10", ("RR@10",), (KeepRule(relevant=1), KeepRule(share=0.5)), 200, 20)
    told: list[tuple[int, int]] = []
    found = robustness.examine(runs, asked, lambda done, total, *_: told.append((done, total)))
    shares = [done / total for done, total in told]
    assert shares == sorted(shares) and shares[0] == 0 and 2 / 3 < shares[-1] < 1
    assert robustness.examine(runs, asked) == found
    assert robustness.examine(runs, RobustnessOptions("nDCG@10", ("RR@10",), asked.keeps, 200, 20, seed=1)) != found


@pytest.mark.parametrize(
    ("text", "keep"),
    [
        ("1", KeepRule(relevant=1)),
        ("10", KeepRule(relevant=10)),
        ("0.5", KeepRule(share=0.5)),
        (".25", KeepRule(share=0.25)),
        ("50%", KeepRule(share=0.5)),
    ],
)
def test_keep_is_a_number_or_a_share(text: str, keep: KeepRule) -> None:
    assert qrels_subsample.parse_keep(text) == keep


@pytest.mark.parametrize("text", ["0", "1.0", "100%", "-1", "1e-3", "half", "", "nan", "0%"])
def test_malformed_keep_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write a number of relevant judgements"):
        qrels_subsample.parse_keep(text)
