"""Runs judged query by query, and the notes about them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.analysis import paired_differences
from harness.analysis.paired_differences import QueryChoice
from harness.errors import UsageError
from harness.evaluation import evaluate_runs, measure_names
from harness.evaluation.judged_runs import JudgedRuns, UnknownQueries
from harness.evaluation.trec import Run

QRELS = {"q1": {"d": 1}, "q2": {"d": 1}, "q3": {"d": 1}}
HITS = ("x", "d")
MEASURES = measure_names.parse(["RR@10"])


def runs(**of: tuple[str, ...]) -> JudgedRuns:
    queries = dict.fromkeys(("q1", "q2", "q3", "q4"), "text")
    return JudgedRuns("made", queries, QRELS, {name: Run(dict.fromkeys(ids, HITS), ()) for name, ids in of.items()})


def test_queries_without_hits_score_zero_in_the_mean() -> None:
    told: list[tuple[int, int]] = []
    evaluated = evaluate_runs.evaluate_runs(
        runs(all=("q1", "q2", "q3"), few=("q1", "q4")), MEASURES, lambda done, total: told.append((done, total))
    )
    assert evaluated.by_query["few"].query_ids == evaluated.by_query["all"].query_ids == ("q1", "q2", "q3")
    assert evaluated.by_query["few"].measures["RR@10"].tolist() == [0.5, 0, 0]
    assert evaluated.evaluations["few"].values["RR@10"] == pytest.approx(0.5 / 3)
    assert told == [(0, 2), (1, 2)]


def test_judgements_of_other_queries_are_refused() -> None:
    with pytest.raises(UsageError, match="made: the judgements cover none of the 1 queries; name other judgements"):
        evaluate_runs.evaluate_runs(JudgedRuns("made", {"z": ""}, QRELS, {"a": Run({"z": HITS}, ())}), MEASURES)


def test_most_changed_queries_are_sorted_by_difference_then_id() -> None:
    one = evaluate_runs.evaluate_runs(runs(a=("q1", "q2"), b=("q3",)), MEASURES).by_query
    found = paired_differences.largest_changes(one["a"], one["b"], QueryChoice("RR@10", 1, {"q3": "third"}))
    assert [(each.query_id, each.text, each.difference) for each in found] == [("q3", "third", 0.5), ("q1", "", -0.5)]
    assert paired_differences.largest_changes(one["a"], one["b"], QueryChoice("RR@10", 0, {})) == ()
    assert paired_differences.largest_changes(one["a"], one["b"], QueryChoice("AP", 5, {})) == ()


NOTED_QRELS = {"q1": {"d": 1, "y": -2}, "q2": {"d": 1}, "q3": {"d": 0}}
NOTED_MEASURES = measure_names.parse(["RR@10", "AP"])


def noted_runs(**of: tuple[str, ...]) -> JudgedRuns:
    queries = dict.fromkeys(("q1", "q2", "q3", "q4"), "text")
    return JudgedRuns(
        "made", queries, NOTED_QRELS, {name: Run(dict.fromkeys(ids, HITS), ("q1",)) for name, ids in of.items()}
    )


def notes_of(found: JudgedRuns) -> tuple[str, ...]:
    return evaluate_runs.evaluate_runs(found, NOTED_MEASURES).notes


UNJUDGED = (
    "Unjudged among the first 2 hits on made: all 50%, few 50%. They count as not relevant, so a system whose hits "
    "were never pooled looks worse than it is (`harness pool` lists them)."
)


def test_note_of_all_runs_appears_once() -> None:
    found = replace(
        noted_runs(all=("q1", "q2", "q3"), few=("q1", "q4")),
        unknown={"few": UnknownQueries(("s1", "s2", "s3", "s4"), "few.run:3")},
        notes=("made is judged otherwise",),
    )
    assert notes_of(found) == (
        "1 (q4) of 4 queries have no judgements, left out of the measures",
        "RR@10: looks deeper than the 2 hits retrieved",
        "few: 2 (q2, q3) judged queries got no hits and count 0",
        "few: 4 (s1, s2, s3, ...) queries of the run are not to be judged and are left out; the first is in few.run:3",
        "1 (q1) queries have equal scores, ordered by document id, the largest first, as trec_eval does",
        "made is judged otherwise",
        "1 (q3) of 3 judged queries have no relevant document; they count",
        UNJUDGED,
    )


def test_ties_of_all_runs_are_one_sentence() -> None:
    how = "ordered by document id, the largest first, as trec_eval does"
    found = noted_runs(a=("q1", "q2", "q3"), b=("q1", "q2"), c=("q1",))
    tied = {"a": ("q1",), "b": ("q1", "q2", "q4"), "c": ()}

    def tie_note(**of: tuple[str, ...]) -> tuple[str, ...]:
        rankings = {
            name: replace(found.runs.get(name, Run({}, ())), tied_queries=queries) for name, queries in of.items()
        }
        return evaluate_runs.tie_notes(replace(found, runs=rankings))

    assert tie_note(**tied) == (f"2 of 3 runs have queries with equal scores (b 2, a 1 of 3), {how}",), (
        "q4 is not judged"
    )
    assert tie_note(**tied | {"b": ()}) == (f"a: 1 (q1) queries have equal scores, {how}",)
    assert tie_note(a=(), b=()) == ()
    many = tie_note(**{f"s{number:02}": ("q1", "q2")[: 1 + number % 2] for number in range(17)})
    assert many == (f"17 of 17 runs have queries with equal scores (s01 2, s03 2, ... s16 1 of 3), {how}",)
    alone = notes_of(
        replace(found, runs={name: replace(run, tied_queries=("q1",)) for name, run in found.runs.items()})
    )
    assert sum("equal scores" in note for note in alone) == 1


def test_stored_runs_are_noted_as_cut_and_keep_their_order() -> None:
    said = notes_of(replace(noted_runs(all=("q1", "q2", "q3")), corpus_sha256="c" * 64))
    assert "all: 1 (q1) queries have equal scores, judged in the order that was returned" not in said, "one run"
    assert "1 (q1) queries have equal scores, judged in the order that was returned" in said
    assert "RR@10, AP: look deeper than the 2 hits retrieved" in said


def test_hits_judged_by_their_texts_count_as_judged() -> None:
    found = replace(noted_runs(all=("q1", "q2", "q3")), hits_alone=True, notes=("said",))
    assert evaluate_runs.count_unjudged_hits(found, NOTED_MEASURES) == {}
    assert not any("Unjudged" in note for note in notes_of(found)) and evaluate_runs.qrels_notes(found) == ("said",)


def test_depth_is_that_of_the_first_measure_with_a_cutoff() -> None:
    found = noted_runs(all=("q1", "q2", "q3"))
    assert evaluate_runs.count_unjudged_hits(found, measure_names.parse(["AP", "P@1", "RR@10"]))["all"].depth == 1
    said = evaluate_runs.evaluate_runs(found, measure_names.parse(["P@1"])).common_notes[-1]
    assert said.startswith("Unjudged among the first hits on made: all 100%.")
    assert evaluate_runs.count_unjudged_hits(found, measure_names.parse(["AP"]))["all"].depth == 2
    assert not any("Unjudged" in note for note in notes_of(replace(found, runs={"none": Run({}, ())})))
