"""The files of a job in ``out/``: events and samples as they happen, the measurement at the end.

Each line is one ``write`` to an unbuffered file, so that finished work survives a kill.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

# By name, here and wherever the driver reads a clock: an adapter that replaces time.perf_counter_ns comes too late.
from time import perf_counter_ns
from typing import Any

from harness.driver.records import Measurement, Phase, to_json

EVENTS = "events.jsonl"
SAMPLES = "samples.jsonl"
UPDATES = "updates.jsonl"
MEASUREMENT = "measurement.json"
# How a query or an update failed; an update may also have come too late to be sent.
ERROR, TIMED_OUT, UNSENT = 1, 2, 3
WARMUP_TRIAL = -1
REPEAT_TRIAL = -2


@dataclass
class PhaseClaim:
    """The nanoseconds that the answers of a phase took; the code of the phase sets them."""

    claimed_ns: int = 0


class Output:
    """The files of one job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._events = (folder / EVENTS).open("ab", buffering=0)
        self._samples = (folder / SAMPLES).open("ab", buffering=0)
        self.phases: list[Phase] = []
        self._written_ns = 0

    @contextmanager
    def phase(self, name: str, total: int = 0) -> Iterator[PhaseClaim]:
        """Write a phase's start and end as events, and keep it for the measurement.

        The end event has the claimed nanoseconds and the time of writing, which a busy disk makes arbitrarily long.
        """
        claim, start_ns, written_ns = PhaseClaim(), perf_counter_ns(), self._written_ns
        self._event(phase=name, total=total, t_ns=start_ns)
        try:
            yield claim
        finally:
            end_ns = perf_counter_ns()
            self.phases.append(Phase(name, start_ns, end_ns))
            written_ns = self._written_ns - written_ns
            self._event(end=name, start_ns=start_ns, t_ns=end_ns, claimed_ns=claim.claimed_ns, written_ns=written_ns)

    def progress(self, done: int) -> None:
        """Report the progress of the present phase to the host."""
        self._event(done=done, t_ns=perf_counter_ns())

    def pause(self, number: int) -> None:
        """Ask the host for the queries of this number."""
        self._event(pause=number, t_ns=perf_counter_ns())

    def write_sample(
        self,
        trial: int,
        query_id: str,
        latency_ns: int,
        stages_ns: dict[str, int],
        hits: list[tuple[str, float]],
        **extra: Any,
    ) -> None:
        """Write one finished query.

        ``extra`` is ``batch``; ``scheduled_ns``, ``service_ns`` and ``failed``; ``counts`` and ``first_stage``.
        """
        line = {"trial": trial, "query_id": query_id, "latency_ns": latency_ns, "stages_ns": stages_ns, "hits": hits}
        self._write(self._samples, _line({**line, **extra}))

    def write_updates(self, updates: Iterable[Mapping[str, Any]]) -> None:
        """Write the updates of the ``mixed`` scenario, one a line."""
        with (self._folder / UPDATES).open("ab") as file:
            file.writelines(map(_line, updates))

    def measurement(self, measurement: Measurement[str]) -> None:
        """Write the measurement; a rename makes it whole or absent."""
        partial = self._folder / (MEASUREMENT + ".partial")
        partial.write_text(to_json(measurement), encoding="utf-8")
        partial.rename(self._folder / MEASUREMENT)

    def close(self) -> None:
        """Flush to disk."""
        for file in (self._events, self._samples):
            os.fsync(file.fileno())
            file.close()

    def _event(self, **fields: Any) -> None:
        # The next event has the time that this one took to write.
        self._write(self._events, _line({**fields, "wrote_ns": self._written_ns}))

    def _write(self, file: FileIO, line: bytes) -> None:
        start_ns = perf_counter_ns()
        file.write(line)
        self._written_ns += perf_counter_ns() - start_ns


def throttled(report: Callable[[int], None], interval_s: float = 0.2) -> Callable[[int], None]:
    """Pass on one call each ``interval_s`` at most: builds may report every document."""
    last = -interval_s

    def maybe(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= interval_s:
            last = now
            report(done)

    return maybe


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8") + b"\n"
