"""What a run on EC2 would do, found out without anything being launched, built or uploaded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from harness import indexes, instances, offers, prices, storage
from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.aws.uri import S3Uri
from harness.ec2 import book, machines, planning
from harness.ec2.homecoming import Home
from harness.ec2.machines import Machine, Wanted
from harness.ec2.planning import Ready, There
from harness.ec2.records import Group, Run
from harness.ec2.shipper import Shipper
from harness.errors import AwsError, UsageError
from harness.inputs import Inputs, Options, gather
from harness.instances import Instance
from harness.launch.base import Launcher
from harness.plan import Planned
from harness.prices import Snapshot
from harness.progress import Screen
from harness.records import digest
from harness.result import Result
from harness.store import Store
from harness.stored_jobs import read_jobs
from harness.suite import Suite


@dataclass(frozen=True)
class Request:
    """What the user asks for.  ``most``: instances at once; ``per_type``: boxes that the jobs of a type are split over;
    ``cap_usd``: ``--max-usd``; ``architecture``: what images are made for.
    """

    suite: Suite
    options: Options
    work: S3Uri
    region: str | None = None
    instance: str | None = None
    cap_usd: float | None = None
    most: int = 8
    per_type: int = 1
    spot: bool = False
    burstable: bool = False
    subnet: str | None = None
    dry_run: bool = False
    architecture: str = "x86_64"


@dataclass(frozen=True)
class Market:
    """Prices and facts of one region."""

    region: str
    snapshot: Snapshot
    known: dict[str, Instance]
    usd_per_gib_month: float


def market(request: Request, connections: Connections) -> Market:
    """What machines cost where they are to be.

    Raises:
        UsageError: no prices of the region are here.
        AwsError: no region is configured.
    """
    region = request.region or connections.region
    if region is None:
        raise AwsError("no AWS region; set AWS_REGION or give --region", "NoRegion")
    snapshot = prices.snapshot(region=f"aws/{region}", term="on-demand")
    disk = storage.price(storage.read(), "aws", region, snapshot.as_of)
    if disk is None:
        raise UsageError(f"no price of storage in {region} is here; add one to instance_profiles/storage.csv")
    return Market(region, snapshot, instances.read("aws"), disk.usd_per_gib_month)


@dataclass(frozen=True)
class Draft:
    """A run that could be begun, or one that is open and can be gone on with (``run``)."""

    inputs: Inputs
    machines: dict[str, Machine]
    ready: Ready
    jobs: list[Planned]
    stored: list[Result]
    groups: tuple[Group, ...]
    run: Run | None


class Drafter:
    """Makes drafts of one request: first with the images that are there, and again when all are made."""

    def __init__(self, request: Request, market: Market, launcher: Launcher, shipper: Shipper, screen: Screen) -> None:
        self.request = request
        self.market = market
        self.launcher = launcher
        self.shipper = shipper
        # What cannot be is known before a dataset is loaded.
        self.machines = self._machines()
        self.inputs = gather(request.suite, request.options, screen)

    def _machines(self) -> dict[str, Machine]:
        from harness import hardware

        suite, request = self.request.suite, self.request
        names = (*suite.profiles, *filter(None, (suite.build_profile,)))
        wanted = Wanted(suite.ec2.instances, request.instance, request.burstable, request.architecture)
        profiles = {name: hardware.profile(name) for name in names}
        return machines.choose(profiles, self.market.snapshot, self.market.known, offers.reserve(), wanted)

    def found(self) -> Ready:
        """The images that are there."""
        wanted = self.inputs.images(self.inputs.cells)
        there = {name: self.launcher.find(system) for name, system in wanted.items()}
        return Ready({name: prepared for name, prepared in there.items() if prepared is not None})

    def stored(self) -> list[Result]:
        """What the store has of the suite."""
        folder = Store(self.request.options.results, self.inputs.suite.name).folder
        return [job.result for job in read_jobs(folder)] if folder.is_dir() else []

    def there(self, ready: Ready, jobs: Iterable[Planned]) -> There:
        """Indexes that need no build."""
        keys = planning.index_keys(self.inputs, ready, jobs)
        local = {key: found for key in keys if (found := indexes.find(self.request.options.cache, key))}
        listed = self._listed() if keys.keys() - local.keys() else set()
        wanted = [key for key in keys if key not in local and key in listed]
        return There(local, frozenset(key for key in wanted if self.shipper.find_index(key) is not None))

    def _listed(self) -> set[str]:
        try:
            return self.shipper.index_keys()
        except AwsError as error:
            if error.code == "NoSuchBucket":
                return set()
            raise

    def draft(self, ready: Ready, run: Run | None) -> Draft:
        """What is to do with these images."""
        stored = self.stored()
        jobs = self.plan(ready, stored)
        if run is not None:
            home = self.home(ready, stored)
            groups = tuple(each for group in run.groups if (each := _rest(group, home)) is not None)
        else:
            groups = planning.grouped(
                self.inputs,
                self.machines,
                ready,
                jobs,
                stored,
                self.there(ready, jobs),
                per_type=self.request.per_type,
                usd_per_gib_month=self.market.usd_per_gib_month,
            )
        return Draft(self.inputs, self.machines, ready, jobs, stored, groups, run)

    def plan(self, ready: Ready, stored: Iterable[Result]) -> list[Planned]:
        """All jobs, with these results taken for done."""
        fresh = self.request.options.fresh
        return planning.planned(self.inputs, self.machines, ready, self.launcher.isolation, stored, fresh)

    def home(self, ready: Ready, stored: Iterable[Result]) -> Home:
        """The jobs of a run against the store."""
        options = self.request.options
        store = Store(options.results, self.inputs.suite.name, options.shelf)
        return Home(self.plan(ready, ()), stored, store)


def _rest(group: Group, home: Home) -> Group | None:
    """What of a group is left to do, for the quote."""
    left = home.left(group)
    if not left and not (group.builds and not group.jobs):
        return None
    share = len(left) / len(group.jobs) if group.jobs else 1.0
    return replace(group, jobs=left, expected_s=group.expected_s * share, worst_s=group.worst_s * share)


def results_name(request: Request) -> str:
    """The place that results go to, as a hash: which open run is this command's."""
    options = request.options
    return digest(options.shelf.name if options.shelf else str(options.results.resolve()))[:16]


def open_run(work: Objects, request: Request, owner: str) -> Run | None:
    """The run that this very command began and did not bring to its end.

    Raises:
        UsageError: there are several.
    """
    return book.find(work, request.suite.name, results_name(request), owner)


def cap_usd(request: Request, run: Run | None) -> float | None:
    """What all may cost: who goes on without saying otherwise keeps to what the run was begun with."""
    return request.cap_usd if request.cap_usd is not None or run is None else run.cap_usd


def begun(request: Request, market: Market, owner: str, groups: tuple[Group, ...], now: float) -> Run:
    """A new run of these groups."""
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S")
    name = book.run_id(request.suite.name, at)
    return Run(
        name, request.suite.name, results_name(request), owner, market.region, groups, request.spot, request.cap_usd
    )
