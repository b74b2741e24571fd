"""The orchestrator is killed at random moments, and given the same command again."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

import pytest

from harness.driver.records import Outcome
from tests.aws.ec2.conftest import Field

KILLS = [2, pytest.param(10, marks=pytest.mark.soak)]


@pytest.mark.parametrize("kills", KILLS)
def test_killed_command_loses_and_doubles_no_job(plain: Field, kills: int) -> None:
    chance = random.Random()
    seed = chance.randrange(1 << 30)
    chance.seed(seed)
    plain.request()  # the suite's file
    command = [sys.executable, "-m", "tests.aws.ec2.orchestrator", str(plain.bench.folder)]
    killed = 0
    with plain.workers(pause_s=0.4) as workers:
        for number in range(kills):
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
                try:
                    # From before it has read anything until it watches; the first cannot end before its workers do.
                    child.wait(timeout=chance.uniform(0.5, 7 if number else 4))
                except subprocess.TimeoutExpired:
                    child.kill()
                    killed += 1
        last = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert last.returncode == 0, (seed, last.stdout[-1500:], last.stderr[-1500:])
    assert killed > 0
    assert Counter(result.outcome for result in plain.stored) == {Outcome.OK: 18}, seed
    assert len(workers.worked) == len(set(workers.worked)), (seed, workers.worked)
    assert len(workers.measured) == len(set(workers.measured)) == 18, seed
    assert plain.closed()
