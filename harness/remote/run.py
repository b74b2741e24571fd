"""A suite on other machines: quote, agree, ship, launch, watch, fetch; backend and storage differ alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from harness.driver.records import Outcome, digest
from harness.errors import HarnessError, ImageError, MissingWeights, UsageError
from harness.jobs import indexes, preflight
from harness.jobs.indexes import Index
from harness.jobs.inputs import RunOptions
from harness.jobs.orchestrator import RunSummary, keep_inputs
from harness.jobs.pinning import pin_inputs
from harness.jobs.plan import Planned, order
from harness.jobs.plan import plan as plan_jobs
from harness.jobs.suite import Suite
from harness.launch.base import Launcher, Prepared
from harness.launch.docker import DockerLauncher
from harness.progress import console, task
from harness.remote import journal, partition
from harness.remote.backend import Backend
from harness.remote.failures import NO_STORAGE, ignoring
from harness.remote.journal import Journal
from harness.remote.local_results import LocalResults
from harness.remote.options import RemoteOptions
from harness.remote.quote import Quote
from harness.remote.records import PartJob, PlannedPart, RemoteRun
from harness.remote.shipment import Shipper
from harness.remote.storage import Storage
from harness.remote.watch import RunWatch, Timeouts
from harness.results import pin_lock
from harness.results.reader import read_jobs, stored_jobs
from harness.results.schema import Result
from harness.results.store import Store

log = logging.getLogger(__name__)

# Estimates that differ by less are the same.
_CENT = 0.01


@dataclass(frozen=True)
class RemoteRequest:
    """A suite to run on other machines, and the storage through which they exchange files."""

    suite: Suite
    options: RunOptions
    work: Storage
    how: RemoteOptions


@dataclass(frozen=True)
class ClientContext:
    """The user's side: what makes images, ships, shows and asks; and how patient it is (for tests)."""

    launcher: Launcher
    agree: Callable[[str], None]
    shipper: type[Shipper] = Shipper
    timeouts: Timeouts = field(default_factory=Timeouts)


@dataclass(frozen=True)
class RunReport:
    """The end of a command; each of the ``complaints`` is a line, and any of them makes it a failure."""

    summary: RunSummary
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A run that could begin, or the rest of an open one (``run``).  ``images`` are built already."""

    images: dict[str, Prepared]
    jobs: list[Planned]
    stored: list[Result]
    parts: tuple[PlannedPart, ...]
    local: dict[str, Index]
    run: RemoteRun | None


def run(request: RemoteRequest, client: ClientContext, backend: Backend) -> RunReport | None:
    """Run the unfinished jobs there; ``None``: it was a dry run.

    Raises:
        UsageError: the run is impossible, or costs more than the cap; nothing was launched.
        RemoteError: storage or backend refuse or cannot be reached; launched workers go on, and end by themselves.
    """
    suite_run = SuiteRun(request, client, backend)
    client.launcher.check_images()
    if request.how.dry_run:
        open_run = suite_run.open_run()
        if open_run is None:
            suite_run.foresee()
        suite_run.quote(suite_run.draft(suite_run.found_images(), open_run))
        return None
    with suite_run.store.held():
        return suite_run.run()


class SuiteRun:
    """One command."""

    def __init__(self, request: RemoteRequest, client: ClientContext, backend: Backend) -> None:
        self.request, self.client = request, client
        self.backend, self.work = backend, request.work
        engine = client.launcher.client if isinstance(client.launcher, DockerLauncher) else None
        self.shipper = client.shipper(request.work, engine, request.options.cache)
        types = self._instance_types()
        options = replace(request.options, instance_types=types, platforms=backend.market.platforms)
        self.inputs = preflight.gather_elsewhere(request.suite, options)
        self.store = Store(request.options.results, request.suite.name, request.options.publisher)
        self.complaints: list[str] = []
        self._unpinned: dict[str, ImageError] = {}
        publisher = request.options.publisher
        self._results = digest(publisher.name if publisher else str(request.options.results.resolve()))[:16]

    def _instance_types(self) -> dict[str, str | None]:
        """Return the machine that each profile is planned for; ``None``: any that has its resources."""
        machines = self.backend.market.machines
        return {name: machines[name].name if name in machines else None for name in self.request.suite.envelopes()}

    def run(self) -> RunReport:
        """Do all of it, with the results folder held."""
        # Workers reach no hub, and their images are made here: all is pinned before anything is planned.
        systems = self.inputs.needed(self.inputs.cells)
        self.inputs, self._unpinned = pin_inputs(self.inputs, self.store, self.client.launcher, systems)
        open_run = self.open_run()
        if open_run is None:
            self.foresee()
        # Parts of a run that is open may be launched at once.
        draft = self.draft(self.images() if open_run else self.found_images(), open_run)
        self.quote(draft)
        if not draft.parts and open_run is None:
            keys = frozenset(job.latest.key for job in draft.jobs if job.done and job.latest)
            return RunReport(RunSummary(len(draft.jobs), (), keys))
        if draft.parts:
            self._agree(draft)
        keep_inputs(self.inputs, self.store)
        if open_run is None:
            draft = self._with_images(draft)
        return self._watch(draft)

    def foresee(self) -> None:
        """Say what this machine lacks for the images still to be made, and leave out the cells without weights.

        Raises:
            MissingWeights: no cell is left.
        """
        readable = stored_jobs(self.store.folder)
        jobs = self._plan([job.result for job in readable], readable.taken)
        todo = dict.fromkeys(job.cell for job in jobs if not job.done)
        lacking = preflight.lacking_images(self.inputs.images(todo), self.request.options, self.client.launcher)
        self.complaints += [str(error) for error in lacking.values()]
        without = {cell for cell in todo if not lacking.keys().isdisjoint(self.inputs.images([cell]))}
        cells = [cell for cell in self.inputs.cells if cell not in without]
        if not cells:
            raise MissingWeights("; ".join(self.complaints))
        self.inputs = replace(self.inputs, cells=cells)

    def open_run(self) -> RemoteRun | None:
        """Return the run that this very command began and did not bring to its end."""
        run = journal.find(self.work, self.backend.name, self.request.suite.name, self._results, self.backend.owner)
        if run is not None:
            self.backend.expect(run)
        return run

    def found_images(self) -> dict[str, Prepared]:
        """Return the images that are there, by name."""
        wanted = self.inputs.images(self.inputs.cells)
        images = {name: self.client.launcher.find(system) for name, system in wanted.items()}
        return {name: prepared for name, prepared in images.items() if prepared is not None}

    def images(self) -> dict[str, Prepared]:
        """Make the images; one that cannot be made is a complaint, and the others go on."""
        made = {}
        for name, system in self.inputs.images(self.inputs.cells).items():
            try:
                if error := self._unpinned.get(system.name):
                    raise error
                with task(f"{name}: image"):
                    # Workers build indexes with the components' images.
                    parts = tuple(map(self.client.launcher.prepare, system.components))
                    made[name] = replace(self.client.launcher.prepare(system), components=parts)
            except ImageError as error:
                self.complaints.append(f"{name}: {error}")
                log.info(f"{name}: {error}")
        return made

    def draft(self, images: dict[str, Prepared], open_run: RemoteRun | None) -> Draft:
        """Return the jobs and parts that are left to do with these images."""
        readable = stored_jobs(self.store.folder)
        stored = [job.result for job in readable]
        jobs = self._plan(stored, readable.taken)
        local, remote = self._indexes(jobs)
        if open_run is not None:
            known = self.local_results(images, stored)
            rest = tuple(left for part in open_run.parts if (left := _rest(part, known)) is not None)
            return Draft(images, jobs, stored, rest, local, open_run)
        todo = order(jobs, self.request.suite.protocol.seed)
        market, launcher = self.backend.market, self.client.launcher
        how = partition.grouping(self.inputs, market, launcher, images, todo, stored, local, remote)
        return Draft(images, jobs, stored, self.backend.parts(todo, how), local, None)

    def _plan(self, stored: Iterable[Result], taken: Collection[str] = (), *, ended: bool = False) -> list[Planned]:
        """Plan every job of the suite for machines elsewhere, even jobs that this host cannot run.

        ``ended``: stored jobs are done, even if this run measures finished jobs again.
        """
        launcher, types = self.client.launcher, self._instance_types()
        fresh = self.request.options.fresh and not ended
        recipes = {name: launcher.recipe(system) for name, system in self.inputs.images(self.inputs.cells).items()}
        isolation = launcher.isolation.name
        return plan_jobs(self.inputs, isolation, recipes, stored, taken=taken, fresh=fresh, instance_types=types)

    def local_results(self, images: dict[str, Prepared], stored: Iterable[Result]) -> LocalResults:
        """Return the jobs of a run with these images, against the store."""
        shippable = [job for job in self._plan(()) if self.inputs.images([job.cell]).keys() <= images.keys()]
        return LocalResults(shippable, stored, self.store, self.inputs.nominal_bytes)

    def _indexes(self, jobs: Iterable[Planned]) -> tuple[dict[str, Index], frozenset[str]]:
        """Return the indexes that need no build: those in the cache, and keys of those in the work place."""
        todo = [job for job in jobs if not job.done]
        keys = partition.index_builds(self.inputs, self.client.launcher, todo).keys()
        local = {key: index for key in keys if (index := indexes.find(self.request.options.cache, key))}
        with ignoring(NO_STORAGE):
            return local, frozenset(key for key in keys - local.keys() if self.shipper.find_index(key) is not None)
        return local, frozenset()

    def quote(self, draft: Draft) -> None:
        """Show what would be launched and what it costs.

        Raises:
            UsageError: it costs more than the cap, or the backend cannot do it.
        """
        if not draft.parts:
            return
        notes = [
            *self.backend.market.notes,
            *(self.backend.check(new) if (new := self._new(draft)) else ()),
        ]
        if draft.run:
            notes.append(f"goes on with the open run {draft.run.run_id}")
        quote, cap = self._quote(draft), self._cap(draft.run)
        quote.show(notes, console(), wide=self.request.how.wide)
        if draft.run is None and cap is not None and quote.expected_usd > cap:
            raise UsageError(
                f"the run is expected to cost US$ {quote.expected_usd:.2f}, more than --max-usd {cap:.2f};"
                " measure less (--only), choose cheaper types, or raise --max-usd; nothing was launched"
            )

    def _quote(self, draft: Draft) -> Quote:
        backend, cap = self.backend, self._cap(draft.run)
        machines, most = backend.market.machines, self.request.how.most
        return Quote(draft.parts, machines, cap, most, backend.attempts, backend.ending)

    def _new(self, draft: Draft) -> list[PlannedPart]:
        """Return the parts that no command has launched yet."""
        if draft.run is None:
            return list(draft.parts)
        run_journal = Journal(self.work, draft.run)
        run_journal.recall()
        return [part for part in draft.parts if part.name not in run_journal.launches]

    def _cap(self, open_run: RemoteRun | None) -> float | None:
        """Return the request's cap, else the cap that an open run began with."""
        cap_usd = self.request.how.cap_usd
        return cap_usd if cap_usd is not None or open_run is None else open_run.cap_usd

    def _agree(self, draft: Draft) -> None:
        if any(part.usd_per_hour for part in draft.parts):
            place = ", ".join((self.backend.name, *self.backend.terms.values()))
            self.client.agree(f"launch {len(draft.parts)} parts ({place})?")

    def _with_images(self, draft: Draft) -> Draft:
        """Draft again now that all images are made; ask again where it has become more.

        Raises:
            ImageError: none could be made.
        """
        images = self.images()
        cells = [cell for cell in self.inputs.cells if all(name in images for name in self.inputs.images([cell]))]
        if not cells:
            raise ImageError("; ".join(self.complaints))
        self.inputs = replace(self.inputs, cells=cells)
        after = self.draft(images, None)
        new, old = self._quote(after), self._quote(draft)
        if max(new.expected_usd - old.expected_usd, new.worst_usd - old.worst_usd) > _CENT / 2:
            log.info("now that the images are built, the estimate is higher:")
            self.quote(after)
            self._agree(after)
        return after

    def _watch(self, draft: Draft) -> RunReport:
        local_results = self.local_results(draft.images, draft.stored)
        begun = draft.run or self._begun(draft)
        run_journal = Journal(self.work, begun)

        pins = pin_lock.plain(pin_lock.read(self.store.folder))

        def put_part(part: PlannedPart, jobs: tuple[PartJob, ...]) -> None:
            inputs, images, local = self.inputs, draft.images, draft.local
            keys = {job: local_results.planned(job).spec.index_key for job in jobs}
            shipped = self.shipper.part(part, jobs, inputs, images, local, keys.__getitem__)
            run_journal.put_part(replace(shipped, pins=pins))

        self.backend.begin(begun, self.shipper.bundle())
        if draft.run is None:
            run_journal.begin()
            first = self.open_run() or begun
            if first.run_id != begun.run_id:
                run_journal.close()
                raise UsageError(f"another command began {first.run_id} meanwhile; give yours again to go on with it")
            log.info(f"run {begun.run_id}")
        watch = RunWatch(
            self.work,
            run_journal,
            local_results,
            self.backend,
            self.shipper,
            put_part,
            self.request.how.most,
            self._cap(draft.run),
            self.client.timeouts,
        )
        with self._going_on(watch):
            alive = watch.run()
        return self._done(draft, begun, watch, alive)

    def _begun(self, draft: Draft) -> RemoteRun:
        self.work.ask_time()
        return RemoteRun(
            run_id=journal.run_id(self.request.suite.name, self.work.clock.now),
            launcher=self.backend.name,
            suite=self.request.suite.name,
            results=self._results,
            owner=self.backend.owner,
            parts=draft.parts,
            terms=self.backend.terms,
            cap_usd=self.request.how.cap_usd,
        )

    @contextmanager
    def _going_on(self, watch: RunWatch) -> Iterator[None]:
        """Tell a user who stops watching what goes on, and how to end it."""
        try:
            yield
        except (KeyboardInterrupt, HarnessError):
            if watch.launched:
                log.info(self.backend.going_on(watch.launched))
            raise

    def _done(self, draft: Draft, begun: RemoteRun, watch: RunWatch, alive: list[str]) -> RunReport:
        """Return the report of a finished run, from the stored results."""
        results = {job.result.key: job.result for job in read_jobs(self.store.folder)}
        ours = {(job.cell, job.job): job.key for part in begun.parts for job in part.jobs}
        expected = {(job.cell, job.spec.job): job.expected for job in draft.jobs}
        before = {result.key for result in draft.stored}
        finished = [
            (results[key], expected.get(place, Outcome.OK))
            for place, key in ours.items()
            if key in results and key not in before
        ]
        # Jobs that a new plan takes for done, now that all are fetched; of a cell measured again in part the earlier.
        after = self._plan(results.values(), ended=True)
        keys = {job.latest.key for job in after if job.done and job.latest}
        self.complaints += watch.given_up
        if watch.committed_usd:
            log.info(f"at most US$ {watch.committed_usd:.2f} spent, at the dated price")
        if alive:
            self.complaints.append(
                f"STILL ALIVE AND COSTING MONEY: {', '.join(alive)}; end them with {self.backend.ending}"
            )
        done_before = sum(job.done for job in draft.jobs)
        return RunReport(RunSummary(done_before, tuple(finished), frozenset(keys)), tuple(self.complaints))


def _rest(part: PlannedPart, local_results: LocalResults) -> PlannedPart | None:
    """Return the unfinished rest of a part, for the quote."""
    left = local_results.left(part)
    if not left and not (part.builds and not part.jobs):
        return None
    share = len(left) / len(part.jobs) if part.jobs else 1.0
    return replace(part, jobs=left, expected_s=part.expected_s * share, worst_s=part.worst_s * share)
