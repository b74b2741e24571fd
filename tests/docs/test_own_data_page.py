"""The suite and both folders of docs/guides/own-data.md work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_line import call

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "own-data.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?:documents|queries|judgements) \| `(\S+)`: (.*?)`(.*?)` \| `(\S+)`: `(.*?)` \|$", PAGE, re.M)


@pytest.mark.parametrize("form", ["BEIR", "TREC"])
def test_suite_of_the_page_can_be_planned(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    assert len(ROWS) == 3
    for beir, header, beir_line, trec, trec_line in ROWS:
        name, line = (beir, beir_line) if form == "BEIR" else (trec, trec_line)
        path = tmp_path / "my-data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        first = "query-id\tcorpus-id\tscore\n" if form == "BEIR" and "header" in header else ""
        lines = [
            re.sub(r"\b([dq])1\b", rf"\g<1>{number}", line).replace("sea", f"sea {number}") for number in range(1, 6)
        ]
        lines = [each.replace("where", f"where {number}").replace("<tab>", "\t") for number, each in enumerate(lines)]
        path.write_text(first + "".join(f"{each}\n" for each in lines), encoding="utf-8")
    (suite,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    Path("my-suite.toml").write_text(suite, encoding="utf-8")
    done = call("plan", "my-suite.toml")
    assert done.exit_code == 0, done.output
    assert "0 of 22 jobs done" in done.stdout
