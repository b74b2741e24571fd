"""The texts of pictures in docs say what the pictures show."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from scripts.docs import captions, make_pictures
from scripts.docs.generate import DOCS
from tests.report.plots.conftest import words

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["msmarco-santhanam2023-winners", "xortydi-winners"])
def test_shares_of_the_winners_are_those_of_the_legend(name: str) -> None:
    (picture,) = (each for each in make_pictures.pictures() if each.name == name)
    shares: dict[str, list[int]] = defaultdict(list)
    for system, share in re.findall(r"\d+  (\S+), \S+ \((\d+)%\)", words(picture.draw())):
        shares[system].append(int(share))
    said = re.findall(r"(\S+) (\d+)%", captions.captions()[name])
    assert len(said) == 3 and said[0][0] == "BT-SPLADE-L"
    for system, share in said:
        assert abs(int(share) - sum(shares[system])) <= len(shares[system]), system


def test_text_of_figure_1_names_its_front() -> None:
    text = captions.captions()["msmarco-santhanam2023-table2-cost"]
    assert text.startswith("Figure 1 of the paper, cost (Table 2) and accuracy (Table 1)")
    assert text.endswith(
        "goes from BM25, the cheapest, through BT-SPLADE-S, BT-SPLADE-M, BT-SPLADE-L to PLAID ColBERTv2 (CPU)"
    )


def test_every_picture_of_published_rows_is_shown_with_its_text() -> None:
    texts = captions.captions()
    drawn = {each.name for each in make_pictures.pictures()}
    assert drawn == set(texts)
    shown = defaultdict(set)
    for page in (DOCS.parent / "README.md", *DOCS.rglob("*.md")):
        for text, name in re.findall(r"!\[([^\]]*)\]\([\w./]*assets/([\w-]+)\.png\)", page.read_text(encoding="utf-8")):
            shown[name].add(text)
    assert {name: shown[name] for name in texts} == {name: {text} for name, text in texts.items()}
    assert all((DOCS / "assets" / f"{name}.png").stat().st_size < 200_000 for name in texts)
