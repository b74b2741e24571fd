"""The shipped tables, the prices they follow, and copies of the folder that tests may spoil."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from harness.analysis.published import Published
from harness.pricing import prices
from harness.pricing.prices import Snapshot
from tests.support.published import alter, copy, shipped

Spoil = Callable[[str, str, str], Published]


@pytest.fixture(scope="session")
def published() -> Published:
    return shipped()


@pytest.fixture(scope="session")
def follows() -> Snapshot:
    return shipped().follows()


@pytest.fixture(scope="session")
def now() -> Snapshot:
    return prices.snapshot(datetime.date(2026, 7, 20))


@pytest.fixture
def altered(tmp_path: Path) -> Spoil:
    """Return the tables with one text in one file replaced by another; the file must hold the text once."""
    return partial(alter, copy(tmp_path))
