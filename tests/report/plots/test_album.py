"""Plots of whole tables: one of each kind, the same bytes each time, or the reason for none."""

from __future__ import annotations

import functools
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from harness.analysis.axes import group_rows
from harness.analysis.leaderboard import LeaderboardQuery
from harness.analysis.table import Table, Validity
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.evaluation.per_query import PerQuery
from harness.report.groups import group_words
from harness.report.plots import KINDS, album, style
from harness.results.isolation import PROCESS
from tests.report.plots.conftest import NAMES, SYSTEMS, axes_of, dots, made, per_query, row, words
from tests.support import sample_records
from tests.support.chance import chance
from tests.support.published import shipped

ASKED = LeaderboardQuery("", "RR@10")
# A job of scenario single_stream tries no loads: tests/report/plots/test_load.py has that picture.
OF_ROWS = [kind for kind in KINDS if kind != "load"]

# Of which kinds there are files in every format: some by chance, and in a soak all.


SOME_OR_ALL = pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(chance("kinds of pictures").sample(OF_ROWS, 2), id="some"),
        pytest.param(KINDS, id="all", marks=pytest.mark.soak),
    ],
)


def drawn_once(pictures: Sequence[album.Plot]) -> list[album.Plot]:
    """Pictures that are laid out once, however often they are looked at or written."""
    return [replace(each, draw=functools.cache(each.draw)) for each in pictures]


@pytest.fixture(scope="module")
def whole(table: Table, found: Mapping[str, PerQuery]) -> album.PlotSet:
    """All pictures of the table, each drawn when it is first asked for."""
    made_of = album.plots_of(table, found, ASKED)
    return replace(made_of, pictures=tuple(drawn_once(made_of.pictures)))


@pytest.mark.slow
def test_a_measured_table_has_every_kind(whole: album.PlotSet) -> None:
    made_of = whole
    assert [each.kind for each in made_of.pictures] == OF_ROWS
    assert [each.name for each in made_of.pictures] == [f"scifact-{kind}" for kind in OF_ROWS]
    (missing,) = made_of.missing
    assert missing.startswith("scifact: no picture of throughput against latency: no row has what it takes (")


@pytest.mark.slow
@SOME_OR_ALL
def test_files_match_their_suffixes_and_are_identical_each_time(
    whole: album.PlotSet, table: Table, found: Mapping[str, PerQuery], tmp_path: Path, kinds: Sequence[str]
) -> None:
    """An SVG of every kind; what takes longer, of some."""
    again = drawn_once(album.plots_of(table, found, ASKED, kinds).pictures)
    for form, check in CHECKS.items():
        once = [each for each in whole.pictures if form == "svg" or each.kind in kinds]
        paths = list(style.save_each([each.picture for each in once], tmp_path / "once", form))
        assert [path.name for path in paths] == [f"scifact-{each.kind}.{form}" for each in once]
        for path in paths:
            check(path.read_bytes())
        # Whether layouts repeat shows in an SVG; whether a format does, in any picture.
        repeated = [each.picture for each in (again if form == "svg" else again[:1])]
        for path in style.save_each(repeated, tmp_path / "again", form):
            assert path.read_bytes() == (tmp_path / "once" / path.name).read_bytes()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
@SOME_OR_ALL
def test_hostile_names_are_drawn_as_text(tmp_path: Path, kinds: Sequence[str]) -> None:
    """An SVG of every kind, a PDF of some."""
    rows = [
        replace(
            row(name, profile, place, dataset="../../etc/$pass<b>", key=f"{place}/{profile}"),
            profile=f"{profile}{name}",
        )
        for place, name in enumerate(NAMES)
        for profile in ("cpu1-mem1", "cpu1-mem2")
    ]
    rows[-1] = sample_records.row_with(
        rows[-1], outcome=Outcome.CRASH, detail="\\input{x} $", latency_mean_s=Estimate(None)
    )
    found = {each.key: per_query(each) for each in rows if each.outcome is Outcome.OK}
    pictures = album.plots_of(made(rows), found, ASKED)
    assert [each.kind for each in pictures.pictures] == OF_ROWS
    drawn = drawn_once(pictures.pictures)
    for form, check in CHECKS.items():
        # A PNG has no text in it, and is drawn whenever a picture is laid out.
        written = {"svg": drawn, "pdf": [each for each in drawn if each.kind in kinds], "png": drawn[:1]}[form]
        for path in style.save_each([each.picture for each in written], tmp_path / "out", form):
            assert path.parent == tmp_path / "out"
            content = path.read_bytes()
            check(content)
            assert b"<script>" not in content


def _png(content: bytes) -> None:
    assert content.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR"
    width = int.from_bytes(content[16:20], "big")
    assert width == 900
    at, pixels = 8, b""
    while at < len(content):
        size, kind = int.from_bytes(content[at : at + 4], "big"), content[at + 4 : at + 8]
        body = content[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + body) == int.from_bytes(content[at + 8 + size : at + 12 + size], "big")
        pixels += body if kind == b"IDAT" else b""
        at += 12 + size
    assert len(set(zlib.decompress(pixels))) > 20  # not blank


def _svg(content: bytes) -> None:
    root = ElementTree.fromstring(content)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert b"<dc:date>" not in content
    tags = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert "path" in tags and not tags & {"script", "image", "foreignObject"}


def _pdf(content: bytes) -> None:
    assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
    assert b"CreationDate" not in content and b"/Type3" not in content


CHECKS = {"svg": _svg, "png": _png, "pdf": _pdf}


@pytest.mark.slow
def test_rows_of_other_groups_have_other_pictures(table: Table, found: Mapping[str, PerQuery]) -> None:
    others = [replace(each, isolation=PROCESS, key=f"{each.key}p") for each in table.rows]
    both = made([*table.rows, *others])
    names = [each.name for each in album.plots_of(both, found, ASKED, ["cost"]).pictures]
    assert names == ["scifact-container-cost", "scifact-process-cost"]
    other_sample = [replace(each, sample_sha256="other", key=f"{each.key}s") for each in table.rows]
    names = [each.name for each in album.plots_of(made([*table.rows, *other_sample]), found, ASKED, ["cost"]).pictures]
    assert len(set(names)) == 2 and all(name.startswith("scifact-") for name in names)


@pytest.mark.slow
@settings_of(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=6, unique=True))
def test_file_names_are_safe_and_differ(datasets: list[str]) -> None:
    groups = group_rows(row("bm25", "cpu1-mem1", 0, dataset=name) for name in datasets)
    names = [style.file_name("-".join(words)) for words in group_words(groups).values()]
    assert len({name.lower() for name in names}) == len(datasets)
    for name in names:
        assert Path(name).name == name and not name.startswith((".", "-")) and len(name) < 100
        assert name.isascii() and name.isprintable() and " " not in name


@pytest.mark.slow
def test_omitted_rows_are_named(whole: album.PlotSet) -> None:
    for picture in whole.pictures:
        text = " ".join(words(picture.draw()).split())
        assert "2026-07-20" in text and "scifact" in text, picture.kind
        assert "RR@10" in text or picture.kind in ("distributions", "memory", "instances")
        assert "Noisy: dpr on cpu1-mem2." in text, picture.kind
        assert ("no answer (oom)" if picture.kind == "memory" else "bt-splade-l on cpu1-mem1 (oom)") in text


def test_missing_picture_has_a_reason(published: Table) -> None:
    only = [each for each in published.rows if each.dataset == "xortydi"]
    why = "\n".join(album.plots_of(replace(published, rows=tuple(only)), {}, ASKED).missing)
    assert "xortydi: no picture of memory limits: each system was measured at one limit only" in why
    assert "no picture of latency distributions: no row has what it takes (BM25 on cpu1-mem64: no samples" in why
    invalid = made([replace(row("bm25", "cpu1-mem1", 0), validity=Validity.INVALID)])
    made_of = album.plots_of(invalid, {}, ASKED)
    assert made_of.pictures == () and len(made_of.missing) == len(KINDS)
    assert all("invalid" in each for each in made_of.missing)
    one = made([row("bm25", "cpu1-mem1", 0)])
    why = "\n".join(album.plots_of(one, {}, ASKED).missing)
    assert "all rows are priced on one type, a1.medium" in why
    assert (
        "no picture of winners over the weights: no two rows differ enough in accuracy, so no exchange rate of cost"
        " (AMRS) follows; give one with --amrs cost=NUMBER" in why
    )
    assert (
        "no picture of ranks: no row has a score: no two rows differ enough in accuracy; give exchange rates with"
        " --amrs cost=NUMBER,latency=NUMBER" in why
    )


@pytest.mark.slow
def test_figure_1_has_the_costs_of_table_2_and_the_accuracies_of_table_1(published: Table) -> None:
    (figure_1,) = (
        each for each in album.plots_of(published, {}, ASKED, ["cost"]).pictures if each.name.endswith("table2-cost")
    )
    (axes,) = axes_of(figure_1.draw())
    table = shipped()
    wanted = {
        (float(line.cost_usd_per_million.value), float(row.mrr_at_10.value))
        for line in table.table2
        if (row := table.latency_of(line)[1]) is not None
    }
    drawn = dots(axes)
    assert len(drawn) == len(table.table2)
    for cost, accuracy in wanted:
        assert any(abs(x / cost - 1) < 0.15 and abs(y - accuracy) < 1e-6 for x, y in drawn), (cost, accuracy)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "rates of Santhanam et al. 2023, Table 4b, RR@10; a point of accuracy is worth 35.16 US$"),
        ({"amrs": {"cost": 2.0, "latency": 3.0}}, "rates given, RR@10; a point of accuracy is worth 2 US$"),
        ({"mode": "robust"}, "mode robust, RR@10; "),
    ],
)
def test_figure_2_has_the_papers_rates_unless_others_are_asked_for(
    published: Table, asked: dict[str, Any], said: str
) -> None:
    (figure_2,) = (
        each
        for each in album.plots_of(published, {}, replace(ASKED, **asked), ["winners"]).pictures
        if each.name == "xortydi-winners"
    )
    assert said in words(figure_2.draw()).replace("\n", " ")


@pytest.mark.slow
def test_missing_figures_are_left_out_and_not_drawn_as_zero(table: Table, whole: album.PlotSet) -> None:
    known = {each.key for each in table.rows if each.outcome is Outcome.OK}
    drawn = {each.kind: axes_of(each.draw()) for each in whole.pictures}
    (axes,) = drawn["cost"]
    assert len(dots(axes)) == len(known) == 21 and all(x > 0 and y > 0 for x, y in dots(axes))
    (axes,) = drawn["instances"]
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_gid() in SYSTEMS) == 21
    (axes,) = drawn["ranks"]
    assert sum(line.get_gid() in SYSTEMS for line in axes.lines) == 21
    assert sum(line.get_gid() in SYSTEMS for axes in drawn["distributions"] for line in axes.lines) == 21
