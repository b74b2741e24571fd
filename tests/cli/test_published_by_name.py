"""Published results are found by their name, wherever one is."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import config
from tests.support.command_line import Call


def test_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = config.published_folder() / "santhanam2023"
    assert config.results_by_name(Path("santhanam2023")) == shipped
    assert config.results_by_name(Path("results/published/santhanam2023")) == shipped
    for other in ("other/santhanam2023", "..", ".", "", "../santhanam2023", "santhanam2024", "results"):
        assert config.results_by_name(Path(other)) == Path(other)
    (tmp_path / "santhanam2023").mkdir()
    assert config.results_by_name(Path("santhanam2023")) == Path("santhanam2023")


def test_name_is_shown_as_it_was_given_and_a_near_one_is_offered(four_systems: Call) -> None:
    done = four_systems("report", "santhanm2023")
    assert done.exit_code == 2 and "Did you mean 'santhanam2023'?" in done.stderr
    shown = four_systems("report", "santhanam2023", "--columns", "cost")
    assert shown.stdout.splitlines()[-1].endswith("harness explain --results santhanam2023")
