"""Fixtures of the tests of the measuring loop."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Enable the garbage collector again after each test; frozen objects stay frozen."""
    yield
    gc.enable()
