"""What can be known of the account and the region before anything is launched.  Reads alone."""

from __future__ import annotations

from dataclasses import dataclass

from harness.aws.connections import Connections
from harness.aws.uri import S3Uri
from harness.ec2 import account, amis, network, quotas
from harness.ec2.account import Account
from harness.ec2.amis import Ami
from harness.ec2.machines import Machine
from harness.ec2.network import Subnet
from harness.ec2.quotas import Quota
from harness.errors import UsageError
from harness.remote import user_data


@dataclass(frozen=True)
class Ground:
    """What is there.  ``missing`` says what `harness ec2 up` has still to make."""

    region: str
    subnets: tuple[Subnet, ...]
    zones: dict[str, tuple[str, ...]]
    amis: dict[tuple[str, bool], Ami]
    quotas: dict[str, Quota | None]
    account: Account | None
    missing: tuple[str, ...]


def look(
    connections: Connections,
    region: str,
    wanted: list[tuple[Machine, int]],
    *,
    work: S3Uri,
    system: str,
    subnet: str | None,
    spot: bool,
) -> Ground:
    """Ask AWS.

    Args:
        connections: to AWS.
        region: where.
        wanted: machines with the GPUs that their profiles have.
        work: the work place.
        system: the operating system, as a suite names it.
        subnet: the only one to use.
        spot: spot capacity is asked for.

    Raises:
        UsageError: the region has no such machine, image or subnet, or the work place names an account.
        AwsError: that cannot be asked.
    """
    user_data.refuse_accounts(work)
    machines = {machine.name: machine for machine, _ in wanted}
    subnets = network.subnets(connections, region, subnet)
    zones = network.offered(connections, region, set(machines))
    here = {each.zone for each in subnets}
    for name, offered in zones.items():
        if not here & set(offered):
            where = ", ".join(offered) if offered else "no zone"
            raise UsageError(
                f"{region} offers {name} in {where}, and the subnets are in {', '.join(sorted(here))};"
                " choose another --instance, --region or --subnet"
            )
    kinds = {(machine.instance.architecture, bool(gpus)) for machine, gpus in wanted}
    found = {(arch, gpus): amis.find(connections, region, system, arch, int(gpus)) for arch, gpus in sorted(kinds)}
    made = account.find(connections, work, region)
    if made is not None:
        account.check_reaper(connections, made)
    return Ground(
        region=region,
        subnets=tuple(subnets),
        zones=zones,
        amis=found,
        quotas={name: quotas.known(connections, region, machine.instance, spot) for name, machine in machines.items()},
        account=made,
        missing=() if made else (f"the account stack {account.stack_name(work, region)}",),
    )
