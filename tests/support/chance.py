"""Random draws of tests: new in each run, repeatable with the run's seed."""

from __future__ import annotations

import os
import random

# pytest prints it at the start of a run; set it to repeat that run.
VARIABLE = "HARNESS_TEST_SEED"


def seed() -> int:
    """Return the run's seed, which all its processes share; draw it at the first call."""
    return int(os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(1_000_000))))


def chance(name: str) -> random.Random:
    """Return a generator for one purpose, seeded by the run's seed and a name."""
    return random.Random(f"{seed()} {name}")
