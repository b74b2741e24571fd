"""How many vCPUs the account may run at once, where that can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.aws.connections import Connections
from harness.aws.failures import aws_errors
from harness.errors import AwsError, UsageError
from harness.instances import Instance

# Service Quotas' codes: running on-demand, and spot requests, in vCPUs, by the letters that types begin with;
# an empty one: there is no such quota.
_CODES = {
    "standard": ("L-1216C47A", "L-34B43A08"),
    "dl": ("L-6E869C2A", "L-85EED4F7"),
    "f": ("L-74FC7D96", "L-88CF9481"),
    "g": ("L-DB2E81BA", "L-3819A6DF"),
    "vt": ("L-DB2E81BA", "L-3819A6DF"),
    "hpc": ("L-F7808C92", ""),
    "inf": ("L-1945791B", "L-B5D1601B"),
    "p": ("L-417A185B", "L-7212CCBC"),
    "p5": ("L-417A185B", "L-C4BD4855"),
    "trn": ("L-2C3B7624", "L-6B0D517C"),
    "u-": ("L-43DA4232", ""),
    "u7": ("L-43DA4232", ""),
    "x": ("L-7295265B", "L-E3A00192"),
}


@dataclass(frozen=True)
class Quota:
    """So many vCPUs at once, of all types that count against it together; ``usual``: what accounts have at first."""

    code: str
    vcpus: float
    usual: bool = False

    def holds(self, machine: Instance) -> int:
        """How many of a type."""
        return int(self.vcpus // machine.vcpus)

    def words(self, machine: Instance) -> str:
        """What it says of a type."""
        of = f"{self.vcpus:g} vCPUs{' (as every account)' if self.usual else ''}"
        return f"{of}, {self.holds(machine)} of {machine.vcpus} vCPUs at once"


def code(instance_type: str, spot: bool) -> str:
    """The quota that a type counts against; empty: none."""
    letters = instance_type.partition(".")[0]
    family = next((name for name in sorted(_CODES, key=len, reverse=True) if letters.startswith(name)), "standard")
    # A few families of the standard quota begin with letters of another.
    return _CODES["standard" if letters.startswith("im") else family][int(spot)]


def known(connections: Connections, region: str | None, machine: Instance, spot: bool) -> Quota | None:
    """The quota of a type, or ``None`` where it cannot be asked."""
    wanted = code(machine.instance_type, spot)
    if not wanted:
        return None
    client = connections.client("service-quotas", region)
    # What was never changed for an account has the value that all accounts have.
    for usual, ask in enumerate((client.get_service_quota, client.get_aws_default_service_quota)):
        try:
            with aws_errors("asking for a quota"):
                value = float(ask(ServiceCode="ec2", QuotaCode=wanted)["Quota"]["Value"])
                return Quota(wanted, value, bool(usual))
        except (AwsError, KeyError) as error:
            if not (isinstance(error, AwsError) and error.code == "NoSuchResourceException"):
                return None
    return None


def room(quotas: Mapping[str, Quota | None], machines: Iterable[Instance], most: int) -> int:
    """How many instances at once there is room for; what is not known bounds nothing.

    Where types share a quota, as many as of the smallest: EC2 says when it is too many.

    Args:
        quotas: by instance type.
        machines: what is to be launched.
        most: what was asked for.

    Raises:
        UsageError: there is no room for one of them.
    """
    by_code: dict[str, int] = {}
    for machine in machines:
        quota = quotas.get(machine.instance_type)
        if quota is None:
            return most
        if quota.holds(machine) < 1 and not quota.usual:
            raise UsageError(
                f"the account may run {quota.vcpus:g} vCPUs of the kind of {machine.instance_type} at once, which has"
                f" {machine.vcpus}; ask for more (Service Quotas, EC2, {quota.code}), or choose a smaller type"
            )
        by_code[quota.code] = max(by_code.get(quota.code, 1), quota.holds(machine))
    return min(most, sum(by_code.values())) if by_code else most
