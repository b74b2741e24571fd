"""`harness ec2`: set up the account, list, end and remove instances."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from harness import config
from harness.aws import clients, machines
from harness.aws.clients import Connections, parse_uri
from harness.aws.ec2 import account, instances
from harness.aws.ec2.instances import OwnedResources
from harness.aws.objects import Objects
from harness.cli.lines import say
from harness.cli.options import agree
from harness.cli.output import columns
from harness.commands import command
from harness.errors import RemoteError, counted
from harness.jobs import suite
from harness.pricing import prices
from harness.remote import journal
from harness.remote.failures import NO_STORAGE
from harness.remote.records import RemoteRun

_region_option = click.option("--region", help="AWS region.  [default: the AWS configuration's]")
_one_region_option = click.option("--region", help="Only this region.  [default: all of the account]")
_owners_option = click.option("--all-owners", is_flag=True, help="Instances of other owners on the account too.")


@click.group()
def ec2() -> None:
    """EC2: set up an account (up, template), list (ls), terminate (reap), remove (down)."""


_work_argument = click.argument("work", metavar="s3://BUCKET[/PREFIX]")
_suites_argument = click.argument("suites", nargs=-1, metavar="[SUITE]...", type=click.Path(path_type=Path))
_instance_option = click.option("--instance", "instances", multiple=True, metavar="TYPE", help="Allow this type too.")
_image_option = click.option("--agent-image", metavar="IMAGE", help="Image of Batch's agents, where it is in ECR.")


@ec2.command()
@_work_argument
@_suites_argument
@_region_option
@_instance_option
@click.option("--subnet", help="The security group is for this subnet's VPC.  [default: the default VPC]")
@_image_option
def up(
    work: str,
    suites: tuple[Path, ...],
    region: str | None,
    instances: tuple[str, ...],
    subnet: str | None,
    agent_image: str | None,
) -> None:
    """Deploy the account stack: bucket, roles, security group, the deadline on AWS's side.

    Workers may use the instance types of these suites (default: of all hardware profiles).  Only the bucket's content
    costs money.  A second call changes only differences.
    """
    connections, folder = Connections(region), parse_uri(work)
    region_name = connections.known_region
    types = _types(suites, instances, region_name)
    owner = clients.owner(connections, config.cache_folder())
    account.up(connections, folder, region_name, owner, types, subnet=subnet, agent_image=agent_image)
    run = command("run", "SUITE", launcher="ec2", work=folder, subnet=subnet or None, dry_run=True)
    say(f"next: {run}")


@ec2.command()
@_work_argument
@_suites_argument
@_region_option
@_instance_option
@_image_option
@click.option("--policy", type=click.Choice(["boundary", "keeper", "runner"]), help="Print this policy instead.")
@click.option("--administrator", is_flag=True, help="Print the boundary's and the keeper's template instead.")
def template(
    work: str,
    suites: tuple[Path, ...],
    region: str | None,
    instances: tuple[str, ...],
    agent_image: str | None,
    policy: str | None,
    administrator: bool,
) -> None:
    """Print the CloudFormation template that `harness ec2 up` deploys.

    Its roles need the boundary, which an administrator makes once: `--administrator` prints that template.
    """
    folder, region_name = parse_uri(work), Connections(region).known_region
    types = _types(suites, instances, region_name)
    if policy:
        click.echo(json.dumps(account.policy(policy, folder, region_name, types), indent=2) + "\n", nl=False)
    elif administrator:
        click.echo(account.administrator_template(folder, region_name), nl=False)
    else:
        click.echo(account.template(folder, region_name, types, agent_image), nl=False)


def _types(suites: tuple[Path, ...], named: tuple[str, ...], region: str) -> list[str]:
    snapshot = prices.snapshot(region=f"aws/{region}", term="on-demand")
    return machines.types_of_suites([suite.load(path) for path in suites], named, snapshot)


@ec2.command()
@_work_argument
@_region_option
@click.option(
    "--results-too", is_flag=True, help="Delete the objects below the work folder too: inputs, runs, workers."
)
def down(work: str, region: str | None, results_too: bool) -> None:
    """Remove what `harness ec2 up` made.  Refuses while an instance is alive, in any region."""
    connections = Connections(region)
    owner = clients.owner(connections, config.cache_folder())
    account.down(connections, parse_uri(work), connections.known_region, owner, results_too=results_too)


@ec2.command()
@click.option("--work", metavar="s3://BUCKET[/PREFIX]", envvar="HARNESS_WORK", help="Show its open runs too.")
@_one_region_option
@_owners_option
def ls(work: str | None, region: str | None, all_owners: bool) -> None:
    """List your instances and left-over disks, in all regions."""
    connections = Connections(region)
    found, owner = _inspect(connections, region, all_owners)
    _show(found, owner)
    runs = _open_runs(connections, work) if work is not None else []
    for run in runs:
        jobs = counted(sum(len(part.jobs) for part in run.parts), "job")
        say(f"open run {run.run_id}: {jobs}, {run.region}; the `harness run` that began it goes on with it")
    failed = _unread_regions(found, {run.region for run in runs} | {region or connections.known_region})
    for line in failed:
        say(f"harness: not looked at: {line}", err=True)
    sys.exit(1 if failed else 0)


@ec2.command()
@click.option(
    "--work", metavar="s3://BUCKET[/PREFIX]", envvar="HARNESS_WORK", help="Where its open runs are must be seen."
)
@_one_region_option
@_owners_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def reap(work: str | None, region: str | None, all_owners: bool, yes: bool) -> None:
    """Terminate your instances, delete left-over disks, in all regions, and wait until they are gone.

    Finished jobs stay in S3: the `harness run` that launched them fetches them.  Exit code 1 if an instance or disk is
    left.
    """
    connections = Connections(region)
    found, owner = _inspect(connections, region, all_owners)
    _show(found, owner)
    regions = {region or connections.known_region}
    if work is not None:
        try:
            regions |= {run.region for run in _open_runs(connections, work)}
        except RemoteError as error:  # an unread region must not stop the others from ending
            say(f"harness: {error}", err=True)
    left = _unread_regions(found, regions)
    if not found.empty:
        agree(yes, f"end {counted(len(found.instances), 'instance')} and delete {counted(len(found.volumes), 'disk')}?")
        left += instances.end_all(connections, found)
    for line in left:
        say(f"harness: NOT GONE: {line}", err=True)
    if not left:
        say("all your instances and disks are gone")
    sys.exit(1 if left else 0)


def _inspect(connections: Connections, region: str | None, all_owners: bool) -> tuple[OwnedResources, str]:
    owner = clients.owner(connections, config.cache_folder())
    return instances.find_owned(connections, region, None if all_owners else owner), owner


def _show(found: OwnedResources, owner: str) -> None:
    if found.others:
        # This includes our own if AWS knows us by another name today.
        say(f"{found.others} instances of other owners are alive; --all-owners shows them")
    if found.empty:
        say("you have no instance and no left-over disk")
        return
    columns(*instances.listed(found, owner))


def _unread_regions(found: OwnedResources, needed: set[str]) -> list[str]:
    """Print the regions that a policy closes to the account; return a line for every other unread region."""
    closed = [failure for failure in found.failed if failure.denied and failure.region not in needed]
    if closed:
        names = ", ".join(failure.region for failure in closed)
        say(f"closed to you by a policy, and not looked at: {names}")
    return [str(failure) for failure in found.failed if failure not in closed]


def _open_runs(connections: Connections, work: str) -> list[RemoteRun]:
    """Return the open runs below a folder; empty without the bucket."""
    try:
        return journal.open_runs(Objects(connections, parse_uri(work)))
    except RemoteError as error:
        if error.code != NO_STORAGE:
            raise
        say(f"{work}: the bucket does not exist, so no run is open there")
        return []
