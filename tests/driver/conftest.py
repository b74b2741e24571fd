"""What all tests of the measuring loop need."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A pass switches the garbage collector off; what it froze stays frozen, which makes the next one quick."""
    yield
    gc.enable()
