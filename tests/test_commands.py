"""Commands that harness prints run as they read, and nothing else, whatever is in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import harness
from harness import commands
from harness.cli import main
from harness.report import writers
from harness.results.schema import Cell, glob_of, matches
from harness.untrusted import ForeignText, escaped, one_line
from tests.support import hostile
from tests.support.chance import chance

WORDS = (
    *hostile.NAMES,
    hostile.TEXT,
    "",
    " ",
    " a",
    "a\nb",
    "\r",
    "it's",
    "\u202eabc",
    "größe",
    "日本",
    "a b",
    "é\u0301",
    "\udcff",
    "\x7f",
    "x" * 3000,
)


@pytest.mark.parametrize("word", WORDS)
def test_a_pasted_command_has_the_exact_words(word: str, tmp_path: Path) -> None:
    lines = [
        commands.command("run", word, "b", only=word, fresh=True, retry_noisy=3, work=None, spot=False),
        commands.command("ec2 up", ForeignText(word)),
        commands.quoted("explain", results=word).strip("`"),
    ]
    run, up, explain = hostile.paste(lines, tmp_path)
    option = [f"--only={word}"] if word.startswith("-") else ["--only", word]
    options = [*option, "--fresh", "--retry-noisy", "3"]
    begins = word.startswith("-")
    assert run == (["run", *options, "--", word, "b"] if begins else ["run", word, "b", *options])
    assert up == (["ec2", "up", "--", word] if begins else ["ec2", "up", word])
    assert explain == ["explain", *([f"--results={word}"] if begins else ["--results", word])]


@pytest.mark.parametrize("word", WORDS)
def test_every_format_shows_a_command_unchanged(word: str) -> None:
    command = commands.quoted("run", word, only=word)
    assert commands.SPAN.fullmatch(command)
    assert escaped(command) == command == one_line(command)
    assert not re.search(r"[<>&|]", command)
    sentence = f"x_ *y* <b>; then run {command} | twice"
    assert command in writers.markdown_escape(sentence) and command in writers.plain_escape(sentence)


def test_a_command_is_whole_or_left_out_of_a_long_text() -> None:
    command = commands.quoted("run", "x" * 600)
    assert writers.plain_escape(f"a {command} {'b' * 900}").startswith(f"a {command} bbb")
    assert "harness" not in writers.plain_escape(f"{'a' * 501} {command}")


def test_a_word_without_a_zero_byte_only(tmp_path: Path) -> None:
    assert hostile.paste([commands.command("pin", "a\0b")], tmp_path) == [["pin", "a\ufffdb"]]


def test_text_that_looks_like_a_command_stays_inert() -> None:
    for text in ("`harness run $(touch x)`", "`harness run 'a'; touch x`", "`harness run <b>`", "`harness`; `id`"):
        assert commands.SPAN.search(text) is None
        assert "`" not in writers.markdown_escape(text).replace("\\`", "")


def test_a_glob_of_a_cell_matches_it_alone() -> None:
    cells = [Cell("s", name, hostile.DATASET, "offline", hostile.PROFILE) for name in (*WORDS, "a", "b", "ax", "!")]
    for cell in cells:
        assert [other for other in cells if matches(other, glob_of(cell))] == [cell]


@pytest.mark.slow
def test_random_words_are_pasted_as_they_are(tmp_path: Path) -> None:
    draw = chance("commands")
    letters = "ab '\"\\$`!*?[]{}()<>|&;#~-=%^,.:/\n\t\x1b\u202e\u3164é日"
    words = ["".join(draw.choice(letters) for _ in range(draw.randrange(1, 12))) for _ in range(40)]
    found = hostile.paste([commands.command("run", only=word) for word in words], tmp_path)
    assert found == [["run", f"--only={word}"] if word.startswith("-") else ["run", "--only", word] for word in words]


_OTHERS = "docker (?:run|rm|exec|build|system)|aws (?:s3|ec2|configure|sso)|pip install|taskset"
# A command and what is inserted right behind it, or an option and its inserted value.
_COMMAND = re.compile(rf"\b(?:harness (?:{'|'.join(main.commands)})|{_OTHERS})\b[\w ./'\"=@-]*$")
_OPTION = re.compile(r".\B--[a-z][a-z-]*(?: |=)['\"]?$", re.S)
_FUNCTIONS = {"command", "quoted", "option", "words"}


def _inserted(tree: ast.AST) -> Iterator[tuple[int, str, ast.expr | None]]:
    """Yield each constant text and the expression that is inserted behind it, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for before, behind in zip(node.values, node.values[1:], strict=False):
                if isinstance(before, ast.Constant) and isinstance(behind, ast.FormattedValue):
                    number = behind.format_spec is not None
                    yield node.lineno, str(before.value), None if number else behind.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
                parts = re.split(r"%[a-z]", node.left.value) if isinstance(node.op, ast.Mod) else [node.left.value]
                yield from ((node.lineno, part, node.right) for part in parts)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            text = node.func.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield from ((node.lineno, part, node) for part in re.split(r"\{[^{}]*\}", text.value)[:-1])


def _unquoted(source: str) -> list[tuple[int, str]]:
    found = []
    for line, text, value in _inserted(ast.parse(source)):
        made = isinstance(value, ast.Call) and getattr(value.func, "id", "") in _FUNCTIONS
        if value is not None and not made and (_COMMAND.search(text) or _OPTION.search(text)):
            found.append((line, text))
    return found


def test_the_search_finds_commands_that_are_put_together() -> None:
    for source in (
        "f\"run `harness run --only '{name}'`\"",
        "f'x {a} harness pin {name}'",
        "'harness explain ' + name",
        "'harness report %s' % name",
        "'harness report --results {}'.format(name)",
        "f' --results {folder}'",
        "f'give --region {region}'",
        "f'docker rm {name}'",
    ):
        assert _unquoted(source), source
    for source in ("f'see `harness plan`; {x}'", "f'{command(\"run\", x)}'", "f'see --only; {x}'", "f'a {x:.2f}'"):
        assert not _unquoted(source), source


@pytest.mark.slow
def test_every_command_with_an_insertion_is_made_by_one_function() -> None:
    root = Path(harness.__file__).parent
    wrong = [
        f"{path.relative_to(root)}:{line}: {text[-60:]!r}"
        for path in sorted(root.rglob("*.py"))
        for line, text in _unquoted(path.read_text(encoding="utf-8"))
        if path.name != "commands.py"
    ]
    assert not wrong, "\n".join(wrong)
    verb = re.compile(rf"harness (?:{'|'.join(main.commands)})\b[^`]*\$\{{")
    assert not [path for path in sorted(root.rglob("*.js")) if verb.search(path.read_text(encoding="utf-8"))]
