"""Which documents count, by hand."""

from __future__ import annotations

from harness.evaluation.frechet import queries_with_relevant, relevant_documents, retrieved_documents
from harness.evaluation.trec import Run

QRELS = {
    "q1": {"a": 1, "b": 3, "c": 2, "d": 0, "e": 2},
    "q2": {"a": 1},
    "q3": {"x": 0, "y": -1},
}
RUN = Run({"q1": ("d", "z", "a", "w", "v"), "q2": ("a", "b")}, ())


def test_queries_without_a_relevant_document_are_left_out() -> None:
    assert queries_with_relevant(QRELS, ("q4", "q2", "q3", "q1"), 1) == ("q2", "q1")


def test_the_best_grades_come_first_and_ties_go_by_seed() -> None:
    def of(most: int | None, seed: int) -> tuple[str, ...]:
        return relevant_documents(QRELS, ("q1",), most, seed, 1).documents[0]

    assert of(1, 0) == ("b",)
    assert {of(2, seed) for seed in range(20)} == {("b", "c"), ("b", "e")}
    assert {frozenset(of(3, seed)) for seed in range(20)} == {frozenset("bce")}
    assert set(of(None, 0)) == set(of(10, 0)) == set("abce")


def test_drawn_documents_depend_on_their_query_only() -> None:
    one = {"q": dict.fromkeys("abcdef", 1)}
    other = {"p": {"a": 1}, "q": dict.fromkeys("fedcba", 1)}
    for seed in range(10):
        assert (
            relevant_documents(one, ("q",), 2, seed, 1).documents[0]
            == relevant_documents(other, ("p", "q"), 2, seed, 1).documents[1]
        )


def test_retrieved_documents_count_for_each_query() -> None:
    found = retrieved_documents(RUN, QRELS, ("q1", "q2", "q3"), 3, unlabelled=False)
    assert found.documents == (("d", "z", "a"), ("a", "b"), ())
    assert (found.size, found.fewer_than(3), found.fewer_than(1)) == (5, 2, 1)
    assert list(found.names()).count("a") == 2


def test_unlabelled_skips_judged_documents_before_taking_k() -> None:
    found = retrieved_documents(RUN, QRELS, ("q1", "q2"), 2, unlabelled=True)
    assert found.documents == (("z", "w"), ("b",)), "d has grade 0, and a is judged for q2"
