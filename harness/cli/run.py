"""Commands of the costly half: what they start takes minutes to hours, and is stored."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from harness.cli.cloud_options import LAUNCHERS, CloudOptions, cloud_options, run_elsewhere
from harness.cli.locations import as_given, mirrored, named_as_given, of_suite, writable
from harness.cli.options import (
    Market,
    cache_option,
    chosen_launcher,
    columns,
    launcher_option,
    models_option,
    one_line_errors,
    only_option,
    platform_option,
    results_option,
    results_path,
    retry_option,
    run_launcher_option,
    run_options,
    write,
)
from harness.cli.report import finish, per_query_of, stored_table
from harness.errors import UsageError
from harness.results.schema import Cell

if TYPE_CHECKING:
    from harness.jobs.inputs import Options
    from harness.launch.base import Launcher


@click.command()
@click.argument("suite", type=click.Path(path_type=Path), required=False)
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="Measure again, also what is done; earlier results stay.")
@click.option(
    "--contested",
    metavar="RESULTS",
    type=results_path,
    help="Measure again those cells stored there whose place on the Pareto front (accuracy, cost, latency) is "
    "contested, and no others.",
)
@retry_option(0, "Measure noisy cells again, at most N times, where the reason may pass.")
@run_launcher_option
@cloud_options
@cache_option
@models_option
@click.option("--part", type=click.Path(path_type=Path), hidden=True, help="For boxes: what their agent wrote.")
@one_line_errors
@mirrored("contested")
def run(
    suite: Path | None,
    results: Path | str,
    only: str | None,
    fresh: bool,
    contested: Path | None,
    retry_noisy: int,
    launcher: str,
    cache: Path,
    models: Path | None,
    part: Path | None,
    cloud: CloudOptions,
) -> None:
    """Run what SUITE (a TOML file) declares and is not done yet, then print the table.

    Each job is stored as it ends; the same command again goes on from there.  Exit code 1 if a cell ended otherwise
    than the suite foresees.
    """
    from harness.jobs import orchestrator
    from harness.jobs.suite import load
    from harness.progress import Screen

    cells = None
    if contested is not None:
        suite, cells = _contested(suite, contested, cache)
        if not cells:
            said = f"nothing in {contested} is contested: every row is on the front or surely dominated"
            click.echo(as_given(said, cache), err=True)
            return
    if part is not None:
        assert isinstance(results, Path)
        options = run_options(part, results, only, fresh, cache)
        with closing(chosen_launcher(launcher, options.cache, models)) as chosen:
            sys.exit(0 if _do_part(part, options, chosen) else 1)
    if suite is None:
        raise UsageError("name the SUITE to run, e.g. harness run suites/quickstart.toml")
    loaded = load(suite)
    if launcher in LAUNCHERS:
        of_suite(results, loaded.name, cache, "RECORDS")  # what is stored decides what is launched
    with writable(results, cache) as place:
        options = run_options(suite, place.folder, only, fresh or cells is not None, cache)
        options = replace(options, retry_noisy=retry_noisy, cells=cells, shelf=place.shelf)
        if launcher in LAUNCHERS:
            sys.exit(run_elsewhere(launcher, loaded, options, cloud, models, place))
        cloud.refuse(launcher)
        with closing(chosen_launcher(launcher, options.cache, models)) as chosen:
            summary = orchestrator.run(loaded, options, chosen, Screen(Console(stderr=True)))
        finish(place, loaded.name, loaded.measures, summary)
    for complaint in summary.complaints:
        click.echo(f"harness: {complaint}", err=True)
    sys.exit(1 if summary.unforeseen else 0)


def _do_part(file: Path, options: Options, launcher: Launcher) -> bool:
    """Do one part of another machine's plan; return whether every job is uploaded."""
    from harness.aws.clients import Connections, parse_uri
    from harness.aws.cloud_run import worker
    from harness.aws.objects import Objects
    from harness.jobs import orchestrator
    from harness.progress import Screen

    assignment, screen = worker.read_assignment(file), Screen(Console(stderr=True))
    suite = worker.suite_of(assignment.part, file)
    work = Objects(Connections(), parse_uri(assignment.work))
    uploader = worker.Uploader(assignment, work, options.cache, screen.say)
    try:
        orchestrator.run(suite, worker.options(options, suite, assignment.part, uploader), launcher, screen)
    finally:
        uploader.finish()  # also where the rest cannot be done: what is measured is worth having
    return not uploader.status.troubles


def _contested(suite: Path | None, stored: Path, cache: Path) -> tuple[Path | None, frozenset[Cell]]:
    """The contested cells of what is stored there, and the suite that declares them, looked for where suites lie."""
    from harness.analysis import pareto_front
    from harness.cli.report import MEASURES
    from harness.jobs.suite import load

    measures = tuple(MEASURES["rows"].split())
    table = stored_table(stored, measures, Market(), cache)
    cells = pareto_front.contested(table, per_query_of(stored, measures, cache), measures[0])
    if suite is not None:
        name = load(suite).name
        return suite, frozenset(cell for cell in cells if cell.suite == name)
    names = sorted({cell.suite for cell in cells})
    if len(names) > 1:
        raise UsageError(
            f"{stored}: contested cells of {len(names)} suites ({', '.join(names)}); name the SUITE to run"
        )
    found = [path for name in names if (path := Path("suites", f"{name}.toml")).is_file()]
    if names and not found:
        raise UsageError(
            f"{stored}: is of the suite {names[0]}, and there is no suites/{names[0]}.toml; name its SUITE"
        )
    return found[0] if found else None, cells


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="As if nothing were done.")
@launcher_option
@cache_option
@models_option
@one_line_errors
def plan(
    suite: Path, results: Path | str, only: str | None, fresh: bool, launcher: str, cache: Path, models: Path | None
) -> None:
    """Show what `harness run SUITE` would run and what is done, and run nothing."""
    from harness.jobs import inputs
    from harness.jobs.suite import load
    from harness.progress import Screen

    loaded = load(suite)
    with named_as_given(cache):
        options = run_options(suite, of_suite(results, loaded.name, cache, "RECORDS"), only, fresh, cache)
    with closing(chosen_launcher(launcher, options.cache, models)) as chosen:
        gathered = inputs.gather(loaded, options, Screen(Console(stderr=True)))
        jobs = inputs.planned(gathered, options, chosen)
    from harness.jobs.plan import states

    columns(
        ("system", "dataset", "scenario", "profile", "state"),
        [(cell.system, cell.dataset, cell.scenario, cell.profile, state) for cell, state in states(jobs)],
    )
    click.echo(f"{sum(job.done for job in jobs)} of {len(jobs)} jobs done")
    for line in inputs.not_pinned(gathered):
        click.echo(line, err=True)


@click.command()
@click.argument("system")
@click.option("--profile", default="cpu1-mem1", show_default=True, help="Hardware profile to check under.")
@platform_option("Check the image for this platform, emulated where it is not the engine's own.")
@launcher_option
@cache_option
@models_option
@one_line_errors
def conformance(
    system: str, profile: str, platform: str | None, launcher: str, cache: Path, models: Path | None
) -> None:
    """Check SYSTEM against the container contract with a ten-document corpus."""
    from harness import filesystem
    from harness.experiments.conformance import examine
    from harness.launch.images import catalog
    from harness.pricing import hardware_profiles
    from harness.progress import Screen

    declared, envelope = catalog.system(system), hardware_profiles.profile(profile)
    failed = 0
    with closing(chosen_launcher(launcher, cache.expanduser().absolute(), models, platform)) as chosen:
        chosen.check()
        cannot = chosen.cannot(envelope)
        if cannot:
            raise UsageError(f"{cannot}; choose another --profile")
        chosen.sweep()  # before the folders of dead runs go: their containers may still write into those
        with filesystem.temporary("conformance") as folder:
            for check in examine(chosen, declared, envelope, folder, Screen(Console(stderr=True))):
                failed += not check.ok
                detail = f": {check.detail}" if check.detail else ""
                click.echo(f"{'ok' if check.ok else 'FAIL':<5} {check.what}{detail}")
    sys.exit(1 if failed else 0)


@click.command()
@results_option
@click.option("--only", metavar="GLOB", help="Only cases whose name (or group) matches.")
@click.option(
    "--repeats", type=click.IntRange(1, 1000), default=1, show_default=True, help="Run all cases that many times."
)
@retry_option(1, "Measure a case whose times are off again, at most N times; the table says so.")
@click.option("--format", "form", type=click.Choice(["terminal", "md"]), default="terminal", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the table to this file as well.")
@launcher_option
@cache_option
@one_line_errors
def calibrate(
    results: Path | str,
    only: str | None,
    repeats: int,
    retry_noisy: int,
    form: str,
    output: Path | None,
    launcher: str,
    cache: Path,
) -> None:
    """Measure injected values, and show how far the reported ones are off.

    A system that does exactly what its parameters say is measured as any other; about three minutes.  Exit code 1 if a
    figure is off by more than the instrument promises.
    """
    from harness.experiments.calibration import run as calibration
    from harness.progress import Screen

    started = time.monotonic()
    with writable(results, cache) as place:
        options = replace(run_options(Path(), place.folder, None, True, cache), shelf=place.shelf)
        with closing(chosen_launcher(launcher, options.cache, None)) as chosen:
            lines = calibration.calibrate(
                options, calibration.CaseSelection(only, repeats, retry_noisy), chosen, Screen(Console(stderr=True))
            )
    remark = calibration.summary(lines, time.monotonic() - started)
    click.echo(calibration.render(lines, remark, form), nl=False)
    if output is not None:
        write(output, calibration.render(lines, remark, "md"))
    sys.exit(0 if all(line.ok for line in lines) else 1)


COMMANDS = (run, plan, conformance, calibrate)
