"""`harness ec2` and `batch`: what harness has in an AWS account: set up, list, end and remove."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from harness import config
from harness.aws import clients, cloudformation, machines
from harness.aws.batch import suite_stack
from harness.aws.batch.suite_stack import BatchOptions, StackRequirements
from harness.aws.clients import Connections, S3Uri, parse_uri
from harness.aws.ec2 import account, instances
from harness.aws.ec2.instances import OwnedResources
from harness.aws.objects import Objects
from harness.cli.lines import say
from harness.cli.options import SUITE_FILE, agree, parsed_by, record_options
from harness.cli.output import columns
from harness.commands import command, quoted
from harness.errors import RemoteError, UsageError, counted
from harness.jobs.suite import load
from harness.pricing import prices
from harness.pricing.prices import Snapshot
from harness.remote import journal
from harness.remote.failures import NO_STORAGE
from harness.remote.records import RemoteRun

_REGION = "AWS region.  [default: the AWS configuration's]"
_region_option = click.option("--region", help=_REGION)
_known_region_option = click.option(
    "--region", callback=lambda _context, _parameter, region: Connections(region).known_region, help=_REGION
)
_one_region_option = click.option("--region", help="Only this region.  [default: all of the account]")
_owners_option = click.option("--all-owners", is_flag=True, help="Include instances of the account's other owners.")


@click.group()
def ec2() -> None:
    """EC2: set up an account (up, template), list (ls), terminate (reap), remove (down)."""


@dataclass(frozen=True)
class _AccountRequest:
    """The account stack's place in S3, its region, and what its workers may use."""

    work: S3Uri
    suites: tuple[Path, ...]
    region: str
    instances: tuple[str, ...]
    agent_image: str | None

    @cached_property
    def types(self) -> list[str]:
        """The instance types of the suites, and those named."""
        return machines.types_of_suites(list(map(load, self.suites)), self.instances, _market(self.region))


def _market(region: str) -> Snapshot:
    return prices.snapshot(region=f"aws/{region}", term="on-demand")


_work_argument = click.argument("work", metavar="s3://BUCKET[/PREFIX]", callback=parsed_by(parse_uri))
_suites_argument = click.argument("suites", nargs=-1, metavar="[SUITE]...", type=SUITE_FILE)
_instance_option = click.option("--instance", "instances", multiple=True, metavar="TYPE", help="Allow this type too.")
_image_option = click.option("--agent-image", metavar="IMAGE", help="Image of Batch's agents, where it is in ECR.")
_account_request = record_options("request", _AccountRequest)


@ec2.command()
@_work_argument
@_suites_argument
@_known_region_option
@_instance_option
@click.option("--subnet", help="The security group is for this subnet's VPC.  [default: the default VPC]")
@_image_option
@_account_request
def up(request: _AccountRequest, subnet: str | None) -> None:
    """Deploy the account stack: bucket, roles, security group, the deadline on AWS's side.

    Workers may use the instance types of these suites (default: of all hardware profiles).  Only the bucket's content
    costs money.  A second call changes only differences.
    """
    work, connections = request.work, Connections(request.region)
    types, owner = request.types, clients.owner(connections, config.cache_folder())
    account.up(connections, work, owner, types, subnet=subnet, agent_image=request.agent_image)
    say(f"next: {command('run', 'SUITE', launcher='ec2', work=work, subnet=subnet or None, dry_run=True)}")


@ec2.command()
@_work_argument
@_suites_argument
@_known_region_option
@_instance_option
@_image_option
@click.option("--policy", type=click.Choice(["boundary", "keeper", "runner"]), help="Print this policy instead.")
@click.option("--administrator", is_flag=True, help="Print the boundary's and the keeper's template instead.")
@_account_request
def template(request: _AccountRequest, policy: str | None, administrator: bool) -> None:
    """Print the CloudFormation template that `harness ec2 up` deploys.

    Its roles need the boundary, which an administrator makes once: `--administrator` prints that template.
    """
    work, region = request.work, request.region
    if policy:
        click.echo(json.dumps(account.policy(policy, work, region, request.types), indent=2) + "\n", nl=False)
    elif administrator:
        click.echo(account.administrator_template(work, region), nl=False)
    else:
        click.echo(account.template(work, region, request.types, request.agent_image), nl=False)


@ec2.command()
@_work_argument
@_known_region_option
@click.option("--results-too", is_flag=True, help="Delete the work folder's objects too: inputs, runs, workers.")
def down(work: S3Uri, region: str, results_too: bool) -> None:
    """Remove what `harness ec2 up` made.  Refuses while an instance is alive, in any region."""
    connections = Connections(region)
    owner = clients.owner(connections, config.cache_folder())
    account.down(connections, work, owner, results_too=results_too)


@ec2.command()
@click.option("--work", metavar="s3://BUCKET[/PREFIX]", envvar="HARNESS_WORK", help="Show its open runs too.")
@_one_region_option
@_owners_option
def ls(work: str | None, region: str | None, all_owners: bool) -> None:
    """List your instances and left-over disks, in all regions."""
    connections = Connections(region)
    found = _show_owned(connections, region, all_owners)
    runs = _open_runs(connections, work) if work is not None else []
    for run in runs:
        jobs = counted(sum(len(part.jobs) for part in run.parts), "job")
        say(f"open run {run.run_id}: {jobs}, {run.terms['region']}; the `harness run` that began it goes on with it")
    failed = _unread_regions(found, {run.terms["region"] for run in runs} | {region or connections.known_region})
    for line in failed:
        say(f"harness: not looked at: {line}", err=True)
    sys.exit(1 if failed else 0)


@ec2.command()
@click.option(
    "--work", metavar="s3://BUCKET[/PREFIX]", envvar="HARNESS_WORK", help="Its open runs' regions must be readable."
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
    found = _show_owned(connections, region, all_owners)
    regions = {region or connections.known_region}
    if work is not None:
        try:
            regions |= {run.terms["region"] for run in _open_runs(connections, work)}
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


def _show_owned(connections: Connections, region: str | None, all_owners: bool) -> OwnedResources:
    """Print the instances and the left-over disks in the account, and return them."""
    owner = clients.owner(connections, config.cache_folder())
    found = instances.find_owned(connections, region, None if all_owners else owner)
    if found.others:
        # This includes our own if AWS knows us by another name today.
        say(f"{found.others} instances of other owners are alive; --all-owners shows them")
    if found.empty:
        say("you have no instance and no left-over disk")
    else:
        columns(*instances.listed(found, owner))
    return found


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


_suite_argument = click.argument("suite", type=SUITE_FILE)


@click.group()
def batch() -> None:
    """AWS Batch: deploy, list and delete a suite's stack.  It costs nothing while no job runs."""


_stack_options = record_options(
    "options",
    BatchOptions,
    click.option(
        "--work",
        metavar="s3://BUCKET[/PREFIX]",
        envvar="HARNESS_WORK",
        required=True,
        callback=parsed_by(parse_uri),
        help="Folder in S3 for inputs, jobs and results.  [env: HARNESS_WORK]",
    ),
    _known_region_option,
    click.option("--instance", metavar="TYPE", help="One instance type for all profiles."),
    click.option(
        "--architecture",
        type=click.Choice(["x86_64", "arm64"]),
        help="Architecture of the instances; give `harness run` the same."
        "  [default: the architecture of the suite's own types, else x86_64]",
    ),
    click.option("--max-instances", type=click.IntRange(1, 1000), default=4, help="At most this many of each type."),
    click.option("--disk", "disk_gib", type=click.IntRange(30, 16384), default=100, help="GiB of each instance."),
    click.option("--spot", is_flag=True, help="Spot instances: cheaper, but AWS may interrupt them."),
    click.option("--shared", is_flag=True, help="Let jobs share an instance; marks their results noisy."),
    click.option(
        "--agent-image",
        metavar="IMAGE",
        envvar="HARNESS_AGENT_IMAGE",
        help="Python image of the agents, from another registry.  [env: HARNESS_AGENT_IMAGE]",
    ),
)


def _requirements(suite: Path, options: BatchOptions) -> StackRequirements:
    return suite_stack.requirements(load(suite), options, _market(options.region))


@batch.command("up")
@_suite_argument
@_stack_options
@click.option("--subnet", "subnets", multiple=True, help="Subnet of the instances; repeatable.  [default: the VPC's]")
def batch_up(suite: Path, options: BatchOptions, subnets: tuple[str, ...]) -> None:
    """Deploy SUITE's CloudFormation stack for AWS Batch; a second call changes only differences."""
    connections, requirements = Connections(options.region), _requirements(suite, options)
    connections.expect_owner(options.work.bucket)
    roles = account.find(connections, options.work)
    if roles is None:
        raise UsageError(
            f"{options.work} has no stack of roles in {options.region}; ask an administrator to run"
            f" {quoted('ec2 up', options.work)}"
        )
    owner = clients.owner(connections, config.cache_folder())
    suite_stack.up(connections, requirements, roles, owner, subnets)
    say(
        f"costs nothing until `harness run ... --launcher batch`; {quoted('batch down', requirements.suite)} removes it"
    )


@batch.command("template")
@_suite_argument
@_stack_options
def batch_template(suite: Path, options: BatchOptions) -> None:
    """Print the CloudFormation template that `harness batch up` deploys."""
    click.echo(suite_stack.template(_requirements(suite, options)), nl=False)


@batch.command("down")
@click.argument("suite")
@_region_option
def batch_down(suite: str, region: str | None) -> None:
    """Delete the stack of SUITE (its file, or its name); results in S3 stay.

    Exit code 1 if one of its instances is still alive.
    """
    alive = suite_stack.down(Connections(region), _name(suite))
    for instance in alive:
        say(f"harness: STILL ALIVE AND COSTING MONEY: {instance}; end it in the EC2 console", err=True)
    sys.exit(1 if alive else 0)


@batch.command("cancel")
@click.argument("suite")
@_region_option
def batch_cancel(suite: str, region: str | None) -> None:
    """End all jobs of SUITE that wait or run, and wait until they have ended; finished jobs are kept."""
    connections = Connections(region)
    deployed = cloudformation.find(connections, suite_stack.stack_name(_name(suite)))
    ended, left = suite_stack.cancel(connections, deployed) if deployed else (0, 0)
    say(f"{counted(ended, 'job')} ended" + (f", {left} still end: give the same command again" if left else ""))
    sys.exit(1 if left else 0)


@batch.command("ls")
@_region_option
def batch_ls(region: str | None) -> None:
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
    return load(Path(suite)).name if Path(suite).is_file() else suite
