"""Which limit to try next, and when to believe one.  Pure: what comes of a limit is sent in from outside.

A generator: it yields what to measure, is sent what came of it, and returns where it settled.  The same answers give
the same questions, so a search that was cut off is gone on with by sending in what is stored.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum

# Probes from the first limit to the one that is then confirmed, repeats of doubtful ones included.
PROBES = 8
# Fresh containers that must pass at the limit that is believed.
CONFIRMATIONS = 3
# Attempts at one limit while they are in doubt; the last one then counts as a failure.
TRIES = 3
# How often the limit that is to be confirmed may move.
MOVES = 4


class Finding(str, Enum):
    """What a probe says of its limit.  ``DOUBT``: too slow, by so little or so disturbed that it is tried again."""

    PASS = "passes"  # noqa: S105
    FAIL = "fails"
    DOUBT = "in doubt"


class Purpose(str, Enum):
    """Why a job is run.

    No search asks for the last three.  ``CONTROL``: unconstrained, to see whether the machine is slow; ``ASIDE``: it
    was, so the job says nothing and another was run in its place; ``OTHER``: run for something else, e.g. a curve.
    """

    PROBE = "probe"
    CONFIRMATION = "confirmation"
    BELOW = "next step below"
    CONTROL = "control"
    ASIDE = "put aside"
    OTHER = "other job"


@dataclass(frozen=True)
class Bounds:
    """Where to search, in bytes; all but the step are whole steps.

    ``first`` is tried first, ``hint`` is expected to pass, ``most`` has been seen to pass; nothing below ``least``.
    """

    step: int
    first: int
    hint: int
    least: int
    most: int


@dataclass(frozen=True)
class Ask:
    """Measure once under this limit (bytes): the ``number``-th of at most ``most`` for that purpose."""

    limit: int
    purpose: Purpose
    number: int
    most: int


@dataclass(frozen=True)
class Settled:
    """The end of a search.

    ``limit`` (bytes) passed every confirmation; ``None``: none did.  ``below`` is the next smaller limit that was
    tried.  Without it, either nothing smaller can be tried (``lowest``), or the probes were used up and all had passed.
    """

    limit: int | None
    below: int | None
    probes: int
    lowest: bool = False


Search = Generator[Ask, Finding, Settled]


def wrong_side(limit: int, finding: Finding, settled: int | None, below: int | None) -> bool:
    """Does a job speak against a sharp edge?  It did not pass at the limit or above, or passed below it (bytes)."""
    if finding is Finding.PASS:
        return below is not None and limit <= below
    return settled is not None and limit >= settled


def bounds(anonymous: int, cgroup_peak: int, most: int, step: int, least: int, allowance: int) -> Bounds:
    """Put what the unconstrained system used (bytes) on the grid of whole steps.

    Args:
        anonymous: peak of anonymous memory, which a limit must hold; with ``allowance`` for what comes with it.
        cgroup_peak: peak of everything charged: with that much, nothing is ever missing.
        most: the limit that it ran under.
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


def search(bounds: Bounds) -> Search:
    """Bracket, bisect, confirm."""
    return _Search(bounds).run()


def above(bounds: Bounds, failed: int) -> Search:
    """Confirm the next whole step above a limit (bytes) under which some container was killed, or one higher."""
    return _Search(bounds).above(failed)


class _Search:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._probes = 0
        self._low: int | None = None  # the largest limit that failed
        self._high: int | None = None  # the smallest that passed
        self._failed: set[int] = set()
        self._refused: set[int] = set()  # not confirmed

    def run(self) -> Search:
        while self._probes < PROBES and (limit := self._next()) is not None:
            finding = yield from self._probe(limit)
            if finding is Finding.PASS:
                self._high = limit
            else:
                self._low = limit
        return (yield from self._confirm(self._candidate()))

    def above(self, failed: int) -> Search:
        step = self._bounds.step
        candidate, below = (failed // step + 1) * step, failed
        for _ in range(MOVES + 1):
            if candidate > self._bounds.most:
                break
            if (yield from self._confirmed(candidate)):
                return Settled(candidate, below, self._probes)
            candidate, below = candidate + step, candidate
        return Settled(None, below, self._probes)

    def _next(self) -> int | None:
        """The next limit to probe, or None where the bracket is one step wide."""
        low, high, at = self._low, self._high, self._bounds
        if low is None and high is None:
            return at.first
        if low is None:
            assert high is not None
            # Each pass doubles the stride: what passes below the anonymous peak gives memory back when it must.
            lower = max(at.least, high - max(at.first - high, at.step))
            return None if high <= at.least else lower
        top = high if high is not None else at.hint
        if top <= low:  # even what was expected to pass did not
            upper = low + max(low - at.first, at.step)
            return None if low >= at.most else min(upper, at.most)
        steps = (top - low) // at.step
        if high is None:
            return low + -(-steps // 2) * at.step  # ends at the hint itself
        return low + steps // 2 * at.step if steps > 1 else None

    def _probe(self, limit: int) -> Generator[Ask, Finding, Finding]:
        """Try a limit until it is not in doubt, or the tries are used up."""
        finding = Finding.DOUBT
        for _ in range(TRIES):
            if finding is not Finding.DOUBT or self._probes >= PROBES:
                break
            self._probes += 1
            finding = yield from self._ask(limit, Purpose.PROBE, self._probes, PROBES)
        if finding is not Finding.PASS:
            self._failed.add(limit)
        return finding

    def _candidate(self) -> int:
        if self._high is not None:
            return self._high
        assert self._low is not None
        # Nothing was seen to pass: what is expected to, or the next step.
        return min(max(self._bounds.hint, self._low + self._bounds.step), self._bounds.most)

    def _confirm(self, candidate: int) -> Search:
        at, confirmed = self._bounds, None
        # Where even the largest limit failed, that one is still confirmed, or not.
        below = self._low if self._low is not None and self._low < candidate else candidate - at.step
        bottomless = self._low is None and candidate > at.least  # the probes were used up before one failed
        for _ in range(MOVES + 1):
            if not (yield from self._confirmed(candidate)):
                if confirmed is not None:  # a step lower passed once, and not again
                    return Settled(confirmed, candidate, self._probes)
                candidate, below = min(candidate + at.step, at.most), candidate
                if candidate == below:
                    break
                continue
            confirmed = candidate
            if bottomless or below < at.least:
                return Settled(confirmed, None, self._probes, lowest=not bottomless)
            passes = yield from self._below(below)
            if not passes or below in self._refused:
                return Settled(confirmed, below, self._probes)
            candidate, below = below, below - at.step
        return Settled(confirmed, below if confirmed is None else candidate, self._probes)

    def _confirmed(self, limit: int) -> Generator[Ask, Finding, bool]:
        """Does it pass in so many fresh containers?  So many doubtful ones are let pass unseen."""
        passed = doubts = 0
        while passed < CONFIRMATIONS:
            finding = yield from self._ask(limit, Purpose.CONFIRMATION, passed + 1, CONFIRMATIONS)
            passed += finding is Finding.PASS
            doubts += finding is Finding.DOUBT
            if finding is Finding.FAIL or doubts >= TRIES:
                self._refused.add(limit)
                self._failed.add(limit)
                return False
        return True

    def _below(self, limit: int) -> Generator[Ask, Finding, bool]:
        """One more try a step below; a doubtful one settles nothing unless that limit failed before."""
        for _ in range(TRIES):
            known = limit in self._failed
            finding = yield from self._ask(limit, Purpose.BELOW, 1, 1)
            if finding is not Finding.DOUBT or known:
                return finding is Finding.PASS
        return False

    def _ask(self, limit: int, purpose: Purpose, number: int, most: int) -> Generator[Ask, Finding, Finding]:
        finding = yield Ask(limit, purpose, number, most)
        if finding is Finding.FAIL:
            self._failed.add(limit)
        return finding
