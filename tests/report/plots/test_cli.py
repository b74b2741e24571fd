"""`harness report --format png|svg|pdf`: files, their paths, and why others are not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from harness.config import data_root
from harness.launch.fake import FakeLauncher
from harness.report.plots import album
from tests.conftest import Bench
from tests.support.command_line import call

PUBLISHED = data_root() / "results" / "published" / "santhanam2023"


def ask(*words: object) -> Result:
    return call("report", *map(str, words))


@pytest.mark.slow
def test_pictures_go_into_a_folder_and_their_paths_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw two kinds: test_album.py draws the others."""
    plots_of = album.plots_of
    monkeypatch.setattr(album, "plots_of", lambda *given: plots_of(*given[:3], ("winners", "memory")))
    done = ask(PUBLISHED, "--format", "svg", "-o", tmp_path / "deep" / "pictures", "--cache", tmp_path / "cache")
    assert done.exit_code == 0
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert sorted(paths) == sorted((tmp_path / "deep" / "pictures").iterdir())
    assert {path.name for path in paths} >= {
        "msmarco-santhanam2023-memory.svg",
        "msmarco-santhanam2023-winners.svg",
        "xortydi-winners.svg",
    }
    assert "xortydi: no picture of memory limits: each system was measured at one limit only" in done.stderr


def test_rates_are_given_to_pictures_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(album, "plots_of", lambda _table, _values, query, _kinds: asked.append(query))
    with pytest.raises(AttributeError):  # nothing is drawn
        ask(PUBLISHED, "--format", "png", "-o", tmp_path, "--amrs", "latency=3,cost=2", "--cache", tmp_path)
    assert asked[0].amrs == {"latency": 3.0, "cost": 2.0}
    done = ask(PUBLISHED, "--amrs", "latency=3,cost=2", "--cache", tmp_path)
    assert done.exit_code == 2 and "--amrs is for pictures; harness leaderboard has it" in done.stderr


def test_pictures_without_a_folder_are_refused(tmp_path: Path) -> None:
    done = ask(PUBLISHED, "--format", "png", "--cache", tmp_path)
    assert done.exit_code == 2
    assert done.stderr == "harness: --format png writes several files; name a folder for them with -o\n"


def test_layout_applies_only_to_tables(tmp_path: Path) -> None:
    done = ask(PUBLISHED, "--format", "pdf", "-o", tmp_path, "--layout", "santhanam2023")
    assert done.exit_code == 2 and "--layout santhanam2023 shapes a table" in done.stderr


def test_results_without_a_picture_exit_1_with_the_reason(bench: Bench, tmp_path: Path) -> None:
    bench.run(FakeLauncher(), bench.suite("", systems=["planted"], profiles=["cpu1-mem1"]))
    done = ask(bench.results, "--format", "png", "-o", tmp_path / "out", "--cache", bench.cache)
    assert done.exit_code == 1 and done.stdout == ""
    assert "tiny: no picture of cost and accuracy: no row of tiny can be ranked; planted: invalid" in done.stderr
