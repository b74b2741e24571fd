"""A run's instances: what the conductor asks of EC2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from harness.aws.connections import Connections
from harness.ec2 import fleet, launching
from harness.ec2.amis import Ami
from harness.ec2.fleet import Seen
from harness.ec2.launching import Launched, Order
from harness.ec2.money import BEYOND_LIMIT_S
from harness.ec2.network import Subnet
from harness.ec2.records import Group, Launch, Run
from harness.instances import Instance


@dataclass(frozen=True)
class Site:
    """All that launching needs beside the part: found before anything was launched.

    ``amis`` by architecture and whether it is the one for GPUs; ``zones`` are those that offer a type; ``user_data``
    makes a box's from part, time limit (seconds) and GPUs.
    """

    region: str
    subnets: tuple[Subnet, ...]
    zones: Mapping[str, tuple[str, ...]]
    amis: Mapping[tuple[str, bool], Ami]
    known: Mapping[str, Instance]
    security_group: str
    profile: str
    user_data: Callable[[str, float, int], str] = field(repr=False)


class Cloud:
    """EC2, for one run."""

    def __init__(self, connections: Connections, site: Site, run: Run) -> None:
        self._connections = connections
        self._site = site
        self._run = run

    def boxes(self) -> list[Seen]:
        """All instances of the run that EC2 still shows."""
        return fleet.instances(self._connections, self._site.region, run=self._run.run_id)

    def machine(self, instance_type: str) -> Instance | None:
        """Facts of a type."""
        return self._site.known.get(instance_type)

    def launch(self, group: Group, launch: Launch, trying: Callable[[str], None], avoid: str | None = None) -> Launched:
        """Launch a part's instance.

        Args:
            group: what it is to do.
            launch: what was written down about it; a zone in it was asked last, and is asked first.
            trying: told the zone that is asked now.
            avoid: a zone to ask last.

        Raises:
            NoCapacity: no zone has one.
            AwsError: EC2 refuses, or is not reached.
            UsageError: what is asked for does not agree.
        """
        order = self._order(group, launch)
        offered = self._site.zones.get(group.instance_type, ())
        subnets = [subnet for subnet in self._site.subnets if subnet.zone in offered]
        subnets.sort(key=lambda subnet: (subnet.zone != launch.zone, subnet.zone == avoid))
        return launching.launch(self._connections, self._site.region, order, subnets, trying)

    def _order(self, group: Group, launch: Launch) -> Order:
        machine = self._site.known[group.instance_type]
        ami = self._site.amis[machine.architecture, bool(group.gpus)]
        return Order(
            run_id=self._run.run_id,
            part=launch.part,
            suite=self._run.suite,
            owner=self._run.owner,
            instance=machine,
            ami=ami,
            disk_gib=max(group.disk_gib, ami.least_gib),
            user_data=self._site.user_data(launch.part, launch.limit_s, group.gpus),
            security_group=self._site.security_group,
            profile=self._site.profile,
            expiry=datetime.fromtimestamp(launch.at + launch.limit_s + BEYOND_LIMIT_S, UTC),
            spot=self._run.spot,
            asked_at=launch.at,
        )

    def console(self, instance_id: str) -> str:
        """The end of what an instance's console showed; empty where EC2 does not say."""
        return fleet.console(self._connections, self._site.region, instance_id)

    def terminate(self, ids: list[str]) -> None:
        """End these."""
        fleet.terminate(self._connections, self._site.region, ids)
