"""What all tests of the measuring loop need."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """A pass holds the garbage collector; give it back."""
    yield
    gc.enable()
    gc.unfreeze()
