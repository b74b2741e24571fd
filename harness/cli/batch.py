"""`harness batch`: deploy, list and delete a suite's stack in AWS Batch, and end its jobs."""

from __future__ import annotations

import sys
from functools import wraps
from pathlib import Path
from typing import Any

import click

from harness import config
from harness.aws import clients, cloudformation
from harness.aws.batch import suite_stack
from harness.aws.batch.suite_stack import StackRequirements
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2 import account
from harness.cli.lines import say
from harness.cli.options import Command
from harness.commands import quoted
from harness.errors import UsageError, counted
from harness.jobs import suite as suites
from harness.pricing import prices

_work_option = click.option(
    "--work",
    metavar="s3://BUCKET[/PREFIX]",
    envvar="HARNESS_WORK",
    required=True,
    help="Folder in S3 for inputs, jobs and results.  [env: HARNESS_WORK]",
)
_region_option = click.option("--region", help="AWS region.  [default: the AWS configuration's]")


@click.group()
def batch() -> None:
    """AWS Batch: deploy, list and delete a suite's stack.  It costs nothing while no job runs."""


def _stack_options(command: Command) -> Command:
    """Add the options of a stack; pass them to the command as requirements."""

    @click.argument("suite", type=click.Path(path_type=Path))
    @_work_option
    @_region_option
    @click.option("--instance", metavar="TYPE", help="One instance type for all profiles.")
    @click.option("--burstable", is_flag=True, help="Allow burstable types, whose latency depends on CPU credits.")
    @click.option(
        "--architecture",
        type=click.Choice(["x86_64", "arm64"]),
        help="Architecture of the instances; give `harness run` the same."
        "  [default: that of the suite's own types, else x86_64]",
    )
    @click.option("--max-instances", type=click.IntRange(1, 1000), default=4, show_default=True, help="Of each type.")
    @click.option(
        "--disk",
        "disk_gib",
        type=click.IntRange(30, 16384),
        default=100,
        show_default=True,
        help="GiB of each instance.",
    )
    @click.option("--spot", is_flag=True, help="Spot instances: cheaper, but AWS may interrupt them.")
    @click.option("--shared", is_flag=True, help="Let jobs share an instance; marks their results noisy.")
    @click.option(
        "--agent-image",
        metavar="IMAGE",
        envvar="HARNESS_AGENT_IMAGE",
        help="Python image of the agents, from another registry.  [env: HARNESS_AGENT_IMAGE]",
    )
    @wraps(command)
    def wrapped(suite: Path, work: str, region: str | None, subnets: tuple[str, ...] = (), **chosen: Any) -> None:
        connections = Connections(region)
        options = suite_stack.BatchOptions(region=connections.known_region, work=parse_uri(work), **chosen)
        market = prices.snapshot(region=f"aws/{options.region}", term="on-demand")
        command(connections, suite_stack.requirements(suites.load(suite), options, market), subnets)

    return wrapped


@batch.command()
@_stack_options
@click.option("--subnet", "subnets", multiple=True, help="Subnet of the instances; repeatable.  [default: the VPC's]")
def up(connections: Connections, requirements: StackRequirements, subnets: tuple[str, ...]) -> None:
    """Deploy SUITE's CloudFormation stack for AWS Batch; a second call changes only differences."""
    work, region = requirements.options.work, requirements.options.region
    connections.expect_owner(work.bucket)
    roles = account.find(connections, work, region)
    if roles is None:
        raise UsageError(
            f"{work} has no stack of roles in {region}; an administrator makes it: {quoted('ec2 up', work)}"
        )
    owner = clients.owner(connections, config.cache_folder())
    suite_stack.up(connections, requirements, roles, owner, subnets)
    say(
        f"costs nothing until `harness run ... --launcher batch`; {quoted('batch down', requirements.suite)} removes it"
    )


@batch.command()
@_stack_options
def template(_connections: Connections, requirements: StackRequirements, _subnets: tuple[str, ...]) -> None:
    """Print the CloudFormation template that `harness batch up` deploys."""
    click.echo(suite_stack.template(requirements), nl=False)


@batch.command()
@click.argument("suite")
@_region_option
def down(suite: str, region: str | None) -> None:
    """Delete the stack of SUITE (its file, or its name); results in S3 stay.

    Exit code 1 if one of its instances is still alive.
    """
    alive = suite_stack.down(Connections(region), _name(suite))
    for instance in alive:
        say(f"harness: STILL ALIVE AND COSTING MONEY: {instance}; end it in the EC2 console", err=True)
    sys.exit(1 if alive else 0)


@batch.command()
@click.argument("suite")
@_region_option
def cancel(suite: str, region: str | None) -> None:
    """End all jobs of SUITE that wait or run, and wait until they have ended; finished jobs are kept."""
    connections = Connections(region)
    deployed = cloudformation.find(connections, suite_stack.stack_name(_name(suite)))
    ended, left = suite_stack.cancel(connections, deployed) if deployed else (0, 0)
    say(f"{counted(ended, 'job')} ended" + (f", {left} still end: give the same command again" if left else ""))
    sys.exit(1 if left else 0)


@batch.command(name="ls")
@_region_option
def ls(region: str | None) -> None:
    """Show the stacks of all suites in this region, their instances, and their jobs that wait or run."""
    connections = Connections(region)
    stacks = cloudformation.find_tagged(connections, clients.SUITE)
    for stack in stacks:
        suite = stack.tags[clients.SUITE]
        say(f"{suite}  (stack {stack.name}: {stack.status.lower()})")
        for queue in suite_stack.queues(stack):
            say(f"  queue     {queue}")
        for instance in suite_stack.alive_machines(connections, suite):
            say(f"  instance  {instance}")
        for job in suite_stack.unfinished_jobs(connections, stack):
            say(f"  {job.status.lower():<8}  {job.name}")
    if not stacks:
        say(f"no suite is in AWS Batch in {connections.region}")


def _name(suite: str) -> str:
    """Return a suite's name, read from its file if SUITE is a file."""
    return suites.load(Path(suite)).name if Path(suite).is_file() else suite
