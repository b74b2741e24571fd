"""What was planted and what was reported, side by side: one verdict a figure, and how it is written for people."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB = 1 << 20
# The larger of 1 % and 20 microseconds; the larger of 3 % and 8 MiB.
TIME_SHARE, TIME_S = 0.01, 20e-6
MEMORY_SHARE, MEMORY_BYTES = 0.03, 8 * MIB
_CELL = 60  # characters of a foreign sentence that a table shows


@dataclass(frozen=True)
class Verdict:
    """One figure: the truth, what was reported, and whether that will do.

    All but ``ok`` is written for people.  ``severity`` is the error as a share of what is allowed, where there is an
    error to speak of: of many repeats the worst is shown.
    """

    what: str
    planted: str
    measured: str
    error: str
    allowed: str
    ok: bool
    severity: float = 0.0


def most_error_s(truth_s: float) -> float:
    """How far a time may be off, in seconds: the larger of 1 % and 20 microseconds."""
    return max(TIME_SHARE * truth_s, TIME_S)


def time(what: str, truth_s: float, found_s: float) -> Verdict:
    """A duration in seconds."""
    most_s, error_s = most_error_s(truth_s), found_s - truth_s
    error = f"{error_s * 1e6:+,.1f} us ({share(error_s, truth_s)})"
    severity = abs(error_s) / most_s
    return Verdict(what, ms(truth_s), ms(found_s), error, f"{most_s * 1e6:,.0f} us", severity <= 1, severity)


def memory(what: str, truth: int, found: int) -> Verdict:
    """Bytes, held to the larger of 3 % and 8 MiB."""
    most = max(MEMORY_SHARE * truth, MEMORY_BYTES)
    severity = abs(found - truth) / most
    error = f"{(found - truth) / MIB:+.1f} MiB"
    return Verdict(what, mib(truth), mib(found), error, mib(most), severity <= 1, severity)


def missing(what: str, planted: str, why: str | None) -> Verdict:
    """No figure at all."""
    return Verdict(what, planted, f"nothing: {short(why or 'no reason given')}", "", "a figure", False, math.inf)


def short(text: str) -> str:
    """The beginning of a sentence, as far as a table's cell holds it."""
    return text if len(text) <= _CELL else text[: _CELL - 3].rstrip() + "..."


def ms(seconds: float) -> str:
    """Milliseconds, in four digits where they are few."""
    return f"{seconds * 1e3:,.4g} ms" if seconds < 0.1 else f"{seconds * 1e3:,.1f} ms"


def mib(size: float) -> str:
    """Bytes as MiB."""
    return f"{size / MIB:,.1f} MiB"


def share(error: float, truth: float) -> str:
    """An error as per cent of the truth."""
    return f"{error / truth:+.2%}"
