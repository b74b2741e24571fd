"""Findings of the validity checks: constructors, and the phrases that they share.

A doubt's text is its fact, the remedy of its cause (:mod:`harness.analysis.causes`) and the command for its cell.
"""

from __future__ import annotations

from harness.analysis.causes import TEXTS, Again
from harness.analysis.table import Cause, Finding, Validity
from harness.commands import literal, quoted
from harness.results.schema import Cell, Result, ResultSpec, glob_of

# Allowed ratio of the counted time to the length of the trials.
COVERED = (0.5, 2.0)
# Options of ``harness run``: measure a cell again, and repeat while a transient finding makes it noisy.
FRESH: dict[str, str | int | bool] = {"fresh": True}
RETRY: dict[str, str | int | bool] = {"retry_noisy": 3}


def trials_s(result: Result) -> float:
    """Return the total length of the trials."""
    phases = result.measured.phases if result.measured else ()
    return sum(phase.end_ns - phase.start_ns for phase in phases if phase.name.startswith("trial-")) / 1e9


def covers(counted_s: float | None, length_s: float) -> bool:
    """Return whether a counted time matches trials of this length; an unknown length matches."""
    return counted_s is None or not length_s or COVERED[0] * length_s <= counted_s <= COVERED[1] * length_s


def invalid(cause: Cause, fact: str, cell: Cell, **options: str | int | bool) -> Finding:
    """Make a finding that makes the numbers worthless; ``options`` as of :func:`again`."""
    return doubt(Validity.INVALID, cause, fact, again(cell, **options))


def noisy(cause: Cause, fact: str, cell: Cell, remedy: str | None = None) -> Finding:
    """Make a finding that makes the numbers doubtful; ``remedy`` takes the place of the cause's own."""
    how = {Again.RETRY: again(cell, **RETRY), Again.MISSING: go_on(cell)}
    return doubt(Validity.NOISY, cause, fact, how.get(TEXTS[cause].again, again(cell)), remedy)


def doubt(validity: Validity, cause: Cause, fact: str, command: str, remedy: str | None = None) -> Finding:
    """Make a finding from its fact, the remedy of its cause and a command that measures again."""
    text = TEXTS[cause]
    remedy = text.remedy if remedy is None else remedy
    lead = f"{remedy}{':' if text.again is Again.NOT else ''} " if remedy else ""
    return Finding(cause, validity, f"{fact}; {lead}{command}", text.transient)


def remark(cause: Cause, text: str) -> Finding:
    """Make a finding that informs without doubting the numbers."""
    return Finding(cause, Validity.CLEAN, text)


def of_jobs(count: int, jobs: int) -> str:
    """Say in brackets how many of several jobs are affected; empty for one job."""
    return f" (in {count} of {jobs} jobs)" if jobs > 1 else ""


def throttled(what: str, periods: int, seconds: float) -> str:
    """Say that a CPU quota stopped a job or a build; an unknown count is 0."""
    lasted = f"{seconds:.3g} s" if seconds else ""
    counted = f"in {periods:,} periods{f' ({lasted})' if lasted else ''}" if periods else f"for {lasted}"
    return f"the kernel throttled the {what} {counted}"


def warm_longer(spec: ResultSpec) -> str:
    """Tell the user how to let warm-up last until the system is warm."""
    verb = "set" if spec.warmup_cap is None else "raise"
    return f"{verb} protocol.warmup_cap in the suite, then"


def warm_wider(spec: ResultSpec) -> str:
    """Tell the user how to warm up with more queries; at most a fifth of the sample warms up."""
    most = " (beyond a fifth of the sample, add queries without judgements to the dataset)" if spec.held_out else ""
    return f"raise protocol.warmup_queries in the suite{most}, then"


def again(cell: Cell, **options: str | int | bool) -> str:
    """Tell the user how to measure a cell again; a result records its suite's name, not the file.

    Args:
        cell: the cell.
        options: options of ``harness run``; ``fresh=True`` by default.
    """
    return f"run {quoted('run', 'SUITE', **(options or FRESH), only=glob_of(cell))}"


def go_on(cell: Cell) -> str:
    """Tell the user how to measure a cell's missing jobs."""
    return f"run {quoted('run', 'SUITE', only=glob_of(cell))}"


def build_again(cell: Cell) -> str:
    """Tell the user how to build a cell's index again, for all cells with that index."""
    only = f"{literal(cell.system)}/{literal(cell.dataset)}/*"
    return f"run {quoted('run', 'SUITE', fresh_index=True, only=only)}"
