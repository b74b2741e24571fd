"""Whether what a run needs of Batch is there, well, and what this harness would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness import hardware
from harness.batch.definition import SHARED_VARIABLE, definition
from harness.batch.engine import ComputeEnvironment, JobDefinition, JobQueue, as_api
from harness.batch.grouping import Submission, place_of
from harness.batch.kinds import Place
from harness.batch.wanted import Stack, Wanted
from harness.ec2 import quotas
from harness.ec2.drafting import Draft, Request
from harness.errors import UsageError
from harness.instances import Instance

_UP = "`harness batch up`"
# What decides how a job is run; the rest of a definition (its time-out, its role) does not.
_COMPARED = ("command", "resourceRequirements", "environment")


@dataclass(frozen=True)
class _Checker:
    place: Place
    draft: Draft
    request: Request
    known: Mapping[str, Instance]

    def ill(self, queue: str) -> str | None:
        """Why no job could run from a queue; ``""``: it is not there at all."""
        for kind in (JobQueue(self.place), ComputeEnvironment(self.place)):
            found = kind.find(queue)
            if found is None:
                return ""
            if found.ill:
                return f"the {kind.word} {queue} is {found.ill}"
        return None

    def stale(self, submission: Submission, found: dict[str, Any]) -> bool:
        """Whether a definition is another than the one that would be made now with the same options."""
        container = found["containerProperties"]
        image, profile = place_of(self.draft.inputs, submission.groups[0])
        told = {each["name"]: each["value"] for each in container.get("environment", ())}
        wanted = Wanted(image, hardware.profile(profile), self.known[submission.groups[0].instance_type], 60)
        stack = Stack(
            suite=self.request.suite.name,
            region=self.place.connections.region or "",
            work=self.request.work,
            wanted=(wanted,),
            agent_image=container["image"],
            shared=told.get(SHARED_VARIABLE) == "1",
        )
        now = as_api(definition(stack, wanted, ""))["containerProperties"]
        return any(_in_order(container.get(key, [])) != _in_order(now[key]) for key in _COMPARED)


def check(
    place: Place, wanted: Sequence[Submission], draft: Draft, request: Request, known: Mapping[str, Instance]
) -> None:
    """Refuse what could not run, or not as this harness runs it.

    Raises:
        UsageError: a queue or a definition is not there, is ill, or was made by another harness or for another place.
    """
    checker = _Checker(place, draft, request, known)
    missing, ill = [], []
    for queue in dict.fromkeys(each.queue for each in wanted):
        said = checker.ill(queue)
        if said == "":
            missing.append(queue)
        elif said:
            ill.append(said)
    for name, submission in {each.definition: each for each in wanted}.items():
        found = JobDefinition(place).newest(name)
        if found is None:
            missing.append(name)
        elif str(request.work) not in found["containerProperties"]["command"]:
            raise UsageError(
                f"the job definition {name} is of another work place than {request.work}; give that one, or make it"
                f" anew with {_UP}"
            )
        elif checker.stale(submission, found):
            ill.append(f"the job definition {name} was made by another version of harness, or for other machines")
    if missing:
        raise UsageError(
            f"not in AWS Batch yet: {', '.join(missing)}; make them with {_UP}, and give it the same"
            " --instance, --region and --work"
        )
    if ill:
        raise UsageError(f"{'; '.join(ill)}; {_UP}, with the same options as before, makes that right")


def quotas_of(place: Place, wanted: Sequence[Submission], known: Mapping[str, Instance]) -> list[str]:
    """The account's quota of each type, in words.

    Raises:
        UsageError: not one instance of a type may run.
    """
    said = []
    for queue, name in {each.queue: each.groups[0].instance_type for each in wanted}.items():
        quota = quotas.known(place.connections, None, known[name], ComputeEnvironment(place).spot(queue))
        if quota is None:
            continue
        words = quota.words(known[name])
        if not quota.holds(known[name]):
            raise UsageError(
                f"{name}: your quota is {words}; ask AWS for more (Service Quotas, EC2), or choose another --instance;"
                " nothing was submitted"
            )
        said.append(f"{name}: your quota is {words}")
    return said


def _in_order(words: list[Any]) -> list[Any]:
    """AWS keeps the order of a command alone."""
    return (
        sorted(sorted(each.items()) if isinstance(each, dict) else each for each in words) if _records(words) else words
    )


def _records(words: list[Any]) -> bool:
    return bool(words) and isinstance(words[0], dict)
