"""The small sister of benchmarks/ec2_scale.py: many boxes at once, some of which die."""

from __future__ import annotations

from collections import Counter

from harness.records import Outcome
from tests.ec2.boxes import Fate
from tests.ec2.conftest import Field, launched_and_terminated


def test_sixty_jobs_over_ten_instances_two_of_which_die(plain: Field) -> None:
    plain.systems = ("planted", "other", "third", "fourth", "fifth")
    for name in plain.systems:
        plain.bench.plant(name)
    plain.suite_keys = {"profiles": ["cpu1-mem256m", "cpu1-mem1", "cpu1-mem2", "cpu1-mem4"]}
    plain.changes = {"per_type": 10, "most": 10, "instance": "m6i.2xlarge"}
    fates = {"003-1": Fate(after=1, dies=True), "007-1": Fate(after=2, dies=True)}
    with plain.boxes(fates=fates) as boxes:
        done = plain.run()
    assert Counter(result.outcome for result in plain.stored) == {Outcome.OK: 60, Outcome.INTERRUPTED: 2}
    assert done.complaints == () and done.summary.complaints == []
    assert launched_and_terminated() == (13, 13)
    assert len(boxes.measured) == len(set(boxes.measured)) == 60
