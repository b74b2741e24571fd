"""Search for the smallest limit: bracket, bisect, confirm.  Pure: a generator that receives findings.

It yields requests to measure, receives the findings, and returns a result.  The same findings give the same requests,
so an interrupted search resumes when it receives the findings of stored jobs.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum

# Largest number of probes before confirmation, including repeats of doubtful ones.
PROBES = 8
# Number of fresh containers that must pass at the confirmed limit.
CONFIRMATIONS = 3
# Largest number of doubtful attempts at one limit; the last one then counts as a failure.
TRIES = 3
# Number of times that the limit under confirmation may move.
MOVES = 4


class ProbeFinding(str, Enum):
    """A probe's finding at its limit.  ``DOUBT``: a little too slow, or too slow on a disturbed machine."""

    PASS = "passes"  # noqa: S105 # no password
    FAIL = "fails"
    DOUBT = "in doubt"


class Purpose(str, Enum):
    """The purpose of a job.

    Searches never request the last three.  ``CONTROL``: an unconstrained job that shows whether the machine is slow;
    ``DISCARDED``: the machine was slow, and another job replaced this one; ``OTHER``: a job for another question, such
    as a curve.
    """

    PROBE = "probe"
    CONFIRMATION = "confirmation"
    BELOW = "next step below"
    CONTROL = "control"
    DISCARDED = "discarded"
    OTHER = "other job"


@dataclass(frozen=True)
class Bounds:
    """The range of a search in bytes; all values are multiples of the step.

    ``first`` is tried first, ``hint`` is expected to pass, ``most`` has passed, and ``least`` is the smallest to try.
    """

    step: int
    first: int
    hint: int
    least: int
    most: int


@dataclass(frozen=True)
class ProbeRequest:
    """A request to measure once under a limit (bytes): the ``number``-th of at most ``most`` for that purpose."""

    limit: int
    purpose: Purpose
    number: int
    most: int


@dataclass(frozen=True)
class SearchResult:
    """The end of a search.

    ``limit`` (bytes) passed every confirmation, or is ``None``.  ``below`` is the next smaller limit that was tried.
    Without it, either a smaller limit cannot be tried (``lowest``), or all probes were used and passed.
    """

    limit: int | None
    below: int | None
    probes: int
    lowest: bool = False


Search = Generator[ProbeRequest, ProbeFinding, SearchResult]


def wrong_side(limit: int, finding: ProbeFinding, settled: int | None, below: int | None) -> bool:
    """Return whether a job contradicts the limit (bytes): it failed at or above it, or passed below it."""
    if finding is ProbeFinding.PASS:
        return below is not None and limit <= below
    return settled is not None and limit >= settled


def bounds(anonymous: int, cgroup_peak: int, most: int, step: int, least: int, allowance: int) -> Bounds:
    """Round the memory of the unconstrained system (bytes) to the grid of whole steps.

    Args:
        anonymous: peak of anonymous memory, which a limit must hold in addition to the ``allowance``.
        cgroup_peak: peak of all charged memory; with that much the kernel evicts nothing.
        most: the limit that the system ran under.
        step: step of the grid; at most ``most``.
        least: the smallest limit.
        allowance: added to the anonymous peak.
    """
    top = most // step
    lowest = min(_up(least, step), top)
    first = min(max(_up(anonymous + allowance, step), lowest), top)
    hint = min(max(_up(cgroup_peak, step), first), top)
    return Bounds(step, first * step, hint * step, lowest * step, top * step)


def _up(size: int, step: int) -> int:
    return -(-size // step)


class LimitSearch:
    """A search within bounds; :meth:`run` and :meth:`above` start it."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._probes = 0
        self._low: int | None = None  # the largest limit that failed
        self._high: int | None = None  # the smallest that passed
        self._failed: set[int] = set()
        self._refused: set[int] = set()  # not confirmed

    def run(self) -> Search:
        """Search from the first limit: bracket, bisect, confirm."""
        while self._probes < PROBES and (limit := self._next()) is not None:
            finding = yield from self._probe(limit)
            if finding is ProbeFinding.PASS:
                self._high = limit
            else:
                self._low = limit
        return (yield from self._confirm(self._candidate()))

    def above(self, failed: int) -> Search:
        """Confirm the next step, or a higher one, above a limit (bytes) at which a container was killed."""
        step = self._bounds.step
        candidate, below = (failed // step + 1) * step, failed
        for _ in range(MOVES + 1):
            if candidate > self._bounds.most:
                break
            if (yield from self._confirmed(candidate)):
                return SearchResult(candidate, below, self._probes)
            candidate, below = candidate + step, candidate
        return SearchResult(None, below, self._probes)

    def _next(self) -> int | None:
        """Return the next limit to probe, or None if the bracket is one step wide."""
        low, high, at = self._low, self._high, self._bounds
        if low is None and high is None:
            return at.first
        if low is None:
            assert high is not None
            # Each pass doubles the stride: a system that passes below its anonymous peak can free memory.
            lower = max(at.least, high - max(at.first - high, at.step))
            return None if high <= at.least else lower
        top = high if high is not None else at.hint
        if top <= low:  # even the hint failed
            upper = low + max(low - at.first, at.step)
            return None if low >= at.most else min(upper, at.most)
        steps = (top - low) // at.step
        if high is None:
            return low + -(-steps // 2) * at.step  # ends at the hint itself
        return low + steps // 2 * at.step if steps > 1 else None

    def _probe(self, limit: int) -> Generator[ProbeRequest, ProbeFinding, ProbeFinding]:
        """Try a limit until it is not in doubt, or the tries are used up."""
        finding = ProbeFinding.DOUBT
        for _ in range(TRIES):
            if finding is not ProbeFinding.DOUBT or self._probes >= PROBES:
                break
            self._probes += 1
            finding = yield ProbeRequest(limit, Purpose.PROBE, self._probes, PROBES)
        if finding is not ProbeFinding.PASS:
            self._failed.add(limit)
        return finding

    def _candidate(self) -> int:
        if self._high is not None:
            return self._high
        assert self._low is not None
        # Without a pass so far: take the hint, or the next step.
        return min(max(self._bounds.hint, self._low + self._bounds.step), self._bounds.most)

    def _confirm(self, candidate: int) -> Search:
        at, confirmed = self._bounds, None
        # If even the largest limit failed, confirmation decides about it.
        below = self._low if self._low is not None and self._low < candidate else candidate - at.step
        bottomless = self._low is None and candidate > at.least  # all probes were used before one failed
        for _ in range(MOVES + 1):
            if not (yield from self._confirmed(candidate)):
                if confirmed is not None:  # one step lower passed once, but not again
                    return SearchResult(confirmed, candidate, self._probes)
                candidate, below = min(candidate + at.step, at.most), candidate
                if candidate == below:
                    break
                continue
            confirmed = candidate
            if bottomless or below < at.least:
                return SearchResult(confirmed, None, self._probes, lowest=not bottomless)
            passes = yield from self._below(below)
            if not passes or below in self._refused:
                return SearchResult(confirmed, below, self._probes)
            candidate, below = below, below - at.step
        return SearchResult(confirmed, below if confirmed is None else candidate, self._probes)

    def _confirmed(self, limit: int) -> Generator[ProbeRequest, ProbeFinding, bool]:
        """Return whether a limit passes in all confirmations; a few doubtful ones are repeated."""
        passed = doubts = 0
        while passed < CONFIRMATIONS:
            finding = yield ProbeRequest(limit, Purpose.CONFIRMATION, passed + 1, CONFIRMATIONS)
            passed += finding is ProbeFinding.PASS
            doubts += finding is ProbeFinding.DOUBT
            if finding is ProbeFinding.FAIL or doubts >= TRIES:
                self._refused.add(limit)
                self._failed.add(limit)
                return False
        return True

    def _below(self, limit: int) -> Generator[ProbeRequest, ProbeFinding, bool]:
        """Try one step below again; a doubtful try decides only if that limit failed before."""
        for _ in range(1 if limit in self._failed else TRIES):
            finding = yield ProbeRequest(limit, Purpose.BELOW, 1, 1)
            if finding is not ProbeFinding.DOUBT:
                return finding is ProbeFinding.PASS
        return False
