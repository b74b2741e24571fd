"""Commands for AWS Batch: what a suite has there, made, shown, removed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.elsewhere import conduct, request
from harness.console import one_line_errors

if TYPE_CHECKING:
    from harness.batch.kinds import Place
    from harness.batch.planning import Asked
    from harness.batch.wanted import Stack
    from harness.cli.elsewhere import Elsewhere
    from harness.cli.places import Opened
    from harness.inputs import Options
    from harness.suite import Suite

work_option = click.option(
    "--work",
    metavar="s3://BUCKET[/PREFIX]",
    envvar="HARNESS_WORK",
    required=True,
    help="Where inputs, jobs and results go to and come from.  [env: HARNESS_WORK]",
)
region_option = click.option("--region", help="AWS region.  [default: the one that the AWS command line has]")


@click.group()
def batch() -> None:
    """AWS Batch: make, show and remove what a suite needs there.  It costs nothing while no job runs."""


def _stack_options(command: Callable[..., None]) -> Callable[..., None]:
    """What machines are asked for, handed over as a :class:`harness.batch.wanted.Stack`."""

    @click.argument("suite", type=click.Path(path_type=Path))
    @work_option
    @region_option
    @click.option("--instance", metavar="TYPE", help="One instance type for all profiles.")
    @click.option("--burstable", is_flag=True, help="Allow types that sell a share of their CPUs' time.")
    @click.option(
        "--architecture",
        type=click.Choice(["x86_64", "arm64"]),
        default="x86_64",
        show_default=True,
        help="Of the instances; give `harness run` the same.",
    )
    @click.option("--max-instances", type=click.IntRange(1, 1000), default=4, show_default=True, help="Of each type.")
    @click.option("--disk", type=click.IntRange(30, 16384), default=100, show_default=True, help="GiB of each one.")
    @click.option("--spot", is_flag=True, help="Spot instances: cheaper, and taken away at times.")
    @click.option("--shared", is_flag=True, help="Let jobs share an instance; their results are marked noisy.")
    @click.option(
        "--agent-image",
        metavar="IMAGE",
        envvar="HARNESS_AGENT_IMAGE",
        help="Another copy of the Python image that agents run in.  [env: HARNESS_AGENT_IMAGE]",
    )
    @wraps(command)
    def wrapped(suite: Path, work: str, region: str | None, **others: Any) -> None:
        from harness.aws import uri
        from harness.batch.planning import Asked

        place = _place(region)
        keys = {"max_instances": "most_instances", "disk": "disk_gib"}
        names = ("instance", "burstable", "architecture", "max_instances", "disk", "spot", "shared", "agent_image")
        chosen = {keys.get(name, name): others.pop(name) for name in names}
        asked = Asked(region=place.connections.region or "", work=uri.parse(work), **chosen)
        command(stack=_stack(suite, asked), place=place, **others)

    return wrapped


@batch.command()
@one_line_errors
@_stack_options
@click.option("--subnet", "subnets", multiple=True, help="Where instances live; may be said again.  [default VPC's]")
def up(stack: Stack, place: Place, subnets: tuple[str, ...]) -> None:
    """Make what SUITE needs in AWS Batch; what is there already and as it should be is left alone."""
    from harness.batch import inventory, making
    from harness.batch.resources import resources

    def busy() -> int:
        return len(inventory.jobs(place, stack.suite))

    making.up(place, stack.suite, resources(stack), click.echo, subnets, busy)
    click.echo(f"nothing of this costs anything until `harness run ... --launcher batch`; {_DOWN}")


_DOWN = "`harness batch down` removes it all"


@batch.command()
@one_line_errors
@_stack_options
def template(stack: Stack, place: Place) -> None:
    """Print the same as a CloudFormation template."""
    from harness.batch.resources import resources
    from harness.batch.template import template

    del place
    click.echo(template(stack.suite, resources(stack)), nl=False)


@batch.command()
@click.argument("suite")
@region_option
@one_line_errors
def down(suite: str, region: str | None) -> None:
    """Remove all that SUITE (its file, or its name) has in AWS Batch; results in S3 stay.

    Exit code 1 if an instance of it is still alive.
    """
    from harness.batch import inventory, making
    from harness.errors import UsageError

    place, name = _place(region), _name(suite)
    busy = inventory.jobs(place, name)
    if busy:
        raise UsageError(f"{len(busy)} jobs of {name} are not finished; `harness batch cancel {suite}` ends them first")
    making.down(place, name, inventory.things(place, name), click.echo)
    alive = inventory.machines(place, name)
    for instance, state in alive:
        click.echo(f"harness: STILL ALIVE AND COSTING MONEY: {instance} ({state}); end it in the EC2 console", err=True)
    sys.exit(1 if alive else 0)


@batch.command()
@click.argument("suite")
@region_option
@one_line_errors
def cancel(suite: str, region: str | None) -> None:
    """End all jobs of SUITE that wait or run, and wait until they have ended; what they finished is kept."""
    from harness.batch import cancelling

    ended, left = cancelling.cancel(_place(region), _name(suite), click.echo)
    click.echo(f"{ended} jobs ended" + (f", {left} still end: give the same command again" if left else ""))
    sys.exit(1 if left else 0)


@batch.command(name="ls")
@region_option
@one_line_errors
def ls(region: str | None) -> None:
    """Show what all suites have in AWS Batch in this region, and their jobs that wait or run."""
    from harness.batch import inventory

    place = _place(region)
    suites = inventory.suites(place)
    for suite in suites:
        click.echo(suite)
        for word, name in inventory.present(place, suite):
            click.echo(f"  {word:<19}  {name}")
        for instance, state in inventory.machines(place, suite):
            click.echo(f"  {'instance':<19}  {instance} ({state})")
        for job in inventory.jobs(place, suite):
            click.echo(f"  {job.status.lower():<19}  {job.name}")
    if not suites:
        click.echo(f"nothing of harness is in AWS Batch in {place.connections.region}")


_UNDERSTOOD = ("region", "instance", "max_usd", "burstable", "architecture", "yes", "dry_run")


def run_on_batch(suite: Suite, options: Options, asked: Elsewhere, models: Path | None, place: Opened) -> int:
    """Run a suite there, print the table; return the exit code."""
    from harness.batch import running

    asked.refuse("batch", _UNDERSTOOD)
    return conduct(running.run, request("batch", suite, options, asked), asked, models, place)


def _place(region: str | None) -> Place:
    from harness.aws.connections import Connections
    from harness.batch.kinds import Place
    from harness.errors import UsageError

    connections = Connections(region)
    if connections.region is None:
        raise UsageError("no AWS region; set AWS_REGION or give --region")
    return Place(connections)


def _stack(suite: Path, asked: Asked) -> Stack:
    from harness import prices
    from harness.batch import planning
    from harness.suite import load

    market = prices.snapshot(region=f"aws/{asked.region}", term="on-demand")
    return planning.stack(load(suite), asked, market)


def _name(suite: str) -> str:
    """A suite's name, from its file where there is one."""
    from harness.suite import load

    return load(Path(suite)).name if Path(suite).is_file() else suite


COMMANDS = (batch,)
