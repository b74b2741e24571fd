"""`harness attach`: measure a service that runs already."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import FiniteRange, cache_option, models_option, parsed_by, record_options, results_option
from harness.cli.run import run, written
from harness.errors import UsageError
from harness.jobs.attach_suite import AttachSuite
from harness.launch import launchers, service_address
from harness.launch.credentials import Credentials
from harness.launch.images import catalog


@click.command()
@click.argument("url")
@click.option(
    "--adapter",
    "system",
    required=True,
    callback=parsed_by(lambda name: catalog.named([name])[name]),
    metavar="SYSTEM",
    help="The system whose adapter asks the service.",
)
@click.option(
    "--dataset", required=True, metavar="DATASET", help="A folder, a shipped dataset, or an id of ir_datasets."
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of the system, e.g. index=products; repeatable.",
)
@click.option("--queries", type=click.IntRange(1, 100_000), help="Queries in the sample.  [default: 1000, at most all]")
@click.option("--trials", type=click.IntRange(1, 1000), help="Timed passes over the sample.  [default: 3]")
@click.option(
    "--max-qps",
    type=FiniteRange(min=0.05, max=1e6),
    help="Start at most this many queries a second.  [default: one at a time, each after an answer]",
)
@click.option("--instance", metavar="TYPE", help="The instance type that the service runs on, which prices the rows.")
@click.option(
    "--usd-per-hour", type=FiniteRange(min=0, min_open=True), help="What its machines cost an hour, in place of a type."
)
@click.option("--build", is_flag=True, help="Build an index of its own name in the service, and remove it at the end.")
@results_option
@cache_option
@models_option
@record_options("suite", AttachSuite)
@click.pass_context
def attach(context: click.Context, suite: AttachSuite, results: Path | str, cache: Path, models: Path | None) -> None:
    """Measure the service at URL, which runs already: http://HOST:PORT, https://HOST or postgresql://HOST:PORT.

    Starts no container and knows nothing of the service's machine: the rows are marked "envelope not verified", have no
    memory, and no price unless --instance or --usd-per-hour names one.  It sends one query at a time, and says before
    how many.  Without --build it writes nothing to the service.  The suite is written next to the results.

    Credentials come from HARNESS_SERVICE_USER and HARNESS_SERVICE_PASSWORD, or HARNESS_SERVICE_TOKEN, and are in no
    result, log or error.  TLS certificates are verified.
    """
    try:
        service_address.parsed(suite.url)
    except ValueError as error:
        raise UsageError(f"URL {error}") from None
    if suite.instance and suite.usd_per_hour:
        raise UsageError("--instance and --usd-per-hour both give a price; leave one out")
    credentials = Credentials.of_environment()
    if name := next(filter(None, map(credentials.held_by, (suite.url, *suite.params))), None):
        raise UsageError(f"the value of {name} is in the command, which is stored; leave it out, the adapter has it")
    if why := service_address.cannot_ask(suite.system, build=suite.build):
        raise UsageError(f"{suite.system.name}: {why}")
    with written(suite, results) as path:
        context.invoke(run, suites=(path,), results=results, cache=cache, models=models, launcher=launchers.ATTACHED)
