"""Subnets by availability zone, and the instance types that a zone offers."""

from __future__ import annotations

from dataclasses import dataclass

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.errors import UsageError


@dataclass(frozen=True)
class Subnet:
    """A subnet, in one availability zone; addresses are private ones."""

    subnet_id: str
    zone: str
    vpc: str
    free_addresses: int


def subnets(connections: Connections, region: str | None, wanted: str | None = None) -> list[Subnet]:
    """The default VPC's subnets, or the one that is asked for.

    Raises:
        UsageError: there is none.
        AwsError: they cannot be listed.
    """
    client = connections.client("ec2", region)
    where = region or connections.region
    if wanted is not None:
        with aws_errors(f"looking at {wanted}"):
            answer = client.describe_subnets(Filters=[{"Name": "subnet-id", "Values": [wanted]}])
        if not answer["Subnets"]:
            raise UsageError(f"{where} has no subnet {wanted}; name another --subnet")
    else:
        with aws_errors("looking at the default VPC"):
            answer = client.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])
        if not answer["Subnets"]:
            raise UsageError(f"{where} has no default VPC; make one (`aws ec2 create-default-vpc`) or give --subnet")
    return sorted(
        (
            Subnet(
                each["SubnetId"],
                each["AvailabilityZone"],
                each["VpcId"],
                each["AvailableIpAddressCount"],
            )
            for each in answer["Subnets"]
        ),
        key=lambda subnet: subnet.zone,
    )


def offered(connections: Connections, region: str | None, types: set[str]) -> dict[str, tuple[str, ...]]:
    """Instance type -> the availability zones that offer it.

    Raises:
        AwsError: that cannot be asked.
    """
    client = connections.client("ec2", region)
    found: dict[str, set[str]] = {name: set() for name in types}
    with aws_errors("asking which zones offer what"):
        pages = client.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": sorted(types)}]
        )
        for page in pages:
            for each in page["InstanceTypeOfferings"]:
                if each["InstanceType"] in found:
                    found[each["InstanceType"]].add(each["Location"])
    return {name: tuple(sorted(zones)) for name, zones in found.items()}
