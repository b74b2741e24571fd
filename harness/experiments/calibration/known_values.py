"""Known values of calibration cases, one class per kind; each compares its case's report with the truth.

The bounds are what harness promises in ``docs/method/measurement.md``.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.analysis import timings
from harness.analysis.table import Cause, Finding, Row, Validity
from harness.analysis.timings import Timings
from harness.driver import rate_search
from harness.driver.records import Outcome, Probe
from harness.results.reader import StoredJob
from harness.results.schema import Result
from harness.untrusted import Text, one_line

MIB = 1 << 20
# The larger of 1 % and 20 microseconds; 2 % of a CPU time; the larger of 3 % and 8 MiB.
TIME_SHARE, TIME_S = 0.01, 20e-6
CPU_SHARE = 0.02
MEMORY_SHARE, MEMORY_BYTES = 0.03, 8 * MIB
# Chance must not fail a calibration, so its intervals are wider than the 95 % of reports.
CONFIDENCE = 0.999
# Findings about the machine, by counters and canary; cases do not inject them.
MACHINE = frozenset({Cause.STEAL, Cause.FOREIGN_CPU, Cause.CANARY, Cause.SLOW_MACHINE})
# Findings that a disturbed machine causes in any system.
_FOLLOWS = frozenset({Cause.DRIFT, Cause.WARMUP})
# A sentence in a cell of a table.
_short = functools.partial(one_line, max_length=60)


@dataclass(frozen=True)
class CaseReport:
    """The report of a case: its row, and the stored jobs behind the row.

    ``bare_bytes`` is the reported peak of anonymous memory of the same processes without a load, which is the
    interpreters' own.  ``None``: not measured.
    """

    row: Row
    jobs: tuple[StoredJob, ...]
    bare_bytes: int | None = None

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Return the findings that make the row noisy or invalid."""
        return tuple(finding for finding in self.row.findings if finding.validity is not Validity.CLEAN)

    @property
    def disturbance(self) -> str | None:
        """Return the first finding against the machine, which weakens every verdict on the system."""
        return next((finding.text for finding in self.doubts if finding.cause in MACHINE), None)

    @property
    def latency_s(self) -> NDArray[np.float64]:
        """Return every timed latency in seconds."""
        return self._timings.latency_s

    @property
    def injected_s(self) -> NDArray[np.float64]:
        """Return the times of the timed searches by the adapter's own clock, in seconds."""
        return self._timings.stages_s["planted"]

    @property
    def _timings(self) -> Timings:
        return timings.read((number, job.samples()) for number, job in enumerate(self.jobs))


@dataclass(frozen=True)
class FigureVerdict:
    """One figure: the injected value, the reported value, and whether they agree.

    The first five fields are text for people.  ``case`` and ``tries``, the number of measurements, are filled in later.
    ``disturbance``: of the machine, if the figure is off.
    """

    figure: str
    injected: str
    measured: str
    error: str
    allowed: str
    ok: bool
    case: str = ""
    tries: int = 1
    disturbance: str | None = None

    @property
    def text(self) -> str:
        """Return ``ok`` or ``OFF``, and the try if it is not the first."""
        again = f", try {self.tries}" if self.tries > 1 else ""
        return f"{'ok' if self.ok else 'OFF'}{again}"


def ms(seconds: float) -> str:
    """Format a time in milliseconds, with four digits below 100 ms."""
    return f"{seconds * 1e3:,.4g} ms" if seconds < 0.1 else f"{seconds * 1e3:,.1f} ms"


def mib(size: float) -> str:
    """Format bytes as MiB."""
    return f"{size / MIB:,.1f} MiB"


def percent(error: float, truth: float) -> str:
    """Format an error in per cent of the truth."""
    return f"{error / truth:+.2%}"


def allowed_error_s(truth_s: float) -> float:
    """Return the allowed error of a time in seconds: the larger of 1 % and 20 microseconds."""
    return max(TIME_SHARE * truth_s, TIME_S)


def missing_verdict(figure: str, injected: str, reason: Text | None) -> FigureVerdict:
    """Return the verdict on a figure that was not reported."""
    measured = f"nothing: {_short(reason or 'no reason given')}"
    return FigureVerdict(figure, injected, measured, "", "a figure", False)


def memory_verdict(figure: str, truth: int, measured: int | None, reason: Text | None) -> FigureVerdict:
    """Compare two sizes in bytes, within the larger of 3 % and 8 MiB."""
    if measured is None:
        return missing_verdict(figure, mib(truth), reason)
    allowed = max(MEMORY_SHARE * truth, MEMORY_BYTES)
    error = f"{(measured - truth) / MIB:+.1f} MiB"
    return FigureVerdict(figure, mib(truth), mib(measured), error, mib(allowed), abs(measured - truth) <= allowed)


@dataclass(frozen=True, kw_only=True)
class KnownValue(ABC):
    """A true value that a case injects; ``timed``: a disturbed machine spoils it, so it may be tried again."""

    timed: bool = True

    @abstractmethod
    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Yield one verdict for each promised figure."""


@dataclass(frozen=True)
class MeanLatency(KnownValue):
    """A mean latency in seconds; ``None``: the time inside ``search`` by the adapter's own clock."""

    service_s: float | None

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Compare the row's mean."""
        mean = report.row.latency.mean_s
        if mean.value is None:
            injected = "by its own clock" if self.service_s is None else ms(self.service_s)
            yield missing_verdict("mean", injected, mean.reason or report.row.detail)
            return
        yield self._compare(float(report.injected_s.mean()) if self.service_s is None else self.service_s, mean.value)

    def _compare(self, truth_s: float, mean_s: float) -> FigureVerdict:
        allowed_s, error_s = allowed_error_s(truth_s), mean_s - truth_s
        error = f"{error_s * 1e6:+,.1f} us ({percent(error_s, truth_s)})"
        allowed = f"{allowed_s * 1e6:,.0f} us"
        return FigureVerdict("mean", ms(truth_s), ms(mean_s), error, allowed, abs(error_s) <= allowed_s)


@dataclass(frozen=True)
class CpuTime(KnownValue):
    """A query's CPU time in seconds, all threads together; the system sleeps for the rest of the query."""

    cpu_s: float

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Compare the row's CPU time of a query, and the CPUs that were busy with it over the query's own length."""
        cpu = report.row.cpu
        if cpu.per_query_s.value is None or cpu.busy_cpus is None:
            yield missing_verdict("CPU time", ms(self.cpu_s), cpu.per_query_s.reason or report.row.detail)
            return
        yield self._compare("CPU time", self.cpu_s, cpu.per_query_s.value, ms)
        yield self._compare("busy CPUs", self.cpu_s / float(report.injected_s.mean()), cpu.busy_cpus, "{:.3f}".format)

    @staticmethod
    def _compare(figure: str, truth: float, measured: float, text: Callable[[float], str]) -> FigureVerdict:
        error, ok = percent(measured - truth, truth), abs(measured / truth - 1) <= CPU_SHARE
        return FigureVerdict(figure, text(truth), text(measured), error, f"{CPU_SHARE:.0%}", ok)


@dataclass(frozen=True)
class NotFaster(MeanLatency):
    """A mean latency in seconds that a lie must not reduce; a busy machine can only increase it."""

    timed: bool = field(default=False, kw_only=True)

    def _compare(self, truth_s: float, mean_s: float) -> FigureVerdict:
        least_s, error = truth_s - allowed_error_s(truth_s), percent(mean_s - truth_s, truth_s)
        return FigureVerdict("mean", ms(truth_s), ms(mean_s), error, f"at least {ms(least_s)}", mean_s >= least_s)


@dataclass(frozen=True)
class LognormalLatency(KnownValue):
    """Latencies drawn from a lognormal distribution."""

    median_s: float
    sigma: float

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Check that the reported intervals hold the distribution's percentiles."""
        from scipy.special import ndtri

        latency_s = report.latency_s
        reported = {"p50": report.row.latency.p50_s, "p95": report.row.latency.p95_s, "p99": report.row.latency.p99_s}
        for name, figure in reported.items():
            truth_s = self.median_s * math.exp(self.sigma * float(ndtri(float(name[1:]) / 100)))
            interval = stats.percentile(latency_s, name, report.row.queries or 0, confidence=CONFIDENCE)
            if figure.value is None or interval.low is None or interval.high is None:
                yield missing_verdict(name, ms(truth_s), figure.reason or interval.reason)
                continue
            allowed, ok = f"within {ms(interval.low)} .. {ms(interval.high)}", interval.low <= truth_s <= interval.high
            error = percent(figure.value - truth_s, truth_s)
            yield FigureVerdict(name, ms(truth_s), ms(figure.value), error, allowed, ok)


@dataclass(frozen=True)
class PeakMemory(KnownValue):
    """Anonymous bytes in addition to the interpreter's own, and touched bytes of a mapped file.

    ``bare`` names the case to subtract: the same processes without a load.  ``mapped_bytes`` is ``None`` if the case
    maps no file; mapped pages are then not judged.
    """

    bare: str
    anonymous_bytes: int
    mapped_bytes: int | None = None
    timed: bool = field(default=False, kw_only=True)

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Compare peak anonymous memory less the bare system's, and the peak of mapped file pages."""
        row, bare = report.row, report.bare_bytes
        held = None if row.resources.peak_anon_bytes is None or bare is None else row.resources.peak_anon_bytes - bare
        yield memory_verdict("anonymous", self.anonymous_bytes, held, row.detail)
        if self.mapped_bytes is not None:
            yield memory_verdict("mapped file", self.mapped_bytes, row.resources.peak_mapped_bytes, row.detail)


@dataclass(frozen=True)
class BareMemory(KnownValue):
    """Processes without a load: only the interpreter, which the other memory cases subtract."""

    maximum_bytes: int = 64 * MIB
    timed: bool = field(default=False, kw_only=True)

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Check that a peak was reported, and that it is an interpreter's size."""
        peak = report.row.resources.peak_anon_bytes
        if peak is None:
            yield missing_verdict("anonymous", "interpreters alone", report.row.detail)
        else:
            allowed, ok = f"at most {mib(self.maximum_bytes)}", 0 < peak <= self.maximum_bytes
            yield FigureVerdict("anonymous", "interpreters alone", mib(peak), "", allowed, ok)


@dataclass(frozen=True)
class NamedReason(KnownValue):
    """A fault that must make the row ``noisy`` or ``invalid``, for this cause."""

    fault: str
    cause: Cause
    validity: Validity = Validity.NOISY

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Check that the cause is named with the right validity."""
        named = next((finding for finding in report.doubts if finding.cause is self.cause), None)
        ok = named is not None and report.row.outcome is Outcome.OK and report.row.validity is self.validity
        measured = f"{_state(report.row)}: {_short(named.text) if named else 'not named'}"
        yield FigureVerdict("named", self.fault, measured, "", f"{self.validity.value}, and named", ok)


@dataclass(frozen=True)
class Clean(KnownValue):
    """A system without any fault."""

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Fail on a false alarm; an alarm is true if counters or canary show a disturbed machine."""
        row = report.row
        ok = row.outcome is Outcome.OK and row.validity is Validity.CLEAN
        findings = "; ".join(finding.text for finding in report.doubts)
        measured = _state(row) if ok else f"{_state(row)}: {_short(findings)}"
        if not ok and report.disturbance and row.outcome is Outcome.OK:
            causes = {finding.cause for finding in report.doubts}
            ok = causes <= MACHINE | _FOLLOWS and row.validity is Validity.NOISY
            measured = f"{_state(row)}, the machine was disturbed: {_short(report.disturbance)}" if ok else measured
        yield FigureVerdict("validity", "nothing", measured, "", "no false alarm", ok)


@dataclass(frozen=True)
class JobEnd(KnownValue):
    """An outcome, and words in its detail."""

    outcome: Outcome
    words: str = ""
    timed: bool = field(default=False, kw_only=True)

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Compare the outcome."""
        row = report.row
        ok = row.outcome is self.outcome and self.words in (row.detail or "")
        measured = row.outcome.value if ok else f"{row.outcome.value}: {_short(row.detail or '')}"
        injected = f"{self.outcome.value}: {self.words}" if self.words else self.outcome.value
        yield FigureVerdict("outcome", injected, measured, "", "the same", ok)


@dataclass(frozen=True)
class Throughput(KnownValue):
    """Queries a second of the ``offline`` scenario."""

    queries_per_s: float

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Compare the row's throughput, within the bound of a batch's time."""
        throughput, injected = report.row.throughput_qps, f"{self.queries_per_s:,.1f} q/s"
        if throughput.value is None:
            yield missing_verdict("throughput", injected, throughput.reason or report.row.detail)
            return
        share = throughput.value / self.queries_per_s - 1
        measured, ok = f"{throughput.value:,.1f} q/s", abs(share) <= TIME_SHARE
        yield FigureVerdict("throughput", injected, measured, f"{share:+.2%}", f"{TIME_SHARE:.0%}", ok)


@dataclass(frozen=True)
class ServerQueue(KnownValue):
    """A ``server`` scenario with one query after the other, each served in ``service_s``.

    A seed fixes the arrivals, so the latencies of an undisturbed queue are known at any rate.  The search ends between
    two known rates: ``shares`` of the server's capacity.
    """

    service_s: float
    shares: tuple[float, float]

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Compare the row's rate, and its p95 at that rate."""
        capacity, rate = 1 / self.service_s, report.row.throughput_qps.value
        injected = f"{capacity:,.0f} q/s capacity"
        if rate is None:
            yield missing_verdict("highest rate", injected, report.row.throughput_qps.reason or report.row.detail)
            return
        low, high = (capacity * share for share in self.shares)
        error, allowed = f"{rate / capacity:.0%} of it", f"{low:,.0f} .. {high:,.0f} q/s"
        yield FigureVerdict("highest rate", injected, f"{rate:,.0f} q/s", error, allowed, low <= rate <= high)
        result = report.jobs[0].result
        probes = result.measured.probes if result.measured else ()
        confirmed = next(probe for probe in probes if probe.check and probe.passed and probe.rate_qps == rate)
        services_s = [self.service_s] * confirmed.queries
        yield _percentile_verdict("p95", result, confirmed, services_s, report.row.latency.p95_s.value)


@dataclass(frozen=True)
class StalledQuery(KnownValue):
    """A system that stalls for ``stall_s`` in the timed query number ``at``.

    Queries that arrive meanwhile wait, so an open loop's p99 is nearly the whole stall.  A closed loop sends no queries
    meanwhile, and its p99 stays at the service time.
    """

    service_s: float
    stall_s: float
    at: int
    open_loop: bool

    def verdicts(self, report: CaseReport) -> Iterator[FigureVerdict]:
        """Compare the p99 of the stored samples, because a row has no p99 for a failed rate."""
        injected = f"{self.stall_s:g} s stall {'shown' if self.open_loop else 'hidden'}"
        latency_s = report.latency_s
        p99 = stats.percentile(latency_s, "p99", len(latency_s)).value
        if p99 is None:
            yield missing_verdict("p99", injected, report.row.detail)
        elif self.open_loop and (measured := report.jobs[0].result.measured):
            result = report.jobs[0].result
            services_s = [self.service_s] * len(latency_s)
            services_s[self.at] += self.stall_s
            verdict = _percentile_verdict("p99", result, measured.probes[0], services_s, p99)
            yield replace(verdict, injected=injected)
        else:
            maximum_s = 2 * self.service_s
            yield FigureVerdict("p99", injected, ms(p99), "", f"at most {ms(maximum_s)}", p99 <= maximum_s)


def queue_latencies_s(arrivals_ns: Sequence[int], services_s: Sequence[float]) -> NDArray[np.float64]:
    """Return each query's latency from its arrival in seconds, for a server that handles one query at a time.

    Lindley (1952), "The theory of queues with a single server": a query waits until its predecessor is served.

    Args:
        arrivals_ns: ascending times in nanoseconds.
        services_s: service time of each query in seconds.
    """
    free_s, latencies = 0.0, []
    for arrival_ns, service_s in zip(arrivals_ns, services_s, strict=True):
        arrival_s = arrival_ns / 1e9
        free_s = max(free_s, arrival_s) + service_s
        latencies.append(free_s - arrival_s)
    return np.array(latencies)


def _percentile_verdict(
    name: str, result: Result, probe: Probe, services_s: Sequence[float], measured_s: float | None
) -> FigureVerdict:
    """Compare a probe's percentile with the injected queue's, and with a queue 20 microseconds per query slower.

    The larger of 1 % and 20 microseconds is allowed on either side, as for any time.
    """
    arrivals = rate_search.arrivals_ns(result.spec.seed, probe.trial, probe.queries, probe.rate_qps)

    def injected_s(slower_s: float) -> float:
        latency_s = queue_latencies_s(arrivals, [service_s + slower_s for service_s in services_s])
        return float(np.percentile(latency_s, float(name[1:]), method="inverted_cdf"))

    truth_s, slow_s = injected_s(0.0), injected_s(TIME_S)
    if measured_s is None:
        return missing_verdict(name, ms(truth_s), "too few queries")
    low, high = truth_s - allowed_error_s(truth_s), slow_s + allowed_error_s(slow_s)
    error = percent(measured_s - truth_s, truth_s)
    return FigureVerdict(
        name, ms(truth_s), ms(measured_s), error, f"{ms(low)} .. {ms(high)}", low <= measured_s <= high
    )


def _state(row: Row) -> str:
    return row.validity.value if row.outcome is Outcome.OK else f"{row.outcome.value} ({_short(row.detail or '')})"
