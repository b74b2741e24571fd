"""The shipped tables and the prices they follow, and copies of the folder that tests may spoil."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.analysis.published import tables
from harness.analysis.published.tables import Published
from harness.pricing import prices
from harness.pricing.prices import Snapshot

SHIPPED = Path(__file__).resolve().parents[3] / "results" / "published" / "santhanam2023"
Spoil = Callable[[str, str, str], Published]


@pytest.fixture(scope="session")
def published() -> Published:
    return tables.read(SHIPPED)


@pytest.fixture(scope="session")
def follows(published: Published) -> Snapshot:
    return published.follows()


@pytest.fixture(scope="session")
def now() -> Snapshot:
    return prices.snapshot(datetime.date(2026, 7, 20))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED, tmp_path / "paper"))


@pytest.fixture
def altered(folder: Path) -> Spoil:
    """The tables with one text in one file replaced by another; the text must stand there once."""

    def alter(name: str, old: str, new: str) -> Published:
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")
        return tables.read(folder)

    return alter
