"""Jobs of a suite become parts, and parts the children of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from harness import instances
from harness.batch.grouping import groups, submissions
from harness.ec2.estimates import Estimate
from harness.ec2.grouping import Grouping, Missing
from harness.ec2.machines import Machine
from harness.remote.records import IndexBuild
from harness.result import Cell
from tests.jobs import planned

KNOWN = instances.read("aws")
LARGE, XLARGE = Machine(KNOWN["m6i.large"], 0.096), Machine(KNOWN["m6i.xlarge"], 0.192)
MACHINES = {"small": LARGE, "big": XLARGE, "builds": XLARGE}


@dataclass
class FakeInputs:
    """Two systems share one image, as those with the same weights do."""

    build_profile: str | None = "builds"
    build_gpus: int = 0

    @property
    def suite(self) -> Any:
        return SimpleNamespace(name="s", build_profile=self.build_profile)

    @property
    def systems(self) -> dict[str, Any]:
        return {name: SimpleNamespace(on=lambda _, name=name: self._image(name)) for name in "abc"}

    def system(self, cell: Cell) -> Any:
        return self._image(cell.system)

    @staticmethod
    def _image(name: str) -> Any:
        return SimpleNamespace(image="ab" if name in "ab" else name)


def how(*missing: str, build_machine: Machine | None = XLARGE) -> Grouping:
    found = {}
    for key in missing:
        system, _, dataset = key.partition("-")
        found[key] = Missing(IndexBuild(key, system, dataset), Estimate(60, 7200, False))
    return Grouping(MACHINES, lambda _: Estimate(60, 7200, True), found, build_machine)


def test_a_part_is_a_system_on_a_profile_and_a_dataset() -> None:
    todo = [planned(s, p, d, n) for n in range(3) for s in "ab" for p in ("small", "big") for d in ("d", "e")]
    made = groups(todo, how())
    assert len(made) == 8
    assert all(len(group.jobs) == 3 and len({job.cell for job in group.jobs}) == 1 for group in made)
    assert sorted(job.key for group in made for job in group.jobs) == sorted(
        {job.key for group in made for job in group.jobs}
    )
    assert [group.name for group in made] == [f"{number:03}" for number in range(1, 9)]


def test_parts_of_one_definition_are_one_array() -> None:
    todo = [planned(s, p) for s in "abc" for p in ("small", "big")]
    found = submissions(FakeInputs(), groups(todo, how()))  # type: ignore[arg-type]
    assert {(each.definition, each.queue, len(each.groups)) for each in found} == {
        ("harness-s-ab-small", "harness-s-m6i-large", 2),
        ("harness-s-ab-big", "harness-s-m6i-xlarge", 2),
        ("harness-s-c-small", "harness-s-m6i-large", 1),
        ("harness-s-c-big", "harness-s-m6i-xlarge", 1),
    }
    assert len({each.name for each in found}) == 4
    assert sorted(part for each in found for part in each.parts) == [f"{number:03}-1" for number in range(1, 7)]


def test_an_array_is_not_larger_than_batch_takes() -> None:
    todo = [planned("a", dataset=f"d{number}") for number in range(7)]
    found = submissions(FakeInputs(), groups(todo, how()), most=3)  # type: ignore[arg-type]
    assert [len(each.groups) for each in found] == [3, 3, 1]
    assert len({each.name for each in found}) == 3


def test_an_index_is_built_once_by_a_job_of_its_own_that_others_wait_for() -> None:
    todo = [planned("a", "small"), planned("a", "big"), planned("c", "small")]
    made = groups(todo, how("a-d"))
    assert [(len(group.builds), len(group.jobs), group.needs) for group in made] == [
        (1, 0, ()),
        (0, 1, ("a-d",)),
        (0, 1, ("a-d",)),
        (0, 1, ()),
    ]
    found = submissions(FakeInputs(), made)  # type: ignore[arg-type]
    assert [each.definition for each in found if each.builds] == ["harness-s-ab-builds"]
    assert all(not (each.builds & each.needs) for each in found)


def test_without_a_build_profile_the_first_that_needs_it_builds_it() -> None:
    todo = [planned("a", "small"), planned("a", "big")]
    made = groups(todo, how("a-d", build_machine=None))
    assert [(len(group.builds), group.needs) for group in made] == [(1, ()), (0, ("a-d",))]
    found = submissions(FakeInputs(build_profile=None), made)  # type: ignore[arg-type]
    assert sorted((len(each.builds), len(each.needs)) for each in found) == [(0, 1), (1, 0)]


@pytest.mark.parametrize("builds", [XLARGE, None])
def test_the_same_plan_gives_the_same_submissions(builds: Machine | None) -> None:
    todo = [planned(s, p, d) for s in "abc" for p in ("small", "big") for d in ("d", "e")]
    first, second = (groups(todo, how("a-d", "b-e", build_machine=builds)) for _ in range(2))
    assert first == second
    keys = [build.key for group in first for build in group.builds]
    assert sorted(keys) == ["a-d", "b-e"]
