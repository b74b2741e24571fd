"""A suite that is run on moto's EC2: its orchestrator in this process, its boxes in threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

import boto3
import pytest
from rich.console import Console

from harness import inputs, suite
from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.ec2 import account, drafting, running
from harness.ec2.conductor import Pace
from harness.ec2.deciding import Patience
from harness.ec2.drafting import Drafter, Request
from harness.ec2.homecoming import Home
from harness.ec2.running import Done, Side
from harness.ec2.shipper import shipped_indexes
from harness.indexes import Index
from harness.inputs import Options
from harness.launch.base import Prepared
from harness.launch.fake import FakeLauncher
from harness.progress import Screen
from harness.remote import shipping
from harness.remote.records import Input, ShippedImage
from harness.result import Result
from harness.stored_jobs import read_jobs
from tests.aws import server
from tests.aws.server import REGION, SECRETS
from tests.conftest import Bench, protocol
from tests.ec2.boxes import Boxes

WORK = S3Uri("harness-work", "some/prefix")
# How much quicker AWS' clock runs here: its seconds are whole ones.
SPEED = 20
# That boxes may be of.
TYPES = ("m6i.large", "m6i.xlarge")
QUICK = Patience(first_beat_s=120 * SPEED, beat_s=60 * SPEED, shown_s=2, hold_s=1)
PROTOCOL = protocol(3)


class FakeShipper:
    """Ships nothing but says so; indexes are looked for in S3."""

    def __init__(self, work: Objects) -> None:
        self._work = work

    def bundle(self) -> Input:
        return Input("inputs/bundles/b.tar.gz", "0" * 64, 1)

    def image(self, prepared: Prepared) -> ShippedImage:
        return ShippedImage(prepared.system.image, prepared.digest, prepared.reference)

    def dataset(self, dataset: Any) -> Input:
        return Input(f"inputs/datasets/{dataset.name}.tar.gz", "1" * 64, 1)

    def index(self, key: str, index: Index) -> Input:
        raise AssertionError("the cache has no index")

    def find_index(self, key: str, *, keep: bool = False) -> Input | None:
        return shipping.find_index(self._work, key)

    def index_keys(self) -> set[str]:
        return shipped_indexes(self._work)


@dataclass
class Field:
    """A suite over some planted systems, and the account that it runs on."""

    bench: Bench
    endpoint: str
    systems: tuple[str, ...] = ("planted", "other", "third")
    changes: dict[str, Any] = field(default_factory=dict)
    text: str = PROTOCOL
    suite_keys: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.systems[1:]:
            self.bench.plant(name)
        self.screen = StringIO()

    def request(self, **changes: Any) -> Request:
        keys = {"systems": list(self.systems), **self.suite_keys}
        path = self.bench.suite(self.text, **keys)
        options = Options(self.bench.results, self.bench.cache, path.parent)
        asked = {"most": 8, "per_type": 2, **self.changes, **changes}
        return Request(suite.load(path), options, WORK, REGION, **asked)

    def side(self, connections: Connections | None = None, **changes: Any) -> Side:
        side = Side(
            connections=connections or Connections(REGION),
            launcher=FakeLauncher(),
            shipper=FakeShipper,
            screen=Screen(Console(file=self.screen, width=200)),
            agree=lambda _question: None,
            pace=Pace(interval_s=0.1, last_wait_s=5),
            patience=QUICK,
        )
        return replace(side, **changes)

    def run(self, side: Side | None = None, **changes: Any) -> Done:
        done = running.run(self.request(**changes), side or self.side())
        assert done is not None
        return done

    def home(self, **changes: Any) -> Home:
        """Return the user's side of a run, planned."""
        request, connections = self.request(**changes), Connections(REGION)
        market = drafting.market(request, connections)
        screen = Screen(Console(file=StringIO()))
        drafter = Drafter(request, market, FakeLauncher(), FakeShipper(Objects(connections, WORK)), screen)
        return drafter.home(drafter.found(), ())

    def queries(self) -> tuple[str, ...]:
        """Ids of the sample."""
        gathered = inputs.gather(self.request().suite, self.request().options)
        return tuple(query.query_id for query in gathered.samples["tiny"].sample)

    def boxes(self, **changes: Any) -> Boxes:
        return Boxes(self.endpoint, WORK, self.home().spec, **changes)

    @property
    def said(self) -> str:
        return self.screen.getvalue()

    @property
    def stored(self) -> list[Result]:
        folder = self.bench.results / "test-suite"
        return [job.result for job in read_jobs(folder)] if folder.is_dir() else []

    def closed(self) -> bool:
        names = [each.name for each in Objects(Connections(REGION), WORK).list("runs/")]
        return any(name.endswith("closed.json") for name in names)


def launched_and_terminated(*regions: str) -> tuple[int, int]:
    """Count the instances launched and terminated, in the usual region unless others are named."""
    states = []
    for region in regions or (REGION,):
        pages = boto3.client("ec2", region_name=region).get_paginator("describe_instances").paginate()
        states += [each["State"]["Name"] for page in pages for one in page["Reservations"] for each in one["Instances"]]
    return len(states), states.count("terminated")


@pytest.fixture
def ground(aws: str) -> None:
    account.up(Connections(REGION), WORK, REGION, "0123456789ab", TYPES, lambda _line: None)


@pytest.fixture
def plain(bench: Bench, aws: str, ground: None) -> Iterator[Field]:
    """After every test: as many instances were terminated as were launched, and nothing planted is written anywhere."""
    server.quicken(aws, SPEED)
    made = Field(bench, aws)
    yield made
    launched, terminated = launched_and_terminated()
    assert launched == terminated
    texts = [made.said, *(path.read_text() for path in bench.results.rglob("result.json"))]
    texts.append(server.everything_stored(aws))
    assert not [secret for secret in SECRETS for text in texts if secret in text]


def lines(text: str, word: str) -> list[str]:
    """The lines with a word in them."""
    return [line for line in text.splitlines() if word in line]
