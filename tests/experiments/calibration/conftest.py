"""Reports as a calibration sees them, made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from harness.experiments.calibration.observation import Seen
from harness.results.schema import Result
from tests.support import sample_records


@dataclass(frozen=True)
class Job:
    """Stands for a stored job whose samples are given, and its record where a truth looks at that."""

    latency_s: Sequence[float]
    planted_s: Sequence[float]
    result: Result | None = None

    def samples(self) -> pa.Table:
        # A warm-up row and a repeat around them, which no truth may count.
        trials = [-1, *[0] * len(self.latency_s), -2]
        columns = {"trial": pa.array(trials, pa.int32())}
        for name, seconds in (("latency_ns", self.latency_s), ("stage_planted_ns", self.planted_s)):
            columns[name] = pa.array([10**12, *(round(each * 1e9) for each in seconds), 10**12], pa.int64())
        return pa.table(columns)


@pytest.fixture
def seen() -> Callable[..., Seen]:
    """What a report says: a clean, ok row with these keys, and these samples."""

    def make(latency_s: Sequence[float] = (), planted_s: Sequence[float] = (), **keys: Any) -> Seen:
        case = {"system": "case", "dataset": "planted", "profile": "cpu1-mem256m", "memory_limit_bytes": 256 << 20}
        job = Job(latency_s, planted_s or latency_s)
        return Seen(sample_records.row(**{**case, **keys}), (job,), bare_bytes=12 << 20)  # type: ignore[arg-type]

    return make
