"""Leakage as text: the order of systems with and without the leaked queries."""

from __future__ import annotations

import pytest

from harness.estimate import Estimate
from harness.evaluation.leakage import Effect, Leakage
from harness.report import writers
from harness.report.leakage import leakage_document


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [
        ((0.5, 0.5, 0.0), (0.4, 0.4, 0.0), None),
        ((0.5, 0.4, 0.0), (0.4, 0.4, -0.1), "a, b, c becomes a = b, c"),
        ((0.0, 0.2, 0.2), (0.0, -0.1, -0.1), "b = c, a becomes a, b = c"),
    ],
)
def test_equal_systems_share_their_place(
    before: tuple[float, ...], after: tuple[float, ...], order: str | None
) -> None:
    effects = tuple(
        Effect(name, "RR@10", Estimate(one), Estimate(other), Estimate(0.5), 20, 2)
        for name, one, other in zip("abc", before, after, strict=True)
    )
    made = Leakage("set", {"q": "text"}, {}, (), effects, None, None)
    text = writers.write(leakage_document([made]), "md")
    assert ("The order by RR@10 changes without them: " in text) == (order is not None)
    assert order is None or f"changes without them: {order}." in text
