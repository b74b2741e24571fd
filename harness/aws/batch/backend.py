"""AWS Batch as a backend of a run."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import Any

from harness.aws import clients, cloudformation
from harness.aws.batch import suite_stack
from harness.aws.batch.suite_stack import LEAST_TIMEOUT_S, BatchOptions
from harness.aws.ec2 import account, instances
from harness.aws.errors import aws_errors
from harness.aws.machines import RentalOptions
from harness.aws.objects import Objects
from harness.aws.rental import RentalBackend
from harness.commands import quoted
from harness.errors import UsageError, counted
from harness.jobs.plan import Planned
from harness.jobs.suite import Suite
from harness.remote import partition
from harness.remote.backend import ENDED, RUNNING, UNKNOWN, WAITING, PartState
from harness.remote.failures import concealed
from harness.remote.partition import Grouping
from harness.remote.records import Launch, PlannedPart, RemoteRun, ShippedInput

log = logging.getLogger(__name__)

# Batch lists a job within this time; a job that it does not describe for the second time is gone.
_LISTED_S, _FORGOTTEN_S = 60.0, 600.0
# After this time without a host the user hears why.
_PATIENCE_S = 180.0
_PHASES = dict.fromkeys(("STARTING", "RUNNING"), RUNNING) | dict.fromkeys(suite_stack.ENDED, ENDED)
_FORGOTTEN = PartState(ENDED, "gone", reason="AWS Batch no longer knows the job")


@dataclass
class _LaunchedJob:
    """A part's job, and the times since which it is doubted, unseen, stuck."""

    job_id: str | None = None
    doubted: float | None = None
    unseen: float | None = None
    stuck: float | None = None


def _since(before: float | None, holds: bool, now: float) -> float | None:
    """Return the time since which a condition holds; ``None``: it does not hold."""
    return (now if before is None else before) if holds else None


class BatchBackend(RentalBackend):
    """AWS Batch, for one command."""

    name = "batch"
    options = RentalBackend.options - {"most", "spot", "subnet"}
    attempts = suite_stack.ATTEMPTS

    def __init__(self, suite: Suite, work: Objects, how: RentalOptions) -> None:
        super().__init__(suite, work, how)
        self._jobs: dict[str, _LaunchedJob] = defaultdict(_LaunchedJob)
        self.ending = quoted("batch cancel", self._suite.name, region=self.region)

    @staticmethod
    def parts(todo: list[Planned], how: Grouping) -> tuple[PlannedPart, ...]:
        """Group jobs as usual; a part's name says its system, so that the names of jobs do."""

        def name(part: PlannedPart) -> str:
            return f"{part.name}-{part.jobs[0].cell.system if part.jobs else part.builds[0].system}"

        return tuple(replace(part, name=name(part)) for part in RentalBackend.parts(todo, how))

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
        return []

    def _ill(self, name: str) -> str | None:
        """Return why a compute environment makes no instances."""
        with aws_errors(f"looking for the environment {name}"):
            described = self._connections.client("batch").describe_compute_environments(computeEnvironments=[name])
        shown = described["computeEnvironments"]
        environment = next((each for each in shown if each["status"] != "DELETED"), None)
        if environment is None:
            return f"environment {name} is missing"
        state, status = environment["state"], environment["status"]
        if state == "ENABLED" and status not in ("INVALID", "DELETING"):
            return None
        words = (state.lower(), status.lower(), concealed(environment.get("statusReason") or ""))
        return f"environment {name} is {', '.join(filter(None, words))}"

    def begin(self, run: RemoteRun, bundle: ShippedInput) -> None:
        """Remember the run, and the harness that agents fetch."""
        self._run, self._bundle = run, bundle
        self._account = account.require(self._connections, self._work)

    def launch(self, launch: Launch, part: PlannedPart, note: Callable[[Launch], None]) -> None:
        """Submit a part's job, unless an earlier one may show up."""
        del note
        job = self._jobs[part.name]
        if job.doubted is not None and self._clock.now - job.doubted < _LISTED_S:
            return
        more: dict[str, Any] = {}
        if launch.attempts != self.attempts:
            more["retryStrategy"] = {"attempts": launch.attempts}
        fresh, job.doubted = job.doubted is None, self._clock.now
        values = (self._run.run_id, part.name, self._bundle.name, self._bundle.sha256)
        with aws_errors(f"submitting {part.name}"):
            # Batch makes two jobs of two equal requests, so that none is sent a second time.
            answer = self._connections.client("batch", attempts=1).submit_job(
                jobName=suite_stack.job_name(self._run.run_id, part.name),
                jobQueue=self._queue(part),
                jobDefinition=suite_stack.definition_name(self._suite.name, self._profile(part)),
                parameters=dict(zip(suite_stack.PARAMETERS, values, strict=True)),
                timeout={"attemptDurationSeconds": max(LEAST_TIMEOUT_S, launch.limit_s)},
                tags={clients.RUN: self._run.run_id, clients.SUITE: self._suite.name, clients.OWNER: self._run.owner},
                propagateTags=True,
                **more,
            )
        job.job_id = str(answer["jobId"])
        if fresh:
            job.doubted = None

    def look(self, launches: Sequence[Launch]) -> dict[str, PartState]:
        """Return the state of each launched part, by name."""
        jobs, now = {launch.name: self._jobs[launch.name] for launch in launches}, self._clock.now
        for name, job in jobs.items():
            if job.job_id is None or (job.doubted is not None and now - job.doubted < _FORGOTTEN_S):
                self._find(name, job)
        ids = [job.job_id for job in jobs.values() if job.job_id is not None]
        described: dict[str | None, dict[str, Any]] = {
            shown["jobId"]: shown for shown in suite_stack.described(self._connections, ids)
        }
        ill = cache(self._ill)  # asked once for all parts of a queue
        return {name: self._look(name, job, described.get(job.job_id), ill) for name, job in jobs.items()}

    def _look(
        self, name: str, job: _LaunchedJob, shown: Mapping[str, Any] | None, ill: Callable[[str], str | None]
    ) -> PartState:
        now = self._clock.now
        if job.job_id is None:
            job.doubted = _since(job.doubted, True, now)
            return PartState(UNKNOWN, "may be submitted already; looking for it")
        job.unseen = _since(job.unseen, shown is None, now)
        if job.unseen is not None and now - job.unseen >= _FORGOTTEN_S:
            return _FORGOTTEN
        state = PartState(WAITING, "submitted") if shown is None else self._state(shown)
        job.stuck = _since(job.stuck, state.words == "runnable", now)
        if job.stuck is not None and now - job.stuck >= _PATIENCE_S and not state.reason:
            why = ill(self._queue(self._part(name))) or "EC2 may have none, or your quota is used up"
            return replace(state, reason=f"no instance yet: {why}")
        return state

    def _part(self, name: str) -> PlannedPart:
        return next(part for part in self._run.parts if part.name == name)

    def _find(self, name: str, job: _LaunchedJob) -> None:
        """Find a part's job by its name; end younger twins."""
        job_name = suite_stack.job_name(self._run.run_id, name)
        # With a filter Batch lists jobs in all states, and those whose name begins so.
        filters = [{"name": "JOB_NAME", "values": [job_name]}]
        listed = suite_stack.listed(self._connections, self._queue(self._part(name)), filters=filters)
        found = sorted((each for each in listed if each.name == job_name), key=attrgetter("created", "job_id"))
        if found:
            job.job_id = found[0].job_id
        for twin in found[1:]:
            if twin.status not in suite_stack.ENDED:
                suite_stack.terminate(self._connections, twin.job_id, "harness: submitted twice")

    def _state(self, shown: Mapping[str, Any]) -> PartState:
        """Return the state of a job that Batch describes."""
        container, attempts = shown.get("container", {}), shown.get("attempts", ())
        containers = (*(attempt.get("container", {}) for attempt in attempts), container)
        tasks = [each.get("taskArn") for each in containers]
        # An ECS task's id is the name of its role's session.
        workers = dict.fromkeys(f"{self._account.worker_role_id}:{task.rpartition('/')[2]}" for task in tasks if task)
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
