"""Each command that an output prints is pasted into a shell as it is printed, and does what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness import commands
from harness.cli import main
from tests.conftest import Bench
from tests.support.command_line import Call
from tests.support.hostile import paste

# A shell, Markdown, a glob and a list of globs each read some of it in a way of their own.
_DATASET = "a b's [c]*, <d>_$e`"
_RUN = ("run", "test-suite.toml", "--launcher", "fake")
OUTPUTS = (
    _RUN,
    (*_RUN, "--fresh"),
    ("plan", "test-suite.toml", "--fresh"),
    ("plan", "test-suite.toml", "--only", f"planted/{commands.literal(_DATASET)}/*"),
    ("report", "results"),
    ("report", "results", "--wide"),
    ("report", "results", "--format", "json"),
    ("report", "results", "--format", "html"),
    ("explain",),
    ("explain", "latency"),
    ("explain", "isolation"),
    ("explain", "threads_unsaid"),
    ("verify", "results"),
    ("systems", "planted"),
    ("export", "results", "--format", "ir_metadata", "-o", "metadata"),
)
_VERB = "|".join(main.commands)
# Beside commands between backquotes: one at the start of a line or after a colon ends where the line does, or a gap.
_BARE = re.compile(rf"(?:^|: |- |  )(harness (?:{_VERB})\b.*?)(?=   |: |$)", re.MULTILINE)
_DATA = re.compile(r'<script type="application/json"[^>]*>(.*?)</script>', re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _printed(text: str) -> Iterator[str]:
    data = _DATA.findall(text) if text.startswith("<") else [text] if text.startswith("{") else None
    for each in [text] if data is None else _texts(list(map(json.loads, data))):
        assert each.count("`harness ") == len(commands.SPAN.findall(each)), f"a command is cut or escaped: {each}"
        yield from (span[1:-1] for span in commands.SPAN.findall(each))
        yield from _BARE.findall(each)


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_printed_commands_run_as_they_are_printed(
    harness: Call, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    (bench.folder / "tiny").rename(bench.folder / _DATASET)
    bench.suite(datasets=[f"./{_DATASET}"])
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "60")
    found: dict[str, tuple[str, ...]] = {}
    for arguments in OUTPUTS:
        done = harness(*arguments)
        assert done.exit_code in (0, 1), done.output
        for text in (done.stdout, done.stderr):
            found |= dict.fromkeys(_printed(_COLOUR.sub("", text)), arguments)
    for path in Path("metadata").rglob("*.yml"):
        found[yaml.safe_load(path.read_text())["implementation"]["executable"]["cmd"]] = ("export",)
    assert len({line.split()[1] for line in found}) >= 4, "run, report, explain, conformance ..."
    for line, words in zip(found, paste(list(found), tmp_path), strict=True):
        names = {"SUITE": "test-suite.toml", "NAME": "latency", "docker": "fake"}
        given = [names.get(word, word) for word in words]
        given += ["--launcher", "fake"] if words[0] == "run" and "--launcher" not in words else []
        if words[0] != "conformance":
            done = harness(*given)
            assert done.exit_code in (0, 1), f"{line} (printed by {' '.join(found[line])}): {done.output}"
