"""Doubts of the validity checks, the findings made of them, and the phrases that they share.

A finding's text is its fact, the remedy of its cause (:mod:`harness.analysis.causes`) and the command for its cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from harness.analysis.causes import TEXTS, Again
from harness.analysis.table import Cause, Finding, Validity
from harness.commands import literal, quoted
from harness.results.schema import Cell, Result, ResultSpec, glob_of

# Allowed ratio of the counted time to the length of the trials.
COVERED = (0.5, 2.0)


def trials_s(result: Result) -> float:
    """Return the total length of the trials."""
    phases = result.measured.phases if result.measured else ()
    return sum(phase.end_ns - phase.start_ns for phase in phases if phase.name.startswith("trial-")) / 1e9


def covers(counted_s: float | None, length_s: float) -> bool:
    """Return whether a counted time matches trials of this length; an unknown length matches."""
    return counted_s is None or not length_s or COVERED[0] * length_s <= counted_s <= COVERED[1] * length_s


@dataclass(frozen=True)
class Doubt:
    """A fact that makes numbers doubtful, or a remark (``clean``).

    ``remedy`` replaces the remedy of the cause, and ``again`` its way to measure again.
    """

    cause: Cause
    text: str
    remedy: str | None = None
    validity: Validity = Validity.NOISY
    again: Again | None = None

    def finding(self, command: str) -> Finding:
        """Return the finding: the fact, and for a doubt the remedy and the command that measures again."""
        if self.validity is Validity.CLEAN:
            return Finding(self.cause, self.validity, self.text)
        cause = TEXTS[self.cause]
        remedy = cause.remedy if self.remedy is None else self.remedy
        lead = f"{remedy}{':' if cause.again is Again.NOT else ''} " if remedy else ""
        return Finding(self.cause, self.validity, f"{self.text}; {lead}{command}", cause.transient)


def of_cell(doubts: Iterable[Doubt], cell: Cell) -> list[Finding]:
    """Return the findings about a cell, each with the command that measures the cell again."""
    commands = {
        Again.NOT: again(cell, launcher="docker"),
        Again.FRESH: again(cell),
        Again.MISSING: again(cell, fresh=False),
        Again.RETRY: again(cell, retry_noisy=3),
    }
    return [doubt.finding(commands[doubt.again or TEXTS[doubt.cause].again]) for doubt in doubts]


def remark(cause: Cause, text: str) -> Doubt:
    """Return a fact that does not make the numbers doubtful."""
    return Doubt(cause, text, validity=Validity.CLEAN)


def invalid(cause: Cause, text: str) -> Doubt:
    """Return a fact that makes the numbers worthless."""
    return Doubt(cause, text, validity=Validity.INVALID)


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
        options: options of ``harness run``; ``fresh=True`` by default, and with ``fresh=False`` its missing jobs.
    """
    return f"run {quoted('run', 'SUITE', **(options or {'fresh': True}), only=glob_of(cell))}"


def build_again(cell: Cell) -> str:
    """Tell the user how to build a cell's index again, for all cells with that index."""
    only = f"{literal(cell.system)}/{literal(cell.dataset)}/*"
    return f"run {quoted('run', 'SUITE', fresh_index=True, only=only)}"
