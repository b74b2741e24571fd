"""Threads follow the envelope, and jobs leave CPU 0 to the host where they can."""

from __future__ import annotations

import pytest

from harness.launch.base import choose_cpus, thread_environment


def test_every_library_that_we_know_of_is_held_to_the_cpus() -> None:
    environment = thread_environment(3)
    known = {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"}
    assert known <= environment.keys()
    assert {value for name, value in environment.items() if name != "TOKENIZERS_PARALLELISM"} == {"3"}
    assert environment["TOKENIZERS_PARALLELISM"] == "true"
    assert thread_environment(1)["TOKENIZERS_PARALLELISM"] == "false"


@pytest.mark.parametrize(
    ("count", "available", "chosen"),
    [
        (1, {0, 1}, (1,)),
        (2, {0, 1}, (0, 1)),
        (2, {7, 0, 3, 5}, (5, 7)),
        (1, {0}, (0,)),
        (3, set(range(16)), (13, 14, 15)),
    ],
)
def test_the_highest_cpus_are_taken(count: int, available: set[int], chosen: tuple[int, ...]) -> None:
    assert choose_cpus(count, available) == chosen
