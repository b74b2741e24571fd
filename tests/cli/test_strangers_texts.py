"""Results of a stranger, in every command and format: nothing of theirs runs, drives a terminal or marks up a page."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from harness import commands
from harness.cli import main
from harness.datasets.passage_positions import POSITIONS, RelevantPosition
from harness.results.schema import Cell, matches
from tests.conftest import Bench
from tests.support import hostile, published
from tests.support.command_line import Call
from tests.support.publisher import QUERIES

FORMS: tuple[tuple[str, ...], ...] = ((), ("--wide",), ("--format", "csv"), ("--format", "json"))
# The results name neither an exact search nor vectors: these commands end in a message that quotes their names.
REFUSED = ("recall", "frechet")
HTML, LATEX = ("--format", "html"), ("--format", "latex")
COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("report", "results", *more) for more in (*FORMS, HTML, LATEX, ("--layout", "santhanam2023"))),
    ("report", "results", "--at-least", "RR@10=.1"),
    *(("explain", *what, "--results", "results") for what in ((), ("*",), ("latency",), ("throttling",))),
    *(("leaderboard", "valid", *more) for more in (*FORMS, ("--format", "md"), HTML)),
    *(("compare", "*", "--results", "results", *more) for more in FORMS),
    ("export", "results", "--format", "ir_metadata", "-o", "meta"),
    ("pool", "results", "--no-texts", "--format", "jsonl"),
    *((name, "results") for name in ("verify", "recall", "frechet", "robustness")),
    *(("reprice", "results", *more) for more in FORMS),
    *(("positions", "results", *more) for more in FORMS),
    *(("report", "published", *more) for more in (*FORMS, HTML, LATEX)),
    *(("reprice", "published", *more) for more in FORMS),
)


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    hostile.put_published(published.copy(folder))
    hostile.put(folder / "valid", valid=True)
    return hostile.put(folder / "results")


@pytest.fixture
def results(_made: Path, harness: Call) -> Path:
    Path("results").symlink_to(_made)
    Path("published").symlink_to(_made.parent / "paper")
    Path("valid").symlink_to(_made.parent / "valid")
    return _made


def _put_positions() -> None:
    Path(hostile.DATASET).mkdir()
    places = [RelevantPosition(query, "right", 9, 29, 0, 1, 4096) for query in (hostile.QUERY, *QUERIES[1:])]
    (Path(hostile.DATASET) / POSITIONS).write_bytes(b"".join(each.to_line() for each in places))


# What commands have printed and written: the folders that they read are the same for all tests.
_PRINTED: dict[tuple[str, ...], str] = {}


def _output(harness: Call, arguments: tuple[str, ...]) -> str:
    if arguments not in _PRINTED:
        _PRINTED[arguments] = _printed(harness, arguments)
    return _PRINTED[arguments]


def _printed(harness: Call, arguments: tuple[str, ...]) -> str:
    if arguments[0] == "positions" and not Path(hostile.DATASET).exists():
        _put_positions()
    done = harness(*arguments)
    assert done.exit_code in (0, 1) or arguments[0] in REFUSED, done.output
    written = [path.read_text() for path in sorted(Path("meta").rglob("*.yml"))] if Path("meta").exists() else []
    return "".join((done.stdout, done.stderr, *written))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_no_text_of_a_stranger_is_written_unescaped(harness: Call, results: Path, arguments: tuple[str, ...]) -> None:
    text = _output(harness, arguments)
    assert text.strip()
    assert [character for character in hostile.FORBIDDEN if character in text] == []
    if (
        "html" not in arguments
        and not {"json", "jsonl"} & {*arguments}
        and "csv" not in arguments
        and "ir_metadata" not in arguments
    ):
        markdown = re.sub(commands.SPAN, "", text)
        assert arguments[0] in ("explain", "verify", "recall") or "<script" not in markdown
        assert not re.search(r"(?m)^# head", text), "a line of the stranger's own"


@pytest.mark.slow
def test_tables_keep_their_columns(harness: Call, results: Path) -> None:
    tables = [
        [line for line in block.splitlines() if line.startswith("|")]
        for arguments in (
            ("report", "results", "--wide"),
            ("leaderboard", "valid"),
            ("compare", "*"),
            ("report", "results"),
        )
        for block in _output(harness, arguments).split("\n\n")
    ]
    assert sum(bool(table) for table in tables) >= 4
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) <= 1, table


def _commands(text: str) -> list[str]:
    found = [match[0].strip("`") for match in commands.SPAN.finditer(text)]
    return found + [line for line in text.splitlines() if line.startswith("harness ")]


@pytest.mark.slow
def test_every_printed_command_names_its_cell_and_runs_nothing_else(
    harness: Call, results: Path, tmp_path: Path
) -> None:
    texts = [_output(harness, arguments) for arguments in COMMANDS if not {"json", "html", "latex"} & {*arguments}]
    (export,) = (arguments for arguments in COMMANDS if "ir_metadata" in arguments)
    _printed(harness, export)
    exported = [yaml.safe_load(path.read_text()) for path in Path("meta").rglob("*.yml")]
    printed = [command for text in texts for command in _commands(text)]
    printed += [each["implementation"]["executable"]["cmd"] for each in exported]
    own = [command for command in dict.fromkeys(printed) if not re.search("NAME|SYSTEM|RESULTS|--contested", command)]
    cells, named = hostile.names(results), set()
    for words in hostile.paste(own, tmp_path):
        assert words[0] in main.commands
        globs = [word.removeprefix("--only=") for word in words if word.startswith("--only=")]
        globs += [after for word, after in itertools.pairwise(words) if word == "--only"]
        globs += words[1:][-1:] if words[0] == "explain" and "--results" not in words else []
        for glob in globs:
            found = {cell for cell in cells if matches(Cell("quick", *cell), glob)}
            assert len(found) == 1 or glob.endswith("/*"), (words, found)
            named |= found
    assert named == cells


@pytest.mark.slow
def test_a_system_of_a_stranger_is_shown_unharmed(bench: Bench, harness: Call) -> None:
    text = json.dumps(hostile.TEXT)
    systems = bench.folder / "engines" / "planted" / "systems"
    (systems / "theirs.toml").write_text(
        f"description = {text}\nstand_in = {text}\n[search_params]\nnote = {text}\n"
        f'[[assets]]\nfolder = "weights"\nhub = "a/b"\nlicence = {text}\nfiles = ["x.bin"]\n',
        encoding="utf-8",
    )
    suite = bench.suite(systems=["theirs"])
    for arguments in (
        ("systems",),
        ("systems", "theirs"),
        ("systems", "--format", "csv"),
        ("systems", "--format", "json"),
        ("plan", str(suite), "--launcher", "fake"),
        ("plan", str(suite), "--launcher", "fake", "--wide"),
        ("run", str(suite), "--launcher", "fake"),
    ):
        done = harness(*arguments)
        shown = done.stdout + done.stderr
        assert "theirs" in shown
        assert [character for character in hostile.FORBIDDEN if character in shown] == []
        assert not re.search(r"(?m)^# head", shown)
        if arguments[-1] not in ("csv", "json") and "theirs" not in arguments:
            assert "<script" not in shown


@pytest.mark.slow
def test_a_plan_names_the_folders_that_were_given(bench: Bench, harness: Call, tmp_path: Path) -> None:
    suite = bench.suite(systems=["planted"])
    folder = "-r'; touch ran #"
    planned = harness("plan", str(suite), f"--results={folder}", "--launcher", "fake")
    line = planned.stdout.partition("next: ")[2].partition("   ")[0]
    assert hostile.paste([line], tmp_path) == [["run", str(suite), f"--results={folder}", "--launcher", "fake"]]
