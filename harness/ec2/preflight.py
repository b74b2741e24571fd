"""What can be known of the account and the region before anything is launched.  Reads alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.aws.uri import S3Uri
from harness.ec2 import amis, network, quotas
from harness.ec2.amis import Ami
from harness.ec2.machines import Machine
from harness.ec2.network import Subnet
from harness.ec2.quotas import Quota
from harness.errors import AwsError, UsageError
from harness.remote import user_data


def role(work: S3Uri) -> str:
    """The name of the role and instance profile that `harness ec2 up` makes for a work place."""
    return f"ir-harness-{hashlib.sha256(str(work).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class Ground:
    """What is there.  ``missing`` says what `harness ec2 up` has still to make."""

    region: str
    subnets: tuple[Subnet, ...]
    zones: dict[str, tuple[str, ...]]
    amis: dict[tuple[str, bool], Ami]
    quotas: dict[str, Quota | None]
    security_group: str | None
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
    group = network.security_group(connections, region, subnets[0].vpc)
    missing = [] if group else [f"the security group {network.GROUP}"]
    if not _has_profile(connections, role(work)):
        missing.append(f"the instance profile {role(work)}")
    return Ground(
        region=region,
        subnets=tuple(subnets),
        zones=zones,
        amis=found,
        quotas={name: quotas.known(connections, region, machine.instance, spot) for name, machine in machines.items()},
        security_group=group,
        missing=tuple(missing),
    )


def _has_profile(connections: Connections, name: str) -> bool:
    try:
        with aws_errors(f"looking for the instance profile {name}"):
            found = connections.client("iam").get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
    except AwsError as error:
        if error.code == "NoSuchEntity":
            return False
        raise
    return bool(found["Roles"])  # without its role EC2 refuses it
