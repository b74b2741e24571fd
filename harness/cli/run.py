"""`harness run`: run a suite here, on EC2 or on Batch, and print its table."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from harness import config
from harness.analysis.table import Table
from harness.aws import price_list, rental
from harness.aws.clients import Connections, is_s3, parse_uri
from harness.aws.objects import Objects
from harness.aws.rental import RentalBackend, RentalOptions, RentalRequest
from harness.cli.launchers import (
    BACKENDS,
    LauncherChoice,
    launcher_choice,
    launcher_option,
    run_launcher_option,
    run_options,
)
from harness.cli.lines import say
from harness.cli.locations import ResultsLocation, as_given, mirrored, of_suite, writable
from harness.cli.options import (
    FiniteRange,
    agree,
    cache_option,
    given_parameters,
    models_option,
    only_option,
    record_options,
    results_option,
    results_path,
    retry_option,
)
from harness.cli.output import Destination, write
from harness.cli.plan import planning_options
from harness.cli.stored_results import StoredResults, tested
from harness.commands import command, option
from harness.driver.records import Outcome
from harness.errors import UsageError, counted
from harness.experiments.contested import contested_cells
from harness.jobs import inputs, orchestrator
from harness.jobs.cell_plans import Planner, SuitePlan, suite_notes
from harness.jobs.inputs import RunOptions
from harness.jobs.orchestrator import RunSummary
from harness.jobs.suite import Suite, load
from harness.launch import launchers
from harness.launch.docker import DockerLauncher
from harness.launch.images import platforms
from harness.pricing import prices
from harness.remote import run as remote_run
from harness.remote import worker
from harness.remote.folder_backend import FolderBackend
from harness.remote.run import ClientContext, RemoteOptions, RemoteRequest, RunReport
from harness.remote.shared_folder import open_folder
from harness.remote.shipment import Shipper
from harness.remote.storage import Storage
from harness.remote.watch import Timeouts
from harness.report.plan import CellPlan, quote_document
from harness.report.summary import SummaryView, summary_section
from harness.results.schema import NULL_SYSTEM, Cell
from harness.untrusted import one_line

# How often the command looks into a shared folder.
_FOLDER_POLL_S = 2.0


cloud_options = record_options(
    "cloud",
    RentalOptions,
    click.option("--region", help="ec2, batch: AWS region.  [default: the AWS configuration's]"),
    click.option("--instance", metavar="TYPE", help="ec2, batch: this instance type for all hardware profiles."),
    click.option(
        "--max-usd",
        "cap_usd",
        type=FiniteRange(min=0, min_open=True),
        help="ec2, batch: never spend more.",
    ),
    click.option(
        "--max-instances",
        "most",
        type=click.IntRange(1, 1000),
        default=8,
        help="ec2: at most this many at once; 1: one hardware profile after the other.",
    ),
    click.option("--spot", is_flag=True, help="ec2: spot capacity; the same command measures interrupted jobs again."),
    click.option(
        "--burstable", is_flag=True, help="ec2, batch: allow burstable types, whose latency depends on CPU credits."
    ),
    click.option(
        "--architecture",
        type=click.Choice(["x86_64", "arm64"]),
        help="ec2, batch: architecture of the instances and of their images; with GPUs always x86_64."
        "  [default: that of the suite's own types, else x86_64]",
    ),
    click.option("--subnet", help="ec2: this subnet.  [default: the default VPC's subnets]"),
    click.option(
        "--dry-run",
        is_flag=True,
        help="ec2, batch: show the instances and their cost, and stop; without --work from the price list alone,"
        " which asks no account. With --work FOLDER, show the parts, and stop.",
    ),
    click.option("--wide", is_flag=True, help="ec2, batch: show each part's instance, disk and cost."),
)


@dataclass(frozen=True)
class _RunRequest:
    """The options of a command for each suite; ``cells``: the cells of one suite to measure, if not all."""

    choice: LauncherChoice
    results: Path | str
    only: str | None
    fresh: bool
    fresh_index: bool
    retry_noisy: int
    work: str | None
    cloud: RentalOptions
    yes: bool
    cells: frozenset[Cell] | None = None

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

    @property
    def from_price_list(self) -> bool:
        """True for a quote that needs no account."""
        return self.in_cloud and self.cloud.dry_run and self.work is None


@click.command()
@mirrored("contested")
@click.argument("suites", type=click.Path(path_type=Path), nargs=-1, metavar="SUITE...")
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="Measure finished jobs again too; earlier results stay.")
@click.option(
    "--fresh-index",
    is_flag=True,
    help="Build indexes again and measure that; implies --fresh, because new results carry a build's figures.",
)
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
    help="Where machines exchange files. ec2, batch: s3://BUCKET[/PREFIX]. docker, process: a folder that they share;"
    " workers (`harness worker`) measure there.  [env: HARNESS_WORK]",
)
@cloud_options
@click.option("--yes", is_flag=True, help="ec2, batch: do not ask whether to go on.")
@cache_option
@models_option
@click.option("--part", type=click.Path(path_type=Path), hidden=True, help="For workers: what their agent wrote.")
@launcher_choice
def run(
    suites: tuple[Path, ...],
    results: Path | str,
    only: str | None,
    fresh: bool,
    fresh_index: bool,
    contested: Path | None,
    retry_noisy: int,
    part: Path | None,
    work: str | None,
    cloud: RentalOptions,
    yes: bool,
    choice: LauncherChoice,
) -> None:
    """Run the jobs of each SUITE (a TOML file) that are not done yet, then print its table.

    Each job is stored when it ends, so the same command resumes a stopped run.  Exit code 1 if a cell has an unexpected
    outcome, or if nothing could be measured.
    """
    if part is not None:
        assert isinstance(results, Path)
        options = run_options(part, results, only, fresh, choice.cache)
        with choice.open() as launcher:
            sys.exit(0 if worker.run_part(part, options, launcher, _storage) else 1)
    request = _RunRequest(choice, results, only, fresh, fresh_index, retry_noisy, work, cloud, yes)
    _check_options(request)
    if contested is not None:
        stored = StoredResults(contested, choice.cache)
        found = stored.priced(stored.read())
        suites, cells = contested_cells(contested, found.table, found.per_query, suites)
        if not cells:
            text = f"nothing in {contested} is contested: every row is on the front or surely dominated"
            say(as_given(text, choice.cache), err=True)
            return
        request = replace(request, cells=cells)
    if not suites:
        raise UsageError("name the SUITE to run, e.g. harness run suites/quickstart.toml")
    if request.from_price_list:
        _quote(suites, request)
        return
    errors = [error for suite in suites for error in _run_suite(suite, request)]
    for error in errors:
        say(f"harness: {error}", err=True)
    sys.exit(1 if errors else 0)


def _run_suite(suite: Path, request: _RunRequest) -> list[str]:
    """Run a suite and print its table; return a line for each error."""
    choice, results, loaded = request.choice, request.results, load(suite)
    if request.in_cloud or request.in_folder:
        of_suite(results, loaded.name, choice.cache, "RECORDS")  # stored jobs decide which jobs are launched
    with writable(results, choice.cache) as location:
        cells, publisher = request.cells, location.publisher
        options = run_options(suite, location.folder, request.only, request.fresh or cells is not None, choice.cache)
        options = replace(
            options, retry_noisy=request.retry_noisy, fresh_index=request.fresh_index, cells=cells, publisher=publisher
        )
        if backend := request.backend:
            cloud_request = _request(choice.launcher, backend, loaded, options, request.work, request.cloud)
            summary, errors = _ended(_run_in_cloud(cloud_request, backend, choice.models, request.yes))
        elif request.in_folder:
            summary, errors = _ended(_run_in_folder(loaded, options, request))
        else:
            with choice.open() as launcher:
                summary = orchestrator.run_suite(inputs.gather(loaded, options), options, launcher)
            errors = summary.complaints
        if summary is not None:
            errors = [*errors, *_nothing_measured(_finish(location, loaded, summary))]
    return list(errors)


def _quote(suites: Sequence[Path], request: _RunRequest) -> None:
    """Print the cost of suites by the price list, without an account, data or an engine."""
    cloud, cache = request.cloud, request.choice.cache
    snapshot = prices.snapshot(region=f"aws/{cloud.region}" if cloud.region else None, term="on-demand")
    cells: list[CellPlan] = []
    plans: list[SuitePlan] = []
    notes = [f"prices: {snapshot}, without disk, address and the machines' setup"]
    if cloud.spot:
        notes.append("spot capacity costs at most that")
    with replace(request.choice, launcher=launchers.DEFAULT).open() as launcher:
        planner = Planner(launcher)
        for path in suites:
            loaded = load(path)
            fresh = request.fresh or request.cells is not None
            options = planning_options(path, loaded, request.results, request.only, cache, fresh=fresh)
            plans.append(planner.plan(loaded, replace(options, cells=request.cells)))
            cells += price_list.priced(plans[-1].cells, loaded, snapshot, cloud)
            notes += price_list.builders(loaded, snapshot, cloud)
    given = {name: each for name, each in given_parameters().items() if isinstance(each, click.Option)}
    values = click.get_current_context().params
    again = {each.opts[0].lstrip("-"): values[name] for name, each in given.items() if name not in ("dry_run", "wide")}
    launch = command("run", *suites, **again, work="s3://BUCKET")
    document = quote_document(cells, [*dict.fromkeys((*notes, *suite_notes(plans, {})))], launch)
    Destination("md", None, wide=cloud.wide).show_report(document)


@click.command()
@click.pass_context
@results_option
@only_option
@launcher_option
@cache_option
@models_option
def demo(context: click.Context, /, **options: Any) -> None:
    """Measure BM25 and a dense retriever on SciFact, and print the answer: the main job in a few minutes.

    Runs the shipped suite `quickstart`; images and the corpus are prepared once.
    """
    context.invoke(run, suites=(config.data_root() / "suites" / "quickstart.toml",), **options)


def _check_options(request: _RunRequest) -> None:
    """Refuse options that the chosen launcher does not understand."""
    launcher, backend = request.choice.launcher, request.backend
    known = {*RentalOptions.__dataclass_fields__, "yes"}
    taken = {*backend.options, "yes"} if backend else {"dry_run", "wide"} if request.in_folder else set()
    for name, parameter in given_parameters().items():
        if name in known - taken:
            others = (other for other, entry in BACKENDS.items() if name in {*entry.load().options, "yes"})
            takers = " and ".join(option("launcher", other) for other in others)
            raise UsageError(
                f"{parameter.opts[0]} is for {takers}, this is {option('launcher', launcher)}; leave it out"
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


def _request(
    launcher: str,
    backend: type[RentalBackend],
    suite: Suite,
    options: RunOptions,
    work: str | None,
    cloud: RentalOptions,
) -> RentalRequest:
    if "most" not in backend.options:
        cloud = replace(cloud, most=sys.maxsize)
    if work is None:
        raise UsageError(
            f"--launcher {launcher} needs a place in S3: give --work s3://BUCKET, which `harness ec2 up s3://BUCKET`"
            " makes"
        )
    return RentalRequest(suite=suite, options=options, work=parse_uri(work), **vars(cloud))


def _run_in_cloud(
    request: RentalRequest, backend: type[RentalBackend], models: Path | None, yes: bool
) -> RunReport | None:
    """Run a suite on EC2 or Batch."""
    cache = request.options.cache
    with closing(DockerLauncher(cache, models, platform=platforms.AMD64)) as docker:
        client = ClientContext(
            launcher=docker,
            shipper=lambda work: Shipper(work, docker.client, cache),
            agree=lambda question: agree(yes, question),
        )
        return rental.run(request, Connections(request.region), client, backend)


def _run_in_folder(suite: Suite, options: RunOptions, request: _RunRequest) -> RunReport | None:
    """Run a suite on the workers of a shared folder."""
    work = open_folder(Path(request.work or ""))
    with request.choice.open() as launcher:
        engine = launcher.client if isinstance(launcher, DockerLauncher) else None
        client = ClientContext(
            launcher=launcher,
            shipper=lambda storage: Shipper(storage, engine, options.cache),
            agree=lambda _question: None,
            timeouts=Timeouts(poll_s=_FOLDER_POLL_S),
        )
        how = RemoteOptions(most=sys.maxsize, dry_run=request.cloud.dry_run, wide=request.cloud.wide)
        remote = RemoteRequest(suite, options, work, how)
        return remote_run.run(remote, client, FolderBackend(work, request.choice.launcher))


def _ended(done: RunReport | None) -> tuple[RunSummary | None, Sequence[str]]:
    """Return a run's summary, if it has any job, and its errors."""
    if done is None:
        return None, ()
    any_job = done.summary.jobs or done.summary.keys
    return done.summary if any_job else None, (*done.summary.complaints, *done.complaints)


def _storage(address: str) -> Storage:
    """Open the storage through which a worker exchanges files."""
    return Objects(Connections(), parse_uri(address)) if is_s3(address) else open_folder(Path(address))


def _finish(location: ResultsLocation, suite: Suite, summary: RunSummary) -> Table:
    """Print the answer; write it and the page into the results folder; return the table."""
    folder = location.folder / suite.name
    stored = StoredResults(folder, location.cache, suite.measures, keys=summary.keys)
    found = stored.read()
    table, per_query = stored.priced(found).table, tested(found).per_query
    markdown, page = folder / "report.md", folder / "report.html"
    shown = location.display(folder)
    more = f"page: {one_line(str(page))}   all columns and notes: {command('report', shown, wide=True)}"

    def show(output: Path | None, *pointers: str) -> None:
        view = SummaryView(pointers=pointers)
        Destination("md", output).show_answer(
            lambda escape, width: (summary_section(table, per_query, escape, view, width),)
        )

    show(markdown)
    write(page, stored.page(found))
    location.publish(markdown, page)
    say(f"{counted(len(summary.jobs), 'job')} run, {summary.done_before} done before", err=True)
    click.echo(err=True)
    show(None, f"{more}   how a number was made: {command('explain', results=shown)}")
    return table


def _nothing_measured(table: Table) -> Iterator[str]:
    """Yield a line if no system has a figure, because harness's own overhead does not answer the question."""
    systems = [row for row in table.rows if row.system != NULL_SYSTEM] or table.rows
    if not any(row.outcome is Outcome.OK for row in systems):
        ends = Counter(row.outcome.value.replace("_", " ") for row in systems)
        counts = ", ".join(f"{count} {end}" for end, count in ends.items())
        yield f"nothing could be measured: {counts}; choose other hardware, or fix the systems"
