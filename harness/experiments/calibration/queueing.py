"""Planted truths about queries that arrive by themselves: what a queue with a known service time must show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness import stats
from harness.driver import rate_search
from harness.experiments.calibration.observation import Seen
from harness.experiments.calibration.truths import TIME_S, Verdict, missing, most_error_s, ms, share
from harness.records import Probe
from harness.results.schema import Result


@dataclass(frozen=True)
class Queue:
    """A ``server`` that answers one query after the other, each in ``service_s``.

    The arrivals come from a seed, so it is known what an undisturbed queue shows at any rate, and between which two
    rates the search ends: ``shares`` of what the server can do.
    """

    service_s: float
    shares: tuple[float, float]
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The row's rate, and its p95 at that rate."""
        capacity, found = 1 / self.service_s, seen.row.throughput_qps.value
        planted = f"{capacity:,.0f} q/s capacity"
        if found is None:
            yield missing("highest rate", planted, seen.row.throughput_qps.reason or seen.row.detail)
            return
        low, high = (capacity * share for share in self.shares)
        error, allowed = f"{found / capacity:.0%} of it", f"{low:,.0f} .. {high:,.0f} q/s"
        yield Verdict("highest rate", planted, f"{found:,.0f} q/s", error, allowed, low <= found <= high)
        result = seen.jobs[0].result
        believed = next(each for each in result.probes if each.check and each.passed and each.rate_qps == found)
        yield _queued("p95", result, believed, [self.service_s] * believed.queries, seen.row.p95_s.value)


@dataclass(frozen=True)
class Stall:
    """A system that stands still for ``stall_s`` in the timed query number ``at``.

    Queries that arrive meanwhile wait, so an open loop's p99 is nearly the whole stall; a closed loop asks nobody, and
    its p99 stays at the service time.
    """

    service_s: float
    stall_s: float
    at: int
    open_loop: bool
    timed: bool = True

    def verdicts(self, seen: Seen) -> Iterator[Verdict]:
        """The p99 of the stored samples: a row shows none for a rate that failed."""
        planted = f"{self.stall_s:g} s stall {'shown' if self.open_loop else 'hidden'}"
        found = stats.percentile(seen.latency_s, "p99", len(seen.latency_s)).value
        if found is None:
            yield missing("p99", planted, seen.row.detail)
        elif self.open_loop:
            result = seen.jobs[0].result
            services_s = [self.service_s] * len(seen.latency_s)
            services_s[self.at] += self.stall_s
            yield replace(_queued("p99", result, result.probes[0], services_s, found), planted=planted)
        else:
            most_s = 2 * self.service_s
            yield Verdict("p99", planted, ms(found), "", f"at most {ms(most_s)}", found <= most_s)


def _queued(name: str, result: Result, probe: Probe, services_s: Sequence[float], found_s: float | None) -> Verdict:
    """A percentile of a probe, held to that of the planted queue and that of one 20 microseconds a query slower.

    The larger of 1 % and 20 microseconds is allowed on either side, as for any time.
    """
    arrivals = rate_search.arrivals_ns(result.spec.seed, probe.trial, probe.queries, probe.rate_qps)

    def planted_s(slower_s: float) -> float:
        waited_s = latency_s(arrivals, [each + slower_s for each in services_s])
        return float(np.percentile(waited_s, float(name[1:]), method="inverted_cdf"))

    truth_s, slow_s = planted_s(0.0), planted_s(TIME_S)
    if found_s is None:
        return missing(name, ms(truth_s), "too few queries")
    low, high = truth_s - most_error_s(truth_s), slow_s + most_error_s(slow_s)
    allowed = f"{ms(low)} .. {ms(high)}"
    return Verdict(name, ms(truth_s), ms(found_s), share(found_s - truth_s, truth_s), allowed, low <= found_s <= high)


def latency_s(arrivals_ns: Sequence[int], services_s: Sequence[float]) -> NDArray[np.float64]:
    """Latency of each query from its arrival, where one is served after the other.

    Lindley (1952), "The theory of queues with a single server": a query waits for what its predecessor left.

    Args:
        arrivals_ns: rising times in nanoseconds.
        services_s: how long each query is served, in seconds.

    Returns:
        Shape (queries,), seconds, in the order of arrival.
    """
    free_s, found = 0.0, []
    for arrival_ns, service_s in zip(arrivals_ns, services_s, strict=True):
        arrival_s = arrival_ns / 1e9
        free_s = max(free_s, arrival_s) + service_s
        found.append(free_s - arrival_s)
    return np.array(found)
