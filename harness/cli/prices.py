"""`harness instances`, `prices` and `reprice`: instance types that provide an envelope, and dated prices."""

from __future__ import annotations

import datetime
from pathlib import Path

import click

from harness.analysis import reprice as repricing
from harness.analysis import row_pricing
from harness.cli.lines import say
from harness.cli.locations import results_argument
from harness.cli.options import FOLDER, FiniteRange, date_option, listing_options, price_options
from harness.cli.output import FORMATS, Destination, columns, destination_options
from harness.cli.stored_results import StoredResults, measures_option, stored_results
from harness.driver.records import Envelope
from harness.errors import UsageError
from harness.pricing import offers
from harness.pricing.prices import PriceSelection
from harness.report.instances import instances_document, snapshot_ages
from harness.report.repricing import repricing_document
from harness.untrusted import one_line


@click.command()
@click.option("--cpu", type=click.IntRange(1), required=True, help="Minimum vCPUs.")
@click.option("--memory", type=FiniteRange(0, 1e6, min_open=True), required=True, help="Minimum GiB.")
@click.option("--gpu", type=click.IntRange(0), default=0, help="Minimum NVIDIA GPUs.")
@click.option(
    "--reserve/--no-reserve",
    default=False,
    help="--memory is a job's limit: add the host's reserve to it (instance_profiles/defaults.toml).",
)
@click.option("--limit", type=click.IntRange(1), default=15, help="Number of types to show; csv and json have all.")
@listing_options
@destination_options(*FORMATS)
def instances(
    cpu: int,
    memory: float,
    gpu: int,
    reserve: bool,
    limit: int,
    selection: PriceSelection,
    destination: Destination,
) -> None:
    """List the instance types with enough CPUs and memory, cheapest first.

    Also prints how many other types were left out, and why.
    """
    snapshot = selection.snapshot()
    asked = round(memory * offers.GIB)
    envelope = Envelope("asked", cpu, offers.host_reserve().needed(asked) if reserve else asked, gpu)
    choice = selection.choice
    provided = offers.find_offers(
        envelope,
        snapshot,
        architecture=None if choice.architecture == "any" else choice.architecture,
        current=choice.generation == "current",
    )
    if not provided.fitting:
        request = f"{cpu} vCPUs, {memory:g} GiB and {gpu} GPUs"
        raise UsageError(f"no type of {choice} in the prices of {snapshot} provides {request}; ask for less or others")
    destination.show_report(instances_document(provided, snapshot, limit))


@click.group(invoke_without_command=True)
@click.pass_context
def prices(context: click.Context) -> None:
    """List the price snapshots and how old they are, with a warning past 90 days."""
    if context.invoked_subcommand is not None:
        return
    lines, warnings = snapshot_ages(_today())
    columns(("region", "term", "as of", "age", "types", "source"), lines)
    for warning in warnings:
        say(f"warning: {warning}", err=True)


@prices.command()
@click.option("--region", default="us-east-1", help="As AWS names it.")
@click.option("--spot", is_flag=True, help="Spot prices of this moment; needs AWS credentials.")
@click.option(
    "--into",
    type=FOLDER,
    help="Another folder, such as a clone's instance_profiles.",
)
@click.option(
    "--endpoint",
    envvar="HARNESS_PRICE_LIST",
    default="https://pricing.us-east-1.amazonaws.com",
    help="AWS's public price files.  [env: HARNESS_PRICE_LIST]",
)
def fetch(region: str, spot: bool, into: Path | None, endpoint: str) -> None:
    """Fetch today's prices of EC2 into a new snapshot; existing snapshots never change.

    Without --spot: list prices, on demand and reserved for 1 and 3 years with nothing upfront, from public files of
    hundreds of MB.  With --spot: the price of each type in its cheapest zone.  Both go to
    ~/.local/share/ir-harness/instance_profiles (env: HARNESS_PRICES), which harness reads before its own prices.
    """
    if spot:
        from harness.aws.prices import spot_history  # late: needs an extra

        addition = spot_history.fetch(region, _now(), into)
    else:
        from harness.aws.prices import offer_file

        addition = offer_file.fetch(endpoint, region, into)
    path = addition.write(into)
    counts = ", ".join(f"{count} {term}" for term, count in addition.counts().items())
    say(f"{path}: {counts}; source: {addition.source}")
    if addition.facts:
        say(f"new types, with facts: {one_line(', '.join(sorted(row['instance_type'] for row in addition.facts)))}")
    for name, reason in sorted(addition.left_out.items()):
        say(one_line(f"left out: {name}: {reason}"))


def _today() -> datetime.date:
    return _now().date()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@click.command()
@results_argument()
@price_options
@date_option(
    "--against", "Compare with the prices of this date.  [default: the newest, or those before the ones asked for]"
)
@destination_options(*FORMATS, wide=True)
@measures_option(default=None)
@stored_results
def reprice(stored: StoredResults, against: datetime.date | None, destination: Destination) -> None:
    """Price the stored RESULTS (a folder; default: results) at two dates, and show what changes.  Runs nothing.

    Prices each row at the other date, on the same instance at the new date, and on the cheapest instance of the new
    date; then shows verdicts that flip, and instance types that are gone.
    """
    now = row_pricing.selected_tariff(stored.selection)
    before = repricing.other_tariff(now, against)
    destination.show_report(repricing_document(repricing.compare(stored.read().table, before, now)))
