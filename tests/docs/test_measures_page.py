"""The example in docs/method/measures.md equals computed values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.evaluation import measure_names
from scripts.docs import measures_example

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "method" / "measures.md").read_text(encoding="utf-8")


def test_worked_example_equals_computed_measures() -> None:
    assert measures_example.table() in PAGE
    found = measures_example.values(["AP"])
    assert {name: round(of["AP"], 2) for name, of in found.items()} == {"A": 0.83, "B": 0.47, "C": 0.48}
    by_hand = {"A": (1 / 1 + 2 / 2 + 3 / 6) / 3, "B": (1 / 2 + 2 / 5 + 3 / 6) / 3, "C": (1 / 3 + 2 / 4 + 3 / 5) / 3}
    assert {name: of["AP"] for name, of in found.items()} == pytest.approx(by_hand)


def test_at_two_hits_the_first_ranking_leads_and_at_five_the_third() -> None:
    names = ("Success@2", "RR@2", "P@2", "R@2")
    found = measures_example.values([*names, "P@5", "R@5", "F1@2", "F1@5"])
    by_hand = {"A": (1, 1, 1, 2 / 3), "B": (1, 1 / 2, 1 / 2, 1 / 3), "C": (0, 0, 0, 0)}
    assert {name: tuple(of[each] for each in names) for name, of in found.items()} == {
        name: pytest.approx(values) for name, values in by_hand.items()
    }
    for measure in ("P", "R", "F1"):
        best = [max((of[f"{measure}@{k}"], name) for name, of in found.items())[1] for k in (2, 5)]
        assert best == ["A", "C"], measure


def test_every_measure_on_the_page_exists() -> None:
    first = PAGE.partition("## Definitions")[2].partition("## Three")[0]
    named = [name for line in first.splitlines() if line.startswith("| `") for name in re.findall(r"`([^`]+)`", line)]
    assert len(named) > 20
    assert [str(each).replace('"', "'") for each in measure_names.parse(named)] == named


@pytest.mark.slow
def test_picture_exists_and_is_small() -> None:
    path = DOCS / "assets" / f"{measures_example.NAME}.png"
    assert f"](../assets/{path.name})" in PAGE and path.stat().st_size < 200_000
    assert len(measures_example.draw().axes) == 2
