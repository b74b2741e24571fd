"""Where instances stand: subnets by availability zone, and a security group that lets nothing in."""

from __future__ import annotations

from dataclasses import dataclass

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.ec2 import tags
from harness.errors import UsageError

GROUP = "ir-harness"


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


def security_group(connections: Connections, region: str | None, vpc: str) -> str | None:
    """Our security group in a VPC, if there is one.

    Raises:
        UsageError: it lets something in.
    """
    with aws_errors("looking for the security group"):
        found = connections.client("ec2", region).describe_security_groups(
            Filters=[
                {"Name": "group-name", "Values": [GROUP]},
                {"Name": "vpc-id", "Values": [vpc]},
                {"Name": "tag-key", "Values": [tags.OWNER]},
            ]
        )["SecurityGroups"]
    if not found:
        return None
    if found[0]["IpPermissions"]:
        raise UsageError(
            f"security group {found[0]['GroupId']} lets something in, and boxes need nothing;"
            " remove its inbound rules, or `harness ec2 down` and `up`"
        )
    return str(found[0]["GroupId"])


def make_security_group(connections: Connections, region: str | None, vpc: str, owner: str) -> str:
    """Our security group in a VPC, made where there is none."""
    there = security_group(connections, region, vpc)
    if there is not None:
        return there
    with aws_errors("making the security group"):
        made = connections.client("ec2", region).create_security_group(
            GroupName=GROUP,
            Description="ir-harness: nothing comes in",
            VpcId=vpc,
            TagSpecifications=[{"ResourceType": "security-group", "Tags": tags.as_list({tags.OWNER: owner})}],
        )
    return str(made["GroupId"])


def groups(connections: Connections, region: str, owner: str | None = None) -> list[str]:
    """Our security groups in a region.

    Args:
        connections: to AWS.
        region: which.
        owner: whose; ``None``: anybody's who uses harness on the account.

    Raises:
        AwsError: they cannot be listed.
    """
    filters = [{"Name": "tag-key", "Values": [tags.OWNER]}]
    if owner is not None:
        filters.append({"Name": f"tag:{tags.OWNER}", "Values": [owner]})
    with aws_errors(f"listing security groups in {region}"):
        found = connections.client("ec2", region).describe_security_groups(Filters=filters)["SecurityGroups"]
    return sorted(each["GroupId"] for each in found)
