"""Command lines beside stored results and beside run files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Bench
from tests.support import publisher
from tests.support.command_line import Call, call
from tests.support.publisher import Made


@pytest.fixture
def _in_bench(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("HARNESS_CACHE", str(bench.cache))
    monkeypatch.chdir(bench.folder)
    return call


@pytest.fixture
def harness(_in_bench: Call) -> Call:
    """The command line in the bench's folder; files of tests with other inputs have their own."""
    return _in_bench


@pytest.fixture(scope="session")
def _four_systems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publisher.put(
        tmp_path_factory.mktemp("leaderboard") / "results",
        Made("fast", 2.0, (1, 2, 0)),
        Made("good", 20.0, (1, 1, 2)),
        Made("bad", 30.0, (2, 1, 2)),
        Made("dead", 1.0, outcome=publisher.Outcome.OOM),
        Made("fast", 1.5, (1, 2, 0), profile="cpu2-mem4"),
    )


@pytest.fixture
def four_systems(_four_systems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line beside stored results of four systems, which all tests share, and their rows."""
    monkeypatch.setenv("HARNESS_CACHE", str(_four_systems.parent / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(_four_systems)
    return call


@pytest.fixture
def tiny_runs(_in_bench: Call) -> Call:
    """The command line beside the tiny dataset and two run files of it."""
    for name, first in (("one", 1), ("two", 2)):
        lines = [
            f"q{n} Q0 d{(n + first + rank) % 10} {rank + 1} {-rank} {name}\n" for n in range(4) for rank in range(3)
        ]
        Path(f"{name}.run").write_text("".join(lines))
    return _in_bench
