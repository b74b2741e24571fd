"""Jobs to do -> groups, one for each part of a run on Batch, and the submissions that they are children of.  Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.batch import names
from harness.ec2 import grouping
from harness.ec2.grouping import Grouping
from harness.ec2.records import Group, part_name
from harness.inputs import Inputs
from harness.plan import Planned


@dataclass(frozen=True)
class Submission:
    """Groups that Batch is given at once: one job each, or the children of one array.

    ``name`` is unique in the run; ``definition`` and ``queue`` are Batch's names.
    """

    name: str
    definition: str
    queue: str
    groups: tuple[Group, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts, by their numbers in the array."""
        return tuple(part_name(group.name, 1) for group in self.groups)

    @property
    def needs(self) -> frozenset[str]:
        """Keys of the indexes that others build."""
        return frozenset(key for group in self.groups for key in group.needs)

    @property
    def builds(self) -> frozenset[str]:
        """Keys of the indexes that it builds."""
        return frozenset(build.key for group in self.groups for build in group.builds)


def groups(todo: Sequence[Planned], how: Grouping) -> tuple[Group, ...]:
    """A group for each index build, then one for each system, profile and dataset: as much side by side as can be.

    Where builds have no profile of their own, an index is built by the first group that needs it.
    """
    one = replace(how, per_type=1)
    by_place: dict[tuple[str, str, str], list[Planned]] = defaultdict(list)
    for job in todo:
        by_place[job.cell.system, job.cell.profile, job.cell.dataset].append(job)
    made: list[Group] = []
    builders: dict[str, Group] = {}
    for jobs in by_place.values():
        found = grouping.groups(jobs, one)
        for group in found:
            fresh = tuple(build for build in group.builds if build.key not in builders)
            if not group.jobs:  # a box that only builds; each index once
                if fresh:
                    builders |= {build.key: group for build in fresh}
                    made.append(replace(group, builds=fresh))
                continue
            others = sorted({*group.needs, *(build.key for build in group.builds if build not in fresh)})
            builders |= {build.key: group for build in fresh}
            made.append(replace(group, builds=fresh, needs=tuple(others)))
    made.sort(key=lambda group: bool(group.jobs))
    return tuple(replace(group, name=f"{number:03}") for number, group in enumerate(made, 1))


def submissions(inputs: Inputs, found: Sequence[Group], most: int = 10_000) -> tuple[Submission, ...]:
    """What Batch is to be given, in order: an array takes at most 10,000 children.

    Groups that wait for an index and those that build it are never in one array.
    """
    by_key: dict[tuple[str, str, str, bool], list[Group]] = defaultdict(list)
    for group in found:
        image, profile = place_of(inputs, group)
        by_key[image, profile, group.instance_type, bool(group.needs)].append(group)
    made = []
    for (image, profile, instance_type, waits), members in by_key.items():
        for start in range(0, len(members), most):
            some = tuple(members[start : start + most])
            name = f"{some[0].name}-{image}-{profile}{'-waits' if waits else ''}"
            made.append(
                Submission(
                    name,
                    names.definition(inputs.suite.name, image, profile),
                    names.queue(inputs.suite.name, instance_type),
                    some,
                )
            )
    return tuple(made)


def place_of(inputs: Inputs, group: Group) -> tuple[str, str]:
    """Image and profile whose definition a group runs under."""
    if group.jobs:
        cell = group.jobs[0].cell
        return inputs.system(cell).image, cell.profile
    build = group.builds[0]
    profile = inputs.suite.build_profile or ""
    return inputs.systems[build.system].on(inputs.build_gpus).image, profile
