"""The smallest limit that passes: the search, fed with jobs."""

from __future__ import annotations

from dataclasses import replace

from harness.viable import search, stored
from harness.viable.probing import LEAST_BYTES, MIB
from harness.viable.run import Viability
from harness.viable.search import Ask, Purpose, Search, Settled
from harness.viable.session import Session
from harness.viable.verdict import Verdict, verdict

# Beside anonymous memory: page tables and other kernel memory, and those file pages without which nothing runs.
ALLOWANCE_BYTES = 8 * MIB


def smallest(asked: Viability, cpus: int) -> Verdict:
    """Find the smallest limit that passes, confirm it, and store what was found.

    Raises:
        UsageError: this host has not so many CPUs or GPUs, or even the unconstrained system misses what is asked.
        JobError: the unconstrained system does not run, or a job says nothing of its limit.
        HarnessError: the machine is too busy; or as from a run.
    """
    session, step = Session(asked, cpus), asked.question.step
    base = session.base
    grid = search.bounds(base.anonymous, base.cgroup_peak, base.limit, step, LEAST_BYTES, ALLOWANCE_BYTES)
    settled = _settle(session, search.search(grid))
    against = session.killed_above(settled.limit)
    while against:
        # Whatever passes below it, a limit under which some container was killed is none to live in.
        asked.say(
            cpus, f"killed with {against[-1].limit // MIB:,} MiB in another job: moves up", asked.probing.measured > 0
        )
        session.tried += against
        higher = _settle(session, search.above(grid, against[-1].limit))
        settled = replace(higher, probes=settled.probes)
        against = session.killed_above(settled.limit)
    found = verdict(settled, session.tried, base, session.criteria, step)
    stored.put(asked.probing.folder, found, session.criteria)
    return found


def _settle(session: Session, asking: Search) -> Settled:
    """Feed a search to its end."""
    ask = next(asking)
    while True:
        judged = session.try_once(ask.limit, ask.purpose, _label(ask))
        try:
            ask = asking.send(judged.finding)
        except StopIteration as end:
            settled: Settled = end.value
            return settled


def _label(ask: Ask) -> str:
    return {
        Purpose.PROBE: f"probe {ask.number} of at most {ask.most}",
        Purpose.CONFIRMATION: f"confirmation {ask.number} of {ask.most}",
    }.get(ask.purpose, "the next step below once more")
