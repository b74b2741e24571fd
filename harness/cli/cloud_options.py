"""``harness run`` on EC2 and Batch: its options, the question whether to go on, and the command itself."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from harness.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.aws.cloud_run.run import Service
    from harness.cli.locations import Opened
    from harness.jobs.inputs import RunOptions
    from harness.jobs.suite import Suite

LAUNCHERS = ("ec2", "batch")


@dataclass(frozen=True)
class CloudOptions:
    """The options about machines elsewhere."""

    work: str | None = None
    region: str | None = None
    instance: str | None = None
    max_usd: float | None = None
    max_instances: int = 8
    spot: bool = False
    burstable: bool = False
    architecture: str = "x86_64"
    subnet: str | None = None
    yes: bool = False
    dry_run: bool = False

    def refuse(self, launcher: str, *understood: str) -> None:
        """Refuse options that a launcher does not understand.

        Raises:
            UsageError: one of them is given.
        """
        # The work place may stand in the environment for good.
        given = replace(self, work=None)
        for name, value in vars(given).items():
            if value != getattr(CloudOptions(), name) and name not in understood:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for --launcher ec2, this is --launcher {launcher}; leave it out")


def _finite(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse a cap that would be none: nothing is more than nan."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("a sum of money is needed")
    return value


_OPTIONS = (
    click.option(
        "--work",
        metavar="s3://BUCKET[/PREFIX]",
        envvar="HARNESS_WORK",
        help="ec2, batch: where this machine and those exchange everything.  [env: HARNESS_WORK]",
    ),
    click.option("--region", help="ec2, batch: the region.  [default: the one that AWS is configured for]"),
    click.option("--instance", metavar="TYPE", help="ec2, batch: this instance type for all hardware profiles."),
    click.option(
        "--max-usd",
        type=click.FloatRange(min=0, min_open=True),
        callback=_finite,
        help="ec2, batch: never spend more, whatever happens.",
    ),
    click.option(
        "--max-instances",
        type=click.IntRange(1, 1000),
        default=8,
        show_default=True,
        help="ec2: at most this many at once; 1: one hardware profile after the other.",
    ),
    click.option(
        "--spot", is_flag=True, help="ec2: spot capacity; the same command measures again what it interrupts."
    ),
    click.option(
        "--burstable", is_flag=True, help="ec2, batch: allow burstable types, whose latency depends on CPU credits."
    ),
    click.option(
        "--architecture",
        type=click.Choice(["x86_64", "arm64"]),
        default="x86_64",
        show_default=True,
        help="ec2, batch: of the instances, and of the images that are made for them.",
    ),
    click.option("--subnet", help="ec2: this subnet.  [default: those of the default VPC]"),
    click.option("--yes", is_flag=True, help="ec2, batch: do not ask whether to go on."),
    click.option(
        "--dry-run", is_flag=True, help="ec2, batch: show what would be launched and what it costs, and stop."
    ),
)


def cloud_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options, handed over as one :class:`CloudOptions`."""

    @wraps(command)
    def wrapped(*args: Any, **given: Any) -> None:
        chosen = {name: given.pop(name) for name in list(given) if name in CloudOptions.__dataclass_fields__}
        command(*args, cloud=CloudOptions(**chosen), **given)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def agree(yes: bool, question: str) -> None:
    """Ask whether to go on.

    Raises:
        UsageError: no, or nobody can answer.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("not a terminal: look at --dry-run first, then pass --yes")
    if not click.confirm(question, err=True):
        raise UsageError("nothing was launched")


def run_elsewhere(
    launcher: str, suite: Suite, options: RunOptions, cloud: CloudOptions, models: Path | None, place: Opened
) -> int:
    """Run a suite on EC2 or Batch and print the table; return the exit code."""
    from rich.console import Console

    from harness.aws.clients import Connections, parse_uri
    from harness.aws.cloud_run import run
    from harness.aws.cloud_run.shipment import Shipper
    from harness.cli.report import finish
    from harness.launch.docker import DockerLauncher
    from harness.launch.images import platforms
    from harness.progress import Screen

    if launcher == "batch":
        cloud.refuse("batch", "region", "instance", "max_usd", "burstable", "architecture", "yes", "dry_run")
    if cloud.work is None:
        raise UsageError(
            f"--launcher {launcher} needs a place in S3: give --work s3://BUCKET, which `harness ec2 up s3://BUCKET`"
            " makes"
        )
    if options.retry_noisy:
        raise UsageError(
            f"--retry-noisy is not for --launcher {launcher}; run it again with --contested or --fresh --only"
        )
    request = run.Request(
        suite=suite,
        options=options,
        work=parse_uri(cloud.work),
        region=cloud.region,
        instance=cloud.instance,
        cap_usd=cloud.max_usd,
        most=cloud.max_instances if launcher == "ec2" else sys.maxsize,
        spot=cloud.spot,
        burstable=cloud.burstable,
        architecture=cloud.architecture,
        subnet=cloud.subnet,
        dry_run=cloud.dry_run,
    )
    screen = Screen(Console(stderr=True))
    with closing(DockerLauncher(options.cache, models, platform=platforms.parse(cloud.architecture))) as docker:
        client = run.Client(
            connections=Connections(cloud.region),
            launcher=docker,
            shipper=lambda work: Shipper(work, docker.client, options.cache, screen.say),
            screen=screen,
            agree=lambda question: agree(cloud.yes, question),
        )
        done = run.run(request, client, _service(launcher))
    if done is None:
        return 0
    if done.summary.jobs or done.summary.keys:
        finish(place, suite.name, suite.measures, done.summary)
    complaints = [*done.summary.complaints, *done.complaints]
    for complaint in complaints:
        click.echo(f"harness: {complaint}", err=True)
    return 1 if complaints else 0


def _service(launcher: str) -> Service:
    if launcher == "ec2":
        from harness.aws.ec2.backend import SERVICE

        return SERVICE
    from harness.aws.batch.backend import SERVICE as BATCH

    return BATCH
