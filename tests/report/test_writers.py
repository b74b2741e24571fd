"""Reports as Markdown, with untrusted text in them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import report, untrusted
from harness.analysis.table import Table
from harness.report import writers

COLUMN_COUNT = 18


def test_markdown_keeps_untrusted_text_within_its_cell(table: Table) -> None:
    lines = report.render(table, "md").splitlines()
    grid = [line for line in lines if line.startswith("|")]
    assert len(grid) == len(table.rows) + 2 + 4, "the rows, and below them the two indexes"
    for line in grid[: len(table.rows) + 2]:
        assert line.replace(r"\|", "").count("|") == COLUMN_COUNT + 1
    body = "\n".join(lines)
    assert "<" not in body
    assert ">" not in body
    assert "\x1b" not in body


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("a|b", r"a\|b"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("two\nlines\r\n\tmore", "two lines more"),
        ("[x](y)", r"\[x\](y)"),
        ("single_stream _em_ *em*", r"single_stream \_em\_ \*em\*"),
        ("`code` \\|", r"\`code\` \\\|"),
        ("\x1b[31m\u202e\u200b\x9b", r"\\x1b\[31m\\u202e\\u200b\\x9b"),
        ("naïve 検索", "naïve 検索"),
    ],
)
def test_markdown_escapes_special_characters(raw: str, safe: str) -> None:
    assert writers.markdown_escape(raw) == safe


def test_long_texts_are_truncated_with_a_mark() -> None:
    assert untrusted.one_line("x" * 500, untrusted.MAX_TEXT) == "x" * 500
    assert untrusted.one_line("x" * 501, untrusted.MAX_TEXT) == "x" * 499 + "…"


def test_writers_import_no_heavy_package() -> None:
    code = "import sys, harness.report; print([m for m in ('scipy', 'pyarrow', 'pandas') if m in sys.modules])"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
