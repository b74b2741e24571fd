"""LaTeX that a paper takes in: it compiles, whatever the names are, and prints them as text."""

from __future__ import annotations

import itertools
import re
import string
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import report
from harness.analysis import leaderboard, published, results_folder, row_pricing
from harness.analysis.table import Table
from harness.config import data_root
from harness.driver.records import Outcome
from harness.pricing import prices
from harness.report import latex
from harness.report.document import Grid
from harness.report.leaderboard import leaderboard_document
from harness.report.summary import paper_section
from harness.results.isolation import CONTAINER
from harness.stats import Estimate
from tests.report.conftest import measured

pytestmark = pytest.mark.tools

HOSTILE = (
    r"\input{/etc/passwd}",
    r"\write18{touch /tmp/owned}",
    r"\immediate\openout3=owned.tex",
    r"\end{tabular}\end{document}",
    "% nothing after this",
    "$x$ _a_ ^b^ #1 ~ & {half",
    "half}",
    "[2cm] at the start",
    "*[2cm]",
    "<script>alert(\"1\")</script> | `id` -- --- '' ,, ?` !` << >>",
    "^^5cinput ^^M \\^^41",
    "中文系统 µ – — † → é ñ ł ﬁ 🦀 α\u0301 \u202e\x1b[31m\x00 tail",  # noqa: RUF001 # must be spelled
    "x" * 200,
    "中" * 200,
    "\\" * 60,
    "_" * 60,
    "-" * 60,
)
ARTICLE = r"\documentclass{article}"


def floating(
    headers: Sequence[str], numeric: Sequence[bool], cells: Sequence[Sequence[str]], caption: str, label: str
) -> str:
    grid = Grid(caption, tuple(headers), tuple(numeric), tuple(tuple(row) for row in cells))
    return latex.captioned(grid, label, floating=True)


def compiled(folder: Path, fragments: Sequence[str], head: str = ARTICLE, packages: str = latex.PACKAGES) -> str:
    """The log of a document that takes in the fragments; it fails where pdflatex does."""
    inputs = []
    for number, fragment in enumerate(fragments):
        (folder / f"part{number}.tex").write_text(fragment, encoding="ascii")
        inputs.append(rf"\input{{part{number}}}")
    whole = "\n\n".join((head, packages, r"\begin{document}", *inputs, r"\end{document}"))
    (folder / "paper.tex").write_text(whole, encoding="ascii")
    command = ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert (folder / "paper.pdf").read_bytes().startswith(b"%PDF")
    return done.stdout


def test_every_shape_of_measured_and_published_tables_compiles(table: Table, tmp_path: Path) -> None:
    folder = data_root() / "results" / "published" / "santhanam2023"
    snapshot = prices.snapshot()
    rows = row_pricing.price(results_folder.read(folder).table, row_pricing.tariff(snapshot))
    papers = published.read(folder)
    printed = [
        report.render(table, "latex"),
        report.render(table, "latex", layout="santhanam2023"),
        report.render(rows, "latex"),
        report.render(rows, "latex", layout="santhanam2023"),
        report.study.load("santhanam2023").render_paper(papers, papers.follows(), snapshot, "latex"),
    ]
    log = compiled(tmp_path, printed)
    assert "Undefined" not in log and "multiply defined" not in log.replace("`tab:harness-1'", "")
    for text in printed:
        assert text.startswith(latex.HEAD) and text.endswith("\n") and text.isascii()


@pytest.mark.parametrize(
    "head", [ARTICLE, r"\documentclass[twocolumn]{article}", ARTICLE + r"\usepackage[T1]{fontenc}\usepackage{lmodern}"]
)
def test_hostile_names_compile_and_open_no_file(table: Table, tmp_path: Path, head: str) -> None:
    rows = [
        measured(name, "cpu1-mem1", 2.0, dataset=name, suite=name, detail=name, notes=(name,), stand_in=name)
        for name in HOSTILE
    ]
    rows += [replace(rows[0], system=name, outcome=Outcome.BAD_OUTPUT, detail=name) for name in HOSTILE]
    whole = replace(table, rows=tuple(rows), notes=HOSTILE)
    log = compiled(
        tmp_path, [report.render(whole, "latex"), report.render(whole, "latex", layout="santhanam2023")], head
    )
    assert "/etc/passwd" not in re.findall(r"\((/[^\s()]+)", log)
    assert not list(tmp_path.glob("owned*")) and not Path("/tmp/owned").exists()


def test_hostile_names_compile_at_the_start_of_a_row_header_caption_and_item(tmp_path: Path) -> None:
    cells = [(latex.escape(name), latex.escape(name)) for name in HOSTILE]
    grids = [floating(HOSTILE[:6], [False] * 6, [row * 3 for row in cells], cells[0][0], HOSTILE[0])]
    grids += [floating((name, name), (False, True), cells, latex.escape(name), name) for name in HOSTILE]
    compiled(tmp_path, [*(f"{each}\n\\clearpage" for each in grids), latex.listed([first for first, _ in cells])])


def test_every_pair_of_special_characters_and_every_letter_of_the_first_blocks_compile(tmp_path: Path) -> None:
    pairs = ["".join(pair) for pair in itertools.product(string.punctuation, repeat=2)]
    letters = [chr(code) for code in (*range(0x20, 0x530), *range(0x1E00, 0x2300))]
    for head in (ARTICLE, ARTICLE + r"\usepackage[T1]{fontenc}\usepackage{lmodern}"):
        compiled(tmp_path, [_listed([*pairs, *letters])], head)


def _listed(texts: Sequence[str]) -> str:
    grid = floating(("text",), (False,), [(latex.escape(text),) for text in texts], "texts", "tab:texts")
    return f"{grid}\n{latex.listed([latex.escape(text) for text in texts])}"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("bm25_v2 & co", r"bm25\_v2 \& co"),
        ("100 % of $5 #1", r"100 \% of \$5 \#1"),
        ("a--b", "a-{}-b"),
        ("中文", "{[}U+4E2D]{[}U+6587]"),
        (
            "Gödel, µs → 5–6 †",
            r"G\"{o}del, \ensuremath{\mu}s \ensuremath{\rightarrow} 5\textendash{}6 \ensuremath{\dagger}",
        ),
        ("\x1b[31m", r"\textbackslash{}x1b{[}31m"),
        ("λ", r"\ensuremath{\lambda}"),
    ],
)
def test_latex_escapes_special_characters(text: str, written: str) -> None:
    assert latex.escape(text) == written


@given(st.text())
def test_escaped_text_is_one_ascii_line_without_commands_of_its_own(text: str) -> None:
    written = latex.escape(text)
    assert written.isascii() and written.isprintable()
    ours = {
        name.strip("\\{}") for each in (*latex._SPECIAL.values(), *latex._GLYPHS.values()) for name in _commands(each)
    }
    ours |= {"allowbreak", "ensuremath", *latex._GREEK, *(each for each in latex._ACCENTS.values())}
    assert {name.strip("\\{}") for name in _commands(written)} <= ours


def _commands(text: str) -> list[str]:
    return re.findall(r"\\(?:[A-Za-z]+|.)", text)


def test_wide_table_keeps_every_column_and_each_part_names_its_rows() -> None:
    headers = tuple(f"column {number}" for number in range(30))
    cells = [tuple(f"cell {row}.{number};" for number in range(30)) for row in range(3)]
    text = floating(headers, [True] * 30, cells, "wide", "tab:wide")
    parts = text.split(r"\begin{minipage}")[1:]
    assert len(parts) > 1 and text.count(r"\label{tab:wide}") == 1
    assert all(f"cell {row}.0;" in part for part in parts for row in range(3))
    assert all(text.count(cell) == (len(parts) if cell.endswith(".0;") else 1) for row in cells for cell in row)


def test_table_longer_than_a_page_keeps_every_row(tmp_path: Path) -> None:
    cells = [(f"system {number}.", f"{number}") for number in range(2000)]
    text = floating(("system", "rank"), (False, True), cells, "long", "tab:long")
    assert re.findall(r"system \d+\.", text) == [name for name, _ in cells]
    log = compiled(tmp_path, [text])
    assert "Float too large" not in log and int(re.findall(r"Output written on paper.pdf \((\d+) pages", log)[0]) > 20


def test_paper_has_one_table_of_few_columns_and_few_notes(table: Table, tmp_path: Path) -> None:
    values = {name: Estimate(0.5) for name in table.measures}
    other = replace(table.rows[3], isolation=CONTAINER, measures=values)
    clean = replace(table, rows=(table.rows[0], table.rows[2], other))
    text = latex.write_sections((paper_section(clean, latex.escape, latex.is_whole),))
    assert text.count(r"\begin{tabular}{") == text.count(r"\caption") == text.count(r"\label{tab:harness}") == 1
    assert "system & hardware & RR@10 & Success@10 & nDCG@10 & " in text and "& p95 & memory & US" in text
    assert r"minilm \ensuremath{\dagger} & 1 CPU, 256 MiB & " in text
    assert r"\multicolumn{8}{l@{}}{out of memory at 256 MiB} \\" in text, "a message has the room of the figures"
    assert text.count(r"\item ") <= 5 and "The same in every row: :" not in text
    log = compiled(tmp_path, [text])
    assert re.findall(r"Output written on paper.pdf \((\d+) page", log) == ["1"]
    assert "No stored results." in latex.write_sections(
        (paper_section(replace(table, rows=()), latex.escape, latex.is_whole),)
    )


def test_message_of_a_divided_table_is_in_the_part_of_its_column() -> None:
    headers = ("system", *(f"a long heading {number}" for number in range(20)))
    cells = (("a", "crashed", *[""] * 19), ("b", *map(str, range(20))))
    text = latex.captioned(Grid("c", headers, (False, *[True] * 20), cells, 1, ("bad", "")), "tab:c")
    first, *others = text.split(r"\begin{minipage}")[1:]
    assert re.search(r"a & \\multicolumn\{\d\}\{l@\{\}\}\{crashed\}", first)
    assert others and all(re.search(r"^a &  &", part, flags=re.MULTILINE) for part in others)


def test_leaderboard_is_one_floating_table(tmp_path: Path) -> None:
    folder = data_root() / "results" / "published" / "santhanam2023"
    rows = row_pricing.price(results_folder.read(folder).table, row_pricing.tariff(prices.snapshot()))
    board = leaderboard.build(rows, {}, leaderboard.LeaderboardQuery("msmarco", "RR@10"))
    text = latex.write_sections(leaderboard_document(board).sections(latex.escape))
    assert text.count(r"\label{tab:harness}") == 1 and "weights \\ensuremath{\\pm}" in text
    compiled(tmp_path, [text])
    one = floating(("system", "rank"), (False, True), [("bm25", "1")], "A caption", "tab:one")
    assert one.startswith("\\begin{table}[htbp]\n\\caption{A caption}\n\\label{tab:one}\n")


def test_empty_columns_are_named_below(table: Table) -> None:
    text = report.render(table, "latex")
    assert re.search(r"Empty in every row: p99, ms \[\d+\]\.", text) and "p99, ms &" not in text
    assert r"\item[{[1]}] " in text
    clean = report.render(replace(table, rows=table.rows[2:4]), "latex")
    assert re.search(r"The same in every row: .*outcome: ok", clean) and "& outcome" not in clean
    assert "& outcome" in text
