"""Batch as a backend: what it submits, finds again, shows and ends; moto ends jobs at once and starts no container."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from botocore.exceptions import EndpointConnectionError

from harness.aws.batch import suite_stack
from harness.aws.batch.backend import BatchBackend
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2 import account as accounts
from harness.aws.ec2 import instances as ec2_instances
from harness.aws.ec2.account import Account
from harness.aws.machines import RentalOptions
from harness.aws.objects import Objects
from harness.errors import RemoteError, UsageError
from harness.jobs.estimates import DurationEstimate
from harness.jobs.inputs import IndexBuild
from harness.jobs.plan import Planned
from harness.jobs.suite import Suite
from harness.pricing import instances
from harness.pricing.offers import ChosenMachine
from harness.remote import partition
from harness.remote.backend import PartState
from harness.remote.partition import Grouping, Market
from harness.remote.records import Launch, PartJob, PlannedPart, RemoteRun, ShippedInput
from harness.results.schema import Cell
from tests.aws import server
from tests.aws.batch.conftest import ROLE_ID, Make
from tests.support.job_fixtures import planned

KNOWN = instances.read_instances("aws")
WORK = parse_uri("s3://bucket/work")
BUNDLE = ShippedInput("inputs/bundles/x.tar.gz", "0" * 64, 1)
QUEUE = suite_stack.queue_name("quick", "c7g.xlarge")
SUITE = Suite(
    name="quick",
    systems=("planted",),
    datasets=("tiny",),
    profiles=tuple(instances.hardware_profiles()),
    build_profile="cpu1-mem1",
)


def part(
    name: str,
    system: str = "bm25",
    profile: str = "cpu2-mem4",
    dataset: str = "d",
    *,
    instance_type: str = "c7g.xlarge",
    builds: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> PlannedPart:
    """A part of one job; with ``builds`` one that builds alone."""
    job = PartJob(Cell("quick", system, dataset, "single_stream", profile), 0, 0, name)
    built = tuple(IndexBuild(key, system, dataset) for key in builds)
    return PlannedPart(name, instance_type, 0.1, 100, () if builds else (job,), built, needs)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def note(self, time_s: float) -> None:
        """An answer of S3 moves no clock here."""


@pytest.fixture
def clock() -> Clock:
    return Clock()


def backend_of(connections: Connections, *parts: PlannedPart, clock: Clock | None = None) -> BatchBackend:
    """The backend of one more command for the same run."""
    connections.clock = cast(Any, clock or Clock())
    made = BatchBackend(SUITE, Objects(connections, WORK), RentalOptions())
    made.begin(RemoteRun("run", "batch", "quick", "r", "owner", parts), BUNDLE)
    return made


@pytest.fixture
def begun(
    connections: Connections, account: Account, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], BatchBackend]:
    """Makes the backend of one more command for the same run."""
    monkeypatch.setattr(accounts, "find", lambda *_: account)
    return lambda: backend_of(connections, ONE, TWO, clock=clock)


@pytest.fixture
def backend(begun: Callable[[], BatchBackend]) -> BatchBackend:
    return begun()


LARGE, XLARGE = ChosenMachine(KNOWN["m6i.large"], 0.096), ChosenMachine(KNOWN["m6i.xlarge"], 0.192)


def how(*missing: str, build_machine: ChosenMachine | None = XLARGE) -> Grouping:
    """Every job takes a minute; these indexes are nowhere yet."""
    found = {}
    for key in missing:
        system, _, dataset = key.partition("-")
        found[key] = IndexBuild(key, system, dataset)
    machines = {"small": LARGE, "big": XLARGE, "builds": XLARGE}
    measured, assumed = DurationEstimate(60, 7200, True), DurationEstimate(60, 7200, False)
    return Grouping(Market(machines), lambda _job: measured, lambda _build: assumed, found, build_machine)


@pytest.mark.slow
def test_index_is_built_by_one_job_before_its_searches() -> None:
    made = BatchBackend.parts([planned("a", "small"), planned("a", "big"), planned("c", "small")], how("a-d"))
    assert [(len(each.builds), len(each.jobs), each.needs) for each in made] == [
        (1, 0, ()),
        (0, 1, ("a-d",)),
        (0, 1, ("a-d",)),
        (0, 1, ()),
    ]


@pytest.mark.slow
def test_five_thousand_jobs_are_a_thousand_parts() -> None:
    """Each job is looked at a constant number of times: all of it takes a fraction of a second."""
    looked: Counter[str] = Counter()

    def estimate(job: Planned) -> DurationEstimate:
        looked[job.spec.index_key] += 1
        return DurationEstimate(60, 7200, True)

    todo = [planned(s, p, f"d{d}", n) for s in "ab" for p in ("small", "big") for d in range(250) for n in range(5)]
    found = BatchBackend.parts(todo, replace(how(), job_estimate=estimate))
    assert len(todo) == looked.total() == 5000
    assert [len(each.jobs) for each in found] == [5] * 1000
    assert found == BatchBackend.parts(todo, how())


@pytest.mark.slow
def test_hybrids_build_waits_for_its_components() -> None:
    missing = {key: build for name in "de" for key, build in _hybrid(name).items()}
    jobs = [planned("h", "builds", name) for name in "de"]
    made = BatchBackend.parts(jobs, replace(how(), missing=missing))
    assert [([build.key for build in each.builds], each.needs) for each in made] == [
        (["a-d"], ()),
        (["b-d"], ()),
        (["h-d"], ("a-d", "b-d")),
        (["a-e"], ()),
        (["b-e"], ()),
        (["h-e"], ("a-e", "b-e")),
        ([], ("h-d",)),
        ([], ("h-e",)),
    ]


def _hybrid(dataset: str) -> dict[str, IndexBuild]:
    parts = {f"{name}-{dataset}": IndexBuild(f"{name}-{dataset}", "h", dataset, name) for name in "ab"}
    key = f"h-{dataset}"
    return {**parts, key: IndexBuild(key, "h", dataset, components={each.name: each.key for each in parts.values()})}


@pytest.fixture
def made(aws: str, connections: Connections, wanted: Make, account: Account) -> Iterator[Connections]:
    """A suite's stack that is up; Batch ends jobs at once."""
    configure(aws, use_docker=False)
    suite_stack.up(connections, wanted(), account, "owner", ())
    yield connections
    configure(aws, use_docker=True)


def configure(endpoint: str, use_docker: bool) -> None:
    content = json.dumps({"batch": {"use_docker": use_docker}}).encode()
    request = urllib.request.Request(f"{endpoint}/moto-api/config", content, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 201


def launch_of(part: PlannedPart, attempts: int = suite_stack.ATTEMPTS, limit_s: int = 600) -> Launch:
    return Launch(part.name, limit_s, attempts, 0.0, 0.1)


ONE, TWO = part("001-bm25"), part("002-bm25")


def launch(backend: BatchBackend, part: PlannedPart, **more: int) -> None:
    backend.launch(launch_of(part, **more), part, lambda _: None)


def look(backend: BatchBackend, *parts: PlannedPart) -> list[PartState]:
    return list(backend.look(list(map(launch_of, parts))).values())


def submitted(connections: Connections) -> list[dict[str, Any]]:
    """All jobs that Batch was given."""
    return list(connections.client("batch").describe_jobs(jobs=[])["jobs"])


def ended(backend: BatchBackend, *parts: PlannedPart) -> list[PartState]:
    until = time.monotonic() + 60
    while not all(state.phase == "ended" for state in look(backend, *parts)):
        assert time.monotonic() < until, "waited for a minute"
        time.sleep(0.1)
    return look(backend, *parts)


def test_submission_holds_all_parameters_of_the_agents(made: Connections, backend: BatchBackend) -> None:
    launch(backend, ONE)
    [job] = submitted(made)
    assert job["jobName"] == "run-001-bm25"
    assert job["jobQueue"].endswith(f"/{QUEUE}")
    assert "/harness-quick-cpu2-mem4:" in job["jobDefinition"]
    own = {"run": "run", "part": ONE.name, "bundle": BUNDLE.name, "sha256": BUNDLE.sha256}
    assert job["parameters"] == own
    assert job["timeout"] == {"attemptDurationSeconds": 600}
    assert job["tags"] == {"harness:run": "run", "harness:suite": "quick", "harness:owner": "owner"}


@pytest.mark.parametrize(("attempts", "sent"), [(3, None), (1, {"attempts": 1})])
def test_with_a_cap_a_lost_host_is_not_replaced(
    made: Connections, backend: BatchBackend, attempts: int, sent: dict[str, int] | None
) -> None:
    requests: list[dict[str, Any]] = []
    events = made.client("batch", attempts=1).meta.events
    events.register("provide-client-params.batch.SubmitJob", lambda params, **_: requests.append(params))
    launch(backend, ONE, attempts=attempts, limit_s=5)
    assert requests[0].get("retryStrategy") == sent
    assert requests[0]["timeout"] == {"attemptDurationSeconds": 60}, "Batch takes no less"


def test_each_job_has_its_state_and_its_worker(
    made: Connections, backend: BatchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_stack, "_DESCRIBED_AT_ONCE", 2)  # two requests describe them
    parts = [part(f"{number:03}") for number in range(3)]
    for each in parts:
        launch(backend, each)
    states = ended(backend, *parts)
    assert {state.words for state in states} == {"succeeded"}
    workers = {worker for state in states for worker in state.workers}
    assert len(workers) == 3 and all(worker.startswith(f"{ROLE_ID}:") for worker in workers)


def test_a_later_command_finds_the_job_and_submits_nothing(
    made: Connections, begun: Callable[[], BatchBackend]
) -> None:
    launch(begun(), ONE)
    launch(begun(), part(f"{ONE.name}-large"))  # its name begins so
    [state] = ended(begun(), ONE)
    assert len(state.workers) == 1 and len(submitted(made)) == 2


def test_noted_launch_is_submitted_a_minute_after_a_kill(
    made: Connections, begun: Callable[[], BatchBackend], clock: Clock
) -> None:
    later = begun()
    assert look(later, ONE)[0].phase == "unknown"
    clock.now += 59
    launch(later, ONE)
    assert not submitted(made)
    assert look(later, ONE)[0].phase == "unknown"
    clock.now += 2
    launch(later, ONE)
    assert len(submitted(made)) == 1


def test_job_with_a_lost_answer_is_found(
    made: Connections, backend: BatchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was heard: the job is there, though its answer was lost."""
    client = made.client("batch", attempts=1)
    submit = client.submit_job

    def lost(**given: Any) -> Any:
        submit(**given)
        raise EndpointConnectionError(endpoint_url="x")

    monkeypatch.setattr(client, "submit_job", lost)
    with pytest.raises(RemoteError, match="AWS cannot be reached"):
        launch(backend, ONE)
    launch(backend, ONE)
    assert len(ended(backend, ONE)) == len(submitted(made)) == 1


def test_a_submission_is_never_sent_twice(made: Connections, backend: BatchBackend) -> None:
    """Batch would have two jobs, if only the answer to the first was lost."""
    client, sent = made.client("batch", attempts=1), []
    assert client is not made.client("batch")

    def fails(**_: Any) -> Any:
        sent.append(1)
        raise EndpointConnectionError(endpoint_url="x")

    client.meta.events.register("before-send.batch.SubmitJob", fails)
    with pytest.raises(RemoteError, match="AWS cannot be reached"):
        launch(backend, ONE)
    assert len(sent) == 1


def test_younger_of_two_equal_jobs_is_ended(
    made: Connections, begun: Callable[[], BatchBackend], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(begun(), ONE)
    [elder] = submitted(made)
    later = begun()
    with monkeypatch.context() as hidden:
        hidden.setattr(suite_stack, "listed", lambda *_, **__: [])
        look(later, ONE)
        clock.now += 61
        launch(later, ONE)
        [younger] = [each for each in submitted(made) if each["jobId"] != elder["jobId"]]
    jobs = [
        suite_stack.BatchJob(each["jobId"], "run-001-bm25", "RUNNING", n) for n, each in enumerate((elder, younger))
    ]
    terminated: list[str] = []
    monkeypatch.setattr(suite_stack, "listed", lambda *_, **__: jobs[::-1])
    monkeypatch.setattr(suite_stack, "terminate", lambda _, job, reason: terminated.append(f"{job}: {reason}"))
    look(later, ONE)
    assert terminated == [f"{younger['jobId']}: harness: submitted twice"]


@pytest.fixture
def shown(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The jobs that Batch describes, whatever the request; ``run-...`` is found as job ``j``."""
    described: list[dict[str, Any]] = []

    def describe(**given: list[str]) -> dict[str, Any]:
        return {"jobs": [each for each in described if each["jobId"] in given["jobs"]]}

    def listed(*_: Any, filters: list[dict[str, Any]]) -> list[suite_stack.BatchJob]:
        return [suite_stack.BatchJob("j", filters[0]["values"][0], "RUNNING")]

    monkeypatch.setattr(connections.client("batch"), "describe_jobs", describe)
    monkeypatch.setattr(suite_stack, "listed", listed)
    return described


def test_state_has_every_attempts_worker_and_the_last_reason(
    backend: BatchBackend, shown: list[dict[str, Any]]
) -> None:
    def task(name: str) -> str:
        return f"arn:aws:ecs:us-east-1:{server.ACCOUNT}:task/cluster/{name}"

    attempts = [{"container": {"taskArn": task("one")}, "startedAt": 1000, "stoppedAt": 61_000}]
    shown.append({"jobId": "j", "status": "RUNNING", "container": {"taskArn": task("two")}, "attempts": attempts})
    running = look(backend, ONE)[0]
    assert running == PartState("running", "running", (f"{ROLE_ID}:one", f"{ROLE_ID}:two"), 2)
    attempts.append({"container": {"taskArn": task("two")}, "startedAt": 100_000, "stoppedAt": 130_000})
    reason = f"Host EC2 of arn:aws:iam::{server.ACCOUNT}:role/x terminated."
    shown[0] |= {"status": "FAILED", "statusReason": reason, "container": {"taskArn": task("two"), "exitCode": 1}}
    over = look(backend, ONE)[0]
    assert (over.workers, over.attempts, over.seconds) == (running.workers, 2, 90.0 + 2 * partition.BEYOND_LIMIT_S)
    assert over.reason == "Host EC2 of arn:aws:iam::<account>:role/x terminated.; exit code 1"


@pytest.mark.parametrize(("attempts", "seconds"), [((), 0), (({"startedAt": 1000},), None)])
def test_attempt_without_an_end_counts_in_full(
    backend: BatchBackend, shown: list[dict[str, Any]], attempts: tuple[dict[str, int], ...], seconds: float | None
) -> None:
    shown.append({"jobId": "j", "status": "FAILED", "attempts": attempts})
    assert look(backend, ONE)[0].seconds == seconds


def test_undescribed_job_has_ended_after_ten_minutes(
    backend: BatchBackend, shown: list[dict[str, Any]], clock: Clock
) -> None:
    shown.append({"jobId": "j", "status": "RUNNING"})
    assert look(backend, ONE)[0].phase == "running"
    shown.clear()
    for clock.now in (0, 599):
        assert look(backend, ONE)[0].phase == "waiting"
    clock.now = 600
    [state] = look(backend, ONE)
    assert (state.phase, state.seconds) == ("ended", None) and "no longer knows the job" in state.reason


def test_reason_of_a_missing_instance_is_shown(
    backend: BatchBackend, shown: list[dict[str, Any]], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - c7g.xlarge"
    shown.append({"jobId": "j", "status": "RUNNABLE"})
    assert look(backend, ONE)[0].reason == ""
    clock.now += 180
    assert look(backend, ONE)[0].reason == f"no instance yet: environment {QUEUE} is missing"
    ill = {"state": "DISABLED", "status": "INVALID", "statusReason": "no such role"}
    monkeypatch.setattr(
        backend._connections.client("batch"),
        "describe_compute_environments",
        lambda **_: {"computeEnvironments": [{"status": "DELETED"}, ill]},
    )
    assert look(backend, ONE)[0].reason.endswith(f"environment {QUEUE} is disabled, invalid, no such role")
    shown[0]["statusReason"] = reason
    assert look(backend, ONE)[0].reason == reason


def start(connections: Connections, **tags: str) -> str:
    listed = [{"Key": f"harness:{key}", "Value": value} for key, value in {"owner": "o", **tags}.items()]
    made = connections.client("ec2").run_instances(
        ImageId="ami-1", MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": listed}]
    )
    return str(made["Instances"][0]["InstanceId"])


def test_end_of_a_run_waits_for_its_instances(
    connections: Connections, backend: BatchBackend, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = start(connections, suite="quick", launcher="batch")
    start(connections, suite="quick")
    start(connections, suite="other", launcher="batch")
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        connections.client("ec2").terminate_instances(InstanceIds=[mine])

    monkeypatch.setattr(time, "sleep", sleep)
    assert backend.alive() == []
    assert len(waited) == 1
    assert "ended 1 instance;" in logged[0]


def test_an_instance_that_does_not_end_is_returned(
    connections: Connections, backend: BatchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ec2_instances, "WAIT_S", 0.0)
    mine = start(connections, suite="quick", launcher="batch")
    [left] = backend.alive()
    assert mine in left and "running" in left


def test_instances_with_jobs_of_another_run_are_left(
    made: Connections, backend: BatchBackend, logged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start(made, suite="quick", launcher="batch")
    monkeypatch.setattr(suite_stack, "unfinished_jobs", lambda *_: [suite_stack.BatchJob("j", "j", "RUNNING")])
    assert backend.alive() == []
    assert "other jobs of quick are not finished" in logged[0]


def test_a_suite_without_a_stack_names_the_command(connections: Connections, backend: BatchBackend) -> None:
    with pytest.raises(UsageError, match=r"quick is not in AWS Batch in us-east-1; make it: `harness batch up SUITE"):
        backend.check([part("001")])


def test_a_stack_of_another_work_place_is_refused(
    made: Connections, wanted: Make, account: Account, backend: BatchBackend
) -> None:
    suite_stack.up(made, wanted(work=parse_uri("s3://bucket/other")), account, "owner", ())
    with pytest.raises(UsageError, match=r"is for another work place than s3://bucket/work; change it: `harness batch"):
        backend.check([part("001")])


@pytest.mark.parametrize(
    "changed",
    [part("001", profile="cpu1-mem256m"), part("001", profile="cpu1-mem1")],
    ids=["a profile that the suite lacked", "a profile on another type"],
)
def test_changed_job_definition_is_refused(made: Connections, backend: BatchBackend, changed: PlannedPart) -> None:
    with pytest.raises(UsageError, match=rf"no jobs of this version of harness for {changed.jobs[0].cell.profile} on"):
        backend.check([changed])


def test_agents_of_another_version_are_refused(
    made: Connections, backend: BatchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite_stack, "_script", lambda _: "another")
    with pytest.raises(UsageError, match="no jobs of this version of harness"):
        backend.check([part("001")])


def test_possible_run_is_accepted_on_shared_hosts_too(
    made: Connections, wanted: Make, account: Account, backend: BatchBackend
) -> None:
    assert backend.check([part("001"), part("002", profile="cpu2-mem4")]) == []
    suite_stack.up(made, wanted(shared=True), account, "owner", ())
    assert backend.check([part("001")]) == []
