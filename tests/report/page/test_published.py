"""The published results' page: the front of Table 3, the winners and Table 4 of the paper, as far as its figures go."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page

from harness.analysis import published as published_tables
from harness.cli import main
from tests.report.page.conftest import Open

pytestmark = pytest.mark.browser
SHIPPED = Path(__file__).parents[3] / "results" / "published" / "santhanam2023"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "page.html"
    arguments = ["report", str(SHIPPED), "--format", "html", "-o", str(path), "--as-of", "2022-12-02"]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.output) == (0, "")
    return path


@pytest.fixture
def published(open_file: Open, path: Path) -> Page:
    return open_file(path)


@pytest.mark.parametrize("dataset", ["msmarco", "xortydi"])
def test_table_4_with_the_papers_rates(published: Page, dataset: str) -> None:
    """The page computes costs from printed latencies, so its scores differ more than scores of printed costs."""
    published.locator("#dataset").select_option(dataset)
    assert published.locator("#mode").input_value() == "published", "the page opens with the paper's rates"
    source = f"(Santhanam et al. 2023, Table {'4a' if dataset == 'msmarco' else '4b'})"
    assert published.locator("#summary").inner_text().count(source) == 2
    shown = published.evaluate(
        """() => { const view = harnessPage.view();
          return view.rows.map((row) => { const { system, cpus, gpus, memory } = harnessPage.content.rows[row];
            return [system, cpus, gpus, memory / 2 ** 30, view.score[row]]; }); }"""
    )
    scores = {tuple(each[:4]): each[4] for each in shown}
    printed = published_tables.read(SHIPPED).scores[{"msmarco": "4a", "xortydi": "4b"}[dataset]]
    assert len(printed) == len(scores)
    for line in printed:
        parts = {words.split()[1]: int(words.split()[0]) for words in line.hardware.split(", ")}
        key = (line.system, parts["CPU"], parts.get("GPU", 0), parts["GB"])
        assert scores[key] == pytest.approx(float(line.dynascore.value), abs=0.1), key


def test_page_has_no_layout_of_a_paper() -> None:
    refused = CliRunner().invoke(main, ["report", str(SHIPPED), "--format", "html", "--layout", "santhanam2023"])
    assert refused.exit_code == 2 and refused.stderr.startswith(
        "harness: --layout santhanam2023: a page has its own layout"
    )


def test_computed_rates_are_one_choice_away(published: Page) -> None:
    published.locator("#mode").select_option("reference")
    assert "(mode reference, " in published.locator("#summary").inner_text()
    published.locator("#measure").select_option(label="Success@10")
    published.locator("#mode").select_option("published")
    # The paper made its scores of RR@10.
    assert "(mode reference, " in published.locator("#summary").inner_text()
    published.evaluate(
        """() => harnessPage.content.groups.forEach((group) => group.rates.unshift(
          { source: "another paper", measure: "Success@10", values: { cost: 1, latency: 1 } }))"""
    )
    published.locator("#measure").select_option(label="RR@10")
    assert published.locator("#summary").inner_text().count("(Santhanam et al. 2023, Table 4") == 2


def test_front_of_table_3a_has_the_systems_of_the_paper(published: Page) -> None:
    front = published.evaluate(
        """() => { const view = harnessPage.view();
          const front = view.rows.filter((row) => view.frontOf[row] !== "dominated");
          return front.map((row) => harnessPage.content.rows[row].system); }"""
    )
    assert {"BM25", "BT-SPLADE-L", "ColBERTv2-S", "ColBERTv2-M"} == set(front)
    assert "not measured here" not in published.locator("#figure-front").inner_text()


def test_figures_that_the_paper_omits_have_a_reason(published: Page) -> None:
    assert "no samples: the paper prints the mean alone" in published.locator("#footnotes").inner_text()
    published.locator("#figure-ecdf").scroll_into_view_if_needed()
    published.wait_for_selector("#figure-ecdf .why-not:not([hidden])")
    published.locator('#body tr:first-child button[data-column="cost"]').click()
    text = published.locator("#evidence").inner_text()
    assert "Published, not measured here: no environment is known." in text
    assert "nothing here repeats it" in text
