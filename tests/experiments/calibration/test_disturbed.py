"""A real canary beside real work: a busy process is found, and a quiet machine raises no alarm."""

from __future__ import annotations

import hashlib
import os
import resource
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from harness.analysis.table import Finding, Validity
from harness.analysis.validity import machine_speed
from harness.analysis.validity.sample_checks import SampleFacts
from harness.experiments.calibration.fixtures import busy_cpus
from harness.launch import cpu_placement, host
from harness.launch.monitor.canary import Canary
from harness.results.schema import Placement
from tests.support import sample_records
from tests.support.chance import chance

TRIALS = 3
WANTED = 20
# Seconds of CPU time that other processes may take beside a cell, which lasts about two.
_OTHERS_S = 0.1
_ENOUGH_S = 1200.0


@dataclass(frozen=True)
class Cell:
    """Canary findings on three trials, and the CPU time of other processes meanwhile."""

    noisy: tuple[Finding, ...]
    others_s: float
    facts: SampleFacts


def _work() -> float:
    """Return the mean seconds of a query that is work for the processor alone."""
    start = time.perf_counter()
    for _ in range(150):
        hashlib.pbkdf2_hmac("sha256", b"query", b"document", 8000)
    return (time.perf_counter() - start) / 150


def _cell(canary: Canary, placement: Placement, slowed: int | None) -> Cell:
    """Measure three trials on the job's CPU; a busy process shares it beside one of them."""
    all_s, own_s, jobs, means = _busy_s(), _own_s(), [], []
    for trial in range(TRIALS):
        with busy_cpus() if trial == slowed else nullcontext(), host.aside(placement):
            before = canary.read("before", placement, None)
            mine = os.sched_getaffinity(0)
            os.sched_setaffinity(0, placement.cpus)
            means.append(_work())
            os.sched_setaffinity(0, mine)
            looks = before, canary.read("after", placement, None)
        jobs.append(sample_records.result(job=trial, jobs=TRIALS, trials=1, canary=looks))
    # Half the width of Student's 95 % interval over three trials.
    within = 4.303 * float(np.std(means, ddof=1)) / TRIALS**0.5 / float(np.mean(means))
    facts = SampleFacts(trial_means_s=tuple(means), mean_within=within)
    found = machine_speed.check(jobs, {}, facts)
    others_s = _busy_s() - all_s - (_own_s() - own_s)
    return Cell(tuple(finding for finding in found if finding.validity is Validity.NOISY), others_s, facts)


def _quiet() -> bool:
    """Return whether strangers leave the CPUs alone just now; wait a little where they do not."""
    before_s = _busy_s()
    time.sleep(0.3)
    if _busy_s() - before_s <= 0.02:
        return True
    time.sleep(0.7)
    return False


def _busy_s() -> float:
    """Return the seconds that all CPUs have worked, the hypervisor's share of them included."""
    user, nice, system, _, _, *interrupts = (
        int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Return the CPU seconds of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@pytest.mark.soak
@pytest.mark.usefixtures("real_looks")
def test_busy_process_is_detected_in_20_of_20_runs_and_a_quiet_machine_is_clean() -> None:
    """Measure a cell again if other processes worked beside it."""
    draw, canary, placement = chance("disturbed"), Canary(), cpu_placement.place(1)
    canary.prepare(placement)
    cells: dict[bool, list[Cell]] = {True: [], False: []}
    end = time.monotonic() + _ENOUGH_S
    while min(map(len, cells.values())) < WANTED and time.monotonic() < end:
        if not _quiet():
            continue
        slowed = len(cells[True]) < len(cells[False])
        cell = _cell(canary, placement, draw.randrange(TRIALS) if slowed else None)
        if cell.others_s < _OTHERS_S:
            cells[slowed].append(cell)
    disturbed, quiet = cells[True], cells[False]
    assert min(len(disturbed), len(quiet)) >= WANTED, "strangers worked on this machine all the time"
    assert [cell.facts for cell in disturbed if not cell.noisy] == []
    assert [cell for cell in quiet if cell.noisy] == []
