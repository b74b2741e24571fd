"""A job under a limit against the unconstrained system: does it pass, and what failed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.observation import Seen
from harness.experiments.viability.reference import Reference
from harness.experiments.viability.search import Finding
from harness.records import Outcome

# A latency that misses its target by less than this factor is in doubt: machines were seen to slow down by 1.4 to 1.9
# for some seconds.
DOUBTFUL = 2.0

OOM, LATENCY, RANKING, MEASURE, LOAD = "oom", "latency", "ranking", "measure", "load time-out"


@dataclass(frozen=True)
class Judgement:
    """What a job says of its limit.

    ``causes`` names all that failed, ``why`` says it with its figures.  ``slack`` is the worst latency over its target:
    above 1, one is missed.
    """

    seen: Seen
    finding: Finding
    causes: tuple[str, ...] = ()
    why: str = ""
    slack: float = 0.0


def judge(seen: Seen, reference: Reference, criteria: Criteria) -> Judgement:
    """Hold a job against all criteria.

    Only latency can be in doubt.  Memory, rankings and measures do not hang on how busy a machine is.
    """
    result = seen.result
    if result.outcome is not Outcome.OK:
        return Judgement(seen, Finding.FAIL, (_cause(seen),), result.detail or result.outcome.value)
    wrong = dict(_rankings(seen, reference) + _measures(seen, criteria))
    slow, slack = _latencies(seen, reference, criteria)
    if slow:
        wrong[LATENCY] = slow
    if not wrong:
        return Judgement(seen, Finding.PASS, slack=slack)
    why = "; ".join(wrong.values())
    if list(wrong) == [LATENCY] and (slack < DOUBTFUL or seen.disturbed):
        if seen.disturbed:
            why += f"; {seen.disturbed}"
        return Judgement(seen, Finding.DOUBT, (LATENCY,), why, slack)
    return Judgement(seen, Finding.FAIL, tuple(wrong), why, slack)


def against(judged: Judgement, control: Judgement) -> Judgement | None:
    """A job in doubt, held against the unconstrained one that was measured right after it.

    Returns:
        Its judgement; or ``None`` where the machine was so slow that the job says nothing.
    """
    if judged.slack >= DOUBTFUL * max(control.slack, 1.0):  # too slow even for such a machine
        return replace(judged, finding=Finding.FAIL)
    return judged if control.slack <= 1 else None


def _cause(seen: Seen) -> str:
    """What the constraint is where a job did not end well."""
    result = seen.result
    if result.outcome is Outcome.TIMEOUT:
        # Only a query that was asked can have been too slow.
        return LATENCY if result.warmup_done or (result.detail or "").startswith("a query") else LOAD
    return OOM if result.outcome is Outcome.OOM else result.outcome.value


def _rankings(seen: Seen, reference: Reference) -> list[tuple[str, str]]:
    other = [query for query, ids in reference.rankings.items() if seen.rankings.get(query, ()) != ids]
    if not other:
        return []
    return [(RANKING, f"{len(other):,} of {len(reference.rankings):,} queries are ranked otherwise, e.g. {other[0]}")]


def _measures(seen: Seen, criteria: Criteria) -> list[tuple[str, str]]:
    missed = [
        f"{each.measure} is {seen.measures.get(each.measure, 0.0):.4g}, at least {each.at_least:g}"
        for each in criteria.least
        if seen.measures.get(each.measure, 0.0) < each.at_least
    ]
    return [(MEASURE, ", ".join(missed))] if missed else []


def _latencies(seen: Seen, reference: Reference, criteria: Criteria) -> tuple[str, float]:
    """What is too slow, and the worst latency over its target."""
    said, worst = [], 0.0
    for target in reference.targets(criteria):
        found = seen.latency_s[target.figure].value
        assert found is not None, "a figure without a value is not kept"
        worst = max(worst, found / target.at_most_s)
        if found > target.at_most_s:
            said.append(f"{target.figure} {found * 1e3:.4g} ms, target {target.at_most_s * 1e3:.4g} ms")
    return ", ".join(said), worst
