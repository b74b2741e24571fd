"""The matrix picture: every number stands in its cell, nothing is cut off, the same bytes each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.analysis.robustness import Condition, ConditionKind, RankedSystem, Robustness
from harness.report.plots import order_flips, style
from harness.stats import Estimate


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    with style.settings(9):
        yield


def board(count: int, conditions: int = 3, name: str = "system with a long name {}") -> Robustness:
    """Of systems i and j, the share is (i + j) / (2 count)."""
    shares = tuple(
        tuple(None if one == two else (one + two) / (2 * count) for two in range(count)) for one in range(count)
    )
    causes = [*ConditionKind][:conditions]
    return Robustness(
        "made up",
        "nDCG@10",
        50,
        tuple(RankedSystem(name.format(each), 1 - each / 50, each + 1, None, None, None) for each in range(count)),
        tuple(Condition(cause, "at most 1 relevant a query", 100, shares, Estimate(0.5, 0, 1)) for cause in causes),
        (),
    )


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 15])
def test_every_number_stands_in_its_cell_and_nothing_is_cut_off(count: int) -> None:
    found = board(count)
    figure = order_flips.draw_flips(found)
    style.settle(figure)
    panels = figure.axes[:3]
    for panel, condition in zip(panels, found.conditions, strict=True):
        numbers = {text.get_position(): text.get_text() for text in panel.texts}
        assert len(numbers) == count * (count - 1) / 2
        assert numbers[(0, count - 1)] == f"{100 * (count - 1) / (2 * count):.0f}"
        assert condition.cause.value in panel.get_title(loc="left")
    assert panels[0].get_yticklabels()[0].get_text().endswith(" 1")
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    width, height = figure.canvas.get_width_height()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes if axes.axison]
    assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)
    for panel in panels:
        cell = panel.transData.transform([(0, 0), (1, 1)])
        room = abs(cell[1] - cell[0])
        sizes = [text.get_window_extent(renderer) for text in panel.texts]
        assert all(size.width < room[0] and size.height < room[1] for size in sizes)
    others = [panel.get_tightbbox(renderer) for panel in panels]
    assert not any(one.overlaps(two) for place, one in enumerate(others) for two in others[:place])


def test_of_many_systems_the_best_are_drawn_in_colours_alone() -> None:
    figure = order_flips.draw_flips(board(40))
    assert not figure.axes[0].texts and len(figure.axes[0].get_yticklabels()) == 30
    assert any("The 30 best; 10 more are in the table." in " ".join(text.get_text().split()) for text in figure.texts)


def test_systems_that_are_equal_have_a_sign_and_strange_names_are_harmless() -> None:
    shares = ((None, None), (None, None))
    condition = Condition(
        ConditionKind.QUERIES, "resampled", 10, shares, Estimate(None, reason="all systems are equal")
    )
    standings = tuple(RankedSystem(name, 0.5, 1.5, 1, 2, 0.5) for name in ("$x^2", "\x1b[31m中文🦀"))
    figure = order_flips.draw_flips(Robustness("_d", "RR@10", 20, standings, (condition,), ()))
    assert [text.get_text() for text in figure.axes[0].texts] == ["="]
    assert "(tau" not in figure.axes[0].get_title(loc="left")
    figure.draw_without_rendering()


@pytest.mark.slow
def test_files_have_names_of_their_own_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    nothing = Robustness("none", "RR@10", 5, board(2).standings, (), ())
    found = [board(3), nothing, board(2)]
    first = [*order_flips.write_flips(found, tmp_path / "one", "png")]
    again = [*order_flips.write_flips(found, tmp_path / "two", "png")]
    assert len({path.name for path in first}) == 2 and all(path.name.startswith("made-up") for path in first)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
