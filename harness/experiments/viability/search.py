"""Search for the smallest limit: bracket, bisect, confirm.  Pure: a generator that is sent its findings.

It yields a request to measure, is sent the finding, and returns a result.  The same findings give the same requests,
so an interrupted search resumes when it is sent the findings of the stored jobs.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum

# Probes from the first limit to the one that is then confirmed, repeats of doubtful ones included.
PROBES = 8
# Fresh containers that must pass at the confirmed limit.
CONFIRMATIONS = 3
# Attempts at one limit while they are in doubt; the last one then counts as a failure.
TRIES = 3
# How often the limit that is to be confirmed may move.
MOVES = 4


class ProbeFinding(str, Enum):
    """The finding of a probe at its limit.  ``DOUBT``: a little too slow, or too slow on a disturbed machine."""

    PASS = "passes"  # noqa: S105 # no password
    FAIL = "fails"
    DOUBT = "in doubt"


class Purpose(str, Enum):
    """The purpose of a job.

    No search requests the last three.  ``CONTROL``: unconstrained, to see whether the machine is slow; ``DISCARDED``:
    it was, and another job ran in place of this one; ``OTHER``: run for another question, e.g. a curve.
    """

    PROBE = "probe"
    CONFIRMATION = "confirmation"
    BELOW = "next step below"
    CONTROL = "control"
    DISCARDED = "discarded"
    OTHER = "other job"


@dataclass(frozen=True)
class Bounds:
    """The range of a search, in bytes; all but the step are whole steps.

    ``first`` is tried first, ``hint`` is expected to pass, ``most`` has passed; nothing below ``least`` is tried.
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

    ``limit`` (bytes) passed every confirmation; ``None``: none did.  ``below`` is the next smaller limit that was
    tried.  Without it, either nothing smaller can be tried (``lowest``), or the probes were used up and all had passed.
    """

    limit: int | None
    below: int | None
    probes: int
    lowest: bool = False


Search = Generator[ProbeRequest, ProbeFinding, SearchResult]


def wrong_side(limit: int, finding: ProbeFinding, settled: int | None, below: int | None) -> bool:
    """Return whether a job contradicts the edge: it failed at the limit or above, or passed below it (bytes)."""
    if finding is ProbeFinding.PASS:
        return below is not None and limit <= below
    return settled is not None and limit >= settled


def bounds(anonymous: int, cgroup_peak: int, most: int, step: int, least: int, allowance: int) -> Bounds:
    """Round the memory of the unconstrained system (bytes) to the grid of whole steps.

    Args:
        anonymous: peak of anonymous memory, which a limit must hold, without the ``allowance``.
        cgroup_peak: peak of all memory charged: with that much, nothing is ever evicted.
        most: the limit that the system ran under.
        step: of the grid; not more than ``most``.
        least: no limit is smaller.
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
    """A search within bounds, begun again by :meth:`run` or :meth:`above`."""

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
        """Confirm the next whole step above a limit (bytes) under which some container was killed, or one higher."""
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
        """Return the next limit to probe, or None where the bracket is one step wide."""
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
        # Nothing passed yet: take the hint, or the next step.
        return min(max(self._bounds.hint, self._low + self._bounds.step), self._bounds.most)

    def _confirm(self, candidate: int) -> Search:
        at, confirmed = self._bounds, None
        # Where even the largest limit failed, that one is still confirmed, or not.
        below = self._low if self._low is not None and self._low < candidate else candidate - at.step
        bottomless = self._low is None and candidate > at.least  # the probes were used up before one failed
        for _ in range(MOVES + 1):
            if not (yield from self._confirmed(candidate)):
                if confirmed is not None:  # a step lower passed once, and not again
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
        """Return whether a limit passes in all confirmations; a few doubtful ones do not count."""
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
        """Try once more a step below; a doubtful try settles nothing unless that limit failed before."""
        for _ in range(1 if limit in self._failed else TRIES):
            finding = yield ProbeRequest(limit, Purpose.BELOW, 1, 1)
            if finding is not ProbeFinding.DOUBT:
                return finding is ProbeFinding.PASS
        return False
