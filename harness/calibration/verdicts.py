"""What was planted, against what the report says: one class for each kind of truth.

A truth looks at what a table's row says of its case, and gives a verdict for each figure.  The bounds are the
instrument's promise; they are written in ``docs/measurement.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.records import Outcome
from harness.store import StoredJob
from harness.table import Row, Validity

MIB = 1 << 20
# The larger of 1 % and 20 microseconds; the larger of 3 % and 8 MiB.
TIME_SHARE, TIME_S = 0.01, 20e-6
MEMORY_SHARE, MEMORY_BYTES = 0.03, 8 * MIB
# Chance must not fail a calibration: its own intervals are wider than the 95 % that reports print.
CONFIDENCE = 0.999
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


@dataclass(frozen=True)
class Seen:
    """What the report says of a case: its row, and the stored jobs that the row was made of.

    ``bare_bytes`` is the peak anonymous memory that is reported of the same processes when they hold nothing: the
    interpreters' own.  ``None`` where that was not measured.
    """

    row: Row
    jobs: tuple[StoredJob, ...]
    bare_bytes: int | None = None

    @property
    def disturbance(self) -> str | None:
        """What the report itself says against the machine, not the system: a figure that is off then proves little."""
        return next((note for note in self.row.notes if any(words in note for words in _DISTURBED)), None)


# What the counters and the canary say of the machine: nothing that a case here plants.
_DISTURBED = ("other processes had", "the hypervisor took", "the machine changed its speed", "the machine was slow")

# Remarks that doubt nothing.
_REMARKS = ("protocol santhanam2023 with", "too short for the kernel's counters", "were not dropped from the host's")
# What a disturbed machine brings about in any system.
_FOLLOWS = ("drift:", "of a trial took", "warm-up ended at its cap")


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
            planted = "by its own clock" if self.service_s is None else _ms(self.service_s)
            yield _missing("mean", planted, found.reason or seen.row.detail)
            return
        truth_s = self.service_s if self.service_s is not None else float(_planted_s(seen.jobs).mean())
        yield _time("mean", truth_s, found.value)


@dataclass(frozen=True)
class Lognormal:
    """Latencies drawn from a lognormal distribution."""

    median_s: float
    sigma: float
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The distribution's percentiles lie within what is reported of the sample's."""
        from scipy.special import ndtri

        latency_s = _latency_s(seen.jobs)
        reported = {"p50": seen.row.p50_s, "p95": seen.row.p95_s, "p99": seen.row.p99_s}
        for name, figure in reported.items():
            truth_s = self.median_s * math.exp(self.sigma * float(ndtri(float(name[1:]) / 100)))
            wide = stats.percentile(latency_s, name, seen.row.queries or 0, confidence=CONFIDENCE)
            if figure.value is None or wide.low is None or wide.high is None:
                yield _missing(name, _ms(truth_s), figure.reason or wide.reason)
                continue
            yield Verdict(
                name,
                _ms(truth_s),
                _ms(figure.value),
                _share(figure.value - truth_s, truth_s),
                f"within {_ms(wide.low)} .. {_ms(wide.high)}",
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
            yield _missing("anonymous", _mib(self.anonymous_bytes), seen.row.detail)
        else:
            yield _memory("anonymous", self.anonymous_bytes, peak - seen.bare_bytes)
        if self.mapped_bytes is not None:
            mapped = seen.row.peak_mapped_bytes
            if mapped is None:
                yield _missing("mapped file", _mib(self.mapped_bytes), seen.row.detail)
            else:
                yield _memory("mapped file", self.mapped_bytes, mapped)


@dataclass(frozen=True)
class Bare:
    """Nothing held: what is left is the interpreter, which the other memory cases leave out."""

    most_bytes: int = 64 * MIB
    timed: bool = False

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """It is there, and no more than an interpreter needs."""
        peak = seen.row.peak_anon_bytes
        if peak is None:
            yield _missing("anonymous", "interpreters alone", seen.row.detail)
        else:
            allowed, ok = f"at most {_mib(self.most_bytes)}", 0 < peak <= self.most_bytes
            yield Verdict("anonymous", "interpreters alone", _mib(peak), "", allowed, ok)


@dataclass(frozen=True)
class Reason:
    """Something that must make the row ``noisy`` or ``invalid``, with a reason that holds all of these words."""

    what: str
    words: tuple[str, ...]
    validity: Validity = Validity.NOISY
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """It is named."""
        found = [note for note in seen.row.notes if all(word in note for word in self.words)]
        ok = bool(found) and seen.row.outcome is Outcome.OK and seen.row.validity is self.validity
        said = (
            f"{_state(seen.row)}: {_short(_from(found[0], self.words))}" if found else f"{_state(seen.row)}: not named"
        )
        yield Verdict("named", self.what, said, "", f"{self.validity.value}, and named", ok)


@dataclass(frozen=True)
class Clean:
    """Nothing at all to doubt in the system."""

    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """No false alarm: an alarm is true where counters or canary say that the machine itself was disturbed."""
        row = seen.row
        ok = row.outcome is Outcome.OK and row.validity is Validity.CLEAN
        said = _state(row) if ok else f"{_state(row)}: {_short('; '.join(row.notes))}"
        if not ok and seen.disturbance and row.outcome is Outcome.OK:
            known = (*_DISTURBED, *_FOLLOWS, *_REMARKS)
            false = [note for note in row.notes if not any(words in note for words in known)]
            ok = not false and row.validity is Validity.NOISY
            said = f"{_state(row)}, the machine was disturbed: {_short(seen.disturbance)}" if ok else said
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
        measured = seen.row.outcome.value if ok else f"{seen.row.outcome.value}: {_short(seen.row.detail or '')}"
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
            yield _missing("throughput", planted, seen.row.throughput_qps.reason or seen.row.detail)
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


@dataclass(frozen=True)
class Capacity:
    """A ``server`` that can answer one query each ``service_s`` and no more.

    The highest rate that keeps a tail target lies below that, for a queue is only short where there is idle time, and
    above ``least_share`` of it.
    """

    service_s: float
    least_share: float
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The row's rate."""
        capacity, found = 1 / self.service_s, seen.row.throughput_qps.value
        planted, low = f"{capacity:,.0f} q/s capacity", capacity * self.least_share
        if found is None:
            yield _missing("highest rate", planted, seen.row.throughput_qps.reason or seen.row.detail)
            return
        allowed, error = f"{low:,.0f} .. {capacity:,.0f} q/s", f"{found / capacity:.0%} of it"
        yield Verdict("highest rate", planted, f"{found:,.0f} q/s", error, allowed, low <= found < capacity)


@dataclass(frozen=True)
class Stall:
    """A system that stands still once, for ``stall_s``.

    Queries that arrive meanwhile wait, so an open loop's p99 is nearly the whole stall; a closed loop asks nobody, and
    its p99 stays at the service time.
    """

    service_s: float
    stall_s: float
    open_loop: bool
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The p99 of the stored samples: a row shows none for a rate that failed."""
        low, high = (0.9 * self.stall_s, 1.1 * self.stall_s) if self.open_loop else (0.0, 2 * self.service_s)
        planted = f"{self.stall_s:g} s stall {'shown' if self.open_loop else 'hidden'}"
        latency_s = _latency_s(seen.jobs)
        found = stats.percentile(latency_s, "p99", len(latency_s)).value
        if found is None:
            yield _missing("p99", planted, seen.row.detail)
        else:
            yield Verdict("p99", planted, _ms(found), "", f"{_ms(low)} .. {_ms(high)}", low <= found <= high)


def _planted_s(jobs: Sequence[StoredJob]) -> NDArray[np.float64]:
    """What the adapter's own clock saw of the timed searches, in seconds."""
    return np.concatenate([_column(job, "stage_planted_ns") for job in jobs]) / 1e9


def _latency_s(jobs: Sequence[StoredJob]) -> NDArray[np.float64]:
    return np.concatenate([_column(job, "latency_ns") for job in jobs]) / 1e9


def _column(job: StoredJob, name: str) -> NDArray[np.float64]:
    """A column of the timed samples; warm-up and repeats have trial numbers below 0."""
    table = job.samples()
    timed = table.column("trial").to_numpy() >= 0
    return np.asarray(table.column(name).to_numpy()[timed], dtype=np.float64)


def _time(what: str, truth_s: float, found_s: float) -> Verdict:
    most_s, error_s = max(TIME_SHARE * truth_s, TIME_S), found_s - truth_s
    error = f"{error_s * 1e6:+,.1f} us ({error_s / truth_s:+.2%})"
    severity = abs(error_s) / most_s
    return Verdict(what, _ms(truth_s), _ms(found_s), error, f"{most_s * 1e6:,.0f} us", severity <= 1, severity)


def _memory(what: str, truth: int, found: int) -> Verdict:
    most = max(MEMORY_SHARE * truth, MEMORY_BYTES)
    severity = abs(found - truth) / most
    error = f"{(found - truth) / MIB:+.1f} MiB"
    return Verdict(what, _mib(truth), _mib(found), error, _mib(most), severity <= 1, severity)


def _missing(what: str, planted: str, why: str | None) -> Verdict:
    return Verdict(what, planted, f"nothing: {_short(why or 'no reason given')}", "", "a figure", False, math.inf)


def _state(row: Row) -> str:
    return row.validity.value if row.outcome is Outcome.OK else f"{row.outcome.value} ({_short(row.detail or '')})"


def _short(text: str) -> str:
    """The beginning of a sentence, as far as a table's cell holds it."""
    return text if len(text) <= _CELL else text[: _CELL - 3].rstrip() + "..."


def _from(text: str, words: Sequence[str]) -> str:
    """A sentence from the first of these words on."""
    return text[min(text.index(word) for word in words) :]


def _share(error: float, truth: float) -> str:
    return f"{error / truth:+.2%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.4g} ms" if seconds < 0.1 else f"{seconds * 1e3:,.1f} ms"


def _mib(size: float) -> str:
    return f"{size / MIB:,.1f} MiB"
