"""A page as a file: what is in it, that nothing in it can break out, and that it stays small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import harness
from harness.cli import main
from harness.estimate import Estimate
from harness.report import page as pages
from harness.report.document import Grid, Section
from harness.report.page.answer import answer_html
from harness.report.page.rows import SharedValues, rounded, short_estimate
from tests.report.page import made

FOLDER = Path(harness.__file__).parent / "report" / "page"


@pytest.fixture(scope="module")
def text() -> str:
    return made.html(made.hostile())


def test_the_charting_library_is_the_pinned_one() -> None:
    sums = (FOLDER / "vendor" / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    assert sorted(line.split()[1] for line in sums) == ["LICENSE", "NOTICE", "echarts.js"]
    for line in sums:
        wanted, name = line.split()
        assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == wanted, name
    assert "Apache License" in (FOLDER / "vendor" / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.slow
def test_page_holds_every_script_once(text: str) -> None:
    assert sorted(path.name for path in FOLDER.glob("*.js")) == sorted(pages.SCRIPTS)
    assert text.count("<script>") == text.count("</script>") - 1 == 2, "the library and the page's own"
    own = "".join((FOLDER / name).read_text(encoding="utf-8") for name in pages.SCRIPTS)
    names = re.findall(r"^(?:function|const|let) (\w+)", own, re.MULTILINE)
    assert len(names) == len(set(names)) > 200, "the scripts share one scope"


def test_content_policy_hashes_each_script_and_forbids_fetching(text: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    }
    assert set(rules["script-src"].split()) == hashes
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules and "unsafe-eval" not in policy[1]
    assert text.index("Content-Security-Policy") < text.index("<title>")


def test_page_loads_nothing_from_outside(text: str) -> None:
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b|@import|url\(", own)
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts)\b", own)
    for path in FOLDER.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", source)


def test_texts_cannot_end_the_data_script(text: str) -> None:
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert not set(data[1]) & set("<>&\u2028\u2029")
    content = json.loads(data[1])
    assert made.HOSTILE in content["texts"]
    assert any("%%data%%" in each for each in content["texts"]), "what is filled in is not looked at again"


@pytest.mark.slow
def test_hostile_title_is_escaped() -> None:
    source = made.page_of(made.rows(3)[0], title='</title><script>alert(1)</script>"&')
    text = pages.render_page(pages.page_content(source))
    assert text.count("<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&amp;</title>") == 1


def test_answer_of_hostile_rows_is_escaped(text: str) -> None:
    tags = "section p div table caption thead tbody tr th td"
    answer = text[text.index('<section id="answer"') : text.index("</section>")]
    assert "&lt;" in answer and set(re.findall(r"</?(\w+)", answer)) <= set(tags.split())


def test_message_of_a_failed_row_spans_the_empty_cells() -> None:
    grid = Grid(
        "", ("system", "a", "b", ""), (False, True, True, False), (("x", "out of memory", "", ""),), 1, ("bad",)
    )
    text = answer_html(Section(grids=(grid,)))
    assert '<tr class="bad"><td>x</td><td colspan="3">out of memory</td></tr>' in text


@pytest.mark.slow
def test_five_hundred_rows_stay_below_five_megabytes_and_give_the_same_bytes() -> None:
    source = made.page_of(*made.rows(500))
    first, again = (pages.render_page(pages.page_content(source)).encode() for _ in range(2))
    assert first == again and len(first) < 5_000_000


def test_figures_are_rounded_to_their_significant_digits() -> None:
    texts = SharedValues()
    assert short_estimate(Estimate(1.5), texts) == [1.5]
    assert short_estimate(Estimate(0.123456789, 0.1, 0.2), texts, digits=3) == [0.123, 0.1, 0.2]
    assert short_estimate(Estimate(None, reason="why"), texts) == [None, None, None, 0]
    assert short_estimate(Estimate(None), texts) is None
    assert list(texts.texts) == ["why"]
    assert [rounded(value, 3) for value in (1234567.0, 2.0, None)] == [1230000, 2, None]


@pytest.mark.slow
def test_page_is_written_to_redirected_output_not_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = str(FOLDER.parents[2] / "results" / "published" / "santhanam2023")
    done = CliRunner().invoke(main, ["report", "--format", "html", shipped])
    assert done.exit_code == 0 and done.stdout.startswith("<!doctype html>")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    with pytest.raises(SystemExit) as ended:
        main.main(["report", "--format", "html", shipped], standalone_mode=False)
    assert ended.value.code == 2
