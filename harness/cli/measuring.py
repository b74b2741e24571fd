"""Commands of the costly half: what they start takes minutes to hours, and is stored."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from harness.cli.asked import chosen_launcher, run_options
from harness.cli.tables import finish
from harness.console import (
    cache_option,
    columns,
    launcher_option,
    models_option,
    one_line_errors,
    only_option,
    results_option,
    retry_option,
    write,
)
from harness.errors import UsageError


@click.command()
@click.argument("suite", type=click.Path(path_type=Path))
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="Measure again, also what is done; earlier results stay.")
@retry_option(0, "Measure noisy cells again, at most N times, where the reason may pass.")
@launcher_option
@cache_option
@models_option
@one_line_errors
def run(
    suite: Path,
    results: Path,
    only: str | None,
    fresh: bool,
    retry_noisy: int,
    launcher: str,
    cache: Path,
    models: Path | None,
) -> None:
    """Run what SUITE (a TOML file) declares and is not done yet, then print the table.

    Each job is stored as it ends; the same command again goes on from there.  Exit code 1 if a cell ended otherwise
    than the suite foresees.
    """
    from harness import orchestrator
    from harness.progress import Screen
    from harness.suite import load

    loaded = load(suite)
    options = replace(run_options(suite, results, only, fresh, cache), retry_noisy=retry_noisy)
    with closing(chosen_launcher(launcher, options.cache, models)) as chosen:
        summary = orchestrator.run(loaded, options, chosen, Screen(Console(stderr=True)))
    finish(results / loaded.name, loaded.measures, summary, options.cache)
    for complaint in summary.complaints:
        click.echo(f"harness: {complaint}", err=True)
    sys.exit(1 if summary.unforeseen else 0)


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
    suite: Path, results: Path, only: str | None, fresh: bool, launcher: str, cache: Path, models: Path | None
) -> None:
    """Show what `harness run SUITE` would run and what is done, and run nothing."""
    from harness import inputs
    from harness.progress import Screen
    from harness.suite import load

    loaded = load(suite)
    options = run_options(suite, results, only, fresh, cache)
    with closing(chosen_launcher(launcher, options.cache, models)) as chosen:
        gathered = inputs.gather(loaded, options, Screen(Console(stderr=True)))
        jobs = inputs.planned(gathered, options, chosen)
    from harness.plan import states

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
@launcher_option
@cache_option
@models_option
@one_line_errors
def conformance(system: str, profile: str, launcher: str, cache: Path, models: Path | None) -> None:
    """Check SYSTEM against the container contract with a ten-document corpus."""
    from harness import catalog, hardware, leftovers
    from harness.conformance import examine
    from harness.progress import Screen

    declared, envelope = catalog.system(system), hardware.profile(profile)
    failed = 0
    with closing(chosen_launcher(launcher, cache.expanduser().absolute(), models)) as chosen:
        chosen.check()
        cannot = chosen.cannot(envelope)
        if cannot:
            raise UsageError(f"{cannot}; choose another --profile")
        chosen.sweep()  # before the folders of dead runs go: their containers may still write into those
        with leftovers.temporary("conformance") as folder:
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
    results: Path,
    only: str | None,
    repeats: int,
    retry_noisy: int,
    form: str,
    output: Path | None,
    launcher: str,
    cache: Path,
) -> None:
    """Measure planted truths, and show how far what is reported is off.

    A system that does exactly what its parameters say is measured as any other; about three minutes.  Exit code 1 if a
    figure is off by more than the instrument promises.
    """
    from harness.calibration import run, table
    from harness.progress import Screen

    options, started = run_options(Path(), results, None, True, cache), time.monotonic()
    with closing(chosen_launcher(launcher, options.cache, None)) as chosen:
        lines = run.calibrate(options, run.Wanted(only, repeats, retry_noisy), chosen, Screen(Console(stderr=True)))
    remark = table.summary(lines, time.monotonic() - started)
    click.echo(table.render(lines, remark, form), nl=False)
    if output is not None:
        write(output, table.render(lines, remark, "md"))
    sys.exit(0 if all(line.ok for line in lines) else 1)


COMMANDS = (run, plan, conformance, calibrate)
