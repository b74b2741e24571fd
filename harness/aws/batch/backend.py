"""AWS Batch as a backend of a run."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

from harness.aws import clients, cloudformation
from harness.aws.batch import suite_stack
from harness.aws.batch.suite_stack import LEAST_TIMEOUT_S, BatchOptions
from harness.aws.clients import Connections
from harness.aws.ec2 import account, instances
from harness.aws.errors import aws_errors
from harness.aws.rental import RentalBackend, RentalRequest
from harness.commands import quoted
from harness.errors import UsageError, counted
from harness.remote import partition
from harness.remote.backend import ENDED, RUNNING, UNKNOWN, WAITING, PartState
from harness.remote.failures import concealed
from harness.remote.partition import Submission
from harness.remote.records import Launch, PlannedPart, RemoteRun, ShippedInput

log = logging.getLogger(__name__)

# The largest array that Batch takes.
_MAXIMUM_ARRAY = 10_000
# Batch lists a job within this time; a job that it does not describe for the second time is gone.
_LISTED_S, _FORGOTTEN_S = 60.0, 600.0
# After this time without a host the user hears why.
_PATIENCE_S = 180.0
_PHASES = dict.fromkeys(("STARTING", "RUNNING"), RUNNING) | dict.fromkeys(suite_stack.ENDED, ENDED)
_NEW = {"status": "SUBMITTED"}
_FORGOTTEN = PartState(ENDED, "gone", reason="AWS Batch no longer knows the job")
_KINDS = {
    "queue": ("describe_job_queues", "jobQueues"),
    "environment": ("describe_compute_environments", "computeEnvironments"),
}


@dataclass
class _LaunchedJob:
    """A launch's job, and the times since which it is doubted, unseen, stuck."""

    job_id: str | None = None
    doubted: float | None = None
    unseen: float | None = None
    stuck: float | None = None
    ended: dict[str, PartState] = field(default_factory=dict)


def _since(before: float | None, holds: bool, now: float) -> float | None:
    """Return the time since which a condition holds; ``None``: it does not hold."""
    return (now if before is None else before) if holds else None


class BatchBackend(RentalBackend):
    """AWS Batch, for one command."""

    name = "batch"
    options = RentalBackend.options - {"most", "spot", "subnet"}
    attempts = suite_stack.ATTEMPTS

    def __init__(self, request: RentalRequest, connections: Connections) -> None:
        super().__init__(request, connections)
        self._role = ""  # begins the worker id of each attempt
        self._jobs: dict[str, _LaunchedJob] = defaultdict(_LaunchedJob)
        self._ids: dict[str, str] = {}  # part -> the job that does it
        self.ending = quoted("batch cancel", self._suite.name, region=self.region)

    def split(self, parts: Sequence[PlannedPart]) -> tuple[Submission, ...]:
        """Return the arrays; parts that wait for an index are apart, and one by one where they build one too."""
        alike: dict[tuple[str, str, str], list[PlannedPart]] = defaultdict(list)
        for part in parts:
            system = part.jobs[0].cell.system if part.jobs else part.builds[0].system
            kind = f"{system}-{self._profile(part)}{'-waits' if part.needs else ''}"
            # Else two arrays could wait for each other.
            alone = part.name if part.needs and part.builds else ""
            alike[kind, part.instance_type, alone].append(part)
        return tuple(
            Submission(f"{members[start].name}-{kind}", tuple(members[start : start + _MAXIMUM_ARRAY]))
            for (kind, *_), members in alike.items()
            for start in range(0, len(members), _MAXIMUM_ARRAY)
        )

    def _profile(self, part: PlannedPart) -> str:
        return part.jobs[0].cell.profile if part.jobs else self._suite.build_profile or ""

    def _queue(self, part: PlannedPart) -> str:
        return suite_stack.queue_name(self._suite.name, part.instance_type)

    def check(self, parts: Sequence[PlannedPart]) -> list[str]:
        """Refuse parts that the stack would not run."""
        suite, envelopes = self._suite.name, self._suite.envelopes()
        options = BatchOptions(region=self.region, work=self._work)
        up = f"{quoted('batch up', 'SUITE', work=self._work)} (give both commands the same --instance and --region)"
        stack = cloudformation.find(self._connections, suite_stack.stack_name(suite))
        if stack is None:
            raise UsageError(f"{suite} is not in AWS Batch in {self.region}; make it: {up}")
        if stack.outputs.get(suite_stack.WORK) != str(self._work):
            raise UsageError(f"the stack {stack.name} is for another work place than {self._work}; change it: {up}")
        for profile, instance_type in dict.fromkeys((self._profile(part), part.instance_type) for part in parts):
            envelope, instance = envelopes[profile], self._known[instance_type]
            either = (options, replace(options, shared=True))
            digests = [suite_stack.definition_digest(envelope, instance, chosen) for chosen in either]
            if stack.outputs.get(suite_stack.logical_name("Jobs", profile)) not in digests:
                why = f"has no jobs of this version of harness for {profile} on {instance_type}"
                raise UsageError(f"the stack {stack.name} {why}; change it: {up}")
        for instance_type in dict.fromkeys(part.instance_type for part in parts):
            queue = suite_stack.queue_name(suite, instance_type)
            if ill := self._ill("queue", queue) or self._ill("environment", queue):
                raise UsageError(f"the {ill}; enable it, or make it again: {quoted('batch down', suite)}, then {up}")
        return []

    def _ill(self, kind: str, name: str) -> str | None:
        """Return why a queue or a compute environment takes no jobs."""
        operation, key = _KINDS[kind]
        with aws_errors(f"looking for the {kind} {name}"):
            described = getattr(self._connections.client("batch"), operation)(**{key: [name]})[key]
        resource = next((resource for resource in described if resource["status"] != "DELETED"), None)
        if resource is None:
            return f"{kind} {name} is missing"
        if resource["state"] == "ENABLED" and resource["status"] not in ("INVALID", "DELETING"):
            return None
        words = (resource["state"].lower(), resource["status"].lower(), concealed(resource.get("statusReason") or ""))
        return f"{kind} {name} is {', '.join(filter(None, words))}"

    def begin(self, run: RemoteRun, bundle: ShippedInput) -> None:
        """Remember the run, and the harness that agents fetch."""
        self._run, self._bundle = run, bundle
        account_stack = account.find(self._connections, self._work, self.region)
        if account_stack is None:
            raise UsageError(f"the account stack no longer exists; make it with {quoted('ec2 up', self._work)}")
        self._role = account_stack.worker_role_id

    def launch(self, launch: Launch, submission: Submission, note: Callable[[Launch], None]) -> None:
        """Submit a launch's job, unless an earlier one may show up."""
        del note
        job, first = self._jobs[launch.name], submission.parts[0]
        if job.doubted is not None and self._clock.now - job.doubted < _LISTED_S:
            return
        count, more = len(submission.parts), dict[str, Any]()
        if count > 1:  # Batch refuses an array of one
            more["arrayProperties"] = {"size": count}
        if launch.attempts != self.attempts:
            more["retryStrategy"] = {"attempts": launch.attempts}
        fresh, job.doubted = job.doubted is None, self._clock.now
        values = (self._run.run_id, launch.name, self._bundle.name, self._bundle.sha256)
        with aws_errors(f"submitting {launch.name}"):
            # Batch makes two jobs of two equal requests, so that none is sent a second time.
            answer = self._connections.client("batch", attempts=1).submit_job(
                jobName=suite_stack.job_name(self._run.run_id, launch.name),
                jobQueue=self._queue(first),
                jobDefinition=suite_stack.definition_name(self._suite.name, self._profile(first)),
                parameters=dict(zip(suite_stack.PARAMETERS, values, strict=True)),
                timeout={"attemptDurationSeconds": max(LEAST_TIMEOUT_S, launch.limit_s)},
                tags={clients.RUN: self._run.run_id, clients.SUITE: self._suite.name, clients.OWNER: self._run.owner},
                propagateTags=True,
                **more,
            )
        job.job_id = str(answer["jobId"])
        if fresh:
            job.doubted = None

    def look(self, launches: Sequence[Launch], submissions: Mapping[str, Submission]) -> dict[str, PartState]:
        """Return the state of every part of these launches, by name."""
        states = [self._look(launch.name, submissions[launch.name]) for launch in launches]
        return {part: state for launched in states for part, state in launched.items()}

    def _look(self, name: str, submission: Submission) -> dict[str, PartState]:
        job, now, parts = self._jobs[name], self._clock.now, [part.name for part in submission.parts]
        if job.job_id is None or (job.doubted is not None and now - job.doubted < _FORGOTTEN_S):
            self._find(job, submission)
        if job.job_id is None:
            job.doubted = _since(job.doubted, True, now)
            return dict.fromkeys(parts, PartState(UNKNOWN, "may be submitted already; looking for it"))
        ids = [f"{job.job_id}:{number}" for number in range(len(parts))] if len(parts) > 1 else [job.job_id]
        self._ids |= zip(parts, ids, strict=True)
        rest = {part: self._ids[part] for part in parts if part not in job.ended}
        if not rest:
            return job.ended
        wanted = list(dict.fromkeys([job.job_id, *rest.values()]))
        described = {shown["jobId"]: shown for shown in suite_stack.described(self._connections, wanted)}
        job.unseen = _since(job.unseen, not described, now)
        if job.unseen is not None and now - job.unseen >= _FORGOTTEN_S:
            job.ended |= dict.fromkeys(rest, _FORGOTTEN)
            return job.ended
        # Batch makes the children some time after their array: until then they are as it is.
        array = described.get(job.job_id, _NEW)
        shown = {**array, "container": {}, "attempts": ()} if array["status"] in suite_stack.ENDED else _NEW
        missing = replace(self._state(shown), seconds=None)
        states = {part: self._state(described[id_]) if id_ in described else missing for part, id_ in rest.items()}
        job.ended |= {part: state for part, state in states.items() if state.phase == ENDED}
        reason = self._why_waits(job, submission, [state for state in states.values() if state.phase != ENDED])
        for part, state in states.items():
            if state.phase == WAITING:
                states[part] = replace(state, reason=state.reason or reason)
        return job.ended | states

    def _find(self, job: _LaunchedJob, submission: Submission) -> None:
        """Find a launch's job by its name; end younger twins."""
        name = suite_stack.job_name(self._run.run_id, submission.name)
        # With a filter Batch lists jobs in all states, and those whose name begins so.
        filters = [{"name": "JOB_NAME", "values": [name]}]
        listed = suite_stack.listed(self._connections, self._queue(submission.parts[0]), filters=filters)
        jobs = sorted((each for each in listed if each.name == name), key=attrgetter("created", "job_id"))
        if jobs:
            job.job_id = jobs[0].job_id
        for twin in jobs[1:]:
            if twin.status not in suite_stack.ENDED:
                suite_stack.terminate(self._connections, twin.job_id, "harness: submitted twice")

    def _state(self, shown: Mapping[str, Any]) -> PartState:
        """Return the state of a job, or of an array's child."""
        container, attempts = shown.get("container", {}), shown.get("attempts", ())
        containers = (*(attempt.get("container", {}) for attempt in attempts), container)
        tasks = [each.get("taskArn") for each in containers]
        # An ECS task's id is the name of its role's session.
        workers = dict.fromkeys(f"{self._role}:{task.rpartition('/')[2]}" for task in tasks if task)
        reasons = [shown.get("statusReason"), container.get("reason")]
        if container.get("exitCode"):
            reasons.append(f"exit code {container['exitCode']}")
        phase = _PHASES.get(shown["status"], WAITING)
        begun = [attempt for attempt in attempts if attempt.get("startedAt")]
        seconds: float | None = None
        if phase == ENDED and all(attempt.get("stoppedAt") for attempt in begun):
            ran_ms = sum(attempt["stoppedAt"] - attempt["startedAt"] for attempt in begun)
            seconds = ran_ms / 1000 + len(begun) * partition.BEYOND_LIMIT_S  # an instance costs before and after, too
        reason = concealed(" ".join("; ".join(filter(None, reasons)).split()))[:300]  # it may name the account
        return PartState(
            phase, shown["status"].lower(), tuple(workers), max(len(attempts), len(workers)), reason, seconds
        )

    def _why_waits(self, job: _LaunchedJob, submission: Submission, open_: Sequence[PartState]) -> str:
        """Return why all open parts have waited for minutes, or nothing."""
        now, waits = self._clock.now, bool(open_) and all(state.words == "runnable" for state in open_)
        job.stuck = _since(job.stuck, waits, now)
        if job.stuck is None or now - job.stuck < _PATIENCE_S:
            return ""
        reason = next(filter(None, (state.reason for state in open_)), None)
        ill = reason or self._ill("environment", self._queue(submission.parts[0]))
        return f"no instance yet: {ill or 'EC2 may have none, or your quota is used up'}"

    def end(self, part: str, state: PartState, why: str) -> None:
        """End a part's job, as far as Batch has shown it."""
        if state.phase != ENDED and part in self._ids:
            suite_stack.terminate(self._connections, self._ids[part], f"harness: {why}")

    def alive(self) -> list[str]:
        """Wait until Batch has ended the suite's instances, unless others use them."""
        suite = self._suite.name
        stack = cloudformation.find(self._connections, suite_stack.stack_name(suite))
        if stack is not None and suite_stack.unfinished_jobs(self._connections, stack):
            log.info(f"other jobs of {suite} are not finished; their instances go on")
            return []
        machines = partial(suite_stack.alive_machines, self._connections, suite)
        left = machines()
        if left:
            log.info(f"waiting until AWS Batch has ended {counted(len(left), 'instance')}; Ctrl-C leaves that to it")
        try:
            return instances.wait(machines)
        except KeyboardInterrupt:
            return machines()
