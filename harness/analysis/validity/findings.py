"""What may be said against a number, in the words that all of them share."""

from __future__ import annotations

from harness.analysis.table import Cause, Finding, Validity
from harness.results.schema import Cell, Result, ResultSpec

# MERGED harness.analysis.validity.findings: Does what was counted belong to the trials?  Readings may lie too far from short ones to
# say anything of them.


# What was counted / the trials' own length.
COVERED = (0.5, 2.0)


def trials_s(result: Result) -> float:
    """How long the trials took, all together."""
    return sum(phase.end_ns - phase.start_ns for phase in result.phases if phase.name.startswith("trial-")) / 1e9


def covers(counted_s: float | None, result: Result) -> bool:
    """Is what was counted over some seconds about this job's trials?  Yes where either length is not known."""
    length_s = trials_s(result)
    return counted_s is None or not length_s or COVERED[0] * length_s <= counted_s <= COVERED[1] * length_s


def invalid(cause: Cause, text: str) -> Finding:
    """A reason why the number is worth nothing."""
    return Finding(cause, Validity.INVALID, text)


def noisy(cause: Cause, text: str, *, transient: bool = False) -> Finding:
    """A reason to doubt the number."""
    return Finding(cause, Validity.NOISY, text, transient)


def remark(cause: Cause, text: str) -> Finding:
    """What a reader should know, and no reason to doubt."""
    return Finding(cause, Validity.CLEAN, text)


def of_jobs(count: int, jobs: int) -> str:
    """In how many of several jobs something was seen, in brackets; nothing where there is one job."""
    return f" (in {count} of {jobs} jobs)" if jobs > 1 else ""


def warm_longer(spec: ResultSpec) -> str:
    """Tell the user how to let warm-up last until the system is warm."""
    verb = "set" if spec.warmup_cap is None else "raise"
    return f"{verb} protocol.warmup_cap in the suite, then {again(spec.cell)}"


def warm_wider(spec: ResultSpec) -> str:
    """Tell the user how to warm up with more queries; a sample lends a fifth of itself at most."""
    most = " (beyond a fifth of the sample, add queries without judgements to the dataset)" if spec.held_out else ""
    return f"raise protocol.warmup_queries in the suite{most}, then {again(spec.cell)}"


def again(cell: Cell, option: str = "--fresh") -> str:
    """What measures a cell again, in words: a result knows its suite's name, not where the file lies.

    Args:
        cell: what to measure.
        option: of ``harness run``; empty to go on where a run stopped.
    """
    options = f"{option} --only" if option else "--only"
    return f"run its suite again with {options} '{cell.system}/{cell.dataset}/{cell.scenario}/{cell.profile}'"
