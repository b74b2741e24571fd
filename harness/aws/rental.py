"""Rent machines of AWS for a suite: their types, places and prices, for EC2 and Batch alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property

from harness import config, extras
from harness.aws import clients, machines
from harness.aws.clients import Connections
from harness.aws.machines import RentalOptions
from harness.aws.objects import Objects
from harness.commands import option
from harness.errors import RemoteError, UsageError
from harness.jobs.suite import Suite
from harness.launch.checks import Check, Level
from harness.pricing import instances, prices
from harness.pricing.offers import ChosenMachine
from harness.remote.backend import Backend
from harness.remote.partition import Market
from harness.remote.records import Launch, RemoteRun

HOURS_A_MONTH = 730.0
# A public IPv4 address (aws.amazon.com/vpc/pricing, since 2024-02-01, all regions); in a default VPC each has one.
ADDRESS_USD_PER_HOUR = 0.005


class RentalBackend(Backend):
    """A backend that rents machines of AWS; ``options`` names the options of a rental that it takes."""

    options = frozenset(RentalOptions.__dataclass_fields__)

    def __init__(self, suite: Suite, work: Objects, how: RentalOptions) -> None:
        """Take a suite, and the folder in S3 through which machines exchange files."""
        self._suite, self._work, self._how = suite, work.place, how
        self._connections, self._clock = work.connections, work.clock
        self._connections.expect_owner(self._work.bucket)
        self._known = instances.read_instances("aws")
        self.region = self._connections.known_region
        self.owner = clients.owner(self._connections, config.cache_folder())

    @classmethod
    def examine(cls) -> Iterator[Check]:
        """Check that credentials and a region are configured; AWS is not asked whether they are valid."""
        if text := extras.missing("boto3"):
            fact, _, remedy = text.partition(": ")
            yield Check(Level.FAIL, "account", fact, remedy)
            return
        connections = Connections()
        try:
            source, region = connections.configured(), connections.known_region
        except RemoteError as error:
            fact, _, remedy = str(error).rpartition("; ")
            yield Check(Level.FAIL, "account", fact, remedy)
            return
        yield Check(Level.OK, "account", f"credentials of {source}, region {region}; AWS was not asked")

    @property
    def terms(self) -> dict[str, str]:
        """Return the region and the market."""
        return {"region": self.region, "market": "spot" if self._how.spot else "on-demand"}

    def expect(self, run: RemoteRun) -> None:
        """Refuse to resume a run of another region."""
        region = run.terms["region"]
        if region != self.region:
            raise UsageError(f"{run.run_id} is open in {region}; give {option('region', region)} to go on with it")

    @cached_property
    def market(self) -> Market:
        """The machines of the suite's profiles, with their prices in the region.

        Raises:
            UsageError: a profile has no machine, or storage has no price.
        """
        snapshot = prices.snapshot(region=f"aws/{self.region}", term="on-demand")
        disk = prices.storage_price("aws", self.region, snapshot.as_of)
        if disk is None:
            raise UsageError(
                f"{self.region} has no price of storage; add one ({config.page('docs/reference/prices.md')})"
            )
        chosen = machines.of_suite(self._suite, snapshot, self._how)
        spot = "; spot capacity costs at most that" if self._how.spot else ""
        return Market(
            machines=chosen,
            platforms=machines.platforms_of(self._suite, chosen),
            usd_per_hour=lambda machine, disk_gib: usd_per_hour(machine, disk_gib, disk.usd_per_gib_month),
            notes=(f"prices: {snapshot}, with disk (gp3) and address{spot}",),
        )

    def going_on(self, launches: Sequence[Launch]) -> str:
        """Return a line for a user who stops watching: when all ends by itself, and what ends it now."""
        last = datetime.fromtimestamp(max(launch.at + launch.limit_s for launch in launches), UTC)
        return (
            f"{len(launches)} launches go on, and end by themselves by {last:%Y-%m-%d %H:%M} UTC; the same command goes"
            f" on from here, {self.ending} ends them"
        )


def usd_per_hour(machine: ChosenMachine, disk_gib: int, usd_per_gib_month: float) -> float:
    """Return what an instance costs with its disk and address."""
    return machine.usd_per_hour + disk_gib * usd_per_gib_month / HOURS_A_MONTH + ADDRESS_USD_PER_HOUR
