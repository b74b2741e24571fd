"""Styles of systems, names, and files of plots."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import FileError
from harness.report.plots import style
from tests.report.plots.conftest import NAMES


def test_drawing_restores_the_user_settings() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with style.settings(30):
        assert matplotlib.rcParams["font.size"] == 30
    assert dict(matplotlib.rcParams) == before


def test_unwritable_picture_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FileError, match=r"cannot be written: .*; choose another place"):
        style.save(style.new_figure(1, 1), tmp_path / "file" / "picture.png")


def test_each_system_has_one_unique_style_in_all_pictures() -> None:
    many = [f"system {number}" for number in range(70)]
    found = style.system_styles(many)
    assert style.system_styles(reversed(many)) == found
    assert len({(each.colour, each.marker) for each in found.values()}) == 70
    assert len({each.colour for each in list(found.values())[:7]}) == 7
    assert len({each.dash for each in list(found.values())[:5]}) == 5


def test_common_systems_share_no_colour() -> None:
    often = [f"z{number}" for number in range(7)]
    found = style.system_styles([*often * 2, *(f"a{number}" for number in range(9))])
    assert len({found[name].colour for name in often}) == 7


def test_short_names_are_distinct_and_use_only_available_glyphs() -> None:
    found = style.short_names(NAMES)
    assert len(set(found.values())) == len(NAMES)
    assert style.plain_text("中文 🦀") == "[U+4E2D][U+6587] [U+1F980]"
    assert found["_hidden"].strip() == "_hidden" and not found["_hidden"].startswith("_")
    assert all(len(each) < 40 and each.isprintable() for each in found.values())
