"""Makes what :mod:`harness.batch.resources` describes, removes it, and says what it touches; each as often as asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.aws.failures import aws_errors
from harness.batch import names
from harness.batch.engine import ComputeEnvironment, JobDefinition, JobQueue
from harness.batch.iam import InstanceProfile, Role
from harness.batch.kinds import Found, Kind, Place, ours
from harness.batch.network import LaunchTemplate, SecurityGroup, network
from harness.batch.resources import OWNER, SUBNETS, VPC, Resource
from harness.ec2 import tags as ec2_tags
from harness.errors import UsageError
from harness.records import digest

# What jobs run on.
_MACHINES = ("AWS::EC2::LaunchTemplate", "AWS::Batch::ComputeEnvironment")


@dataclass(frozen=True)
class Touched:
    """A thing, and what became of it: ``made``, ``changed``, ``repaired``, ``as it was``, ``removed`` ..."""

    what: str
    name: str
    became: str

    def __str__(self) -> str:
        return f"{self.became:<9}  {self.what:<19}  {self.name}"


def kinds(place: Place) -> dict[str, Kind]:
    """Every kind of thing that a suite has, by CloudFormation's name."""
    return {
        "AWS::IAM::Role": Role(place),
        "AWS::IAM::InstanceProfile": InstanceProfile(place),
        "AWS::EC2::SecurityGroup": SecurityGroup(place),
        "AWS::EC2::LaunchTemplate": LaunchTemplate(place),
        "AWS::Batch::ComputeEnvironment": ComputeEnvironment(place),
        "AWS::Batch::JobQueue": JobQueue(place),
        "AWS::Batch::JobDefinition": JobDefinition(place),
    }


def up(
    place: Place,
    suite: str,
    wanted: Sequence[Resource],
    say: Callable[[Touched], None],
    subnets: Sequence[str] = (),
    busy: Callable[[], int] = lambda: 0,
) -> None:
    """Make what is missing, change what differs, leave the rest.

    Args:
        place: the account and region.
        suite: whose they are.
        wanted: each after those that it refers to.
        say: told of each as it is done.
        subnets: where instances live; the default VPC's, unless given.
        busy: how many jobs wait or run; Batch would take the machines from under them.

    Raises:
        UsageError: something of that name is there and not ours, or machines would change under jobs.
        AwsError: AWS refuses.
    """
    vpc, inside = network(place, subnets)
    known: dict[str, Any] = {VPC: {"Ref": vpc}, SUBNETS: {"Ref": inside}, **_pseudo(place)}
    owner = known[OWNER]["Ref"]
    every = kinds(place)
    for each in wanted:
        kind = every[each.kind]
        properties = resolved(each.properties, known)
        tags = {names.SUITE_TAG: suite, names.DIGEST_TAG: digest(properties)[:16], names.OWNER_TAG: owner}
        present = kind.find(each.name)
        if present is not None and present.status == "DELETING":
            kind.remove(each.name)  # waits until it is gone
            present = None
        became = _became(kind, each.name, tags, present, suite)
        if became == "changed" and each.kind in _MACHINES and (jobs := busy()):
            raise UsageError(f"{jobs} jobs of {suite} are not finished, and {each.name} would change under them; wait")
        if became == "made":
            kind.make(each.name, properties, tags)
        elif became in ("changed", "repaired"):
            kind.change(each.name, properties, tags)
        found = present if present and became == "as it was" else kind.find(each.name)
        known[each.logical] = found.attributes if found else {}
        say(Touched(kind.word, each.name, became))


def _became(kind: Kind, name: str, tags: dict[str, str], present: Found | None, suite: str) -> str:
    """What is to become of it."""
    if present is None:
        return "made"
    if "aws:cloudformation:stack-name" in present.tags:
        raise UsageError(f"the {kind.word} {name} is of a CloudFormation stack; update that stack instead")
    # A role without any tag is one that was interrupted half-way.
    if present.tags and not ours(present, suite):
        raise UsageError(f"the {kind.word} {name} is there and was not made for this suite; rename the suite")
    if present.tags.get(names.DIGEST_TAG) == tags[names.DIGEST_TAG]:
        return "repaired" if present.ill else "as it was"
    return "changed"


def down(place: Place, suite: str, known: Iterable[tuple[str, str]], say: Callable[[Touched], None]) -> None:
    """Remove them; the last made goes first.

    Args:
        place: the account and region.
        suite: whose they are; what is not its own is left, and said.
        known: kind and name of each, in the order that they were made in.
        say: told of each as it is done.
    """
    every = kinds(place)
    for kind_name, name in reversed(list(known)):
        kind = every[kind_name]
        present = kind.find(name)
        if present is None:
            say(Touched(kind.word, name, "not there"))
        elif "aws:cloudformation:stack-name" in present.tags:
            say(Touched(kind.word, name, "left: of a CloudFormation stack; delete that"))
        elif present.tags and not ours(present, suite):
            say(Touched(kind.word, name, "left: not this suite's"))
        else:
            kind.remove(name)
            say(Touched(kind.word, name, "removed"))


def resolved(value: Any, known: dict[str, Any]) -> Any:
    """The value with its references replaced by what they mean."""
    if isinstance(value, list):
        return [resolved(each, known) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"Ref"}:
        return known[value["Ref"]]["Ref"]
    if set(value) == {"Fn::GetAtt"}:
        name, attribute = value["Fn::GetAtt"]
        return known[name][attribute]
    if set(value) == {"Fn::Sub"}:
        text = value["Fn::Sub"]
        for name in ("AWS::Partition", "AWS::Region", "AWS::AccountId"):
            text = text.replace(f"${{{name}}}", known[name]["Ref"])
        return text
    return {key: resolved(inner, known) for key, inner in value.items()}


def _pseudo(place: Place) -> dict[str, Any]:
    region = place.connections.region or ""
    with aws_errors("asking who this is"):
        # arn:PARTITION:...; it goes into policies, and nowhere that people or results see.
        caller = place.client("sts").get_caller_identity()
    return {
        "AWS::Partition": {"Ref": caller["Arn"].split(":")[1]},
        "AWS::Region": {"Ref": region},
        "AWS::AccountId": {"Ref": caller["Account"]},
        OWNER: {"Ref": ec2_tags.owner(place.connections)},
    }
