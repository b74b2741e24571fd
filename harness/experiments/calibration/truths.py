"""Planted truths, one class for each kind: each looks at what the report says of its case and gives verdicts.

The bounds are the instrument's promise; they are written in ``docs/method/measurement.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from harness import stats
from harness.analysis.table import Cause, Row, Validity
from harness.experiments.calibration.observation import MACHINE, Seen
from harness.records import Outcome

# MERGED harness.experiments.calibration.truths: What was planted and what was reported, side by side: one verdict a figure,
# and how it is written for people.


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


# Chance must not fail a calibration: its own intervals are wider than the 95 % that reports print.
CONFIDENCE = 0.999
# What a disturbed machine brings about in any system.
_FOLLOWS = frozenset({Cause.DRIFT, Cause.WARMUP})


class Truth(Protocol):
    """Something planted."""

    @property
    def timed(self) -> bool:
        """Does a disturbed machine spoil it, so that a second try is fair?"""

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """One for each figure that is promised."""


@dataclass(frozen=True)
class Mean:
    """A mean latency in seconds; ``None``: what the adapter's own clock saw inside ``search``."""

    service_s: float | None
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The row's mean."""
        found = seen.row.latency_mean_s
        if found.value is None:
            planted = "by its own clock" if self.service_s is None else ms(self.service_s)
            yield missing("mean", planted, found.reason or seen.row.detail)
            return
        truth_s = self.service_s if self.service_s is not None else float(seen.planted_s.mean())
        yield time("mean", truth_s, found.value)


@dataclass(frozen=True)
class NotFaster:
    """A mean latency in seconds that a lie must not lower; a busy machine can only raise it."""

    service_s: float
    timed: bool = False

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The row's mean."""
        found, planted = seen.row.latency_mean_s, ms(self.service_s)
        if found.value is None:
            yield missing("mean", planted, found.reason or seen.row.detail)
            return
        least_s = self.service_s - most_error_s(self.service_s)
        error = share(found.value - self.service_s, self.service_s)
        yield Verdict("mean", planted, ms(found.value), error, f"at least {ms(least_s)}", found.value >= least_s)


@dataclass(frozen=True)
class Lognormal:
    """Latencies drawn from a lognormal distribution."""

    median_s: float
    sigma: float
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The distribution's percentiles lie within what is reported of the sample's."""
        from scipy.special import ndtri

        latency_s = seen.latency_s
        reported = {"p50": seen.row.p50_s, "p95": seen.row.p95_s, "p99": seen.row.p99_s}
        for name, figure in reported.items():
            truth_s = self.median_s * math.exp(self.sigma * float(ndtri(float(name[1:]) / 100)))
            wide = stats.percentile(latency_s, name, seen.row.queries or 0, confidence=CONFIDENCE)
            if figure.value is None or wide.low is None or wide.high is None:
                yield missing(name, ms(truth_s), figure.reason or wide.reason)
                continue
            yield Verdict(
                name,
                ms(truth_s),
                ms(figure.value),
                share(figure.value - truth_s, truth_s),
                f"within {ms(wide.low)} .. {ms(wide.high)}",
                wide.low <= truth_s <= wide.high,
            )


@dataclass(frozen=True)
class Memory:
    """Anonymous bytes on top of the interpreter's own, and bytes of a mapped file that are touched.

    ``bare`` names the case that is taken off: the same processes, holding nothing.  ``mapped_bytes`` is ``None`` where
    no file was mapped, and nothing is said of mapped pages.
    """

    bare: str
    anonymous_bytes: int
    mapped_bytes: int | None = None
    timed: bool = False

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """Peak anonymous memory less the bare system's; the peak of mapped file pages as it is."""
        peak = seen.row.peak_anon_bytes
        if peak is None or seen.bare_bytes is None:
            yield missing("anonymous", mib(self.anonymous_bytes), seen.row.detail)
        else:
            yield memory("anonymous", self.anonymous_bytes, peak - seen.bare_bytes)
        if self.mapped_bytes is not None:
            mapped = seen.row.peak_mapped_bytes
            if mapped is None:
                yield missing("mapped file", mib(self.mapped_bytes), seen.row.detail)
            else:
                yield memory("mapped file", self.mapped_bytes, mapped)


@dataclass(frozen=True)
class Bare:
    """Nothing held: what is left is the interpreter, which the other memory cases leave out."""

    most_bytes: int = 64 * MIB
    timed: bool = False

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """It is there, and no more than an interpreter needs."""
        peak = seen.row.peak_anon_bytes
        if peak is None:
            yield missing("anonymous", "interpreters alone", seen.row.detail)
        else:
            allowed, ok = f"at most {mib(self.most_bytes)}", 0 < peak <= self.most_bytes
            yield Verdict("anonymous", "interpreters alone", mib(peak), "", allowed, ok)


@dataclass(frozen=True)
class Reason:
    """Something that must make the row ``noisy`` or ``invalid``, for this cause."""

    what: str
    cause: Cause
    validity: Validity = Validity.NOISY
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """It is named, and weighs what it should."""
        named = next((each for each in seen.doubts if each.cause is self.cause), None)
        ok = named is not None and seen.row.outcome is Outcome.OK and seen.row.validity is self.validity
        said = f"{_state(seen.row)}: {short(named.text) if named else 'not named'}"
        yield Verdict("named", self.what, said, "", f"{self.validity.value}, and named", ok)


@dataclass(frozen=True)
class Clean:
    """Nothing at all to doubt in the system."""

    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """No false alarm: an alarm is true where counters or canary say that the machine itself was disturbed."""
        row = seen.row
        ok = row.outcome is Outcome.OK and row.validity is Validity.CLEAN
        said = _state(row) if ok else f"{_state(row)}: {short('; '.join(each.text for each in seen.doubts))}"
        if not ok and seen.disturbance and row.outcome is Outcome.OK:
            ok = {each.cause for each in seen.doubts} <= MACHINE | _FOLLOWS and row.validity is Validity.NOISY
            said = f"{_state(row)}, the machine was disturbed: {short(seen.disturbance)}" if ok else said
        yield Verdict("validity", "nothing", said, "", "no false alarm", ok)


@dataclass(frozen=True)
class Ends:
    """A job that must end this way, with these words in its detail."""

    outcome: Outcome
    words: str = ""
    timed: bool = False

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The outcome."""
        ok = seen.row.outcome is self.outcome and self.words in (seen.row.detail or "")
        measured = seen.row.outcome.value if ok else f"{seen.row.outcome.value}: {short(seen.row.detail or '')}"
        planted = f"{self.outcome.value}: {self.words}" if self.words else self.outcome.value
        yield Verdict("outcome", planted, measured, "", "the same", ok)


@dataclass(frozen=True)
class Throughput:
    """Queries a second of the ``offline`` scenario."""

    queries_per_s: float
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The row's throughput, within what a batch's time may be off."""
        found, planted = seen.row.throughput_qps.value, f"{self.queries_per_s:,.1f} q/s"
        if found is None:
            yield missing("throughput", planted, seen.row.throughput_qps.reason or seen.row.detail)
            return
        error = abs(found / self.queries_per_s - 1)
        yield Verdict(
            "throughput",
            planted,
            f"{found:,.1f} q/s",
            f"{found / self.queries_per_s - 1:+.2%}",
            f"{TIME_SHARE:.0%}",
            error <= TIME_SHARE,
            error / TIME_SHARE,
        )


def _state(row: Row) -> str:
    return row.validity.value if row.outcome is Outcome.OK else f"{row.outcome.value} ({short(row.detail or '')})"
