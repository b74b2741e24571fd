"""Fetch today's prices from AWS into a new snapshot.  The harness itself only reads them.

    python -m instance_profiles.fetch_prices list [--region us-east-1]     no account needed
    python -m instance_profiles.fetch_prices spot [--region us-east-1]     needs AWS credentials

``docs/reference/prices.md`` describes the files.  Needs ``ijson`` and ``boto3`` (development packages of this project).
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from pathlib import Path

import click

from harness.errors import HarnessError
from harness.untrusted import one_line
from instance_profiles.fetching import price_list, spot_history
from instance_profiles.fetching.addition import Addition

region_option = click.option("--region", default="us-east-1", show_default=True, help="As AWS names it.")
into_option = click.option(
    "--into",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(__file__).resolve().parent,
    help="Another instance_profiles/.  [default: this one]",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Fetch a new price snapshot; existing snapshots never change."""


@main.command("list")
@region_option
@into_option
@click.option(
    "--endpoint",
    envvar="HARNESS_PRICE_LIST",
    default="https://pricing.us-east-1.amazonaws.com",
    show_default=True,
    help="Where AWS's public price files are.  [env: HARNESS_PRICE_LIST]",
)
def list_(region: str, into: Path, endpoint: str) -> None:
    """List prices: on demand, and reserved for 1 and 3 years with nothing upfront."""
    _add(lambda: price_list.fetch(endpoint, region, into), into)


@main.command()
@region_option
@into_option
@click.option(
    "--endpoint", envvar="HARNESS_EC2_ENDPOINT", help="Another EC2 API.  [default: AWS's; env: HARNESS_EC2_ENDPOINT]"
)
def spot(region: str, into: Path, endpoint: str | None) -> None:
    """Spot prices of this moment, in each type's cheapest zone."""
    _add(lambda: spot_history.fetch(region, into, datetime.datetime.now(datetime.UTC), endpoint), into)


def _add(fetch: Callable[[], Addition], into: Path) -> None:
    """Fetch and write prices; a failure is one line, and writes nothing."""
    try:
        addition = fetch()
        _say(addition, addition.write(into))
    except HarnessError as error:
        click.echo(f"fetch_prices: {one_line(str(error))}", err=True)  # it may quote what came
        sys.exit(error.exit_code)
    except OSError as error:
        click.echo(
            f"fetch_prices: {error.filename or 'the temporary folder'}: {error.strerror}; no prices were added",
            err=True,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("fetch_prices: stopped; no prices were added", err=True)
        sys.exit(130)


def _say(addition: Addition, path: Path) -> None:
    counts = ", ".join(f"{count} {term}" for term, count in addition.counts().items())
    click.echo(f"{path}: {counts}; source: {addition.source}")
    if addition.facts:
        click.echo(
            f"new types, with facts: {one_line(', '.join(sorted(row['instance_type'] for row in addition.facts)))}"
        )
    for name, reason in sorted(addition.left_out.items()):
        click.echo(one_line(f"left out: {name}: {reason}"))


if __name__ == "__main__":
    main()
