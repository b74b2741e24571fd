"""Reports as Markdown, with untrusted text in them."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from harness import untrusted
from harness.report import latex, writers
from harness.report.document import Grid, Section
from tests.report.test_latex import HOSTILE
from tests.support import hostile


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("a|b", r"a\|b"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("two\nlines\r\n\tmore", "two lines more"),
        ("[x](y) ![x][y] [x]: y", r"[x\](y) ![x\][y] [x\]: y"),
        ("pip install 'ir-harness[aws]'", "pip install 'ir-harness[aws]'"),
        ("c7a.medium*, r7a.large*", "c7a.medium*, r7a.large*"),
        ("single_stream _em_ *em* **em**", r"single_stream \_em\_ \*em* \*\*em\*\*"),
        ("`code` \\|", r"\`code\` \\\|"),
        ("\x1b[31m\u202e\u200b\x9b", r"\\x1b[31m\\u202e\\u200b\\x9b"),
        ("naïve 検索", "naïve 検索"),
    ],
)
def test_markdown_escapes_special_characters(raw: str, safe: str) -> None:
    assert writers.markdown_escape(raw) == safe


def test_long_texts_are_truncated_with_a_mark() -> None:
    assert untrusted.one_line("x" * 500, untrusted.MAX_TEXT) == "x" * 500
    assert untrusted.one_line("x" * 501, untrusted.MAX_TEXT) == "x" * 499 + "…"


@pytest.mark.slow
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


# A report that forgets to escape: nothing that a stranger wrote is active, whichever field of a section it is in.
FORGOTTEN = Section(
    title=hostile.TEXT,
    lead=(hostile.TEXT,),
    grids=(Grid(hostile.TEXT, (hostile.TEXT, "b"), (False, True), ((hostile.TEXT, hostile.QUERY),)),),
    after=(hostile.TEXT,),
    footnotes=(hostile.TEXT,),
    notes=(hostile.QUERY,),
)


def test_markdown_is_inert_where_a_report_forgets_to_escape() -> None:
    text = writers.markdown_section(FORGOTTEN)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {3} and len(rows) == 3
    assert [character for character in hostile.FORBIDDEN if character in text] == []
    assert not re.search(r"<(?=[A-Za-z/!?])|(?<!\\)`|(?<!\\)\](?=[(\[:])|(?m:^# )", text)


def test_a_terminal_and_latex_get_inert_text_where_a_report_forgets_to_escape() -> None:
    stream = io.StringIO()
    writers.print_answer(FORGOTTEN, Console(file=stream, force_terminal=False, width=200))
    fragment = latex.write_sections([FORGOTTEN])
    for text in (stream.getvalue(), fragment):
        assert "touch" in text and [character for character in hostile.FORBIDDEN if character in text] == []
    assert r"\textbackslash{}input\{x\}" in fragment and r"\input" not in fragment and "$1$" not in fragment
    assert not re.search(r"(?<!\\)[#$_]", "".join(fragment.splitlines()[1:]))


@pytest.mark.parametrize("text", [*HOSTILE, hostile.TEXT, hostile.QUERY, "`harness report 'a*'` [1] é — <"])
def test_an_escaped_text_is_written_as_it_is(text: str) -> None:
    for escape, finished in ((writers.markdown_escape, writers.finished), (latex.escape, latex.finished)):
        assert finished(escape(text)) == escape(text)
