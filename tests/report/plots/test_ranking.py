"""Plots of a leaderboard: ranks with their intervals, and the map of winners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.analysis.leaderboard import RankInterval
from harness.report.plots import ranking
from tests.report.plots.conftest import axes_of, frame, lines, ranked, words
from tests.support import sample_records


def test_winner_has_the_highest_score_at_every_point() -> None:
    rng = np.random.default_rng(3)
    candidates = [
        ranking.Candidate(f"s{n}", "m", (float(a), float(-c), float(-t)))
        for n, (a, c, t) in enumerate(
            zip(rng.uniform(20, 40, 40), rng.uniform(0, 9, 40), rng.uniform(0, 9, 40), strict=True)
        )
    ]
    found = ranking.regions(candidates)
    assert sum(each.share for each in found) == pytest.approx(1)
    assert [each.share for each in found] == sorted((each.share for each in found), reverse=True)
    for weights in rng.dirichlet((1, 1, 1), 500):
        scores = [float(np.dot(weights, each.gains)) for each in candidates]
        (winner,) = [each.winner for each in found if _inside(each.corners, weights)]
        assert winner is candidates[int(np.argmax(scores))]


def _inside(corners: Any, weights: Any) -> bool:
    sides = [
        (b[1] - a[1]) * (weights[2] - a[2]) - (b[2] - a[2]) * (weights[1] - a[1])
        for a, b in zip(corners, [*corners[1:], corners[0]], strict=True)
    ]
    return all(each >= 0 for each in sides) or all(each <= 0 for each in sides)


def test_first_of_equal_rows_wins_and_a_single_row_wins_everything() -> None:
    same = [ranking.Candidate(name, "m", (30.0, -1.0, -1.0)) for name in "ab"]
    (only,) = ranking.regions(same)
    assert only.named() == "a, m and 1 equal" and only.share == pytest.approx(1)


@pytest.mark.slow
def test_the_map_marks_presets_at_their_weights_and_names_every_winner() -> None:
    candidates = [ranking.Candidate("a", "m", (40.0, -9.0, -9.0)), ranking.Candidate("b", "n", (20.0, -1.0, -1.0))]
    candidates.append(ranking.Candidate("c", "o", (20.5, -8.9, -0.999)))
    presets = {"balanced": (0.5, 0.25, 0.25), "latency": (0.0, 0.0, 1.0)}
    figure = ranking.draw_winners(candidates, presets, frame("a", "b", "c"))
    (axes,) = axes_of(figure)
    assert lines(axes, "preset balanced") == [([0.5], [pytest.approx(0.5 * 3**0.5 / 2)])]
    assert lines(axes, "preset latency") == [([1.0], [0.0])]
    assert len(axes.patches) == 3
    text = words(figure)
    assert "accuracy alone" in text and "balanced: 0.5 / 0.25 / 0.25" in text
    assert "1  a, m (" in text and "2  b, n (" in text and "Also, each on less than 1%: c, o." in text


def test_ranks_and_their_intervals_are_drawn_as_given() -> None:
    rows = [
        ranked(
            sample_records.row(system="a", profile="m"),
            rank=1,
            score=19.78,
            by_queries=RankInterval(1, 2),
            by_systems=RankInterval(1, 1),
        ),
        ranked(sample_records.row(system="b", profile="m"), rank=2, score=9.3, by_queries=RankInterval(1, 3)),
    ]
    figure = ranking.draw_ranks(rows, frame("a", "b"), None)
    (axes,) = axes_of(figure)
    assert lines(axes, "a") == [([1], [0])] and lines(axes, "b") == [([2], [1])]
    assert [x for x, _ in lines(axes, "span 0")] == [[1, 2], [1, 3]] and len(lines(axes, "span 1")) == 1
    assert lines(axes, "span 2") == [] and "with other weights" not in words(figure)
    assert "19.78" in words(figure) and [each.get_text() for each in axes.get_yticklabels()] == ["a, m", "b, m"]
