"""A suite on Batch, from the question what it costs to the last result home."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from harness.aws.objects import Objects
from harness.batch import checking, ending, spending
from harness.batch.grouping import groups, submissions
from harness.batch.kinds import Place
from harness.batch.spending import Money
from harness.batch.watching import Doer, Pace, Watcher
from harness.ec2 import book, drafting, planning, quote, tags
from harness.ec2.aws_time import AwsTime
from harness.ec2.book import Book
from harness.ec2.conductor import Ended
from harness.ec2.drafting import Draft, Drafter, Request
from harness.ec2.planning import Ready
from harness.ec2.records import Run
from harness.ec2.running import Done, Session, Side, keep_inputs
from harness.ec2.showing import line_of
from harness.errors import HarnessError, UsageError
from harness.orchestrator import Summary
from harness.records import digest
from harness.remote import arriving
from harness.result import Result
from harness.store import Store


def run(request: Request, side: Side, pace: Pace | None = None) -> Done | None:
    """Run what is to do on Batch; ``None``: it was a dry run.

    Raises:
        UsageError: it cannot be done so, or costs more than the cap; nothing was submitted.
        AwsError: AWS refuses or is not reached; what was submitted goes on.
    """
    market = drafting.market(request, side.connections)
    work = Objects(side.connections, request.work)
    clock = AwsTime(side.connections)
    drafter = _Drafter(request, market, side.launcher, side.shipper(work), side.screen)
    side.launcher.check()
    store = Store(request.options.results, request.suite.name, request.options.shelf)
    session = _Session(drafter, side, work, clock, store)
    session.pace = pace or Pace()
    if request.dry_run:
        session.offered()
        return None
    with store.held():
        return session.run()


class _Drafter(Drafter):
    """Drafts with a group for each system, profile and dataset."""

    def draft(self, ready: Ready, run: Run | None) -> Draft:
        """What is to do with these images."""
        if run is not None:
            return super().draft(ready, run)
        stored = self.stored()
        jobs = self.plan(ready, stored)
        todo, how = planning.grouping(
            self.inputs,
            self.machines,
            ready,
            jobs,
            stored,
            self.there(ready, jobs),
            usd_per_gib_month=self.market.usd_per_gib_month,
        )
        return Draft(self.inputs, self.machines, ready, jobs, stored, groups(todo, how), None)


class _Session(Session):
    """One command, with the results folder held."""

    pace: Pace

    def offered(self) -> tuple[Draft, str]:
        """Show what it would be.

        Returns:
            The draft, and who we are.

        Raises:
            UsageError: it costs more than the cap, or something is not there that `harness batch up` makes.
        """
        owner = tags.owner(self.side.connections)
        found = book.find(self.work, self.request.suite.name, self._results, owner)
        draft = self.drafter.draft(self.prepare() if found else self.drafter.found(), found)
        if not draft.groups:
            return draft, owner
        planned = submissions(draft.inputs, draft.groups)
        expected, cap = spending.expected_usd(draft.groups), drafting.cap_usd(self.request, found)
        said = [
            f"region: {self.drafter.market.region}; prices: {self.drafter.market.snapshot}, with disk (gp3) and a"
            " public address each; spot capacity costs at most that",
            *quote.remarks(draft.machines),
            *checking.quotas_of(Place(self.side.connections), planned, self.drafter.market.known),
            *([f"goes on with the open run {found.run_id}"] if found else []),
            f"{len(draft.groups)} parts in {len(planned)} jobs of AWS Batch, as many at once as its queues have"
            f" instances; about US$ {expected:.2f} in all"
            + (f", never more than US$ {cap:.2f} by the jobs' time-outs" if cap is not None else ""),
        ]
        spending.show(planned, said, self.side.screen.console)
        _check_cap(expected, cap)
        checking.check(Place(self.side.connections), planned, draft, self.request, self.drafter.market.known)
        return draft, owner

    def run(self) -> Done | None:
        """From the quote to the last result."""
        draft, owner = self.offered()
        if not draft.groups and draft.run is None:
            keys = frozenset(job.latest.key for job in draft.jobs if job.done and job.latest)
            return Done(Summary(len(draft.jobs), (), keys))
        if draft.run is None:
            self.side.agree(f"submit {len(draft.groups)} parts to AWS Batch in {self.drafter.market.region}?")
        keep_inputs(self.store, draft.inputs)
        if draft.run is None:
            draft = self.with_images(draft)
            # With all images at hand it may be more than was shown.
            _check_cap(spending.expected_usd(draft.groups), drafting.cap_usd(self.request, None))
        return self._watch(draft, owner)

    @property
    def _results(self) -> str:
        """Names the place that results go to; runs of EC2 are others."""
        return digest(["batch", drafting.results_name(self.request)])[:16]

    def _watch(self, draft: Draft, owner: str) -> Done:
        home = self.drafter.home(draft.ready, draft.stored)
        begun = draft.run
        if begun is None:
            first = drafting.begun(self.request, self.drafter.market, owner, draft.groups, self.aws_now())
            begun = replace(first, results=self._results)
        kept = Book(self.work, begun)
        outfit = self.shipped(draft, home, begun)
        bundle = self.drafter.shipper.bundle()
        if draft.run is None:
            kept.begin()
        self.side.screen.say(f"run {begun.run_id}")
        total, came = sum(len(group.jobs) for group in begun.groups), [0]

        def said(result: Result) -> None:
            came[0] += 1
            self.side.screen.say(line_of(result, came[0], total))

        spent = Money(drafting.cap_usd(self.request, draft.run))
        doer = Doer(
            outfit=outfit.part,
            bring=lambda job: arriving.bring(kept.objects, job.key, home.spec(job), self.store),
            has_index=lambda key: self.drafter.shipper.find_index(key) is not None,
            money=spent,
            say=self.side.screen.say,
            came=said,
        )
        place = Place(self.side.connections)
        watcher = Watcher(
            place,
            kept,
            home,
            submissions(draft.inputs, begun.groups),
            bundle,
            self.drafter.market.known,
            doer,
            self.pace,
        )
        with _goes_on(self, watcher):
            watcher.run()
        alive = ending.alive(place, self.request.suite.name, self.side.screen.say, self.pace.gone_s)
        return self.done(draft, begun, home, Ended(tuple(watcher.given_up), None, alive, spent.committed_usd))


def _check_cap(expected: float, cap: float | None) -> None:
    if cap is not None and expected > cap:
        raise UsageError(
            f"it is expected to cost US$ {expected:.2f}, more than --max-usd {cap:.2f}; measure less (--only),"
            " choose cheaper types, or raise it; nothing was submitted"
        )


@contextmanager
def _goes_on(session: _Session, watcher: Watcher) -> Iterator[None]:
    """Whoever stops watching is told that the jobs do not stop, and how to go on or end them."""
    try:
        yield
    except (KeyboardInterrupt, HarnessError):
        if watcher.submitted:
            session.side.screen.say(
                f"{len(watcher.submitted)} jobs of AWS Batch go on; the same command goes on from here,"
                f" `harness batch cancel {session.request.suite.name}` ends them"
            )
        raise
