"""The suite and both folders of docs/guides/own-data.md work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.jobs.suite import load
from harness.results.schema import NULL_SYSTEM
from tests.support.command_line import call

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "own-data.md").read_text(encoding="utf-8")
FORMS = dict(re.findall(r"^as (BEIR|TREC)\n((?:.+\n)+?)(?=\n|```)", PAGE, re.M))
SUITES = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)


def _write(form: str, folder: Path) -> None:
    """Write a form's files with five documents and queries; the page shows the first."""
    for name, lines in re.findall(r"^(\S+) +(.*(?:\n +.*)*)$", FORMS[form], re.M):
        *header, line = [each.strip().replace("<tab>", "\t") for each in lines.split("\n")]
        numbered = [re.sub(r"\b([dq])1\b", rf"\g<1>{number}", line) for number in range(1, 6)]
        texts = [each.replace("where", f"where {number}") for number, each in enumerate(numbered)]
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{each}\n" for each in (*header, *texts)), encoding="utf-8")


def test_groups_of_the_page_are_a_suite(tmp_path: Path) -> None:
    (tmp_path / "groups.toml").write_text(SUITES[1], encoding="utf-8")
    cells = load(tmp_path / "groups.toml").cells()
    assert [(cell.system, cell.dataset) for cell in cells if cell.system != NULL_SYSTEM] == [
        *(("bm25", "arabic"), ("bm25", "chinese"), ("bm25", "english"), ("minilm", "english")),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["BEIR", "TREC"])
def test_suite_of_the_page_can_be_planned(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    _write(form, tmp_path / "my-data")
    assert len([path for path in Path("my-data").rglob("*") if path.is_file()]) == 3
    suite, _ = SUITES
    Path("my-suite.toml").write_text(suite, encoding="utf-8")
    done = call("plan", "my-suite.toml", "--launcher", "process")  # no engine is needed
    assert done.exit_code == 0, done.output
    assert "0 of 22 jobs done" in done.stdout
