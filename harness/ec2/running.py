"""A suite on EC2, from the question what it costs to the last instance gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

from harness.aws.connections import Connections
from harness.aws.objects import Objects
from harness.ec2 import drafting, preflight, quote
from harness.ec2.aws_time import AwsTime
from harness.ec2.book import Book
from harness.ec2.cloud import Cloud, Site
from harness.ec2.conductor import Conductor, Ended, Pace
from harness.ec2.deciding import Patience
from harness.ec2.drafting import Draft, Drafter, Request
from harness.ec2.homecoming import Home
from harness.ec2.offering import Offer, offered, renewed
from harness.ec2.outfitting import Outfitter
from harness.ec2.planning import Ready
from harness.ec2.preflight import Ground
from harness.ec2.records import Run
from harness.ec2.shipper import Shipper
from harness.ec2.showing import Board
from harness.ec2.standing import Terms
from harness.errors import HarnessError, ImageError, UsageError
from harness.inputs import Inputs
from harness.launch.base import Launcher
from harness.orchestrator import Summary
from harness.progress import Screen
from harness.records import Outcome, to_json
from harness.remote import arriving, user_data
from harness.remote.records import Input
from harness.remote.user_data import Boot
from harness.store import Store
from harness.stored_jobs import read_jobs


@dataclass(frozen=True)
class Side:
    """The user's side: what makes images, ships and shows; and how patient it is (for tests)."""

    connections: Connections
    launcher: Launcher
    shipper: Callable[[Objects], Shipper]
    screen: Screen
    agree: Callable[[str], None]
    pace: Pace = field(default_factory=Pace)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True)
class Done:
    """How it ended; ``complaints`` beside those of the jobs are each a line, and any of them makes it a failure."""

    summary: Summary
    complaints: tuple[str, ...] = ()


def run(request: Request, side: Side) -> Done | None:
    """Run what is to do on EC2; ``None``: it was a dry run, or there was nothing to do.

    Raises:
        UsageError: it cannot be done so, or costs more than the cap; nothing was launched.
        AwsError: AWS refuses or is not reached; what is launched goes on, and ends by itself.
    """
    market = drafting.market(request, side.connections)
    work = Objects(side.connections, request.work)
    clock = AwsTime(side.connections)
    drafter = Drafter(request, market, side.launcher, side.shipper(work), side.screen)
    side.launcher.check()
    if request.dry_run:
        offered(drafter, side.connections, work, side.screen)
        return None
    store = Store(request.options.results, request.suite.name, request.options.shelf)
    with store.held():
        return Session(drafter, side, work, clock, store).run()


class Session:
    """One command, with the results folder held."""

    def __init__(self, drafter: Drafter, side: Side, work: Objects, clock: AwsTime, store: Store) -> None:
        self.drafter = drafter
        self.request = drafter.request
        self.side = side
        self.work = work
        self.clock = clock
        self.store = store
        self.complaints: list[str] = []

    def run(self) -> Done | None:
        """From the quote to the last result."""
        offer = offered(self.drafter, self.side.connections, self.work, self.side.screen, self.prepare)
        draft, ground = offer.draft, offer.ground
        if not draft.groups and draft.run is None:
            keys = frozenset(job.latest.key for job in draft.jobs if job.done and job.latest)
            return Done(Summary(len(draft.jobs), (), keys))
        if ground.missing:
            raise UsageError(
                f"not there yet: {', '.join(ground.missing)}; make them with"
                f" `harness ec2 up {self.request.work} --region {ground.region}`"
            )
        if draft.groups:
            self._agree(offer)
        keep_inputs(self.store, draft.inputs)
        # All images now: with them at hand more may turn out to be done.
        if draft.run is None:
            draft = self.with_images(draft)
            offer = renewed(self.drafter, self.side.connections, self.side.screen, offer, draft)
            if offer.anew:
                self._agree(offer)
        return self._conduct(offer)

    def _agree(self, offer: Offer) -> None:
        self.side.agree(f"launch up to {len(offer.draft.groups)} instances in {offer.ground.region}?")

    def with_images(self, draft: Draft) -> Draft:
        """Draft again with all images at hand, of those cells whose images could be made.

        Raises:
            ImageError: none could.
        """
        ready, inputs = self.prepare(), draft.inputs
        made = [cell for cell in inputs.cells if all(name in ready.images for name in inputs.images([cell]))]
        if not made:
            raise ImageError("; ".join(self.complaints))
        self.drafter.inputs = replace(inputs, cells=made)
        return self.drafter.draft(ready, None)

    def prepare(self) -> Ready:
        """Make the images; one that cannot be made is told, and the others go on."""
        inputs, made = self.drafter.inputs, {}
        for name, system in inputs.images(inputs.cells).items():
            try:
                with self.side.screen.task(f"{name}: image"):
                    made[name] = self.side.launcher.prepare(system, self.side.screen.say)
            except ImageError as error:
                self.complaints.append(f"{name}: {error}")
                self.side.screen.say(f"{name}: {error}")
        return Ready(made)

    def _conduct(self, offer: Offer) -> Done:
        draft, ground = offer.draft, offer.ground
        home = self.drafter.home(draft.ready, draft.stored)
        begun = draft.run or drafting.begun(
            self.request, self.drafter.market, offer.owner, draft.groups, self.aws_now()
        )
        book = Book(self.work, begun)
        outfit = self.shipped(draft, home, begun)
        bundle = self.drafter.shipper.bundle()
        if draft.run is None:
            book.begin()
            self.side.screen.say(f"run {begun.run_id}")
        cloud = Cloud(self.side.connections, self._site(ground, begun, bundle), begun)
        expected = sum(map(quote.usd, begun.groups))
        conductor = Conductor(
            book,
            home,
            cloud,
            self.clock,
            Board(self.side.screen, expected),
            outfit.part,
            lambda job: arriving.bring(book.objects, job.key, home.spec(job), self.store),
            self.drafter.shipper.index_keys,
            lambda key: self.drafter.shipper.find_index(key) is not None,
            Terms(offer.most, offer.cap_usd, self.side.patience),
            self.side.pace,
        )
        with _goes_on(self.side.screen, book):
            ended = conductor.run()
        return self.done(draft, begun, home, ended)

    def shipped(self, draft: Draft, home: Home, begun: Run) -> Outfitter:
        """Ship what the groups of a draft need; what outfits each part of the run with it."""
        outfit = Outfitter(
            draft.inputs,
            draft.ready,
            self.drafter.there(draft.ready, draft.jobs),
            self.drafter.shipper,
            begun.run_id,
            lambda job: home.spec(job).index_key,
        )
        outfit.ship(draft.groups)
        return outfit

    def aws_now(self) -> float:
        """The time by AWS' clock."""
        if not self.clock.now:
            self.work.size("runs")  # any answer says the time
        return self.clock.now

    def _site(self, ground: Ground, begun: Run, bundle: Input) -> Site:
        def render(part: str, limit_s: float, gpus: int) -> str:
            return user_data.render(
                Boot(self.request.work, begun.run_id, part, bundle, ground.region, int(limit_s), bool(gpus))
            )

        assert ground.security_group is not None
        return Site(
            region=ground.region,
            subnets=ground.subnets,
            zones=ground.zones,
            amis=ground.amis,
            known=self.drafter.market.known,
            security_group=ground.security_group,
            profile=preflight.role(self.request.work),
            user_data=render,
        )

    def done(self, draft: Draft, begun: Run, home: Home, ended: Ended) -> Done:
        """What is to be said of it, from what is stored."""
        results = {job.result.key: job.result for job in read_jobs(self.store.folder)}
        expected = {(job.cell, job.spec.job): job.expected for job in draft.jobs}
        finished = []
        for group in begun.groups:
            for job in group.jobs:
                last = home.last(job)
                if last in results:
                    finished.append((results[last], expected.get((job.cell, job.job), Outcome.OK)))
        # What a new plan takes for done, now that all is home.
        after = self.drafter.plan(draft.ready, results.values())
        keys = {job.latest.key for job in after if job.latest and job.latest.outcome is job.expected}
        self.complaints += ended.given_up
        if ended.stopped:
            self.complaints.append(f"{ended.stopped}; the same command goes on from here")
        self.side.screen.say(f"US$ {ended.usd:.2f} spent, at the dated price")
        if ended.alive:
            names = ", ".join(f"{box.instance_id} ({box.state}, {box.region})" for box in ended.alive)
            self.complaints.append(f"STILL ALIVE AND COSTING MONEY: {names}; end them with `harness ec2 reap`")
        ours = {(job.cell, job.job) for group in begun.groups for job in group.jobs}
        done_before = sum(job.done and (job.cell, job.spec.job) not in ours for job in draft.jobs)
        return Done(Summary(done_before, tuple(finished), frozenset(keys)), tuple(self.complaints))


@contextmanager
def _goes_on(screen: Screen, book: Book) -> Iterator[None]:
    """Whoever stops watching is told that the instances do not stop, and how to go on or end them."""
    try:
        yield
    except (KeyboardInterrupt, HarnessError):
        living = [launch for name, launch in book.launches.items() if name not in book.settled]
        if living:
            last = datetime.fromtimestamp(max(each.at + each.limit_s for each in living), UTC)
            screen.say(
                f"{len(living)} instances go on, and end by themselves by {last:%Y-%m-%d %H:%M} UTC at the latest;"
                f" the same command goes on from here, `harness ec2 reap --region {book.run.region}` ends them"
            )
        raise


def keep_inputs(store: Store, inputs: Inputs) -> None:
    """What a table needs beside the jobs."""
    for name, dataset in inputs.datasets.items():
        sample = to_json([asdict(query) for query in inputs.samples[name].sample])
        ending, judgements = dataset.judgements
        samples = {inputs.samples[name].sample_sha256: sample}
        store.keep_inputs(judgements, dataset.qrels_sha256, samples, ending)
