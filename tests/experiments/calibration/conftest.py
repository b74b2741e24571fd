"""Reports as a calibration sees them, made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from harness.experiments.calibration.known_values import CaseReport
from harness.results.schema import Result
from tests.support import sample_records


@dataclass(frozen=True)
class Job:
    """Stands for a stored job whose samples are given, and its record where a truth looks at that."""

    latency_s: Sequence[float]
    injected_s: Sequence[float]
    result: Result | None = None

    def samples(self) -> pa.Table:
        # A warm-up row and a repeat around them, which no truth may count.
        trials = [-1, *[0] * len(self.latency_s), -2]
        names = pa.array([f"q{place}" for place in range(len(trials))]).dictionary_encode()
        columns = {"query_id": names, "trial": pa.array(trials, pa.int32()), "warmup": [trial < 0 for trial in trials]}
        for name, seconds in (("latency_ns", self.latency_s), ("stage_planted_ns", self.injected_s)):
            columns[name] = pa.array([10**12, *(round(value_s * 1e9) for value_s in seconds), 10**12], pa.int64())
        return pa.table(columns)


@pytest.fixture
def seen() -> Callable[..., CaseReport]:
    """Build a report with a clean, ok row of these keys, and these samples."""

    def make(latency_s: Sequence[float] = (), injected_s: Sequence[float] = (), **keys: Any) -> CaseReport:
        case = {"system": "case", "dataset": "planted", "profile": "cpu1-mem256m", "memory_limit_bytes": 256 << 20}
        job = Job(latency_s, injected_s or latency_s)
        return CaseReport(sample_records.row(**{**case, **keys}), (job,), bare_bytes=12 << 20)

    return make
