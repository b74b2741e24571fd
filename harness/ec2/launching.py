"""One instance, asked for so that asking twice makes one: what moto or EC2 would let pass is checked here first."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.aws.conditional import said_at
from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.ec2 import fleet, tags
from harness.ec2.amis import Ami
from harness.ec2.fleet import Seen
from harness.ec2.network import Subnet
from harness.errors import AwsError, UsageError
from harness.instances import Instance

# EC2's own limit, before base64.
MOST_USER_DATA_BYTES = 16 << 10
_UNSUPPORTED = "Unsupported"
# No machine of that type there just now: another zone, or later.
_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientAddressCapacity",
        "InsufficientVolumeCapacity",
        "InsufficientFreeAddressesInSubnet",
        "SpotMaxPriceTooLow",
        _UNSUPPORTED,
    }
)
_QUOTA = frozenset(
    {"InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "VolumeLimitExceeded"}
)
# Codes of our own, for what is not to end the run at once.
QUOTA, MISMATCH, ENDED, NO_PROFILE = "Quota", "Mismatch", "Ended", "NoProfile"
# That no machine is there has HTTP status 500, and would be tried again for minutes while nobody looks at the boxes.
_ATTEMPTS = 2


@dataclass(frozen=True)
class Launched:
    """An instance that EC2 says is launched; ``at``: when it said so (seconds since 1970, by AWS' clock)."""

    instance_id: str
    at: float | None = None


class NoCapacity(Exception):
    """EC2 has no such machine now, in any zone that was asked; ``said`` is its own code."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


@dataclass(frozen=True)
class Order:
    """What to launch for a part.  ``asked_at`` is when that was written down, ``expiry`` when its box is to have ended,
    for whoever sees it in the console.
    """

    run_id: str
    part: str
    suite: str
    owner: str
    instance: Instance
    ami: Ami
    disk_gib: int
    user_data: str
    security_group: str
    profile: str
    expiry: datetime.datetime
    spot: bool = False
    asked_at: float = 0.0

    @property
    def token(self) -> str:
        """The same for the same launch, so that EC2 makes one instance however often it is asked.

        Another once EC2 has refused it and it is asked for anew, with another end: a refusal holds its token, too.
        """
        return hashlib.sha256(f"{self.run_id} {self.part} {self.asked_at:.0f}".encode()).hexdigest()[:32]

    @property
    def tags(self) -> dict[str, str]:
        """On the instance and its disk."""
        return {
            "Name": f"harness {self.run_id} {self.part}",
            tags.SUITE: self.suite,
            tags.RUN: self.run_id,
            tags.PART: self.part,
            tags.OWNER: self.owner,
            tags.EXPIRY: self.expiry.strftime("%Y-%m-%dT%H:%M:%SZ"),
            tags.TOKEN: self.token,
        }


def check(order: Order, subnets: list[Subnet]) -> None:
    """Whether type, image, disk, user data and subnets agree.

    Raises:
        UsageError: they do not; nothing was asked of EC2.
    """
    name = order.instance.instance_type
    if order.ami.architecture != order.instance.architecture:
        raise UsageError(
            f"{name} is {order.instance.architecture}, the image {order.ami.image_id} is {order.ami.architecture}"
        )
    size = len(order.user_data.encode())
    if size > MOST_USER_DATA_BYTES:
        raise UsageError(
            f"part {order.part}: user data of {size} bytes, EC2 takes {MOST_USER_DATA_BYTES}; shorten --work's prefix"
        )
    if order.disk_gib < order.ami.least_gib:
        raise UsageError(f"{order.ami.image_id} needs a disk of {order.ami.least_gib} GiB, not {order.disk_gib}")
    if not subnets:
        raise UsageError(f"no subnet here is in a zone that offers {name}; choose another type, --region or --subnet")


def launch(
    connections: Connections, region: str | None, order: Order, subnets: list[Subnet], trying: Callable[[str], None]
) -> Launched:
    """Launch a part's instance, unless it was launched before.

    Whoever goes on after a death asks first where the dead one asked last (``trying`` wrote that down): with the same
    token EC2 then answers with the instance that it made, though it may not show it yet.

    Args:
        connections: to AWS.
        region: where.
        order: what to launch.
        subnets: in zones that offer the type, the best first.
        trying: told the zone before it is asked for.

    Raises:
        NoCapacity: none of the subnets' zones has one now.
        AwsError: EC2 refuses, or is not reached; ``Quota``: the account has as many as it may; ``Mismatch``: its token
            is that of another request; ``Ended``: it was there, and has ended; ``NoProfile``: its role is not known to
            EC2, or not yet.
        UsageError: the order is none that EC2 would take.
    """
    there = _launched(connections, region, order)
    if there is not None:
        return Launched(there.instance_id)
    check(order, subnets)
    said, refusals = "no free addresses", []
    for subnet in subnets:
        if not subnet.free_addresses:
            continue
        trying(subnet.zone)
        try:
            with aws_errors(f"launching {order.instance.instance_type} for part {order.part}"):
                answer = client(connections, region).run_instances(**_request(order, subnet))
        except AwsError as error:
            if error.code not in _CAPACITY:
                raise _named(error) from error
            said = error.code
            refusals.append(error)
            continue
        at = said_at(answer)
        return Launched(str(answer["Instances"][0]["InstanceId"]), at.timestamp() if at else None)
    if len(refusals) == len(subnets) and all(error.code == _UNSUPPORTED for error in refusals):
        raise AwsError(f"{refusals[0]}; no zone will ever have it so: choose another type or region", _UNSUPPORTED)
    raise NoCapacity(said)


def client(connections: Connections, region: str | None) -> Any:
    """What instances are asked for with: a request that failed is safe to send again, by us as well."""
    return connections.client("ec2", region, attempts=_ATTEMPTS)


def _named(error: AwsError) -> AwsError:
    """A refusal that has a code of our own."""
    if error.code in _QUOTA:
        return AwsError(f"{error}; ask for more (Service Quotas, EC2) or lower --max-instances", QUOTA)
    if error.code == "IdempotentParameterMismatch":
        return AwsError(str(error), MISMATCH)
    if error.code == "IdempotentInstanceTerminated":
        return AwsError(str(error), ENDED)
    if error.code == "InvalidParameterValue" and "iaminstanceprofile" in str(error).lower():
        return AwsError(f"{error}; `harness ec2 up` makes the role anew", NO_PROFILE)
    return error


def _launched(connections: Connections, region: str | None, order: Order) -> Seen | None:
    """The part's instance, a living one before one that has ended."""
    found = fleet.instances(connections, region, run=order.run_id, part=order.part)
    return next(iter(sorted(found, key=lambda each: not each.alive)), None)


def _request(order: Order, subnet: Subnet) -> dict[str, Any]:
    marked = tags.as_list(order.tags)
    request: dict[str, Any] = {
        "ImageId": order.ami.image_id,
        "InstanceType": order.instance.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        # Another subnet is another request: under one token that would be a mismatch, not another try.
        "ClientToken": f"{order.token}-{subnet.zone}"[:64],
        # An address of its own, whatever the subnet gives: without one a box reaches neither S3 nor package servers.
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": subnet.subnet_id,
                "Groups": [order.security_group],
                "AssociatePublicIpAddress": True,
                "DeleteOnTermination": True,
            }
        ],
        "IamInstanceProfile": {"Name": order.profile},
        "UserData": order.user_data,
        "InstanceInitiatedShutdownBehavior": "terminate",
        # Recovered it would be booted again, without its time limit.
        "MaintenanceOptions": {"AutoRecovery": "disabled"},
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [
            {
                "DeviceName": order.ami.root_device,
                "Ebs": {
                    "VolumeSize": order.disk_gib,
                    "VolumeType": "gp3",
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "TagSpecifications": [{"ResourceType": kind, "Tags": marked} for kind in ("instance", "volume")],
    }
    if order.instance.burstable and not order.instance.instance_type.startswith("t1."):
        # Unlimited, as newer ones are unless told otherwise, costs more than the price by the hour.
        request["CreditSpecification"] = {"CpuCredits": "standard"}
    if order.spot:
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return request
