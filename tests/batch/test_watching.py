"""What the orchestrator of a run on Batch does, whatever Batch and S3 show it; Batch and the store are scripted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.batch import jobs
from harness.batch.grouping import Submission
from harness.batch.jobs import Child, Request
from harness.batch.kinds import Place
from harness.batch.spending import Limits, Money
from harness.batch.watching import Doer, Pace, Watcher
from harness.ec2.book import Book
from harness.ec2.records import Group, Run
from harness.errors import AwsError
from harness.records import Outcome
from harness.remote import layout
from harness.remote.records import Beat, End, IndexBuild, Input, Part, PartJob, dump
from harness.result import Cell
from tests.aws import server

CELL = Cell("quick", "bm25", "tiny", "single_stream", "cpu1-mem1")


def group(name: str, *keys: str, builds: tuple[str, ...] = (), needs: tuple[str, ...] = ()) -> Group:
    wanted = tuple(PartJob(CELL, number, 0, key) for number, key in enumerate(keys))
    built = tuple(IndexBuild(key, "bm25", "tiny") for key in builds)
    return Group(name, "c5.large", 0.1, 100, wanted, built, needs, expected_s=600, worst_s=7200)


BUILD = Submission("001-build", "d1", "q", (group("001", builds=("index",)),))
MEASURE = Submission("002-measure", "d2", "q", (group("002", "a", "b", needs=("index",)), group("003", "c")))


@dataclass
class FakeResult:
    key: str
    outcome: Outcome = Outcome.OK


@dataclass
class FakeHome:
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    interrupted: dict[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.outcomes)

    def left(self, group: Group) -> tuple[PartJob, ...]:
        return tuple(job for job in group.jobs if job.key not in self.outcomes)

    def came(self, result: FakeResult) -> None:
        self.outcomes[result.key] = result.outcome

    def interrupt(self, job: PartJob, why: str, *_: Any) -> None:
        self.interrupted[job.key] = why
        self.outcomes[job.key] = Outcome.INTERRUPTED


@dataclass
class World:
    """A Batch and a run's folder, by whose hands things happen between two looks."""

    connections: Connections
    run: Objects
    submissions: tuple[Submission, ...]
    submitted: list[Request] = field(default_factory=list)
    children: dict[str, list[Child]] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)
    home: FakeHome = field(default_factory=FakeHome)
    said: list[str] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)
    shown: bool = True
    now: float = 0.0
    twins: tuple[str, ...] = ()
    ended: list[str] = field(default_factory=list)

    def submit(self, _: Place, request: Request) -> str:
        if self.fails:
            raise self.fails.pop(0)
        assert request.name not in [each.name for each in self.submitted], "submitted twice"
        self.submitted.append(request)
        self.children[request.name] = [Child("RUNNABLE", 0, "")] * request.parts
        return request.name

    def find(self, _: Place, _queue: str, name: str) -> list[str]:
        return [name, *self.twins] if self.shown and name in self.children else []

    def end_job(self, _: Place, job_id: str, reason: str) -> None:
        assert "twice" in reason
        self.ended.append(job_id)

    def look(self, _: Place, job_id: str, parts: int) -> list[Child]:
        assert len(self.children[job_id]) == parts
        return self.children[job_id]

    def end(self, submission: Submission, number: int, status: str = "SUCCEEDED", reason: str = "", n: int = 1) -> None:
        name = f"run-{submission.name}"
        self.children[name] = [
            Child(status, n, reason, 60.0) if at == number else each for at, each in enumerate(self.children[name])
        ]

    def hand_over(self, *keys: str) -> None:
        for key in keys:
            self.run.put_new(layout.job(key), b"")


@pytest.fixture
def world(aws: str, monkeypatch: pytest.MonkeyPatch) -> World:
    connections = Connections(server.REGION)
    connections.client("s3").create_bucket(Bucket="bucket")
    made = World(connections, Objects(connections, S3Uri("bucket", "runs/run")), (BUILD, MEASURE))
    for name in ("submit", "find", "look"):
        monkeypatch.setattr(jobs, name, getattr(made, name))
    monkeypatch.setattr(jobs, "end", made.end_job)
    return made


def watch(world: World, *steps: Callable[[], None], cap_usd: float | None = None) -> Watcher:
    """Watch; between two looks the next of these happens, and after the last the user goes away."""
    left = list(steps)

    def sleep(_: float) -> None:
        world.now += 70
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    run = Run("run", "quick", "r", "o", server.REGION, ())
    doer = Doer(
        outfit=lambda each, name, wanted: Part(name, "run", each.instance_type, {}, jobs=wanted),
        bring=lambda job: FakeResult(job.key),  # type: ignore[return-value,arg-type]
        has_index=world.indexes.__contains__,
        money=Money(cap_usd),
        say=world.said.append,
        came=lambda result: world.said.append(f"came {result.key}"),
    )
    book = Book(Objects(world.connections, S3Uri("bucket")), run)
    watcher = Watcher(
        Place(world.connections, clock=lambda: world.now),
        book,
        world.home,  # type: ignore[arg-type]
        world.submissions,
        Input("inputs/bundles/x.tar.gz", "0" * 64, 1),
        {},
        doer,
        Pace(0, sleep),
    )
    try:
        watcher.run()
    except KeyboardInterrupt:
        world.said.append("went away")
    assert not left, "it ended before all had happened"
    return watcher


def built(world: World) -> Callable[[], None]:
    def happen() -> None:
        world.indexes.add("index")
        world.end(BUILD, 0)

    return happen


def test_an_array_is_submitted_once_its_index_is_there(world: World) -> None:
    def all_done() -> None:
        assert [each.name for each in world.submitted] == ["run-001-build", "run-002-measure"]
        world.hand_over("a", "b", "c")
        world.end(MEASURE, 0)
        world.end(MEASURE, 1)

    def waits() -> None:
        assert [(each.name, each.parts) for each in world.submitted] == [("run-001-build", 1)]

    watcher = watch(world, waits, built(world), all_done)
    assert world.submitted[1].parts == 2
    assert (world.submitted[1].definition, world.submitted[1].queue, world.submitted[1].attempts) == ("d2", "q", 3)
    assert set(world.home.outcomes) == {"a", "b", "c"}
    assert not watcher.given_up
    assert world.run.get(layout.CLOSED, 1000) is not None


def test_killed_after_any_look_it_goes_on_and_submits_nothing_twice(world: World) -> None:
    watch(world)
    watch(world, built(world))
    watch(world)
    world.hand_over("a")
    watch(world)
    assert set(world.home.outcomes) == {"a"}
    world.hand_over("b", "c")
    world.end(MEASURE, 0)
    world.end(MEASURE, 1)
    watch(world)
    assert len(world.submitted) == 2
    assert world.said[-1] != "went away"


def test_killed_between_writing_down_and_submitting(world: World) -> None:
    """What the first has written down is what the second submits."""
    world.fails = [KeyboardInterrupt()]  # type: ignore[list-item]
    watch(world)
    assert not world.submitted
    watch(world, lambda: None, built(world))
    assert [each.name for each in world.submitted] == ["run-001-build", "run-002-measure"]


def test_killed_after_submitting_and_not_shown_yet(world: World) -> None:
    """Batch lists a job some time after it was submitted; whoever comes at once must not submit it again."""
    watch(world)
    assert len(world.submitted) == 1
    world.shown = False

    def shown() -> None:
        world.shown = True

    watch(world, shown, built(world))
    assert [each.name for each in world.submitted] == ["run-001-build", "run-002-measure"]
    assert any("may be submitted already" in line for line in world.said)


def test_an_answer_that_was_lost_is_looked_for(world: World) -> None:
    """The request was heard: the job is there, though nobody said so."""
    submit = world.submit

    def lost(place: Place, request: Request) -> str:
        submit(place, request)
        if request.name == "run-001-build":
            raise AwsError("AWS is not reached", "Unreached")
        return request.name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "submit", lost)
        watch(world, lambda: None, built(world))
    assert [each.name for each in world.submitted] == ["run-001-build", "run-002-measure"]


def test_of_twins_the_younger_ends(world: World) -> None:
    watch(world)
    world.twins = ("twin",)
    watch(world)
    assert world.ended == ["twin"]


def test_what_batch_forgot_after_a_week_is_not_begun_again(world: World) -> None:
    watch(world, built(world))
    world.hand_over("a", "b", "c")
    world.children.clear()
    watch(world)
    assert len(world.submitted) == 2
    assert set(world.home.outcomes) == {"a", "b", "c"}
    assert world.said[-1] != "went away"


def test_what_is_not_shown_yet_is_waited_for_and_in_the_end_forgotten(world: World) -> None:
    def unseen() -> None:
        for number in (0, 1):
            world.end(MEASURE, number, jobs.UNSEEN)

    watcher = watch(world, built(world), unseen, *[lambda: None] * 8)
    assert not watcher.given_up, "for minutes it may only not be shown"
    watcher = watch(world, *[lambda: None] * 9)
    assert len(watcher.given_up) == 2
    assert "does not know it any more" in watcher.given_up[0]


def test_the_last_attempt_says_why(world: World) -> None:
    """The first one's words are about a host that is long gone."""

    def ended() -> None:
        world.hand_over("a", "b")
        for attempt, why in ((1, "the agent was told to end"), (3, "no room for the image")):
            world.run.put_new(layout.end("003-1", attempt), dump(End("003-1", "i-1", False, why)))
        world.end(MEASURE, 0)
        world.end(MEASURE, 1, "FAILED", "exit code 1", n=3)

    watcher = watch(world, built(world), ended)
    [line] = watcher.given_up
    assert "no room for the image" in line and "told to end" not in line


def test_why_no_instance_comes_is_said(world: World) -> None:
    reason = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - c5.large"

    def waits() -> None:
        world.end(BUILD, 0, "RUNNABLE", reason, n=0)

    watch(world, waits, *[lambda: None] * 4)
    [line] = [line for line in world.said if "no instance yet" in line]
    assert reason in line


def test_of_an_environment_that_is_gone_nothing_is_waited_for_in_silence(world: World) -> None:
    watch(world, *[lambda: None] * 4)
    assert any("no instance yet: its compute environment is gone" in line for line in world.said)


def test_what_was_forgotten_may_have_cost_all_that_it_could() -> None:
    spent = Money()
    limits = Limits(3600, 3)
    spent.promise(MEASURE, limits)
    worst = spent.committed_usd
    spent.settle(MEASURE, [None, None], limits)
    assert spent.committed_usd == pytest.approx(worst)
    spent.settle(MEASURE, [60.0, None], limits)
    assert worst / 2 < spent.committed_usd < worst


def test_a_measured_failure_is_a_result_and_nothing_is_tried_again(world: World) -> None:
    def failed() -> None:
        world.hand_over("a", "b", "c")  # whatever their outcome
        world.end(MEASURE, 0, "FAILED", "exit code 1")
        world.end(MEASURE, 1)

    watcher = watch(world, built(world), failed)
    assert len(world.submitted) == 2
    assert not watcher.given_up
    assert not world.home.interrupted


def test_a_part_that_failed_for_good_is_marked_and_the_others_come_home(world: World) -> None:
    def lost() -> None:
        world.hand_over("a", "c")
        world.run.put(layout.beat("002-1"), dump(Beat("002-1", "i-1", "measuring", current="b")))
        world.end(MEASURE, 0, "FAILED", "Host EC2 (instance i-1) terminated.", n=3)
        world.end(MEASURE, 1)

    watcher = watch(world, built(world), lost)
    assert world.home.interrupted == {"b": "interrupted: Host EC2 (instance i-1) terminated."}
    assert world.home.outcomes["c"] is Outcome.OK
    assert watcher.given_up == ["002-1 (c5.large): 1 jobs given up: begun 3 times; Host EC2 (instance i-1) terminated."]


def test_an_agent_that_says_why_is_believed_and_nothing_was_interrupted(world: World) -> None:
    def ended() -> None:
        world.hand_over("a", "b")
        world.run.put_new(layout.end("003-1"), dump(End("003-1", "i-1", False, "no room for the image")))
        world.end(MEASURE, 0)
        world.end(MEASURE, 1, "FAILED", "exit code 1")

    watcher = watch(world, built(world), ended)
    assert not world.home.interrupted
    assert watcher.given_up == ["003-1 (c5.large): 1 jobs given up: no room for the image; exit code 1"]


def test_what_needs_an_index_that_nobody_could_build_builds_it_itself(world: World) -> None:
    def failed() -> None:
        world.end(BUILD, 0, "FAILED", "exit code 1")

    watch(world, failed, lambda: None)
    assert [each.name for each in world.submitted] == ["run-001-build", "run-002-measure"]


def test_busy_is_waited_for_and_refused_is_not(world: World) -> None:
    world.fails = [AwsError("slow down", "Busy")]
    watch(world, lambda: None)
    assert world.said.count("slow down - trying on") == 1
    world.fails = [AwsError("not permitted", "AccessDenied")]
    world.children.clear()
    world.submitted.clear()
    with pytest.raises(AwsError, match="not permitted"):
        watch(world, lambda: None)


def test_what_batch_has_forgotten_is_what_s3_says(world: World) -> None:
    def forgotten() -> None:
        world.hand_over("a", "b")
        world.end(MEASURE, 0, jobs.FORGOTTEN, "AWS Batch does not know it any more")
        world.end(MEASURE, 1, jobs.FORGOTTEN, "AWS Batch does not know it any more")

    watcher = watch(world, built(world), forgotten)
    assert watcher.given_up == ["003-1 (c5.large): 1 jobs given up: AWS Batch does not know it any more"]


def test_a_cap_holds_all_together(world: World) -> None:
    """0.1 US$/h: each of the three may live for some time, and all together never cost more."""

    def done() -> None:
        world.hand_over("a", "b", "c")
        world.end(MEASURE, 0)
        world.end(MEASURE, 1)

    watch(world, built(world), done, cap_usd=0.2)
    assert all(each.attempts == 1 for each in world.submitted)
    # The build ran for a minute; an instance is paid for a little longer than its job.
    worst = 0.1 * (60 + 300) / 3600 + 2 * 0.1 * (world.submitted[1].timeout_s + 300) / 3600
    assert worst <= 0.2 + 1e-9
    assert all(each.timeout_s >= 750 for each in world.submitted)


def test_what_the_cap_does_not_reach_for_is_given_up(world: World) -> None:
    watcher = watch(world, built(world), cap_usd=0.04)
    assert [each.name for each in world.submitted] == ["run-001-build"]
    assert "does not reach for it" in watcher.given_up[0]
