"""`harness plan`: the cells of suites, the time that they take and what it costs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from harness.aws import price_list
from harness.aws.machines import MachineOptions
from harness.cli.launchers import LauncherChoice, launcher_choice, launcher_option, run_options
from harness.cli.locations import named_as_given, of_suite
from harness.cli.options import cache_option, models_option, only_option, results_option
from harness.cli.output import FORMATS, Destination, destination_options, show_errors
from harness.commands import command
from harness.errors import FileError
from harness.jobs import cell_plans
from harness.jobs.cell_plans import Planner, SuitePlan
from harness.jobs.inputs import RunOptions
from harness.jobs.suite import Suite, load
from harness.pricing import prices
from harness.report.plan import CellPlan, plan_document


@click.command()
@click.argument("suites", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="SUITE...")
@results_option
@only_option
@click.option("--fresh", is_flag=True, help="Plan as if no job were done.")
@click.option("--fresh-index", is_flag=True, help="Plan as if no job were done and no index built.")
@click.option("--price", is_flag=True, help="Show what the time left costs on the EC2 instances of each profile.")
@launcher_option
@cache_option
@models_option
@destination_options(*FORMATS, wide=True)
@launcher_choice
def plan(
    suites: tuple[Path, ...],
    results: Path | str,
    only: str | None,
    fresh: bool,
    fresh_index: bool,
    price: bool,
    destination: Destination,
    choice: LauncherChoice,
) -> None:
    """List the cells of each SUITE, done and to do, and the time that is left.  Runs nothing, fetches no data, needs no
    engine.

    Times come from stored results of the same system and dataset, else from a shipped paper's latencies.  Otherwise
    harness assumes 30 s per job and 0.1 s per query, and for an index build 60 s and 0.01 s per document. ~ marks
    estimates.  An index shared by several cells counts once.  Exit code 1 if a dataset's folder does not exist.
    """
    plans: list[SuitePlan] = []
    missing: dict[str, FileError] = {}
    with choice.open() as launcher:
        planner = Planner(launcher)
        for path in suites:
            loaded = load(path)
            options = planning_options(path, loaded, results, only, choice.cache, fresh=fresh, fresh_index=fresh_index)
            plans.append(planner.plan(loaded, options))
            missing |= cell_plans.missing_folders(loaded, options)
    given = {"results": None if str(results) == "results" else str(results)}
    run = command("run", *suites, **given, only=only, fresh_index=fresh_index, fresh=fresh and not fresh_index)
    cells = [cell for each in plans for cell in (_priced(each) if price else each.cells)]
    notes = cell_plans.plan_notes(plans, cells, missing)
    absent = sum(len(each.absent) for each in plans)
    destination.show_report(plan_document(cells, notes, run, absent=absent, priced=price))
    show_errors(missing.values())
    sys.exit(1 if missing else 0)


def planning_options(
    path: Path,
    suite: Suite,
    results: Path | str,
    only: str | None,
    cache: Path,
    *,
    fresh: bool = False,
    fresh_index: bool = False,
) -> RunOptions:
    """Return the options for planning a suite; mirror its stored jobs from S3."""
    with named_as_given(cache):
        folder = of_suite(results, suite.name, cache, "RECORDS")
        return replace(run_options(path, folder, only, fresh, cache), fresh_index=fresh_index)


def _priced(plan: SuitePlan) -> list[CellPlan]:
    return price_list.priced(plan.cells, plan.inputs.suite, prices.snapshot(), MachineOptions())
