"""Runs judged query by query: nothing vanishes from a mean."""

from __future__ import annotations

import pytest

from harness.analysis import paired_differences
from harness.analysis.paired_differences import QueryChoice
from harness.errors import UsageError
from harness.evaluation import evaluate_runs, measure_names
from harness.evaluation.judged_runs import JudgedRuns
from harness.evaluation.trec import Run

QRELS = {"q1": {"d": 1}, "q2": {"d": 1}, "q3": {"d": 1}}
HITS = ("x", "d")
MEASURES = measure_names.parse(["RR@10"])


def runs(**of: tuple[str, ...]) -> JudgedRuns:
    queries = dict.fromkeys(("q1", "q2", "q3", "q4"), "text")
    return JudgedRuns("made", queries, QRELS, {name: Run(dict.fromkeys(ids, HITS), ()) for name, ids in of.items()})


def test_queries_without_hits_count_nothing_and_stay_in_the_mean() -> None:
    told: list[tuple[int, int]] = []
    found = evaluate_runs.evaluate_runs(
        runs(all=("q1", "q2", "q3"), few=("q1", "q4")),
        MEASURES,
        lambda done, total: told.append((done, total)),
    )
    assert found.by_query["few"].query_ids == found.by_query["all"].query_ids == ("q1", "q2", "q3")
    assert found.by_query["few"].measures["RR@10"].tolist() == [0.5, 0, 0]
    assert found.evaluations["few"].values["RR@10"] == pytest.approx(0.5 / 3)
    assert told == [(0, 2), (1, 2)]


def test_judgements_of_other_queries_are_refused() -> None:
    with pytest.raises(UsageError, match="made: none of the 1 queries is judged; are these the judgements"):
        evaluate_runs.evaluate_runs(JudgedRuns("made", {"z": ""}, QRELS, {"a": Run({"z": HITS}, ())}), MEASURES)


def test_the_queries_that_changed_most_are_the_furthest_apart_and_then_by_id() -> None:
    one = evaluate_runs.evaluate_runs(runs(a=("q1", "q2"), b=("q3",)), MEASURES).by_query
    found = paired_differences.largest_changes(one["a"], one["b"], QueryChoice("RR@10", 1, {"q3": "third"}))
    assert [(each.query_id, each.text, each.difference) for each in found] == [("q3", "third", 0.5), ("q1", "", -0.5)]
    assert paired_differences.largest_changes(one["a"], one["b"], QueryChoice("RR@10", 0, {})) == ()
    assert paired_differences.largest_changes(one["a"], one["b"], QueryChoice("AP", 5, {})) == ()
