"""Changes in the answers between two runs: how many queries, and how far."""

from __future__ import annotations

import pytest

from harness.analysis import answer_changes
from harness.analysis.answer_changes import AnswerChange

A = {"same": "abc", "order": "abc", "hits": "abc", "first": "abc", "fewer": "abc", "deep": "abcx"}
B = {"same": "abc", "order": "acb", "hits": "abd", "first": "bac", "fewer": "a", "deep": "abcy"}


def test_queries_are_counted_by_what_changed() -> None:
    found = answer_changes.between(A, B, [*A, "without hits"], 3)
    assert found is not None and found.changed == 4
    # By hand: of seven queries, two have 2/3 and 1/3 of their hits in common, and the others all.
    overlap = pytest.approx((5 + 2 / 3 + 1 / 3) / 7)
    assert found == AnswerChange(7, 3, reordered=2, other_hits=2, other_first=1, overlap=overlap)


def test_nothing_changes_between_a_run_and_itself() -> None:
    found = answer_changes.between(A, A, list(A), 10)
    assert found is not None and (found.changed, found.other_first, found.overlap) == (0, 0, 1.0)
    assert answer_changes.between(A, B, [], 3) is None
