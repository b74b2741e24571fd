"""The smallest limit that passes: the search, fed with jobs."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path

from harness.errors import StoreError, UsageError
from harness.experiments.viability import search
from harness.experiments.viability.acceptance import Criteria
from harness.experiments.viability.judge import OOM
from harness.experiments.viability.probe import LEAST_BYTES, MIB, identity
from harness.experiments.viability.reference import Reference
from harness.experiments.viability.search import Ask, Purpose, Search, Settled
from harness.experiments.viability.session import Session, Viability
from harness.experiments.viability.verdict import Verdict, verdict
from harness.records import digest, to_json
from harness.results import seals
from harness.results.reader import VERDICTS

# MERGED harness.experiments.viability.smallest: Keeps what was found beside the jobs that it was found from, so that it can be read
# without the engine.


def put(folder: Path, found: Verdict, criteria: Criteria, base: Reference) -> Path:
    """Write a verdict; one on the same question gives way, its jobs stay.

    Args:
        folder: of the subject's jobs.
        found: what the search says.
        criteria: what was asked.
        base: the unconstrained system; another image, sample, corpus, protocol or machine is another question.

    Raises:
        StoreError: it cannot be written.
    """
    spec = identity(base.jobs[0].result.spec)
    asked = digest([spec, asdict(found.machine), found.step_bytes, asdict(criteria)])
    path = folder / VERDICTS / f"cpu{found.cpus}-{asked[:12]}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        partial.write_text(to_json(replace(found, seal=seals.over(found)), indent=2) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}; the jobs themselves are kept") from error
    return path


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
    asked.probing.publish(put(asked.probing.folder, found, session.criteria, base))
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
