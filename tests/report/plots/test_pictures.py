"""Static pictures: what is drawn is what was given, whatever the names are; the same bytes each time."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from harness.analysis.leaderboard import LeaderboardQuery, RankedRow, RankInterval
from harness.analysis.pareto_front import FrontState
from harness.analysis.table import Row, Table, Validity
from harness.errors import FileError, UnknownName
from harness.evaluation.per_query import SHARES, PerQuery
from harness.records import Isolation, Outcome
from harness.report.plots import KINDS, album, ranking, style
from harness.report.plots import rows as row_plots
from harness.report.plots.style import Frame
from harness.stats import Estimate
from tests.report.plots.conftest import SYSTEMS, made, per_query, row
from tests.support import sample_records
from tests.support.chance import chance

NAMES = (
    "$x^2",
    "_hidden",
    "a--> <script>alert(1)</script>",
    "中文 🦀",
    "x" * 200,
    "x" * 199 + "y",
    "\x1b[31m\u202e%s {0}",
)
MIB = 2**20

ASKED = LeaderboardQuery("", "RR@10")

# Of which kinds there are files in every format: some by chance, and in a soak all.
SOME_OR_ALL = pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(chance("kinds of pictures").sample(KINDS, 2), id="some"),
        pytest.param(KINDS, id="all", marks=pytest.mark.soak),
    ],
)


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    with style.settings(9):
        yield


def around(*systems: str) -> Frame:
    return Frame("title", ("A note.",), style.system_styles(systems))


def axes_of(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.get_visible()]


def lines(axes: Any, gid: str) -> list[tuple[list[float], list[float]]]:
    return [
        (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in axes.lines
        if line.get_gid() == gid
    ]


def words(figure: Any) -> str:
    import matplotlib.text

    return "\n".join(each.get_text() for each in figure.findobj(matplotlib.text.Text))


def dots(axes: Any) -> list[tuple[float, float]]:
    """The middles of what has error bars."""
    data = [bar.lines[0].get_data() for bar in axes.containers]
    return [(float(x), float(y)) for across, up in data for x, y in zip(across, up, strict=True)]


# Every kind, from a whole table.


def drawn_once(pictures: Sequence[album.Plot]) -> list[album.Plot]:
    """Pictures that are laid out once, however often they are looked at or written."""
    return [replace(each, draw=functools.cache(each.draw)) for each in pictures]


@pytest.fixture(scope="module")
def whole(table: Table, found: Mapping[str, PerQuery]) -> album.PlotSet:
    """All pictures of the table, each drawn when it is first asked for."""
    made_of = album.plots_of(table, found, ASKED)
    return replace(made_of, pictures=tuple(drawn_once(made_of.pictures)))


def test_a_measured_table_has_every_kind(whole: album.PlotSet) -> None:
    made_of = whole
    assert [each.kind for each in made_of.pictures] == list(KINDS)
    assert [each.name for each in made_of.pictures] == [f"scifact-{kind}" for kind in KINDS]
    assert made_of.missing == ()


@pytest.mark.slow
@SOME_OR_ALL
def test_files_match_their_suffixes_and_are_identical_each_time(
    whole: album.PlotSet, table: Table, found: Mapping[str, PerQuery], tmp_path: Path, kinds: Sequence[str]
) -> None:
    """An SVG of every kind; what takes longer, of some."""
    again = drawn_once(album.plots_of(table, found, ASKED, kinds).pictures)
    for form, check in CHECKS.items():
        once = [each for each in whole.pictures if form == "svg" or each.kind in kinds]
        paths = list(album.write_plots(once, tmp_path / "once", form))
        assert [path.name for path in paths] == [f"scifact-{each.kind}.{form}" for each in once]
        for path in paths:
            check(path.read_bytes())
        # Whether layouts repeat shows in an SVG; whether a format does, in any picture.
        for path in album.write_plots(again if form == "svg" else again[:1], tmp_path / "again", form):
            assert path.read_bytes() == (tmp_path / "once" / path.name).read_bytes()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
def test_pictures_do_not_depend_on_user_settings_or_a_display(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\ntext.usetex: True\n", encoding="utf-8")
    code = (
        "import hashlib, pathlib, sys\n"
        "from harness.report.plots import rows, style\n"
        "from harness.report.plots.style import Frame\n"
        "from harness.stats import Estimate\n"
        "from tests.support import sample_records\n"
        "price = sample_records.price('m', 1.0, 1, 2**30)\n"
        "row = sample_records.row(system='a', price=price, usd_per_million=Estimate(2.0))\n"
        "with style.settings(9):\n"
        "    around = Frame('t', ('n',), style.system_styles(['a']))\n"
        "    figure = rows.draw_instances([row], around, 'c')\n"
        "    path = style.save(figure, pathlib.Path(sys.argv[1]))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "print(hashlib.sha256(path.read_bytes()).hexdigest())\n"
    )
    prints = set()
    for number, changes in enumerate(({}, {"MATPLOTLIBRC": str(tmp_path), "DISPLAY": ":77", "MPLBACKEND": "TkAgg"})):
        command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / f"{number}.svg")]
        done = subprocess.run(command, env={**os.environ, **changes}, capture_output=True, text=True, check=True)
        prints.add(done.stdout)
    assert len(prints) == 1


def test_drawing_restores_the_user_settings() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with style.settings(30):
        assert matplotlib.rcParams["font.size"] == 30
    assert dict(matplotlib.rcParams) == before


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
    rows[-1] = replace(rows[-1], outcome=Outcome.CRASH, detail="\\input{x} $", latency_mean_s=Estimate(None))
    found = {each.key: per_query(each) for each in rows if each.outcome is Outcome.OK}
    pictures = album.plots_of(made(rows), found, ASKED)
    assert [each.kind for each in pictures.pictures] == list(KINDS)
    drawn = drawn_once(pictures.pictures)
    for form, check in CHECKS.items():
        # A PNG has no text in it, and is drawn whenever a picture is laid out.
        written = {"svg": drawn, "pdf": [each for each in drawn if each.kind in kinds], "png": drawn[:1]}[form]
        for path in album.write_plots(written, tmp_path / "out", form):
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


def test_every_format_has_a_check() -> None:
    assert {*CHECKS} == {*style.FORMATS}


def test_unwritable_picture_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(FileError, match=r"cannot be written: .*; choose another place"):
        style.save(style.new_figure(1, 1), tmp_path / "file" / "picture.png")


# Which rows, which places.


def test_rows_of_other_groups_have_other_pictures(table: Table, found: Mapping[str, PerQuery]) -> None:
    others = [replace(each, isolation=Isolation.PROCESS, key=f"{each.key}p") for each in table.rows]
    both = made([*table.rows, *others])
    names = [each.name for each in album.plots_of(both, found, ASKED, ["cost"]).pictures]
    assert names == ["scifact-container-cost", "scifact-process-cost"]
    other_sample = [replace(each, sample_sha256="other", key=f"{each.key}s") for each in table.rows]
    names = [each.name for each in album.plots_of(made([*table.rows, *other_sample]), found, ASKED, ["cost"]).pictures]
    assert len(set(names)) == 2 and all(name.startswith("scifact-") for name in names)


@settings_of(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=80), min_size=1, max_size=6, unique=True))
def test_file_names_are_safe_and_differ(datasets: list[str]) -> None:
    table = made([row("bm25", "cpu1-mem1", 0, dataset=name) for name in datasets])
    pictures = album.plots_of(table, {}, ASKED, ["cost"]).pictures
    names = [each.name for each in pictures]
    assert len({name.lower() for name in names}) == len(datasets)
    for name in names:
        assert Path(name).name == name and not name.startswith((".", "-")) and len(name) < 100
        assert name.isascii() and name.isprintable() and " " not in name


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
    assert "no picture of winners over the weights: the AMRS of cost is undefined (no pair)" in why
    assert "no picture of ranks: no row has a score" in why
    with pytest.raises(UnknownName, match="unknown measure 'RR@1'"):
        album.plots_of(one, {}, LeaderboardQuery("", "RR@1"))


def test_published_rows_have_the_papers_figures(published: Table) -> None:
    names = [each.name for each in album.plots_of(published, {}, ASKED, ["cost", "winners"]).pictures]
    assert {"msmarco-santhanam2023-cost", "msmarco-santhanam2023-winners", "xortydi-cost", "xortydi-winners"} <= {
        *names
    }


# Looks.


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


# What is drawn.


def ranked(row: Row, **changes: Any) -> RankedRow:
    """Return a row of a leaderboard without intervals of its rank."""
    unknown = RankInterval(None, None, "made up")
    plain = RankedRow(row, {}, None, None, unknown, unknown, unknown, None)
    return replace(plain, **changes)


def point(system: str, profile: str, cost: Estimate, accuracy: Estimate, state: FrontState) -> RankedRow:
    row = sample_records.row(system=system, profile=profile)
    return ranked(row, figures={"cost": cost, "accuracy": accuracy}, state=state)


def test_cost_draws_each_point_with_its_interval_and_the_front_as_steps() -> None:
    points = [
        point("a", "one", Estimate(1.0, 0.8, 1.5), Estimate(30.0, 29.0, 31.0), FrontState.FRONT),
        point("b", "two", Estimate(4.0), Estimate(40.0), FrontState.FRONT),
        point("b", "three", Estimate(5.0), Estimate(39.0), FrontState.CONTESTED),
        point("a", "four", Estimate(90.0), Estimate(30.0), FrontState.DOMINATED),
    ]
    figure = row_plots.draw_cost(points, around("a", "b"), "cost, US$", "RR@10, points")
    (axes,) = axes_of(figure)
    assert dots(axes) == [(1, 30), (4, 40), (5, 39), (90, 30)]
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cost, US$", "RR@10, points")
    ((costs, accuracies),) = lines(axes, "the front")
    assert (costs, accuracies) == ([1, 4], [30, 40])
    (steps,) = [line for line in axes.lines if line.get_gid() == "the front"]
    assert steps.get_drawstyle() == "steps-post"
    first = axes.containers[0]
    (ends,) = first.lines[2][0].get_segments()
    assert ends[:, 0].tolist() == pytest.approx([0.8, 1.5])
    assert [each.lines[0].get_markerfacecolor() == "white" for each in axes.containers] == [False, False, True, False]
    assert "one" in words(figure) and "two" in words(figure) and "three" not in words(figure)


def test_labels_of_the_front_do_not_overlap() -> None:
    points = [
        point("a", f"hardware number {n}", Estimate(1 + n / 50), Estimate(30 + n / 10), FrontState.FRONT)
        for n in range(30)
    ]
    figure = row_plots.draw_cost(points, around("a"), "cost", "accuracy")
    (axes,) = axes_of(figure)
    figure.draw_without_rendering()
    boxes = [each.get_window_extent() for each in axes.texts]
    assert 2 <= len(boxes) < 30
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


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
    assert only.winner.system == "a" and only.share == pytest.approx(1)


def test_the_map_marks_presets_at_their_weights_and_names_every_winner() -> None:
    candidates = [ranking.Candidate("a", "m", (40.0, -9.0, -9.0)), ranking.Candidate("b", "n", (20.0, -1.0, -1.0))]
    candidates.append(ranking.Candidate("c", "o", (20.5, -8.9, -0.999)))
    presets = {"balanced": (0.5, 0.25, 0.25), "latency": (0.0, 0.0, 1.0)}
    figure = ranking.draw_winners(candidates, presets, around("a", "b", "c"))
    (axes,) = axes_of(figure)
    assert lines(axes, "preset balanced") == [([0.5], [pytest.approx(0.5 * 3**0.5 / 2)])]
    assert lines(axes, "preset latency") == [([1.0], [0.0])]
    assert len(axes.patches) == 3
    text = words(figure)
    assert "accuracy alone" in text and "balanced: 0.5 / 0.25 / 0.25" in text
    assert "1  a, m (" in text and "2  b, n (" in text and "Also, each on less than 1%: c, o." in text


def test_distributions_draw_the_quantiles_of_each_row() -> None:
    fast, slow = (
        tuple(float(each) for each in np.linspace(low, high, 51)) for low, high in ((0.001, 0.002), (0.01, 0.05))
    )
    rows = [
        (sample_records.row(system=system, profile=profile), quantiles)
        for system, profile, quantiles in (("a", "one", fast), ("b", "one", slow), ("a", "two", slow))
    ]
    figure = row_plots.draw_distributions(rows, around("a", "b"))
    first, second = axes_of(figure)
    ((x, y),) = lines(first, "a")
    assert x == pytest.approx([each * 1e3 for each in fast]) and y == pytest.approx(list(SHARES))
    assert lines(first, "b") == lines(second, "a") != [] and lines(second, "b") == []
    assert first.get_xscale() == "log" and second.get_xlabel() == "latency, ms"
    dashes = {line.get_gid(): line._unscaled_dash_pattern for line in first.lines}
    assert dashes["a"] != dashes["b"]
    (narrow,) = axes_of(row_plots.draw_distributions(rows[:1], around("a")))
    assert narrow.get_xscale() == "linear"


def test_failed_limits_are_crosses_and_never_a_latency() -> None:
    rows = [
        sample_records.row(system=system, memory_limit_bytes=limit * MIB, latency_mean_s=mean_s, outcome=outcome)
        for system, limit, mean_s, outcome in (
            ("a", 64, Estimate(None), Outcome.OOM),
            ("a", 256, Estimate(0.004, 0.003, 0.006), Outcome.OK),
            ("a", 128, Estimate(0.009), Outcome.OK),
            ("b", 64, Estimate(None), Outcome.TIMEOUT),
            ("b", 128, Estimate(None), Outcome.OOM),
        )
    ]
    figure = row_plots.draw_memory(rows, around("a", "b"))
    (axes,) = axes_of(figure)
    assert [(list(bar.lines[0].get_xdata()), list(bar.lines[0].get_ydata())) for bar in axes.containers] == [
        ([128, 256], [9, 4])
    ]
    crosses = {gid: lines(axes, gid) for gid in ("a: oom", "b: timeout", "b: oom")}
    assert {gid: [x for x, _ in each] for gid, each in crosses.items()} == {
        "a: oom": [[64]],
        "b: timeout": [[64]],
        "b: oom": [[128]],
    }
    for line in axes.lines:
        if line.get_marker() == "x":
            assert line.get_transform() == axes.get_xaxis_transform()  # a share of the panel, not a latency
            assert 0.8 < line.get_ydata()[0] < 1
    top = axes.transData.inverted().transform(axes.transAxes.transform((0, 0.86)))[1]
    assert top > 9  # the lines stay below the crosses
    assert "no answer (oom, timeout)" in words(figure)


def priced(system: str, instance_type: str, usd_per_hour: float, usd_per_million: float) -> Row:
    price = sample_records.price(instance_type, usd_per_hour, 1, 1024 * MIB)
    return sample_records.row(system=system, price=price, usd_per_million=Estimate(usd_per_million))


def test_instances_are_sorted_by_price_with_a_dot_for_each_row() -> None:
    rows = [priced("a", "dear", 2.0, 30.0), priced("b", "cheap", 0.1, 7.0), priced("a", "cheap", 0.1, 2.0)]
    figure = row_plots.draw_instances(rows, around("a", "b"), "cost, US$")
    (axes,) = axes_of(figure)
    assert [each.get_text() for each in axes.get_yticklabels()] == ["cheap (0.1)", "dear (2)"]
    assert lines(axes, "a") == [([30, 2], [1, 0])] and lines(axes, "b") == [([7], [0])]
    assert axes.get_xscale() == "log" and axes.yaxis_inverted()


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
    figure = ranking.draw_ranks(rows, around("a", "b"), None)
    (axes,) = axes_of(figure)
    assert lines(axes, "a") == [([1], [0])] and lines(axes, "b") == [([2], [1])]
    assert [x for x, _ in lines(axes, "span 0")] == [[1, 2], [1, 3]] and len(lines(axes, "span 1")) == 1
    assert lines(axes, "span 2") == [] and "with other weights" not in words(figure)
    assert "19.78" in words(figure) and [each.get_text() for each in axes.get_yticklabels()] == ["a, m", "b, m"]


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


def test_bytes_of_a_picture_depend_on_its_data(tmp_path: Path) -> None:
    prints = set()
    for usd in (1.0, 2.0):
        figure = row_plots.draw_instances([priced("a", "m", 1.0, usd)], around("a"), "c")
        prints.add(hashlib.sha256(style.save(figure, tmp_path / f"{usd}.svg").read_bytes()).hexdigest())
    assert len(prints) == 2
