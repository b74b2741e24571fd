"""Job of the benchmarks, with harness and without."""

from __future__ import annotations

from harness.driver.records import Envelope, JobSpec, Query
from harness.results.isolation import CONTAINER

K = 10
ENVELOPE = Envelope("bench", 1, 256 << 20)


def spec(queries: int) -> JobSpec:
    """Return a job of one trial."""
    return JobSpec(
        kind="search",
        system="null",
        params={},
        envelope=ENVELOPE,
        enforced=CONTAINER.enforced,
        k=K,
        trials=1,
        corpus_size=10,
        warmup=(Query("w", "a query of some words"),),
        sample=tuple(Query(f"q{number}", "a query of some words") for number in range(queries)),
    )
