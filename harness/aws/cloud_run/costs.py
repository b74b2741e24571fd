"""Estimate how long jobs take, price machines, and limit their lives so that all cost at most the cap.  Pure.

Durations come from stored results, else from the assumptions below.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.aws.cloud_run.backend import Submission
from harness.aws.cloud_run.records import Launch, PlannedPart
from harness.records import Outcome
from harness.results.schema import Cell, Result, ResultSpec

# A job of the demo beside its queries: start a container, load a small system, read the canary twice.
JOB_S = 30.0
# A query of the slower systems of the published tables takes a tenth of a second on one CPU.
QUERY_S = 0.1
# The `server` scenario finds its rate in some ten probes of a sample each.
PROBES = 10
# BM25 indexes thousands of documents a second, a small encoder on CPUs tens: one in between.
DOCUMENT_S = 0.01
BUILD_S = 60.0
# From launch to the first job: boot, engine, packages.
SETUP_S = 300.0
# A small instance reads from S3 and unpacks this much a second.
BYTES_PER_S = 50e6


@dataclass(frozen=True)
class DurationEstimate:
    """Expected seconds; ``worst_s`` is the protocol's time-out, ``measured`` is false where any is assumed."""

    seconds: float
    worst_s: float
    measured: bool

    def __add__(self, other: DurationEstimate) -> DurationEstimate:
        return DurationEstimate(
            self.seconds + other.seconds, self.worst_s + other.worst_s, self.measured and other.measured
        )


NOTHING = DurationEstimate(0.0, 0.0, True)


class DurationModel:
    """Estimates by job and by build, from earlier results."""

    def __init__(self, stored: Iterable[Result], *, job_timeout_s: float, build_timeout_s: float) -> None:
        self._job_timeout_s = job_timeout_s
        self._build_timeout_s = build_timeout_s
        self._by_cell: dict[Cell, list[float]] = defaultdict(list)
        # Seconds by query, of other profiles.
        self._by_system: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._builds: dict[tuple[str, str], list[float]] = defaultdict(list)
        for result in stored:
            self._take(result)

    def _take(self, result: Result) -> None:
        cell = result.spec.cell
        if result.outcome is Outcome.INTERRUPTED or result.wall_s <= 0:
            return
        self._by_cell[cell].append(result.wall_s / _query_count(result.spec))
        if result.outcome is Outcome.OK:
            self._by_system[cell.system, cell.dataset, cell.scenario].append(result.wall_s / _query_count(result.spec))
        if result.index is not None:
            self._builds[cell.system, cell.dataset].append(result.index.build_s)

    def job(self, spec: ResultSpec) -> DurationEstimate:
        """Estimate one job of that spec."""
        cell, worst = spec.cell, self._job_timeout_s
        known = self._by_cell.get(cell) or self._by_system.get((cell.system, cell.dataset, cell.scenario))
        if known:
            return DurationEstimate(min(worst, statistics.median(known) * _query_count(spec)), worst, True)
        return DurationEstimate(min(worst, JOB_S + QUERY_S * _query_count(spec)), worst, False)

    def build(self, system: str, dataset: str, documents: int) -> DurationEstimate:
        """Estimate one index build."""
        known, worst = self._builds.get((system, dataset)), self._build_timeout_s
        if known:
            return DurationEstimate(min(worst, statistics.median(known)), worst, True)
        return DurationEstimate(min(worst, BUILD_S + DOCUMENT_S * documents), worst, False)


def setup_estimate(shipped_bytes: int) -> DurationEstimate:
    """Estimate the time from launch to the first job."""
    seconds = SETUP_S + shipped_bytes / BYTES_PER_S
    return DurationEstimate(seconds, 3 * seconds, True)


def _query_count(spec: ResultSpec) -> int:
    """Return the number of queries of a job."""
    passes = spec.trials * (PROBES if spec.cell.scenario == "server" else 1)
    return spec.warmup_queries + spec.timed_queries * passes + 2 * spec.repeats


# EC2 bills by the second, at least these.
LEAST_BILLED_S = 60.0
HOURS_A_MONTH = 730.0
# A public IPv4 address (aws.amazon.com/vpc/pricing, since 2024-02-01, all regions); in a default VPC each has one.
ADDRESS_USD_PER_HOUR = 0.005
# The rule on AWS's side looks for boxes past their deadline this often.
REAPER_EVERY_S = 300.0
# What a box may live beyond its limit: a minute to the tag's deadline, the rule's period, a minute until it is ended.
BEYOND_LIMIT_S = 60.0 + REAPER_EVERY_S + 60.0
# An estimate from measurements may be off by so much before a box counts as stuck; an assumed one by more.
_SLACK_MEASURED, _SLACK_ASSUMED = 3.0, 8.0
_LEAST_LIMIT_S = 3600.0
# No box is launched for less than its estimate and this share of it.
_NEED = 1.25
# How often a machine that is lost is replaced where the service does that; with a cap never.
ATTEMPTS = 3


def usd_per_hour(instance_usd: float, disk_gib: int, usd_per_gib_month: float) -> float:
    """Return what an instance costs with its disk and address."""
    return instance_usd + disk_gib * usd_per_gib_month / HOURS_A_MONTH + ADDRESS_USD_PER_HOUR


def estimate(part: PlannedPart) -> DurationEstimate:
    """Return a part's time."""
    return DurationEstimate(part.expected_s, part.worst_s, part.measured)


def expected_usd(parts: Iterable[PlannedPart]) -> float:
    """Return what parts cost at their estimates."""
    return sum(part.usd_per_hour * max(part.expected_s, LEAST_BILLED_S) / 3600 for part in parts)


def usual_limit_s(estimate: DurationEstimate) -> float:
    """Return how long a box may live where no cap says less."""
    slack = _SLACK_MEASURED if estimate.measured else _SLACK_ASSUMED
    return min(max(slack * estimate.seconds, _LEAST_LIMIT_S), max(estimate.worst_s, _LEAST_LIMIT_S))


def need_s(estimate: DurationEstimate) -> float:
    """Return the least time that a box is launched for."""
    return min(_NEED * estimate.seconds, usual_limit_s(estimate))


def most_usd(usd_per_hour: float, limit_s: float) -> float:
    """Return the most that a box with that time limit costs, whoever dies."""
    return usd_per_hour * (limit_s + BEYOND_LIMIT_S) / 3600


def worst_usd(parts: Iterable[PlannedPart], cap_usd: float | None) -> float:
    """Return what parts cost if every box lives as long as it may."""
    limits = sum(most_usd(part.usd_per_hour, usual_limit_s(estimate(part))) for part in parts)
    return limits if cap_usd is None else min(limits, cap_usd)


@dataclass
class Budget:
    """A cap, and what is promised and spent of it, by launch (US$)."""

    cap_usd: float | None = None
    promised: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)

    @property
    def committed_usd(self) -> float:
        """Return what was spent, and the most that the rest can cost."""
        return sum(self.spent.get(name, usd) for name, usd in self.promised.items())

    @property
    def outstanding(self) -> bool:
        """Return whether some promised money may come back."""
        return bool(self.promised.keys() - self.spent.keys())

    def launch(self, submission: Submission, others: Iterable[Submission], now: float) -> Launch | None:
        """Return a launch with the time that it may take; ``None``: the money does not reach for it now.

        ``others`` wait behind it, and keep what they need at least.
        """
        parts, usd_per_hour = submission.parts, sum(part.usd_per_hour for part in submission.parts)
        usual, names = max(usual_limit_s(estimate(part)) for part in parts), tuple(part.name for part in parts)
        if self.cap_usd is None:
            return Launch(submission.name, names, round(usual), ATTEMPTS, round(now), usd_per_hour)
        need = _need(parts)
        left = self.cap_usd - self.committed_usd
        kept = sum(_most(each.parts, _need(each.parts)) for each in others)
        # Rounding must not refuse what is just enough.
        allowed = max(left - kept, min(left, _most(parts, need))) + 1e-9
        most_s = 3600 * allowed / usd_per_hour - BEYOND_LIMIT_S
        if most_s < need:
            return None
        return Launch(submission.name, names, int(min(usual, most_s)), 1, round(now), usd_per_hour)

    def promise(self, launch: Launch) -> None:
        """Note the most that a launch can cost."""
        self.promised[launch.name] = launch.attempts * most_usd(launch.usd_per_hour, launch.limit_s)

    def settle(self, name: str, usd: float) -> None:
        """Note what a launch has cost."""
        self.promised.setdefault(name, usd)
        self.spent[name] = usd


def cost_usd(launch: Launch, parts: Sequence[PlannedPart], seconds: Sequence[float | None]) -> float:
    """Return what a launch has cost; a time that is not known counts as all that was allowed."""
    most = launch.attempts * (launch.limit_s + BEYOND_LIMIT_S)
    billed = (most if each is None else min(most, max(each, LEAST_BILLED_S)) for each in seconds)
    return sum(part.usd_per_hour * each / 3600 for part, each in zip(parts, billed, strict=True))


def _need(parts: Sequence[PlannedPart]) -> float:
    return max(need_s(estimate(part)) for part in parts)


def _most(parts: Sequence[PlannedPart], limit_s: float) -> float:
    return sum(most_usd(part.usd_per_hour, limit_s) for part in parts)
