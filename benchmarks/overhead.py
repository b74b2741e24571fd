"""Measure what measuring costs, side by side in one run: ``make bench``.

Five questions, each answered against something that does the same work without harness:

1. What does the driver's clock add to a query, against a bare loop around the same callable, and against two reads
   of the clock alone?  (at most 2 microseconds a query for a Python adapter)
2. What does a JSON-lines engine add?  (at most 100 microseconds a query)
3. How much longer is an empty job (start, load, one query, stored) than a bare ``docker run`` of the same image?
   (at most 1.5 times)
4. How much of a CPU do the samplers take that look at a job from outside?  (under 1 %)
5. How long do 100,000 generated documents take on one CPU, and how much memory?  (under a minute, flat)

Rounds of the alternatives are interleaved, so that a machine that drifts favours none; the median of the rounds counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import driver_overhead, empty_job, generated, observer_overhead
from benchmarks.table import Line, verdict
from harness.launch.docker import DockerLauncher

CACHE = Path(os.environ.get("HARNESS_CACHE", "~/.cache/ir-harness")).expanduser()


def main() -> int:
    """Measure all, print the table; exit code 1 when something costs more than allowed."""
    lines = [*driver_overhead.lines(), *generated.lines()]
    with closing(DockerLauncher(CACHE)) as launcher:
        lines += [*empty_job.lines(launcher, CACHE), *observer_overhead.lines(launcher)]
    _show(lines)
    return verdict("bench", [line.what for line in lines if not line.ok])


def _show(lines: Sequence[Line]) -> None:
    table = Table(title="What measuring costs")
    for head in ("what", "with harness", "without", "difference", "allowed", ""):
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(line.what, line.measured, line.against, line.figure, line.allowed, "ok" if line.ok else "OVER")
    Console(width=150 if not sys.stdout.isatty() else None).print(table)


if __name__ == "__main__":
    sys.exit(main())
