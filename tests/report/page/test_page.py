"""The page as people use it: it opens, sorts, filters, reprices, and its address is the view."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from harness.analysis.table import Validity
from harness.driver.records import Outcome
from harness.estimate import Estimate
from harness.report import page as pages
from harness.report.page import PageSource
from tests.report.page import made
from tests.report.page.conftest import Open
from tests.support import sample_records

pytestmark = pytest.mark.browser


def column(page: Page, name: str) -> list[str]:
    """The cells of a column as shown, each one's first line; failed rows have none of the numbers."""
    cells = page.locator(f'#body tr [data-column="{name}"]').evaluate_all(
        "(all) => all.filter((each) => each.tagName !== 'BUTTON').map((each) => each.innerText.split('\\n')[0].trim())"
    )
    return [str(cell) for cell in cells]


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.replace(",", "")) for cell in cells if not cell.startswith("—")]


def test_a_page_opens_with_the_ranking_of_the_largest_group(page: Page) -> None:
    assert page.title() == "Made-up results"
    ranks = numbers(column(page, "rank"))
    assert ranks == sorted(ranks) and ranks[0] == 1
    assert page.locator("figure").count() == 6
    assert "undefined" not in page.locator("body").inner_text()
    expect(page.locator("#summary")).to_contain_text("One point of accuracy is worth")


@pytest.mark.parametrize("width", [390, 1280])
def test_answer_is_the_first_screen(open_file: Open, file: Path, width: int) -> None:
    page = open_file(file, "", width=width, height=800)
    places = ("answer", "figure-front", "table", "choices")
    answer, *others = (page.locator(f"#{name}").bounding_box() for name in places)
    assert answer is not None and answer["y"] < 200
    for before, after in itertools.pairwise((answer, *others)):
        assert before is not None and after is not None and before["y"] + before["height"] <= after["y"]
    assert page.locator("#answer table").first.is_visible()
    assert page.locator("#controls").is_visible() == (width > 760), "a phone shows controls when asked to"
    if width < 760:
        page.locator("#choices > summary").click()
        page.locator("#measure").select_option(label="nDCG@10")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("made_of", ["usual", "every column"])
def test_no_column_is_cut(open_rows: Open, width: int, made_of: str) -> None:
    """Every table fits its box, also one of several groups and origins with throughputs and long names."""
    rows, found = made.rows(40, datasets=("scifact", "nfcorpus"))
    if made_of == "every column":
        rows = [replace(row, system=f"{row.system}-of-a-long-name") for row in (*rows, *made.throughputs())]
        rows, found = [replace(row, origin=origin) for row in rows for origin in ("ours", "theirs")], {}
    page = open_rows(rows, found, "" if made_of == "usual" else "#d=*", width=width, height=844)
    if made_of != "usual":
        assert page.locator("#head th").count() == 17
    cut = page.evaluate(
        """() => Array.from(document.querySelectorAll(".scroll, .scroll > table"))
          .filter((box) => box.scrollWidth > box.clientWidth + 1)
          .map((box) => [box.id, box.scrollWidth, box.clientWidth])"""
    )
    assert cut == []


def test_rows_that_cannot_be_scored_are_not_called_ranked(open_rows: Open) -> None:
    rows, samples = made.rows(3)
    same = [replace(row, outcome=Outcome.OK, measures=dict.fromkeys(made.MEASURES, Estimate(0.5))) for row in rows]
    page = open_rows([replace(row, validity=Validity.CLEAN) for row in same], samples)
    expect(page.locator("#summary")).to_contain_text("0 rows are ranked. 3 rows have no rank; the table says why.")
    why = "no two rows differ enough in accuracy, so nothing says how much cost a point of accuracy is worth"
    expect(page.locator("#summary")).to_contain_text(f"No score: {why}. Type its exchange rate below")
    expect(page.locator("#body tr").first).to_contain_text(f"not ranked: {why}")
    expect(page.locator("#figure-winners")).to_contain_text(f"No map: {why}.")


def test_null_system_is_explained_at_its_name(open_rows: Open) -> None:
    rows, samples = made.rows(2)
    page = open_rows([replace(rows[0], system="null"), replace(rows[1], system="bm25")], samples)
    meant = "null answers at once, without a search: its latency is what harness itself adds to a query"
    assert page.get_by_title(meant).all_inner_texts() == ["null"]
    expect(page.locator("#answer")).to_contain_text(f"{meant}.")


def test_every_picture_is_drawn_at_once(page: Page) -> None:
    """A capture right after loading has no empty box: nothing waits for a frame or for scrolling."""
    page.goto(page.url, wait_until="domcontentloaded")
    drawn = page.evaluate(
        "Array.from(document.querySelectorAll('figure .chart'), (box) => box.querySelectorAll('svg path').length > 2)"
    )
    assert drawn == [True] * 6


def test_one_row_has_sentences_in_place_of_pictures(open_rows: Open) -> None:
    page = open_rows(*made.rows(1))
    (row,), _ = made.rows(1)
    for name, words in (
        ("front", f"{row.system} on {row.profile} alone has both: "),
        ("cost", f"{row.system} on {row.profile} alone has a cost: US$ "),
        ("memory", "had the same limit: "),
        ("winners", "No map: "),
    ):
        expect(page.locator(f"#figure-{name} .why-not")).to_contain_text(words)
        expect(page.locator(f"#chart-{name}")).to_be_hidden()
    assert page.locator("#figure-ecdf .chart svg").count() == 1, "its samples are many values"


def test_a_single_latency_among_failures_is_a_sentence(open_rows: Open) -> None:
    (row,), found = made.rows(1)
    failed = replace(row, outcome=Outcome.OOM, memory_limit_bytes=1 << 28, profile="small", key="f", keys=("f",))
    sentence = open_rows([row, failed], found).locator("#figure-memory .why-not")
    expect(sentence).to_contain_text("has the only latency, ")
    expect(sentence).to_contain_text(f"no answer: {row.system} at 256 MiB (oom).")


def test_whiskers_end_inside_the_axes(open_rows: Open) -> None:
    rows, found = made.rows(6, seed=5)
    wide = [
        sample_records.row_with(row, latency_mean_s=Estimate(mean, mean / 40, mean * 30))
        if (mean := row.latency.mean_s.value)
        else row
        for row in rows
    ]
    page = open_rows(wide, found)
    spans = page.evaluate(
        """() => Array.from(document.querySelectorAll("#chart-front svg path"))
          .filter((path) => /opacity="?0?\\.45/.test(path.outerHTML)).map((path) => path.getBBox())
          .filter((box) => box.width > box.height).map((box) => [box.x, box.x + box.width])"""
    )
    width = page.locator("#chart-front").evaluate("(box) => box.clientWidth")
    assert spans and all(58 <= left < right <= width - 40 for left, right in spans)


@pytest.mark.parametrize("name", ["accuracy", "latency", "cost", "memory", "index", "score"])
def test_header_sorts_by_its_column_and_then_in_reverse(page: Page, name: str) -> None:
    header = page.locator(f'th[data-column="{name}"]')
    orders = ("descending", "ascending") if name in ("accuracy", "score") else ("ascending", "descending")
    for order in orders:
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == order
        cells = column(page, name)
        known = numbers(cells)
        assert known == sorted(known, reverse=order == "descending") and len(set(known)) > 1
        assert all(cell.startswith("—") for cell in cells[len(known) :]), "missing figures come last either way"
    assert page.locator('th[aria-sort]:not([aria-sort="none"])').count() == 1


def test_filter_searches_system_profile_instance_and_outcome(page: Page) -> None:
    box = page.locator("#query")
    for words, name in (("hybrid", "system"), ("CPU2-mem32", "profile"), ("c6a.", "instance"), ("oom", "outcome")):
        box.fill(words)
        cells = column(page, name)
        assert cells and all(words.lower() in cell.lower() for cell in cells), name
    box.fill("hybrid oom")
    assert set(column(page, "outcome")) == {"oom"} and all("hybrid" in cell for cell in column(page, "system"))
    box.fill("no such thing")
    expect(page.locator("#count")).to_have_text("No row of 60 passes this filter.")
    box.fill("")
    expect(page.locator("#count")).to_contain_text("60 rows")


def test_filters_do_not_change_ranks(page: Page) -> None:
    def ranks() -> dict[tuple[str, str], str]:
        names = zip(column(page, "system"), column(page, "profile"), strict=True)
        return dict(zip(names, column(page, "rank"), strict=True))

    before = ranks()
    page.locator("#validity").select_option("noisy")
    assert set(column(page, "validity")) == {"noisy"}
    shown = ranks()
    assert shown and all(before.get(name, rank) == rank for name, rank in shown.items())
    page.locator("#validity").select_option("")
    page.locator("#outcome").select_option("oom")
    assert set(column(page, "outcome")) == {"oom"}


def test_failed_and_noisy_rows_are_shown_with_their_reason(page: Page) -> None:
    noisy = page.locator("#body tr.noisy").first
    assert noisy.locator('td[data-column="validity"]').inner_text().split() == ["noisy", "drift"]
    assert "0.00" not in column(page, "score")
    page.locator("#page-last").click()
    failed = page.locator("#body tr.failed")
    assert failed.count() > 3
    for line in failed.all()[:3]:
        assert "the kernel killed the job" in line.inner_text() or "exit code" in line.inner_text()


def test_missing_figure_is_a_dash_with_its_reason(page: Page) -> None:
    page.locator("#outcome").select_option("ok")
    missing = page.locator('td[data-column="memory"] button', has_text="—").first
    mark = missing.locator("sup").inner_text()
    reasons = page.locator("#footnotes li").all_inner_texts()
    assert reasons[int(mark) - 1] == "not measured"
    assert missing.get_attribute("aria-label") == "no number: not measured"
    assert "0" not in column(page, "memory")


def test_rows_are_shown_forty_to_a_page(open_rows: Open) -> None:
    page = open_rows(*made.rows(230))
    seen: set[str] = set()
    for number in range(1, 7):
        expect(page.locator("#page-of")).to_have_text(f"page {number} of 6")
        seen |= set(page.locator("#body tr").evaluate_all("(all) => all.map((each) => each.dataset.row)"))
        assert len(seen) == min(40 * number, 230)
        if number < 6:
            page.locator("#page-next").click()
    assert page.locator("#page-next").get_attribute("aria-disabled") == "true"
    page.locator("#query").fill("bm25")
    expect(page.locator("#page-of")).to_contain_text("page 1 of")


def test_other_sliders_keep_their_proportion_while_one_moves(page: Page) -> None:
    page.evaluate("harnessPage.change({weights: [400, 400, 200]})")
    for axis, value, weights in (
        ("accuracy", "100", [1000, 0, 0]),
        ("accuracy", "10", [100, 600, 300]),
        ("latency", "33", [96, 574, 330]),
        ("cost", "100", [0, 1000, 0]),
        ("cost", "7", [210, 70, 720]),
    ):
        page.locator(f"#weight-{axis}").fill(value)
        assert page.evaluate("harnessPage.state().weights") == weights
        assert page.locator(f"#weight-{axis}-value").inner_text() == f"{value} %"


def test_other_prices_update_costs_ranks_and_the_picture(page: Page) -> None:
    page.locator("#figure-front summary").click()
    expect(page.locator("#body").get_by_text(re.compile("(x86_64|arm64), "))).to_have_count(0)
    before = column(page, "cost"), column(page, "instance"), page.locator("#figure-front tbody").inner_text()
    page.locator("#region").select_option("gcp/us-central1")
    expect(page.locator("#summary")).to_contain_text("gcp us-central1, on-demand, 2025-03-06")
    page.wait_for_function("(was) => document.querySelector('#figure-front tbody').innerText !== was", arg=before[2])
    assert column(page, "cost") != before[0]
    # AWS has types of both measured architectures, GCP of x86_64 alone.
    expect(page.locator("#body").get_by_text(re.compile(r"^x86_64, \S+ US\$/h$")).first).to_be_visible()
    page.locator("#region").select_option("azure/eastus")
    assert page.locator("#date").input_value() == "2023-12-18"
    assert column(page, "instance") != before[1]
    expect(page).to_have_url(re.compile("p=azure"))
    page.locator("#region").select_option("aws/us-east-1")
    assert page.locator("#date").input_value() == "2026-07-20"
    page.locator("#date").select_option("2022-10-31")
    expect(page.locator("#summary")).to_contain_text("2022-10-31")


def test_measure_and_dataset_can_be_changed(page: Page) -> None:
    first = column(page, "accuracy")
    page.locator("#measure").select_option(label="nDCG@10")
    assert column(page, "accuracy") != first
    assert page.locator('th[data-column="accuracy"]').inner_text().split("\n")[0].startswith("nDCG@10, points")
    page.locator("#dataset").select_option("nfcorpus")
    assert page.evaluate("harnessPage.view().groups.map((group) => group.dataset)") == ["nfcorpus"]
    page.locator("#dataset").select_option("*")
    assert page.locator('th[data-column="group"]').count() == 1
    expect(page.locator("#count")).to_contain_text("120 rows")
    assert column(page, "rank").count("1") == 1, "the other group's first row is on a later page"
    expect(page.locator("#figure-front .why-not")).to_contain_text("Choose one comparison group")


def test_address_restores_the_view(page: Page, open_file: Open, file: Path) -> None:
    page.locator("#dataset").select_option("nfcorpus")
    page.locator("#mode").select_option("robust")
    page.get_by_role("button", name="cost is a very significant concern").click()
    page.locator("#date").select_option("2022-12-05")
    page.locator("#across").select_option("latency")
    page.locator('th[data-column="latency"] button').click()
    page.locator("#query").fill("cpu")
    page.locator("#query").blur()
    page.locator("#outcome").select_option("ok")
    page.locator('#body tr:nth-child(2) td[data-column="cost"] button').click()
    fragment = str(page.evaluate("window.location.hash.slice(1)"))
    for part in ("mode=robust", "w=0.4,0.4,0.2", "s=latency", "q=cpu", "o=ok", "x=latency", "e="):
        assert part in fragment
    sent = open_file(file, f"#{fragment}")
    assert sent.evaluate("harnessPage.state()") == page.evaluate("harnessPage.state()")
    assert sent.locator("#body").inner_text() == page.locator("#body").inner_text()
    assert sent.locator("#evidence").inner_text() == page.locator("#evidence").inner_text()
    assert sent.locator("#date").input_value() == "2022-12-05"
    sent.reload()
    assert sent.locator("#body").inner_text() == page.locator("#body").inner_text()


def test_back_and_forward_restore_each_view(page: Page) -> None:
    preset = page.get_by_role("button", name="cost is a very significant concern")
    expect(preset).to_have_attribute("aria-pressed", "false")
    preset.click()
    expect(preset).to_have_attribute("aria-pressed", "true")
    assert page.locator("#weight-latency").input_value() == "20"
    page.locator('th[data-column="latency"] button').click()
    page.go_back()
    page.wait_for_function("harnessPage.state().sort === 'rank'")
    assert page.evaluate("harnessPage.state().weights") == [400, 400, 200]
    page.go_back()
    page.wait_for_function("harnessPage.state().weights[0] === 500")
    page.go_forward()
    page.wait_for_function("harnessPage.state().weights[0] === 400")


@pytest.mark.parametrize(
    "fragment",
    [
        "#%",
        "#w=1,2,3&mode=<script>&p=a,b,c,d&s=__proto__&n=-1&m=constructor&o=x&v=y&x=z&e=a,b&rcost=1e999&g=0&d=none",
        "#w=NaN,0,0&w=0.5&n=99999999999999999999&rlatency=-5&rcost=0&e=,&i=2&hw=1-a",
        "#w=,,&q=" + "x" * 500,
        "#q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&d=%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "#&&&===&=",
    ],
)
def test_a_broken_fragment_falls_back(open_file: Open, file: Path, fragment: str) -> None:
    page = open_file(file, fragment)
    assert page.evaluate("harnessPage.state().weights") == [500, 250, 250]
    assert page.evaluate("harnessPage.state().rates") == {"cost": None, "latency": None}
    assert page.locator("#evidence").evaluate("(each) => each.open") is False
    assert len(page.locator("#query").input_value()) <= 200
    assert page.locator("main img").count() == 0


def test_page_of_no_rows_and_page_of_only_failures_open(open_rows: Open) -> None:
    failures = [row for row in made.rows(60)[0] if row.outcome is not Outcome.OK]
    for rows in ([], failures):
        assert open_rows(rows).locator("#body tr").count() == len(rows)


def test_row_of_one_pass_warm_up_is_marked_next_to_its_latency(open_rows: Open) -> None:
    page = open_rows([replace(row, one_pass_warmup=10) for row in made.rows(8)[0]])
    cell = page.locator("tr:not(.failed) td[data-column=latency]").first
    expect(cell).to_contain_text("after 10 warm-up queries")


def test_results_of_two_origins_with_one_key_are_separate(open_rows: Open) -> None:
    rows, found = made.rows(20)
    merged = [replace(row, origin=origin) for origin in ("ours", "theirs") for row in rows]
    samples = {row.per_query_key: found[row.key] for row in merged if row.key in found}
    page = open_rows(merged, samples)
    assert page.locator("#body tr").count() == 40
    assert set(column(page, "origin")) == {"ours", "theirs"}
    page.locator("#query").fill("theirs")
    assert set(column(page, "origin")) == {"theirs"}
    page.locator('#body tr:nth-child(2) button[data-column="score"]').click()
    expect(page.locator("#evidence dl").nth(1)).to_contain_text("theirs")
    expect(page).to_have_url(re.compile("e=theirs/"))


def test_pictures_follow_the_selection(page: Page) -> None:
    chart = page.locator("#chart-front")
    first = chart.get_attribute("aria-label")
    page.locator("#across").select_option("latency")
    expect(chart).not_to_have_attribute("aria-label", str(first))
    expect(chart).to_have_attribute("aria-label", re.compile("Front of accuracy and latency"))
    for name in ("ecdf", "memory", "cost"):
        page.locator(f"#figure-{name} summary").click()
        expect(page.locator(f"#figure-{name} tbody tr").nth(1)).to_be_attached()  # created when it is opened


def test_a_click_on_the_map_chooses_weights(page: Page) -> None:
    page.locator("#chart-winners").scroll_into_view_if_needed()
    box = page.locator("#chart-winners").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
    weights = page.evaluate("harnessPage.state().weights")
    assert weights[0] > 750 and sum(weights) == 1000
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    assert page.evaluate("harnessPage.state().weights") == weights, "a click outside the triangle chooses nothing"


def test_page_opens_with_its_requested_view(open_file: Open, results: PageSource, tmp_path: Path) -> None:
    view = "w=0.200%2C0.300%2C0.500&mode=robust"
    path = tmp_path / "view.html"
    path.write_text(pages.render_page(pages.page_content(replace(results, view=view))), encoding="utf-8")
    page = open_file(path)
    assert page.evaluate("window.location.hash") in ("", "#")
    opened = page.evaluate("harnessPage.state()")
    assert (opened["weights"], opened["mode"]) == ([200, 300, 500], "robust")
    sent = page.evaluate("harnessPage.format(harnessPage.parse('#w=0.5,0.25,0.25&mode=reference'))")
    assert sorted(sent.split("&")) == ["mode=reference", "w=0.5,0.25,0.25"]
