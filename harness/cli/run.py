"""`harness run`, `demo`, `plan`: run suites here, on Slurm, EC2 or Batch, and print their tables.

What runs suites on other machines is imported late: a run whose jobs are done prints its table in two seconds.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness import config, datasets
from harness.analysis.scaling import MIN_SIZES
from harness.analysis.table import Table
from harness.aws import is_s3
from harness.aws.machines import RentalOptions
from harness.cli.folder import SLURM, run_in_folder, slurm_choice, slurm_options
from harness.cli.launchers import (
    BACKENDS,
    LauncherChoice,
    launcher_choice,
    launcher_option,
    launcher_options,
    run_launcher_option,
    run_options,
)
from harness.cli.lines import say
from harness.cli.locations import ResultsLocation, as_given, mirrored, named_as_given, of_suite, writable
from harness.cli.options import (
    PATH,
    SUITE_FILE,
    FiniteRange,
    agree,
    cache_option,
    given_options,
    given_parameters,
    models_option,
    only_option,
    record_options,
    results_option,
    results_path,
    retry_option,
)
from harness.cli.output import FORMATS, Destination, destination_options, show_errors, write
from harness.cli.stored_results import StoredResults, tested
from harness.cli.trial_rows import TrialRows
from harness.commands import command, option, quoted
from harness.errors import FileError, UsageError, counted, did_you_mean, listed, quoted_name
from harness.jobs import cell_plans, command_suite, orchestrator, preflight
from harness.jobs.attach_suite import AttachSuite, sending
from harness.jobs.cell_plans import Planner, SuitePlan
from harness.jobs.command_suite import CommandSuite, are_systems
from harness.jobs.inputs import RunOptions, check_launcher
from harness.jobs.orchestrator import RunSummary
from harness.jobs.plan import plan_here
from harness.jobs.suite import Suite, load
from harness.launch import launchers
from harness.launch.base import Launcher
from harness.launch.images import catalog
from harness.pricing import prices
from harness.remote.options import RemoteOptions, SlurmOptions
from harness.remote.shared_folder import open_folder
from harness.report.plan import plan_document, quote_document
from harness.report.summary import SummaryView, nothing_measured, summary_section
from harness.results.schema import Cell
from harness.untrusted import one_line

if TYPE_CHECKING:
    from harness.aws.rental import RentalBackend
    from harness.remote.run import RunReport
    from harness.remote.storage import Storage

log = logging.getLogger(__name__)

# A longer command is not repeated in a message.
_MOST_AGAIN = 80
# The suite of the demo.
_DEMO = "quickstart"


cloud_options = record_options(
    "cloud",
    RentalOptions,
    click.option("--region", help="ec2, batch: AWS region.  [default: the AWS configuration's]"),
    click.option("--instance", metavar="TYPE", help="ec2, batch: this instance type for all hardware profiles."),
    click.option("--max-usd", "cap_usd", type=FiniteRange(min=0, min_open=True), help="ec2, batch: never spend more."),
    click.option(
        "--max-instances",
        "most",
        type=click.IntRange(1, 1000),
        default=8,
        help="ec2: at most this many at once; 1: one hardware profile after the other.",
    ),
    click.option("--spot", is_flag=True, help="ec2: spot capacity; the same command measures interrupted jobs again."),
    click.option(
        "--architecture",
        type=click.Choice(["x86_64", "arm64"]),
        help="ec2, batch: architecture of the instances and of their images; with GPUs always x86_64."
        "  [default: the architecture of the suite's own types, else x86_64]",
    ),
    click.option("--subnet", help="ec2: this subnet.  [default: the default VPC's subnets]"),
    click.option(
        "--dry-run",
        is_flag=True,
        help="ec2, batch: show the instances and their cost, and stop; without --work from the price list alone,"
        " which asks no account. With --work FOLDER, show the parts, and stop; with --on slurm also print the scripts.",
    ),
    click.option("--wide", is_flag=True, help="ec2, batch: show each part's instance, disk and cost."),
)


@dataclass(frozen=True)
class _RunRequest:
    """The options of `run` and `plan` for each suite; ``cells``: the cells of one suite to measure, if not all."""

    choice: LauncherChoice
    results: Path | str
    only: str | None
    fresh: bool
    fresh_index: bool
    retry_noisy: int = 0
    work: str | None = None
    cloud: RentalOptions = RentalOptions()
    yes: bool = False
    cells: frozenset[Cell] | None = None
    on: str | None = None
    slurm: SlurmOptions | None = None

    @property
    def in_cloud(self) -> bool:
        """True for machines that AWS rents."""
        return self.choice.launcher in BACKENDS

    @property
    def backend(self) -> type[RentalBackend] | None:
        """The service that runs the suites, unless this machine does."""
        return BACKENDS[self.choice.launcher].load() if self.in_cloud else None

    @property
    def in_folder(self) -> bool:
        """True for workers of a shared folder."""
        return not self.in_cloud and self.work is not None and not is_s3(self.work)

    def options(self, suite: Path, results: Path) -> RunOptions:
        """Return the options of a suite's run, with absolute paths."""
        fresh = self.fresh or self.cells is not None
        options = run_options(suite, results, self.only, fresh, self.choice.cache)
        return replace(options, retry_noisy=self.retry_noisy, fresh_index=self.fresh_index, cells=self.cells)

    def plan(self, path: Path, planner: Planner) -> SuitePlan:
        """Plan a suite; mirror its stored jobs from S3."""
        suite, cache = load(path), self.choice.cache
        with named_as_given(cache):
            options = self.options(path, of_suite(self.results, suite.name, cache, "RECORDS"))
        return planner.plan(suite, options)


_run_request = record_options("request", _RunRequest)


@dataclass(frozen=True)
class _Subject:
    """The dataset and the hardware of systems that a command names in place of a suite's file."""

    dataset: str | None
    cpus: int
    memory: str

    @contextmanager
    def suites(self, named: tuple[Path, ...], results: Path | str) -> Iterator[tuple[Path, ...]]:
        """Yield the files of the named suites, or the file written for the named systems."""
        if self.dataset is None:
            if given := [f"--{name}" for name in ("cpus", "memory") if name in given_parameters()]:
                raise UsageError(f"{given[0]} is for systems with --dataset; a suite's file names its own profiles")
            if named and are_systems(named) and not any(path.exists() for path in named):
                raise _unknown_suite([str(name) for name in named])
            yield named
            return
        if not named or not are_systems(named):
            raise UsageError(
                "--dataset is for systems, e.g. harness run bm25 minilm --dataset ./my-data; a suite's file names its"
                " own datasets"
            )
        systems = tuple(dict.fromkeys(map(str, named)))
        catalog.named(systems)
        with written(CommandSuite(systems, self.dataset, self.cpus, self.memory), results) as path:
            yield (path,)


@contextmanager
def written(suite: CommandSuite | AttachSuite, results: Path | str) -> Iterator[Path]:
    """Write the suite of a command next to its results, and say where."""
    if isinstance(results, str):
        raise UsageError(f"{results}: the suite of a command is written next to its results; name a folder")
    if missing := datasets.missing_files(datasets.find(suite.dataset, Path.cwd())):
        raise missing
    with command_suite.written(suite.write, results) as path:
        say(f"the suite is {path}: to change what is measured, edit it, then {quoted('run', path)}", err=True)
        yield path


def _unknown_suite(named: list[str]) -> UsageError:
    """Return the error of names that may be a suite's, or systems' without their dataset."""
    if len(named) == 1 and (near := did_you_mean(named[0], config.suite_names())):
        return UsageError(f"no suite {quoted_name(named[0])}{near}")
    systems = "for systems, name the documents too"
    again = command("run", *named, dataset="./my-data")
    return UsageError(
        f"no suite {' '.join(named)}; {systems}: {again}"
        if len(again) <= _MOST_AGAIN
        else f"no suite {listed(list(map(quoted_name, named)), 2)}; {systems}: --dataset ./my-data"
    )


subject_options = record_options(
    "subject",
    _Subject,
    click.option(
        "--dataset", metavar="DATASET", help="With SYSTEM: a folder, a shipped dataset, or an id of ir_datasets."
    ),
    click.option("--cpus", type=click.IntRange(1), default=1, help="With SYSTEM: CPUs."),
    click.option("--memory", default="1GiB", metavar="SIZE", help="With SYSTEM: the memory limit."),
)


@click.command()
@mirrored("contested")
@click.argument("suites", type=SUITE_FILE, nargs=-1, metavar="SUITE...|SYSTEM...")
@subject_options
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="Measure finished jobs again too; earlier results stay.")
@click.option("--fresh-index", is_flag=True, help="Build indexes again and measure that; implies --fresh.")
@click.option(
    "--contested",
    metavar="RESULTS",
    type=results_path,
    help="Measure only the cells of these results again whose place on the Pareto front (accuracy, cost, latency) "
    "is undecided.",
)
@retry_option(0, "Measure noisy cells again, at most N times, if the cause may pass.")
@run_launcher_option
@click.option(
    "--work",
    metavar="PLACE",
    envvar="HARNESS_WORK",
    help="Where machines exchange files. ec2, batch: s3://BUCKET[/PREFIX]. Other launchers: a folder that they share;"
    " workers (`harness worker`) measure there.  [env: HARNESS_WORK]",
)
@click.option("--on", type=click.Choice([SLURM]), help="slurm: have Slurm start the workers of --work FOLDER.")
@slurm_options
@cloud_options
@click.option("--yes", is_flag=True, help="ec2, batch: do not ask whether to go on.")
@cache_option
@models_option
@click.option("--part", type=PATH, hidden=True, help="For workers: what their agent wrote.")
@launcher_choice
@_run_request
def run(
    suites: tuple[Path, ...], subject: _Subject, contested: Path | None, part: Path | None, request: _RunRequest
) -> None:
    """Run the jobs of each SUITE (a TOML file, or a shipped suite's name) that are not done yet, then print its table.

    With SYSTEM... --dataset DATASET, measure these systems on one hardware profile; the suite is written next to the
    results.

    Before anything is made, it names all data, weights, hardware and disk that are missing, and how long it takes, by
    earlier jobs or by results that ship with harness; only missing data stops it.

    Each job is stored when it ends, so the same command resumes a stopped run.  The table shows the first of the
    suite's `measures`, else RR@10; `harness report --measures` shows others, without measuring again.
    Exit code 1 if a cell has an unexpected outcome, or if nothing could be measured.
    """
    choice = request.choice
    if part is not None:
        assert isinstance(request.results, Path)
        from harness.remote.worker import run_part

        options = run_options(part, request.results, request.only, request.fresh, choice.cache)
        with choice.open() as launcher:
            sys.exit(0 if run_part(part, options, launcher, _storage) else 1)
    if request.on:
        request = replace(request, choice=slurm_choice(request.choice, request.work))
    _check_options(request)
    with subject.suites(suites, request.results) as named:
        errors = _run_suites(named, contested, request)
    for error in errors:
        say(f"harness: {error}", err=True)
    sys.exit(1 if errors else 0)


def _run_suites(suites: tuple[Path, ...], contested: Path | None, request: _RunRequest) -> list[str]:
    """Run suites, or the contested cells of one; return a line for each error."""
    if contested is not None:
        from harness.experiments.contested import contested_cells

        stored = StoredResults(contested, request.choice.cache)
        found = stored.priced(stored.read())
        suites, cells = contested_cells(contested, found.table, found.per_query, suites)
        if not cells:
            nothing = f"nothing in {as_given(str(contested), request.choice.cache)} is contested"
            say(f"{nothing}: every row is on the front or surely dominated", err=True)
            return []
        request = replace(request, cells=cells)
    if not suites:
        raise UsageError("name the SUITE to run, e.g. harness run quickstart, or systems with --dataset")
    if request.in_cloud and request.cloud.dry_run and request.work is None:
        _quote(suites, request)
        return []
    return [error for suite in suites for error in _run_suite(suite, request)]


def _run_suite(suite: Path, request: _RunRequest) -> list[str]:
    """Run a suite and print its table; return a line for each error."""
    choice, results, loaded = request.choice, request.results, load(suite)
    if request.in_cloud or request.work is not None:
        check_launcher(loaded, None)
    if request.in_cloud or request.in_folder:
        of_suite(results, loaded.name, choice.cache, "RECORDS")  # stored jobs decide which jobs are launched
    with writable(results, choice.cache) as location:
        options = request.options(suite, location.folder)
        options = replace(options, publisher=location.publisher, callbacks=TrialRows(loaded, choice.cache))
        if backend := request.backend:
            summary, errors = _ended(_run_in_cloud(loaded, options, request, backend))
        elif request.in_folder:
            how = RemoteOptions(most=sys.maxsize, dry_run=request.cloud.dry_run, wide=request.cloud.wide)
            place, slurm = request.work or "", (request.slurm or SlurmOptions()) if request.on else None
            summary, errors = _ended(run_in_folder(loaded, options, choice, place, how, slurm))
        else:
            with open_for(choice, loaded) as launcher:
                inputs = preflight.gather(loaded, options, launcher)
                if loaded.url and (said := sending(inputs, plan_here(inputs, options, launcher, look=False))):
                    log.info(f"  {said}")
                summary = orchestrator.run_suite(inputs, options, launcher)
            errors = summary.complaints
        if summary is not None:
            table = _finish(location, loaded, summary, choice.launcher)
            errors = [*errors, *filter(None, [nothing_measured(table.rows)])]
    return list(errors)


def open_for(choice: LauncherChoice, suite: Suite) -> closing[Launcher]:
    """Open the launcher of a suite: of a service that runs already its clients', unless another is asked for."""
    own = "launcher" not in given_parameters() and choice.launcher == launchers.DEFAULT
    if suite.url is None or not (own or choice.launcher == launchers.ATTACHED):
        return choice.open()
    limit = suite.protocol.max_qps
    told = {
        "url": suite.url,
        "max_qps": str(limit) if limit else None,
        "builds": "yes" if suite.service.build else None,
    }
    return replace(choice, launcher=launchers.ATTACHED).open(**told)


def _quote(suites: Sequence[Path], request: _RunRequest) -> None:
    """Print the cost of suites by the price list, without an account, data or an engine."""
    from harness.aws import price_list

    cloud = request.cloud
    snapshot = prices.snapshot(region=f"aws/{cloud.region}" if cloud.region else None, term="on-demand")
    with replace(request.choice, launcher=launchers.DEFAULT).open() as launcher:
        planner = Planner(launcher)
        plans = [request.plan(path, planner) for path in suites]
    cells, notes = price_list.quote(plans, snapshot, cloud)
    again = given_options(*(name for name in given_parameters() if name not in ("suites", "dry_run", "wide")))
    launch = command("run", *suites, **again, work="s3://BUCKET")
    Destination("md", None, wide=cloud.wide).show_report(quote_document(cells, notes, launch))


@click.command()
@click.pass_context
@results_option
@only_option
@launcher_option
@cache_option
@models_option
def demo(context: click.Context, /, **options: Any) -> None:
    """Measure four systems on a part of SciFact, and print the answer: the main job in minutes.

    Runs the shipped suite `quickstart`; images and the corpus are prepared once.  Needs Linux, two CPUs, 4 GiB of
    memory, 5 GB of disk and a Docker engine (`harness doctor` checks it).  The first row comes after a minute, all
    after six minutes; a second run takes seconds.

    Without Docker: `harness demo --launcher process`, which needs Python 3.11 to 3.13 and 3 GB of disk.  It limits no
    memory, so it leaves out the row of the machine that is too small.
    """
    if options["only"] is None and "memory_bytes" not in launchers.load(options["launcher"]).isolation.enforced:
        options["only"] = "*/cpu1-mem1"
    context.invoke(run, suites=(config.data_root() / "suites" / f"{_DEMO}.toml",), **options)


def _check_options(request: _RunRequest) -> None:
    """Refuse options that the chosen launcher does not understand."""
    launcher, backend = request.choice.launcher, request.backend
    known = {*RentalOptions.__dataclass_fields__, "yes"}
    taken = {*backend.options, "yes"} if backend else {"dry_run", "wide"} if request.in_folder else set()
    for name, parameter in given_parameters().items():
        if name in SlurmOptions.__dataclass_fields__ and not request.on:
            raise UsageError(f"{parameter.opts[0]} is for {option('on', SLURM)}; leave it out, or add that")
        if name in known - taken:
            others = (other for other, entry in BACKENDS.items() if name in {*entry.load().options, "yes"})
            takers = " and ".join(option("launcher", other) for other in others)
            raise UsageError(
                f"{parameter.opts[0]} is for {takers}, this is {option('launcher', launcher)}; leave it out"
            )
    if request.on and not request.in_folder:
        elsewhere = option("launcher", launcher) if backend else option("work", request.work)
        raise UsageError(
            f"{option('on', SLURM)} is not for {elsewhere}; it needs a launcher of this machine and --work FOLDER"
        )
    if not backend and not request.in_folder:
        return
    elsewhere = option("work", request.work) if request.in_folder else option("launcher", launcher)
    if request.retry_noisy:
        raise UsageError(f"--retry-noisy is not for {elsewhere}; run it again with --contested or --fresh --only")
    if request.fresh_index:
        raise UsageError(
            f"--fresh-index is not for {elsewhere}, which takes indexes from --cache and --work;"
            " name others there to have them built again"
        )


def _run_in_cloud(
    suite: Suite, options: RunOptions, request: _RunRequest, backend: type[RentalBackend]
) -> RunReport | None:
    """Run a suite on EC2 or Batch."""
    from harness.aws.clients import Connections, parse_uri
    from harness.aws.objects import Objects
    from harness.launch.docker import DockerLauncher
    from harness.launch.images import platforms
    from harness.remote import run as remote_run
    from harness.remote.run import ClientContext, RemoteRequest

    cloud = request.cloud if "most" in backend.options else replace(request.cloud, most=sys.maxsize)
    if request.work is None:
        raise UsageError(
            f"--launcher {request.choice.launcher} needs a place in S3: give --work s3://BUCKET, which"
            " `harness ec2 up s3://BUCKET` makes"
        )
    work = Objects(Connections(cloud.region), parse_uri(request.work))
    with closing(DockerLauncher(options.cache, request.choice.models, platform=platforms.AMD64)) as docker:
        client = ClientContext(docker, agree=lambda question: agree(request.yes, question))
        return remote_run.run(RemoteRequest(suite, options, work, cloud), client, backend(suite, work, cloud))


def _ended(done: RunReport | None) -> tuple[RunSummary | None, Sequence[str]]:
    """Return a run's summary, if it has any job, and its errors."""
    if done is None:
        return None, ()
    any_job = done.summary.jobs or done.summary.keys
    return done.summary if any_job else None, (*done.summary.complaints, *done.complaints)


def _storage(address: str) -> Storage:
    """Open the storage through which a worker exchanges files."""
    from harness.aws.clients import Connections, parse_uri
    from harness.aws.objects import Objects

    return Objects(Connections(), parse_uri(address)) if is_s3(address) else open_folder(Path(address))


def _finish(location: ResultsLocation, suite: Suite, summary: RunSummary, launcher: str) -> Table:
    """Print the answer; write it and the page into the results folder; return the table."""
    folder = location.folder / suite.name
    stored = StoredResults(folder, location.cache, suite.measures, keys=summary.keys)
    found = stored.read()
    table, compare = stored.priced(found).table, tested(found).compare
    markdown, page = folder / "report.md", folder / "report.html"
    shown = as_given(str(folder), location.cache)
    more = f"page: {one_line(str(page))}   all columns and notes: {command('report', shown, wide=True)}"

    def show(output: Path | None, *pointers: str) -> None:
        view = SummaryView(pointers=pointers)
        Destination("md", output).show_answer(
            lambda escape, width: (summary_section(table, compare, escape, view, width),)
        )

    if location.publisher is not None or not stored.are_current(found, markdown, page):
        show(markdown)
        write(page, stored.page(found))
        location.publish(markdown, page)
        stored.keep_pages(found, markdown, page)
    say(f"{counted(len(summary.jobs), 'job')} run, {summary.done_before} done before", err=True)
    click.echo(err=True)
    more = f"{more}   how a number was made: {command('explain', results=shown)}"
    show(None, more, *(() if suite.url else stored.measure_note(table)), *_next_step(suite, launcher, folder))
    return table


def _next_step(suite: Suite, launcher: str, folder: Path) -> Iterator[str]:
    """Yield how to ask a running service again, what larger sizes cost, or the way from the demo to one's own data."""
    if suite.url and (file := folder.with_name(f"{folder.name}.toml")).is_file():
        yield f"measure the service again: {command('run', file, fresh=True)}"
    if len(suite.sizes.documents) >= MIN_SIZES:
        yield f"what more documents cost: {command('report', folder, at=10 * max(suite.sizes.documents))}"
    if suite.name == _DEMO:
        given = {"cpus": 1, "memory": "1GiB"} if launcher == launchers.DEFAULT else {"launcher": launcher}
        own = command("run", "bm25", "minilm", dataset="./my-data", **given)
        files = "corpus.jsonl, queries.jsonl, qrels/test.tsv as in BEIR"
        yield f"next, your own documents: {own}   my-data: {files} (docs/guides/own-data.md)"


@click.command()
@click.argument("suites", type=SUITE_FILE, nargs=-1, required=True, metavar="SUITE...|SYSTEM...")
@subject_options
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="Plan as if no job were done.")
@click.option("--fresh-index", is_flag=True, help="Plan as if no job were done and no index built.")
@click.option("--price", is_flag=True, help="Show what the time left costs on the EC2 instances of each profile.")
@launcher_options
@destination_options(*FORMATS, wide=True)
@_run_request
def plan(
    suites: tuple[Path, ...], subject: _Subject, price: bool, destination: Destination, request: _RunRequest
) -> None:
    """List the cells of each SUITE, done and to do, with the time, disk and memory that the cells to do take.

    Runs nothing, fetches no data, makes no corpus of another size, needs no engine.

    Times come from stored results of the same system and dataset (at this size or others), else from shipped results,
    else from a shipped paper's latencies.  Otherwise harness assumes 30 s per job and 0.1 s per query, and for an index
    build 60 s and 0.01 s per document.  ~ marks estimates.  An index shared by several cells counts once.  Exit code 1
    if a dataset's folder does not exist.
    """
    with subject.suites(suites, request.results) as named, open_for(request.choice, load(named[0])) as opened:
        planner = Planner(opened)
        plans = [request.plan(path, planner) for path in named]
        disk = preflight.disk_needed(plans, opened)
    missing: dict[str, FileError] = {}
    for each in plans:
        missing |= preflight.missing_data(each.inputs.suite, each.options)
    fresh_name = "fresh_index" if request.fresh_index else "fresh"
    given = given_options("results", "only", "launcher", "cache", "models", fresh_name)
    run = command("run", *named, **given)
    fresh = request.fresh or request.fresh_index
    done = all(job.done for each in plans for job in each.jobs) and not any(each.inputs.absent for each in plans)
    if done and not fresh:
        folder = str(request.results) if len(plans) > 1 else f"{request.results}/{plans[0].inputs.suite.name}"
        retry = cell_plans.unfinished(plans)
        run = command("run", *named, **given, retry_noisy=1) if retry else command("report", folder)
    cells = [cell for each in plans for cell in each.cells]
    if price:
        from harness.aws import price_list

        cells = [*price_list.quote(plans, prices.snapshot())[0]]
    foreseen = filter(None, (disk, preflight.lack_of_memory(cells)))
    notes = [*cell_plans.plan_notes(plans, cells, missing), *foreseen]
    absent = sum(cell.dataset not in each.inputs.to_make for each in plans for cell in each.inputs.absent)
    destination.show_report(plan_document(cells, notes, run, absent=absent, priced=price))
    show_errors(missing.values())
    sys.exit(1 if missing else 0)
