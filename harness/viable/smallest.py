"""The smallest limit that passes: the search, fed with jobs."""

from __future__ import annotations

from dataclasses import replace

from harness.errors import UsageError
from harness.viable import search, stored
from harness.viable.judge import OOM
from harness.viable.probing import LEAST_BYTES, MIB
from harness.viable.run import Viability
from harness.viable.search import Ask, Purpose, Search, Settled
from harness.viable.session import Session
from harness.viable.verdict import Verdict, verdict

# Beside anonymous memory: page tables and other kernel memory, and those file pages without which nothing runs.
ALLOWANCE_BYTES = 8 * MIB


def check_step(asked: Viability, cpus: int) -> None:
    """Refuse a step of which this host has not one.

    Raises:
        UsageError: it has not, or not so many CPUs or GPUs.
    """
    most, step = asked.everything(cpus).memory_bytes, asked.question.step
    if step > most:
        raise UsageError(
            f"--step {step // MIB:,} MiB: this host leaves {most // MIB:,} MiB to a job, less than one step; name a"
            " smaller one"
        )


def smallest(asked: Viability, cpus: int) -> Verdict:
    """Find the smallest limit that passes, confirm it, and store what was found.

    What is found depends on nothing but the stored jobs: on those that the search asks for, and on the largest limit
    under which any was killed.  So a search that was cut off anywhere, or comes again, ends as the one that was not.

    Raises:
        UsageError: this host has not so many CPUs or GPUs, or even the unconstrained system misses what is asked.
        JobError: the unconstrained system does not run, or a job says nothing of its limit.
        HarnessError: the machine is too busy, or nothing settles; or as from a run.
    """
    check_step(asked, cpus)
    session, step = Session(asked, cpus), asked.question.step
    base = session.base
    grid = search.bounds(base.anonymous, base.cgroup_peak, base.limit, step, LEAST_BYTES, ALLOWANCE_BYTES)
    first = settled = _settle(session, search.search(grid))
    begun, failed = session, None
    # Whatever passes below it, a limit under which some container was killed is none to live in.
    while first.limit is not None and (killed := session.most_killed(first.limit)) != failed:
        assert killed is not None, "no job that was stored goes away"
        asked.say(cpus, f"killed with {killed // MIB:,} MiB in another job: moves up", asked.probing.measured > 0)
        session, failed = begun.again(killed), killed
        higher = _settle(session, search.above(grid, killed), until_killed=True)
        settled = replace(higher, probes=first.probes)
    session.tried += session.against(first.limit, settled)
    found = verdict(settled, session.tried, base, session.criteria, step)
    asked.probing.publish(stored.put(asked.probing.folder, found, session.criteria, base))
    return found


def _settle(session: Session, asking: Search, *, until_killed: bool = False) -> Settled:
    """Feed a search to its end, or until a container is killed for memory: then nothing is settled."""
    try:
        ask = next(asking)
        while True:
            judged = session.try_once(ask.limit, ask.purpose, _label(ask))
            if until_killed and judged.causes == (OOM,):
                return Settled(None, ask.limit, 0)
            ask = asking.send(judged.finding)
    except StopIteration as end:
        settled: Settled = end.value
        return settled


def _label(ask: Ask) -> str:
    return {
        Purpose.PROBE: f"probe {ask.number} of at most {ask.most}",
        Purpose.CONFIRMATION: f"confirmation {ask.number} of {ask.most}",
    }.get(ask.purpose, "the next step below once more")
