"""What the report says of a planted case, and the samples behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.analysis.table import Cause, Finding, Row, Validity
from harness.results.reader import StoredJob

# What the counters and the canary say of the machine: nothing that a case here plants.
MACHINE = frozenset({Cause.STEAL, Cause.FOREIGN_CPU, Cause.CANARY, Cause.SLOW_MACHINE})


@dataclass(frozen=True)
class Seen:
    """What the report says of a case: its row, and the stored jobs that the row was made of.

    ``bare_bytes`` is the peak anonymous memory that is reported of the same processes when they hold nothing: the
    interpreters' own.  ``None`` where that was not measured.
    """

    row: Row
    jobs: tuple[StoredJob, ...]
    bare_bytes: int | None = None

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """What makes the row noisy or invalid; remarks doubt nothing."""
        return tuple(finding for finding in self.row.findings if finding.validity is not Validity.CLEAN)

    @property
    def disturbance(self) -> str | None:
        """What the report itself says against the machine, not the system: a figure that is off then proves little."""
        return next((finding.text for finding in self.doubts if finding.cause in MACHINE), None)

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Every timed latency in seconds."""
        return self._column("latency_ns") / 1e9

    @property
    def planted_s(self) -> NDArray[np.float64]:
        """What the adapter's own clock saw of the timed searches, in seconds."""
        return self._column("stage_planted_ns") / 1e9

    def _column(self, name: str) -> NDArray[np.float64]:
        return np.concatenate([_timed(job, name) for job in self.jobs])


def _timed(job: StoredJob, name: str) -> NDArray[np.float64]:
    """A column of the timed samples; warm-up and repeats have trial numbers below 0."""
    table = job.samples()
    timed = table.column("trial").to_numpy() >= 0
    return np.asarray(table.column(name).to_numpy()[timed], dtype=np.float64)
