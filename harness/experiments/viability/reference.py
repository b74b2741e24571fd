"""The unconstrained system: what a limit is judged against."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.validity import machine_speed
from harness.errors import JobError, UsageError
from harness.experiments.viability.acceptance import MEAN, SLOWER, Criteria, Target
from harness.experiments.viability.observation import Rankings, Seen
from harness.records import Outcome

# Fresh containers without a limit that are not disturbed, and attempts at them: a disturbed one is measured again.
CONTAINERS = 3
ATTEMPTS = 5


@dataclass(frozen=True)
class Reference:
    """What the system did with all the memory there is.

    Sizes in bytes, the largest of all containers.  ``latency_s`` and ``measures`` are medians over ``jobs``: the
    undisturbed containers, or the fastest of the others where there are too few; those that are left are
    ``left_out``, but for their peaks and rankings.  ``rankings`` holds the queries that
    all containers ranked alike; ``unstable`` counts the others, which no limit can be blamed for.
    ``wall_s`` is the longest job.
    """

    jobs: tuple[Seen, ...]
    left_out: tuple[Seen, ...]
    limit: int
    anonymous: int
    cgroup_peak: int
    latency_s: dict[str, float]
    measures: dict[str, float]
    rankings: Rankings
    unstable: int
    wall_s: float

    @property
    def levels(self) -> machine_speed.Levels:
        """What the canary said, which later jobs are held against."""
        return machine_speed.levels(seen.result for seen in self.jobs)

    def targets(self, criteria: Criteria) -> tuple[Target, ...]:
        """The latency targets: those asked for, else the mean and 25 %."""
        return criteria.targets or (Target(MEAN, SLOWER * self.latency_s[MEAN]),)


def enough(attempts: Sequence[Seen]) -> bool:
    """Is the unconstrained system known?"""
    calm = sum(seen.disturbed is None for seen in attempts)
    return calm >= CONTAINERS or len(attempts) >= ATTEMPTS


def reference(attempts: Sequence[Seen]) -> Reference:
    """Put the unconstrained containers together.

    Args:
        attempts: at least one, all under the same limit, in the order in which they were measured.

    Raises:
        JobError: one of them did not end ``ok``, or its memory was not measured.
    """
    for seen in attempts:
        _check(seen)
    memory = [seen.result.memory for seen in attempts]
    queries = set().union(*(seen.rankings for seen in attempts))
    alike = {
        query: attempts[0].rankings.get(query, ())
        for query in sorted(queries)
        if len({seen.rankings.get(query, ()) for seen in attempts}) == 1
    }
    # Where not enough are undisturbed, the fastest of the others: noise only ever slows.
    ordered = sorted(attempts, key=lambda seen: (seen.disturbed is not None, seen.latency_s[MEAN].value or 0.0))
    used = ordered[:CONTAINERS]
    known = set.intersection(*(set(seen.latency_s) for seen in used))
    return Reference(
        jobs=tuple(used),
        left_out=tuple(ordered[CONTAINERS:]),
        limit=attempts[0].limit,
        anonymous=max(each.peak_anon_bytes or 0 for each in memory),
        cgroup_peak=max(each.peak_cgroup_bytes or each.peak_anon_bytes or 0 for each in memory),
        latency_s={name: _median([seen.latency_s[name].value for seen in used]) for name in sorted(known)},
        measures={name: _median([seen.measures[name] for seen in used]) for name in used[0].measures},
        rankings=alike,
        unstable=len(queries) - len(alike),
        wall_s=max(seen.result.wall_s for seen in attempts),
    )


def check_keeps(reference: Reference, criteria: Criteria, where: str) -> None:
    """Refuse what even the unconstrained system does not keep.

    Args:
        reference: the unconstrained system.
        criteria: what is asked.
        where: names system and CPUs, for the message.

    Raises:
        UsageError: it misses a target or a measure.
    """
    for target in criteria.targets:
        found = reference.latency_s[target.figure]
        if found > target.at_most_s:
            raise UsageError(
                f"{where}: {target.figure} is {found * 1e3:.4g} ms with all the memory of this host, the target is"
                f" {target.at_most_s * 1e3:.4g} ms: no limit can keep it; raise --max-latency or take more --cpus"
            )
    for least in criteria.least:
        value = reference.measures.get(least.measure)
        if value is None or value < least.at_least:
            said = "not known" if value is None else f"{value:.4g}"
            raise UsageError(
                f"{where}: {least.measure} is {said} with all the memory of this host, at least {least.at_least:g} is"
                " asked: no limit can reach it; lower --min"
            )


def _check(seen: Seen) -> None:
    result = seen.result
    if result.outcome is not Outcome.OK:
        raise JobError(
            result.outcome,
            f"{result.spec.cell.system} does not even run with {result.spec.envelope.memory_bytes >> 20:,} MiB: it"
            f" ended {result.outcome.value} ({result.detail}); its log lies in {seen.job.folder}, --fresh tries again",
        )
    if result.memory.peak_anon_bytes is None:
        raise JobError(
            result.outcome,
            "the memory of a container cannot be read on this host, so there is nothing to start from;"
            " see `harness doctor`",
        )


def _median(values: Sequence[float | None]) -> float:
    return statistics.median(value for value in values if value is not None)
