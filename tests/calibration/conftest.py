"""Reports as a calibration sees them, made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from harness.calibration.seen import Seen
from harness.records import Isolation, Outcome
from harness.result import Result
from harness.table import Machine, Row, Validity

MACHINE = Machine("AMD EPYC 9B14", "x86_64", "6.18.5", 1, "20.10.24", "0.1.0", None, (), None, 4)


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
        fields: dict[str, Any] = {
            "suite": "latency",
            "system": "case",
            "dataset": "planted",
            "scenario": "single_stream",
            "profile": "cpu1-mem256m",
            "isolation": Isolation.CONTAINER,
            "outcome": Outcome.OK,
            "detail": None,
            "validity": Validity.CLEAN,
            "key": "0011223344556677",
            "started_at": "2026-11-20T10:00:00+00:00",
            "machine": MACHINE,
            "cpus": 1,
            "memory_limit_bytes": 256 << 20,
            "gpus": 0,
            "price": None,
            "price_note": None,
            "k": 10,
            "sample_sha256": "s",
            "corpus_sha256": "c",
            "qrels_sha256": "q",
        }
        job = Job(latency_s, planted_s or latency_s)
        return Seen(Row(**{**fields, **keys}), (job,), bare_bytes=12 << 20)  # type: ignore[arg-type]

    return make
