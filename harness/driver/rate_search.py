"""The arithmetic of the open loop, without a clock: arrivals, verdicts on probes, search of the highest rate."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.driver.records import Probe, ScenarioParams

# LoadGen's rule: a target holds only if chance would show as few late queries one time in 100.
ALPHA = 0.01

# The first rate, as a share of the warm system's: low enough to pass, high enough to be quick.
_START = 0.5
_GROW, _SHRINK = 1.5, 0.5
# A target missed at this share of one stream's first rate is out of reach: the system is nearly idle.
_MIN_SHARE = 1 / 16
_CLOSE = 1.05
_STEP_DOWN = 0.9
# Probes reserved for checking the result.
_FOR_CHECKS = 8


@dataclass(frozen=True)
class ServedQuery:
    """One query of a probe; nanoseconds since the probe's start.

    ``free_ns`` is the end of the query before it on the same stream.  ``failed``: it ended without an answer.
    """

    scheduled_ns: int
    free_ns: int
    start_ns: int
    end_ns: int
    failed: bool = False

    @property
    def latency_ns(self) -> int:
        """Time since the scheduled arrival, waiting included."""
        return self.end_ns - self.scheduled_ns

    @property
    def service_ns(self) -> int:
        """Time since the system received the query."""
        return self.end_ns - self.start_ns

    @property
    def busy_ns(self) -> int:
        """Time that it kept its stream from the next query."""
        return self.end_ns - max(self.scheduled_ns, self.free_ns)


def arrivals_ns(seed: int, trial: int, count: int, rate_qps: float) -> list[int]:
    """Draw ``count`` Poisson arrivals: rising times in nanoseconds, exponential gaps of mean ``1 / rate_qps`` s."""
    chance = random.Random(f"{seed}:{trial}")
    times, now = [], 0.0
    for _ in range(count):
        now += chance.expovariate(1.0) / rate_qps
        times.append(round(now * 1e9))
    return times


def late_allowed(queries: int, percentile: float) -> int | None:
    """Return the maximum of late queries that proves "``percentile`` % are in time" (LoadGen's rule, confidence 0.99).

    The largest t with P(Binomial(n, 1 - percentile / 100) <= t) <= 0.01; ``None`` if even t = 1 proves nothing:
    below 11 queries for 50 per cent, 64 for 90, 130 for 95, 662 for 99.
    """
    late = 1 - percentile / 100
    if not 0 < late < 1:
        return None
    below, allowed = 0.0, None
    for count in range(queries + 1):
        # In logarithms: the first terms of a large sample are smaller than any float.
        ways = math.lgamma(queries + 1) - math.lgamma(count + 1) - math.lgamma(queries - count + 1)
        below += math.exp(ways + count * math.log(late) + (queries - count) * math.log1p(-late))
        if below > ALPHA:
            break
        allowed = count
    return allowed if allowed else None


def judge_probe(
    served: Sequence[ServedQuery], trial: int, rate_qps: float, target: ScenarioParams, *, streams: int, check: bool
) -> Probe:
    """Judge a probe.

    It passes if at most :func:`late_allowed` queries are late, and if the streams could do the arrived work in that
    time.  The latter matters if the sample is shorter than the target: a queue that grows without end would pass
    because it ends in time.
    """
    latency_s, late = latency_and_late([judged_ns(query.latency_ns, query.failed, target) for query in served], target)
    allowed = late_allowed(len(served), target.latency_percentile or 0.0)
    kept_up = sum(query.busy_ns for query in served) <= streams * max(query.scheduled_ns for query in served)
    return Probe(
        trial=trial,
        rate_qps=rate_qps,
        queries=len(served),
        latency_s=latency_s,
        late=late,
        failed=sum(query.failed for query in served),
        passed=allowed is not None and late <= allowed and kept_up,
        check=check,
    )


def judged_ns(latency_ns: int, failed: bool, target: ScenarioParams) -> int:
    """Return the latency that a target judges: a query without an answer is late, however soon it failed."""
    return max(latency_ns, _target_ns(target) + 1) if failed else latency_ns


def _target_ns(target: ScenarioParams) -> int:
    return round((target.latency_target_s or 0.0) * 1e9)


def latency_and_late(latencies_ns: Sequence[int], target: ScenarioParams) -> tuple[float, int]:
    """Return the latency (s) at the target's percentile, and the number of queries beyond the target."""
    percentile, target_ns = target.latency_percentile or 0.0, _target_ns(target)
    # The guard keeps 0.95 * 200 from becoming rank 191 by rounding.
    rank = max(1, math.ceil(percentile / 100 * len(latencies_ns) - 1e-9))
    return sorted(latencies_ns)[rank - 1] / 1e9, sum(latency > target_ns for latency in latencies_ns)


def out_of_reach(served: Sequence[ServedQuery], target: ScenarioParams) -> bool:
    """Check if too many queries miss the target by their service time alone, so that no rate can meet it.

    Streams slow each other down, so only queries served alone count; if they are too few to prove anything, a lower
    rate has to.
    """
    percentile, target_ns = target.latency_percentile or 0.0, _target_ns(target)
    if late_allowed(len(served), percentile) is None:
        return True
    alone = _alone(served)
    allowed = late_allowed(len(alone), percentile)
    return allowed is not None and sum(query.service_ns > target_ns for query in alone) > allowed


def _alone(served: Sequence[ServedQuery]) -> list[ServedQuery]:
    """Select the queries during whose service no other query was served: with one stream, all."""
    in_turn = sorted(served, key=lambda query: (query.start_ns, query.end_ns))
    alone, ended = [], 0
    for query, after in zip(in_turn, [*in_turn[1:], None], strict=True):
        if query.start_ns >= ended and (after is None or after.start_ns >= query.end_ns):
            alone.append(query)
        ended = max(ended, query.end_ns)
    return alone


class Unreachable(Exception):
    """No rate meets the target; the probe that showed it has ended."""


def highest_rate(
    probe: Callable[[float, bool], bool],
    service_qps: float,
    max_probes: int,
    streams: int = 1,
    most_qps: float | None = None,
) -> float | None:
    """Search the highest rate that passes, and passes again with other arrivals.

    Grows or shrinks geometrically until a rate passes and a higher one does not, halves that gap (in logarithms) to
    5 %, then checks; a rate that fails its check is lowered by 10 % and checked again.

    Args:
        probe: tries a rate (queries a second) with its own arrivals; its second argument marks a check.
        service_qps: rate of the warm system in a closed loop, if all its streams ran as fast as one alone.
        max_probes: maximum calls of ``probe``.
        streams: their number; together they may do no more than one, so the search goes down as far.
        most_qps: the highest rate that may be tried; where it passes, no higher one is searched.

    Returns:
        The rate, or ``None`` if none passed twice within ``max_probes``.
    """
    left = max_probes
    most = math.inf if most_qps is None else most_qps
    start = rate = min(_START * service_qps, most)
    low: float | None = None
    high: float | None = None

    def passes(rate_qps: float, check: bool) -> bool:
        try:
            return probe(rate_qps, check)
        except Unreachable:
            if low is None:
                raise
            return False  # one probe was disturbed: a rate has passed before

    try:
        while (low is None or high is None) and low != most and left > _FOR_CHECKS:
            left -= 1
            if passes(rate, False):
                low, rate = rate, min(rate * _GROW, most)
            else:
                high, rate = rate, rate * _SHRINK
                if high <= _MIN_SHARE * start / streams:
                    return None
        while low and high and high > _CLOSE * low and left > _FOR_CHECKS:
            left -= 1
            middle = math.sqrt(low * high)
            low, high = (middle, high) if passes(middle, False) else (low, middle)
        while low and left:
            left -= 1
            if passes(low, True):
                return low
            low *= _STEP_DOWN
    except Unreachable:
        pass
    return None
