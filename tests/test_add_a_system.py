"""docs/guides/add-a-system.md, followed to the letter."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.support.command_line import run_process

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "guides" / "add-a-system.md").read_text(encoding="utf-8")
# `my-images/...`: on a line of its own, then a fenced block.
_FILE = re.compile(r"^`(my-images/\S+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def followed(tmp_path: Path) -> Path:
    """A folder with every file that the page shows."""
    files = dict(_FILE.findall(PAGE))
    assert len(files) == 5
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert "`my-images/overlap/requirements.lock` is empty" in PAGE
    (tmp_path / "my-images" / "overlap" / "requirements.lock").touch()
    return tmp_path


def commands() -> list[str]:
    lines = [line.partition("#")[0].strip() for block in _SHELL.findall(PAGE) for line in block.splitlines()]
    return [line for line in lines if line.startswith("harness ")]


def run(command: str, folder: Path) -> str:
    _, *arguments = shlex.split(command)
    words = [sys.executable, "-m", "harness", *arguments]
    return run_process(words, folder, HARNESS_IMAGES=str(folder / "my-images"))


def test_page_shows_these_commands() -> None:
    assert commands() == [
        "harness systems",
        "harness conformance bm25-msmarco",
        "harness conformance overlap --launcher process",
        "harness conformance overlap",
    ]
    assert "export HARNESS_IMAGES=$PWD/my-images" in PAGE


@pytest.mark.slow
def test_one_file_adds_a_system_and_one_folder_an_engine(followed: Path) -> None:
    lines = [line.split("|") for line in run("harness systems", followed).splitlines() if line.startswith("| ")]
    listed = {line[1].split()[0]: line[2].strip() for line in lines}
    assert listed["bm25-msmarco"] == "lucene" and listed["overlap"] == "overlap" and "minilm" in listed
    output = run("harness conformance overlap --launcher process", followed)
    assert output.startswith("- 10 of 10 ok   all: --wide\n- next: `harness viable overlap` finds")


_IN_CONTAINERS = [each for each in commands() if each.startswith("harness conformance") and "--launcher" not in each]


@pytest.mark.docker
@pytest.mark.parametrize("command", _IN_CONTAINERS)
def test_instructions_on_the_page_work_in_a_container(followed: Path, command: str) -> None:
    output = run(command, followed)
    assert "10 of 10 ok" in output
