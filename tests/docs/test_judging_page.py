"""Every command on docs/guides/judging.md prints the shown output."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATE = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


def _steps() -> list[tuple[str, str]]:
    """Return pairs of a command and its output."""
    page = (DOCS / "guides" / "judging.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"(?m)^\$ ", block) if part]
    return [(command, said) for command, _, said in (part.partition("\n") for part in parts)]


def test_page_shows_the_examples_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DOCS / "examples" / "judging", tmp_path / "judging")
    monkeypatch.chdir(tmp_path / "judging")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    ran = []
    for command, said in _steps():
        program, *arguments = shlex.split(command)
        if program == "cat":
            (name,) = arguments
            assert Path(name).read_text(encoding="utf-8") == said, command
            continue
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert DATE.sub("", done.output) == DATE.sub("", said), command
        ran.append(arguments[0])
    assert ran == ["pool", "qrels", "pool", "leakage"]
    assert sorted(path.name for path in Path().glob("more*")) == ["more.trec", "more.trec.provenance.jsonl"]
    assert Path("qrels.trec").read_text() == (DOCS / "examples" / "judging" / "qrels.trec").read_text()
