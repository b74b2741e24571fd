"""The significance page shows the output of its commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.cli import main
from scripts.docs import example_runs, make_pictures

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "method" / "significance.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"```text\n\$ harness (.*)\n((?:.*\n)*?)```", PAGE)


def test_page_shows_two_commands_and_a_picture() -> None:
    assert [command.split()[0] for command, _ in SHOWN] == ["compare", "robustness"]
    assert (ROOT / "docs" / "assets" / "example-flips.png").stat().st_size < 200_000


def test_text_of_the_picture_names_the_pair_that_swaps_most() -> None:
    said = re.search(r"; (\w+) and (\w+) flip in (\d+) % by RR@10\]", PAGE)
    assert said is not None
    board = make_pictures.example()
    (by_rr,) = (condition for condition in board.conditions if condition.name == "RR@10")
    pairs = {
        (one, other): share
        for one, shares in zip(board.systems, by_rr.flips, strict=True)
        for other, share in zip(board.systems, shares, strict=True)
        if share is not None
    }
    most = max(pairs, key=lambda pair: pairs[pair])
    assert ({said[1], said[2]}, f"{100 * pairs[most]:.0f}") == (set(most), said[3])


@pytest.mark.parametrize(("command", "printed"), SHOWN, ids=[command.split()[0] for command, _ in SHOWN])
def test_page_shows_the_printed_output(
    command: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(example_runs.write(tmp_path))
    done = CliRunner().invoke(main, shlex.split(command), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(printed.rstrip("\n"))


def test_page_is_right_about_fewer_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example_runs.write(tmp_path))
    asked = ["compare", "--wide", "alpha.run", "beta.run", "--qrels", "qrels.txt", "--measures", "nDCG@10"]
    done = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert "B wins 6.4 points nDCG@10" in done.stdout
    assert "| nDCG@10 | 0.0282 |  0.0282 |" in done.stdout
    assert "`--measures nDCG@10` alone has p 0.028" in PAGE
