"""A suite that is run on moto's EC2: its command in this process, its workers in threads."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import pytest
from rich.console import Console

from harness.aws import rental
from harness.aws.clients import Connections, S3Uri
from harness.aws.ec2 import account
from harness.aws.ec2.backend import Ec2Backend
from harness.aws.objects import Objects
from harness.aws.rental import RentalBackend, RentalRequest
from harness.jobs import inputs, suite
from harness.jobs.indexes import Index
from harness.jobs.inputs import RunOptions
from harness.launch.base import Prepared
from harness.launch.fake import FakeLauncher
from harness.progress import show_progress
from harness.remote import shipment
from harness.remote.local_results import LocalResults
from harness.remote.records import PartJob, PlannedPart, ShippedImage, ShippedInput, WorkerPart
from harness.remote.run import ClientContext, RunReport, SuiteRun
from harness.remote.watch import Timeouts
from harness.results.reader import read_jobs
from harness.results.schema import Result, ResultSpec
from tests.aws import server
from tests.aws.ec2.fake_workers import FakeWorkers
from tests.aws.server import REGION, SECRETS
from tests.conftest import Bench, protocol

WORK = S3Uri("harness-work", "some/prefix")
# How much quicker AWS' clock runs here: its seconds are whole ones.
SPEED = 20
QUICK = Timeouts(0.1, first_heartbeat_s=120 * SPEED, heartbeat_s=60 * SPEED, again_s=SPEED, linger_s=600 * SPEED)
# Instance types of workers.
TYPES = ("c6a.large", "m6i.large", "m6i.xlarge")
PROTOCOL = protocol(3)
PROFILES = ("cpu1-mem256m", "cpu1-mem1")


class FakeShipper(shipment.Shipper):
    """Ships nothing but says so; indexes of workers are adopted."""

    def __init__(self, work: Objects, _engine: None, cache: Path) -> None:
        self._work, self._cache = work, cache

    def bundle(self) -> ShippedInput:
        return ShippedInput("inputs/bundles/b.tar.gz", "0" * 64, 1)

    def part(self, planned: PlannedPart, jobs: tuple[PartJob, ...], *others: Any) -> WorkerPart:
        builds = tuple(build for build in planned.builds if self.find_index(build.key) is None)
        return WorkerPart(planned.name, planned.instance_type, {}, jobs, builds)

    def image(self, prepared: Prepared) -> ShippedImage:
        raise AssertionError("parts name no images here")

    def index(self, key: str, index: Index) -> ShippedInput:
        raise AssertionError("the cache has no index")


@dataclass
class Field:
    """A suite over some test systems and two profiles, and the account that it runs on."""

    bench: Bench
    endpoint: str
    systems: tuple[str, ...] = ("planted", "other", "third")
    changes: dict[str, Any] = field(default_factory=dict)
    text: str = PROTOCOL
    suite_keys: dict[str, Any] = field(default_factory=dict)
    console: Console | None = None

    def __post_init__(self) -> None:
        for name in self.systems[1:]:
            self.bench.plant(name)
        self.screen = StringIO()

    def request(self, **changes: Any) -> RentalRequest:
        keys = {"systems": list(self.systems), "profiles": list(PROFILES), **self.suite_keys}
        path = self.bench.suite(self.text, **keys)
        options = RunOptions(self.bench.results, self.bench.cache, path.parent)
        keys = {"region": REGION, **self.changes, **changes}
        return RentalRequest(suite=suite.load(path), options=options, work=WORK, **keys)

    def client(self, **changes: Any) -> ClientContext:
        client = ClientContext(
            launcher=FakeLauncher(),
            agree=lambda _question: None,
            shipper=FakeShipper,
            timeouts=QUICK,
        )
        return replace(client, **changes)

    def run(
        self, client: ClientContext | None = None, connections: Connections | None = None, **changes: Any
    ) -> RunReport:
        with show_progress(self.console or Console(file=self.screen, width=200)):
            request, here = self.request(**changes), connections or Connections(REGION)
            done = rental.run(request, here, client or self.client(), Ec2Backend)
        assert done is not None
        return done

    def suite_run(self, backend: type[RentalBackend] = Ec2Backend, **changes: Any) -> SuiteRun:
        """Return a command that was not run yet."""
        request, connections = self.request(**changes), Connections(REGION)
        return SuiteRun(request.remote(connections), self.client(), backend(request, connections))

    def local_results(self) -> LocalResults:
        """Return the user's side of a run, planned."""
        made = self.suite_run()
        return made.local_results(made.found_images(), ())

    def queries(self) -> tuple[str, ...]:
        """Ids of the sample."""
        gathered = inputs.gather(self.request().suite, self.request().options)
        return tuple(query.query_id for query in gathered.samples["tiny"].sample)

    def workers(self, **changes: Any) -> FakeWorkers:
        found = account.find(Connections(REGION), WORK, REGION)
        assert found is not None
        local_results = self.local_results()

        def specs(job: PartJob) -> ResultSpec:
            return local_results.planned(job).spec

        return FakeWorkers(WORK, found.worker_role_id, specs, **changes)

    @property
    def output(self) -> str:
        return self.screen.getvalue()

    @property
    def stored(self) -> list[Result]:
        folder = self.bench.results / "test-suite"
        return [job.result for job in read_jobs(folder)] if folder.is_dir() else []

    def closed(self) -> bool:
        work = Objects(Connections(REGION), WORK)
        return any(work.list("runs/")) and not any(work.list("open/"))


def launched_and_terminated(*regions: str) -> tuple[int, int]:
    """Count the instances launched and terminated, in the usual region unless others are named."""
    states = []
    for region in regions or (REGION,):
        pages = boto3.client("ec2", region_name=region).get_paginator("describe_instances").paginate()
        states += [each["State"]["Name"] for page in pages for one in page["Reservations"] for each in one["Instances"]]
    return len(states), states.count("terminated")


@pytest.fixture
def work(aws: str) -> Objects:
    """An empty work place."""
    connections = Connections(REGION)
    connections.client("s3").create_bucket(Bucket=WORK.bucket)
    return Objects(connections, WORK)


@pytest.fixture
def ground(aws: str) -> None:
    up = functools.partial(account.up, Connections(REGION), WORK, REGION, "0123456789ab", TYPES)
    server.made_once(aws, "account for runs", up)


@pytest.fixture
def plain(bench: Bench, aws: str, ground: None) -> Iterator[Field]:
    """After every test: every launched instance was terminated, and no secret is written anywhere."""
    server.quicken(aws, SPEED)
    made = Field(bench, aws)
    yield made
    launched, terminated = launched_and_terminated()
    assert launched == terminated
    texts = [made.output, *(path.read_text() for path in bench.results.rglob("result.json"))]
    texts.append(server.everything_stored(aws))
    assert not [secret for secret in SECRETS for text in texts if secret in text]


def lines(text: str, word: str) -> list[str]:
    """The lines with a word in them."""
    return [line for line in text.splitlines() if word in line]
