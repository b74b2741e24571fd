"""The captured screens of docs/guides/screens.md."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.docs import screens

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "screens.md"


def test_page_shows_each_screen_that_is_captured() -> None:
    names = {f"screen-{name}.svg" for scene in screens.SCENES for name in scene.names if name}
    assert set(re.findall(r"\(\.\./assets/(screen-[\w-]+\.svg)\)", PAGE.read_text(encoding="utf-8"))) == names
    assert {path.name for path in screens.PICTURES.glob("screen-*.svg")} == names


def test_screens_are_small_and_load_nothing() -> None:
    for path in screens.PICTURES.glob("screen-*.svg"):
        text = path.read_text(encoding="utf-8")
        assert len(text.encode()) <= screens.MOST_BYTES, path
        addresses = re.findall(r"https?://[^\s\"'<>]+", text.replace("http://www.w3.org/2000/svg", ""))
        assert addresses == ["https://www.textualize.io"], "a comment on the program that made it"


def test_svg_has_the_text_and_the_colours_of_the_screen() -> None:
    made = screens.as_svg("$ harness demo\n\x1b[32mok\x1b[0m  fine\n\n\n", "harness demo", "screen-x")
    assert "demo" in made and "font-face" not in made
    assert re.search(r"\.screen-x-r\d+ \{ fill: #[0-9a-f]{6} \}", made)
    assert made.count("screen-x-line-") >= 1
