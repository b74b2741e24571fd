"""The k best are the first of any more, equal scores included."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from types import ModuleType

import pytest

from harness.launch.images import catalog


@pytest.fixture
def ranking(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(catalog.images_dir() / "shared"))
    yield importlib.import_module("ranking")


@pytest.mark.parametrize("seed", range(20))
def test_best_are_a_prefix_whatever_a_library_keeps_of_equal_scores(ranking: ModuleType, seed: int) -> None:
    draw = random.Random(seed)
    scores = [float(draw.randrange(4)) for _ in range(60)]

    def search(count: int) -> list[tuple[float, int]]:
        rows = draw.sample(range(60), 60)  # any order of equal scores
        return [(scores[row], row) for row in sorted(rows, key=lambda row: -scores[row])][:count]

    whole = [(scores[row], row) for row in sorted(range(60), key=lambda row: (-scores[row], row))]
    assert [ranking.best(search, k) for k in (1, 3, 20, 59, 60, 100)] == [whole[:k] for k in (1, 3, 20, 59, 60, 100)]


def test_one_more_document_is_asked_for_where_scores_differ(ranking: ModuleType) -> None:
    asked: list[int] = []

    def search(count: int) -> list[tuple[float, str]]:
        asked.append(count)
        return [(1.0 / number, f"d{number}") for number in range(1, count + 1)]

    assert ranking.best(search, 2) == [(1.0, "d1"), (0.5, "d2")] and asked == [3]
    assert ranking.best(lambda _: [], 2) == []
