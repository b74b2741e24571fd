"""Random draws of tests: new in each run, repeatable with the run's seed."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest

# pytest prints it at the start of a run; set it to repeat that run.
VARIABLE = "HARNESS_TEST_SEED"


def seed() -> int:
    """Return the run's seed, which all its processes share; draw it at the first call."""
    return int(os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(1_000_000))))


def chance(name: str) -> random.Random:
    """Return a generator for one purpose, seeded by the run's seed and a name."""
    return random.Random(f"{seed()} {name}")


def drawn(name: str, values: Sequence[Any], count: int) -> list[Any]:
    """Return the cases of a test: ``count`` of them, drawn for this purpose, and the others for the soak alone.

    A case of several parameters is a tuple.
    """
    now = chance(name).sample(range(len(values)), count)
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)), marks=() if number in now else pytest.mark.soak
        )
        for number, value in enumerate(values)
    ]
