"""What stands on EC2 for harness: made, shown, ended, removed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from harness.cli.cloud import agree
from harness.console import columns, one_line_errors
from harness.errors import AwsError

if TYPE_CHECKING:
    from harness.aws.connections import Connections
    from harness.ec2.fleet import Seen
    from harness.ec2.reaping import Found
    from harness.ec2.records import Run

_region_option = click.option("--region", help="The region.  [default: the one that AWS is configured for]")
_one_region_option = click.option("--region", help="This region alone.  [default: all of the account]")
_owners_option = click.option("--all-owners", is_flag=True, help="Also what others on the same account have started.")


@click.group()
def ec2() -> None:
    """What harness has on EC2: prepare (up), look (ls), end (reap), remove (down)."""


@ec2.command()
@click.argument("work", metavar="s3://BUCKET[/PREFIX]")
@_region_option
@click.option("--subnet", help="The security group is for this subnet's VPC.  [default: the default VPC]")
@one_line_errors
def up(work: str, region: str | None, subnet: str | None) -> None:
    """Make what `harness run --launcher ec2 --work s3://...` stands on: bucket, role, security group.

    Nothing of it costs money but what lies in the bucket.  Twice is as good as once.
    """
    from harness.aws.uri import parse
    from harness.ec2 import setup

    connections, place = _connected(region), parse(work)
    setup.up(connections, place, _region(connections), click.echo, subnet)
    there = f" --subnet {subnet}" if subnet else ""
    click.echo(f"next: harness run SUITE --launcher ec2 --work {place}{there} --dry-run")


@ec2.command()
@click.argument("work", metavar="s3://BUCKET[/PREFIX]")
@_region_option
@click.option("--results-too", is_flag=True, help="Delete what lies below the work place too: inputs, runs' traces.")
@one_line_errors
def down(work: str, region: str | None, results_too: bool) -> None:
    """Remove what `harness ec2 up` made.  Refuses while an instance is alive, in any region."""
    from harness.aws.uri import parse
    from harness.ec2 import removal

    connections = _connected(region)
    removal.down(connections, parse(work), _region(connections), click.echo, results_too=results_too)


@ec2.command()
@click.option("--work", metavar="s3://BUCKET[/PREFIX]", envvar="HARNESS_WORK", help="Show its open runs too.")
@_one_region_option
@_owners_option
@one_line_errors
def ls(work: str | None, region: str | None, all_owners: bool) -> None:
    """Show all instances and left-over disks of ours, in all regions."""
    connections = _connected(region)
    found, owner = _found(connections, region, all_owners)
    _show(found, owner)
    for group in found.groups:
        click.echo(f"security group {group.group_id} in {group.region}: costs nothing; `harness ec2 down` removes it")
    runs = _open_runs(connections, work) if work is not None else []
    for run in runs:
        jobs = sum(len(group.jobs) for group in run.groups)
        click.echo(f"open run {run.run_id}: {jobs} jobs, {run.region}; the `harness run` that began it goes on with it")
    failed = _told(found, {run.region for run in runs} | {region or _region(connections)})
    for line in failed:
        click.echo(f"harness: not looked at: {line}", err=True)
    sys.exit(1 if failed else 0)


@ec2.command()
@click.option(
    "--work", metavar="s3://BUCKET[/PREFIX]", envvar="HARNESS_WORK", help="Where its open runs are must be seen."
)
@_one_region_option
@_owners_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@one_line_errors
def reap(work: str | None, region: str | None, all_owners: bool, yes: bool) -> None:
    """End all instances and left-over disks of ours, in all regions, and wait until they are gone.

    Finished jobs stay in S3: the `harness run` that launched them brings them home.  Exit code 1 if anything is left.
    """
    from harness.ec2 import reaping

    connections = _connected(region)
    found, owner = _found(connections, region, all_owners)
    _show(found, owner)
    wanted = {region or _region(connections)}
    if work is not None:
        try:
            wanted |= {run.region for run in _open_runs(connections, work)}
        except AwsError as error:  # nothing is less to be ended for it
            click.echo(f"harness: {error}", err=True)
    left = _told(found, wanted)
    if not found.empty:
        agree(yes, f"end {len(found.instances)} instances and delete {len(found.volumes)} disks?")
        left += reaping.end(connections, found, click.echo)
    for line in left:
        click.echo(f"harness: NOT GONE: {line}", err=True)
    if not left:
        click.echo("nothing of ours is alive")
    sys.exit(1 if left else 0)


def _connected(region: str | None) -> Connections:
    from harness.aws.connections import Connections

    return Connections(region)


def _region(connections: Connections) -> str:
    region = connections.region
    if region is None:
        raise AwsError("no AWS region; set AWS_REGION or give --region", "NoRegion")
    return region


def _found(connections: Connections, region: str | None, all_owners: bool) -> tuple[Found, str]:
    from harness.ec2 import reaping, tags

    owner = tags.owner(connections)
    return reaping.look(connections, region, None if all_owners else owner), owner


def _show(found: Found, owner: str) -> None:
    from harness.ec2 import tags

    if found.others:
        # Also ours, should we be known to AWS by another name today.
        click.echo(f"{found.others} instances of other owners are alive; --all-owners shows them")
    if found.empty:
        click.echo("no instance and no left-over disk of ours")
        return

    def mine(of: dict[str, str]) -> str:
        return "ours" if of.get(tags.OWNER) == owner else "another's"

    def row(box: Seen) -> tuple[str, ...]:
        return (
            box.region,
            box.instance_id,
            box.instance_type,
            box.state,
            box.tags.get(tags.RUN, ""),
            box.part,
            box.tags.get(tags.EXPIRY, ""),
            mine(box.tags),
        )

    head = ("region", "id", "type", "state", "run", "part", "ends by", "whose")
    rows = [row(box) for box in sorted(found.instances, key=lambda each: (each.region, each.launched))]
    rows += [
        (volume.region, volume.volume_id, f"{volume.gib} GiB disk", "left over", "", "", "", mine(volume.tags))
        for volume in found.volumes
    ]
    columns(head, rows)


def _told(found: Found, wanted: set[str]) -> list[str]:
    """Say which regions a policy closes to the account; the others that were not seen, and those of ``wanted``."""
    closed = [each for each in found.failed if each.denied and each.region not in wanted]
    if closed:
        names = ", ".join(each.region for each in closed)
        click.echo(f"closed to you by a policy, and not looked at: {names}")
    return [str(each) for each in found.failed if each not in closed]


def _open_runs(connections: Connections, work: str) -> list[Run]:
    """Runs that lie there; none where the bucket is gone, or was never made."""
    from harness.aws.objects import Objects
    from harness.aws.uri import parse
    from harness.ec2 import book

    try:
        return book.open_runs(Objects(connections, parse(work)))
    except AwsError as error:
        if error.code != "NoSuchBucket":
            raise
        click.echo(f"{work}: there is no such bucket, so no run is open there")
        return []


COMMANDS = (ec2,)
