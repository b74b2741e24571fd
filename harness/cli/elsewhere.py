"""``harness run`` on machines elsewhere: what is asked about them, and whether to go on."""

from __future__ import annotations

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

    from harness.cli.places import Opened
    from harness.ec2.drafting import Request
    from harness.ec2.running import Done, Side
    from harness.inputs import Options
    from harness.suite import Suite


@dataclass(frozen=True)
class Elsewhere:
    """What the command line says about machines elsewhere."""

    work: str | None = None
    region: str | None = None
    instance: str | None = None
    max_usd: float | None = None
    max_instances: int = 8
    instances_per_type: int = 1
    spot: bool = False
    burstable: bool = False
    architecture: str = "x86_64"
    subnet: str | None = None
    yes: bool = False
    dry_run: bool = False

    def refuse(self, launcher: str, understood: tuple[str, ...] = ()) -> None:
        """Say that what is asked here needs another launcher; ``understood`` are the options that this one has.

        Raises:
            UsageError: something of it was asked.
        """
        # The work place may stand in the environment for good.
        asked = replace(self, work=None)
        for name, value in vars(asked).items():
            if value != getattr(Elsewhere(), name) and name not in understood:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for --launcher ec2, this is --launcher {launcher}; leave it out")


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
        "--max-usd", type=click.FloatRange(min=0, min_open=True), help="ec2, batch: never spend more, whatever happens."
    ),
    click.option(
        "--max-instances",
        type=click.IntRange(1, 1000),
        default=8,
        show_default=True,
        help="ec2: at most so many at once.",
    ),
    click.option(
        "--instances-per-type",
        type=click.IntRange(1, 1000),
        default=1,
        show_default=True,
        help="ec2: spread the jobs of an instance type over so many.",
    ),
    click.option("--spot", is_flag=True, help="ec2: spot capacity; what is interrupted is measured again elsewhere."),
    click.option(
        "--burstable", is_flag=True, help="ec2, batch: allow burstable types, whose latencies belong to nothing."
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
    click.option("--dry-run", is_flag=True, help="ec2, batch: say what would be launched and what it costs, and stop."),
)


def ec2_options(command: Callable[..., None]) -> Callable[..., None]:
    """What is asked of EC2, handed over as one :class:`Elsewhere`."""

    @wraps(command)
    def wrapped(*args: Any, **given: Any) -> None:
        asked = {name: given.pop(name) for name in list(given) if name in Elsewhere.__dataclass_fields__}
        command(*args, elsewhere=Elsewhere(**asked), **given)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def agree(yes: bool, question: str) -> None:
    """Ask whether to go on.

    Raises:
        UsageError: there is nobody to ask.
        KeyboardInterrupt: no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nobody is here to say yes; look at --dry-run, then give --yes")
    if not click.confirm(question, err=True):
        raise UsageError("nothing was launched")


def run_on_ec2(suite: Suite, options: Options, asked: Elsewhere, models: Path | None, place: Opened) -> int:
    """Run a suite there, print the table; return the exit code."""
    from harness.ec2 import running

    return conduct(running.run, request("ec2", suite, options, asked), asked, models, place)


def request(launcher: str, suite: Suite, options: Options, asked: Elsewhere) -> Request:
    """What is asked of machines elsewhere; what a launcher does not know it has refused before.

    Raises:
        UsageError: there is no work place, or noisy cells are to be measured again.
    """
    from harness.aws.uri import parse
    from harness.ec2.drafting import Request

    if asked.work is None:
        raise UsageError(
            f"--launcher {launcher} needs a place in S3: give --work s3://BUCKET, which `harness ec2 up s3://BUCKET`"
            " makes"
        )
    if options.retry_noisy:
        raise UsageError(
            f"--retry-noisy is not for --launcher {launcher}; run it again with --contested or --fresh --only"
        )
    return Request(
        suite=suite,
        options=options,
        work=parse(asked.work),
        region=asked.region,
        instance=asked.instance,
        cap_usd=asked.max_usd,
        most=asked.max_instances,
        per_type=asked.instances_per_type,
        spot=asked.spot,
        burstable=asked.burstable,
        architecture=asked.architecture,
        subnet=asked.subnet,
        dry_run=asked.dry_run,
    )


def conduct(
    run: Callable[[Request, Side], Done | None],
    request: Request,
    asked: Elsewhere,
    models: Path | None,
    place: Opened,
) -> int:
    """Run a suite on machines elsewhere, print the table; return the exit code."""
    from rich.console import Console

    from harness import platforms
    from harness.aws.connections import Connections
    from harness.cli.tables import finish
    from harness.ec2.running import Side
    from harness.ec2.shipper import S3Shipper
    from harness.launch.docker import DockerLauncher
    from harness.progress import Screen

    screen, suite, options = Screen(Console(stderr=True)), request.suite, request.options
    platform = platforms.parse(request.architecture)
    with closing(DockerLauncher(options.cache, models, platform=platform)) as launcher:
        side = Side(
            connections=Connections(asked.region),
            launcher=launcher,
            shipper=lambda work: S3Shipper(work, launcher, options.cache, screen.say),
            screen=screen,
            agree=lambda question: agree(asked.yes, question),
        )
        done = run(request, side)
    if done is None:
        return 0
    if done.summary.jobs or done.summary.keys:
        finish(place, suite.name, suite.measures, done.summary)
    complaints = [*done.summary.complaints, *done.complaints]
    for complaint in complaints:
        click.echo(f"harness: {complaint}", err=True)
    return 1 if complaints else 0
